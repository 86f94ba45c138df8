"""Run the broker: it grants, installs and takes back paths and bandwidth."""

from __future__ import annotations

import argparse
from pathlib import Path


def add(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``adon broker``."""
    parser = nouns.add_parser("broker", help=__doc__, description=__doc__)
    parser.add_argument(
        "--config", type=Path, default=Path("adon.yml"), help="adon.yml (default ./adon.yml)"
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from adon.service import serve

    return serve(args.config)
