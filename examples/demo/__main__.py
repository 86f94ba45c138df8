"""Run the main job from end to end: SoyKB resequencing, placed, moved, measured, reported.

Sets up what is missing (HTCondor, GridFTP, bwa, samtools, bcftools; as root also Open vSwitch) in
your cache directory and nowhere else. Run it twice: the second run knows what the first measured.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from adon.cli.main import main
from adon.cli.parsing import CommandParser, whole
from examples.demo.outer import DemoRequest, run

_MORE = """
Examples, in a source checkout:
  make demo                                             3 samples, 2 chromosomes; ./demo-report
  python -m examples.demo --samples 5 --chromosomes 3   a wider workflow
  python -m examples.demo --simulate                    no real network, also as root

Exit codes: 0 the workflow succeeded; 1 it ran and failed; 2 it could not be run, or not to its end;
130 after Ctrl-C, 143 after TERM. Ctrl-C and TERM still write the report, as far as the run came.
"""


def build_parser() -> CommandParser:
    """The options of the demo."""
    parser = CommandParser(
        prog="python -m examples.demo", description=__doc__, epilog=_MORE.strip()
    )
    parser.set_defaults(run=_run)
    parser.add_argument("--debug", action="store_true", help="show a traceback instead of one line")
    parser.add_argument(
        "--samples", type=whole(1, 999), default=3, metavar="N",
        help="plants to sequence (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--chromosomes", type=whole(1, 999), default=2, metavar="N",
        help="chromosomes of the reference (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=whole(0, 2**31 - 1), default=1, metavar="N",
        help="of the data and the mapping (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--state", type=Path, default=Path(".adon"), metavar="DIR",
        help="where runs and the measurement archive are kept (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--report", type=Path, default=Path("demo-report"), metavar="DIR",
        help="where the report goes (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="simulated network also where a real one is possible",
    )
    return parser


def _run(args: argparse.Namespace) -> int:
    return run(
        DemoRequest(
            samples=args.samples,
            chromosomes=args.chromosomes,
            seed=args.seed,
            state=args.state,
            report=args.report,
            simulate=args.simulate,
        )
    )


if __name__ == "__main__":
    sys.exit(main(parser=build_parser()))
