"""Follow workflows: the eight fields of their status, until done or failed."""

from __future__ import annotations

import argparse
from pathlib import Path


def add(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``adon monitor run``."""
    verbs = nouns.add_parser("monitor", help=__doc__, description=__doc__).add_subparsers(
        dest="verb", required=True, metavar="VERB"
    )
    run = verbs.add_parser("run", help="follow submit directories")
    run.add_argument("dirs", nargs="+", type=Path, metavar="DIR", help="submit directory")
    run.add_argument(
        "--archive", type=Path, default=Path("adon-archive.sqlite"),
        help="where measurements go (default ./adon-archive.sqlite)",
    )  # fmt: skip
    run.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from monitors.follow import main

    return main(["--archive", str(args.archive), *map(str, args.dirs)])
