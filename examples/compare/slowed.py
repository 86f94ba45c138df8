"""Run workflows one after another while others take most slots of a site, and compare ADON with
ADON that ignores what it measures of compute.

Four workflows; the load begins while the second one runs and stays. Needs root; about ten minutes
for each of the two. What has been run is kept and not run again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from adon.cli.main import main as adon_main
from adon.cli.parsing import CommandParser
from examples.compare.crowd import in_box
from examples.compare.many import ARCHIVE, check_box, run_alone
from examples.compare.schedule import CrowdRun, Entry, OtherLoad, Schedule
from examples.compare.ways import Way
from examples.demo import steps
from examples.demo.launch import alone as only_one
from network_provisioner.base.errors import InputError

BLIND, AWARE = WAYS = (Way("adon-blind", hooks=True), Way("adon", hooks=True))
_NETWORK = "idle"
SLOWED = Schedule(
    tuple(Entry(shape, "ada") for shape in ("fan", "soykb", "fan", "soykb")),
    1200.0,
    OtherLoad("tacc", 2, entry=1, after_s=20.0),  # of its three slots
)
STATE = Path(".adon/many")
GOAL = 0.85
_PROG = "python -m examples.compare.slowed"


def compare(state: Path, say: steps.Say, only: str = "") -> dict[str, CrowdRun]:
    """Run what has not been run yet, of one way ``only`` where it is named; all runs by way. Raises
    MissingError without a network of its own, AdonError."""
    check_box()
    run_alone(state / _NETWORK, _NETWORK, say)
    runs = {}
    for way in WAYS:
        file = state / "slowed" / f"{way.name}.json"
        run = CrowdRun.load(file)
        if run is None and only in ("", way.name):
            say(f"a site that others slow down, {way.name}")
            file.parent.mkdir(parents=True, exist_ok=True)
            schedule = replace(SLOWED, blind=way is BLIND)
            known = state / _NETWORK / ARCHIVE
            run = in_box(schedule, way, _NETWORK, state / "run", known, say)
            run.save(file)
        if run is not None:
            runs[way.name] = run
    return runs


def text(runs: Mapping[str, CrowdRun]) -> str:
    """A row for each way, and the goal."""
    lines = []
    for name, run in runs.items():
        each = ", ".join(
            f"{workflow.shape} {workflow.makespan:.0f} s"
            + "".join(f" {count}@{site}" for site, count in sorted(workflow.sites.items()))
            for workflow in run.workflows
        )
        lines.append(f"  {name:<12}{run.end:>6.0f} s: {each}")
    if len(runs) == len(WAYS):
        ratio = runs[AWARE.name].end / runs[BLIND.name].end
        lines.append(f"{AWARE.name} ÷ {BLIND.name}: {ratio:.2f}, goal ≤ {GOAL}")
    return "\n".join(lines)


def build_parser() -> CommandParser:
    """The options."""
    parser = CommandParser(prog=_PROG, description=__doc__)
    parser.set_defaults(run=_run)
    parser.add_argument("--debug", action="store_true", help="show a traceback instead of one line")
    parser.add_argument("--way", metavar="NAME",
                        help=f"run only one of {', '.join(way.name for way in WAYS)}")  # fmt: skip
    parser.add_argument("--state", type=Path, default=STATE, metavar="DIR",
                        help="where runs are kept (default: %(default)s)")  # fmt: skip
    return parser


def _run(args: argparse.Namespace) -> int:
    names = [way.name for way in WAYS]
    if args.way not in (None, *names):
        raise InputError(f"way: found {args.way!r}, expected one of {', '.join(names)}")
    with only_one(args.state):
        print(text(compare(args.state, steps.clock(time.monotonic()), args.way or "")))
    return 0


if __name__ == "__main__":
    sys.exit(adon_main(parser=build_parser()))
