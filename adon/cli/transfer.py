"""Compare transfers with a path of their own and without."""

from __future__ import annotations

import argparse

from adon.cli import transfer_compare
from adon.cli.parsing import Nouns, add_noun


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon transfer compare``."""
    verbs = add_noun(nouns, "transfer", __doc__)
    transfer_compare.add(verbs)
