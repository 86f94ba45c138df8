"""Have Pegasus ask ADON for sites and paths, and take that back."""

from __future__ import annotations

import argparse

from adon.cli import install_condor, install_pegasus
from adon.cli.parsing import Nouns, add_noun


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon install …``."""
    verbs = add_noun(nouns, "install", __doc__)
    install_pegasus.add(verbs)
    install_condor.add(verbs)
