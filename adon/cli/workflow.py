"""Prepare a workflow, abstract or planned, for what it will need."""

from __future__ import annotations

import argparse

from adon.cli import workflow_provision, workflow_reserve
from adon.cli.parsing import Nouns, add_noun


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon workflow``."""
    verbs = add_noun(nouns, "workflow", __doc__)
    workflow_provision.add(verbs)
    workflow_reserve.add(verbs)
