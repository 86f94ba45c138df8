"""Advise how transfers between sites are tuned; compare them with and without a path."""

from __future__ import annotations

import argparse

from adon.cli import transfer_advise, transfer_compare
from adon.cli.parsing import Nouns, add_noun


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon transfer``."""
    verbs = add_noun(nouns, "transfer", __doc__)
    transfer_advise.add(verbs)
    transfer_compare.add(verbs)
