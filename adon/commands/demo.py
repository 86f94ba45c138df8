"""Run the main job from end to end: SoyKB resequencing, placed, moved, measured, reported."""

from __future__ import annotations

import argparse
from pathlib import Path


def add(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``adon demo``."""
    parser = nouns.add_parser("demo", help=__doc__, description=__doc__)
    parser.add_argument("--samples", type=int, default=3, help="plants to sequence (%(default)s)")
    parser.add_argument("--chromosomes", type=int, default=2, help="chromosomes (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the made data (%(default)s)")
    parser.add_argument(
        "--state", type=Path, default=Path(".adon"),
        help="where runs and the measurement archive are kept (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--report", type=Path, default=Path("demo-report"), help="report directory (%(default)s)"
    )
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="simulated network also where a real one is possible",
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from adon.demo.outer import Wish, run

    return run(
        Wish(args.samples, args.chromosomes, args.seed, args.state, args.report, args.simulate)
    )
