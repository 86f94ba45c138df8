"""Run an example workflow from end to end, and write a report about it.

Installs missing programs (HTCondor, GridFTP, those of the example's jobs; as root Open vSwitch) in
your cache directory only. Run it twice: the second run knows what the first measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from adon.cli.main import main
from adon.cli.parsing import CommandParser, whole
from examples import scenario
from examples.demo.launch import run
from network_provisioner.base.errors import AdonError

_PROG = "python -m examples.demo"
_MORE = """
Examples, in a source checkout:
  make demo                                             the default size; ./demo-report
  python -m examples.demo --samples 5 --chromosomes 3   a wider workflow
  python -m examples.demo --simulate                    no real network, also as root

Exit codes: 0 the workflow succeeded; 1 it ran and failed; 2 it could not run, or not to its end;
130 after Ctrl-C, 143 after TERM. Ctrl-C and TERM still write a report about what ran.
"""


def build_parser(argv: Sequence[str] | None = None) -> CommandParser:
    """The options of the demo and of the example that ``argv``, or the command line, names."""
    first = CommandParser(prog=_PROG, add_help=False)
    first.add_argument("--example", type=_example, default=scenario.DEFAULT)
    chosen = first.parse_known_args(argv)[0].example
    parser = CommandParser(prog=_PROG, description=__doc__, epilog=_MORE.strip())
    parser.set_defaults(run=lambda args: _run(args, chosen))
    parser.add_argument("--debug", action="store_true", help="show a traceback instead of one line")
    parser.add_argument(
        "--example", metavar="NAME", default=chosen.name,
        help=f"{', '.join(scenario.names())} (shown: %(default)s, {chosen.title})",
    )  # fmt: skip
    for name, count in chosen.options.items():
        parser.add_argument(
            f"--{name}", type=whole(1, count.most), default=count.default, metavar="N",
            help=f"{count.help} (default: %(default)s)",
        )  # fmt: skip
    parser.add_argument(
        "--seed", type=whole(0, 2**31 - 1), default=1, metavar="N",
        help="seed of the data and the mapping (default: %(default)s)",
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


def _example(name: str) -> scenario.Scenario:
    try:
        return scenario.load(name)
    except AdonError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _run(args: argparse.Namespace, example: scenario.Scenario) -> int:
    settings = {name: getattr(args, name) for name in (*example.options, "seed")}
    return run(example.name, settings, args.state, args.report, simulate=args.simulate)


if __name__ == "__main__":
    sys.exit(main(parser=build_parser()))
