"""Install ADON into Pegasus or HTCondor, or remove it."""

from __future__ import annotations

from adon.cli import install_condor, install_pegasus
from adon.cli.parsing import Noun

NOUN = Noun("install", __doc__)
add = NOUN.add
NOUN.verb("pegasus", *install_pegasus.OPTIONS)(install_pegasus.pegasus)
NOUN.verb("condor", *install_condor.OPTIONS)(install_condor.condor)
