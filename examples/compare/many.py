"""Run ten workflows of three users on one pool that has too few slots, in each way, and compare.

They are submitted within five minutes. Jobs sleep as long as the examples' programs run and write
files of their sizes; plans, DAGMans, hooks and transfers are real. Needs root; about ten minutes
for each way and network. First, and for what is learned, each shape of workflow runs alone. What
has been run is kept and not run again.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from adon.cli.main import main as adon_main
from adon.cli.parsing import CommandParser
from adon.machine import box
from examples.compare.crowd import in_box
from examples.compare.schedule import CrowdRun, Entry, Schedule
from examples.compare.shapes import SHAPES
from examples.compare.ways import LEARNED, PEERS, WAYS, Way, way_of
from examples.demo import steps
from examples.demo.launch import alone as only_one
from examples.scenario import NETWORKS
from network_provisioner.base.errors import InputError, MissingError

ALONE = Way("alone", hooks=True, learns=True)
_USERS = ("ada", "bob", "eve")
_APART_S = 30.0
_WORKFLOWS = 10
_MOST_S = 600.0  # of a way: it is known by then that it is not the best one
MANY = Schedule(
    tuple(
        Entry(SHAPES[n % len(SHAPES)], _USERS[n % len(_USERS)], n * _APART_S)
        for n in range(_WORKFLOWS)
    ),
    _MOST_S,
)
ONE_BY_ONE = Schedule(tuple(Entry(shape, _USERS[0]) for shape in SHAPES), 2 * _MOST_S)
STATE = Path(".adon/many")
ARCHIVE = "archive.sqlite"
# Of ADON that has learned, at most: its mean over that of the better peer; how far off its
# forecasts are in 95 of 100 workflows.
MEAN_GOAL, FORECAST_GOAL = 0.75, 0.20
_PROG = "python -m examples.compare.many"


def compare(
    state: Path, say: steps.Say, networks: tuple[str, ...] = NETWORKS, only: str = ""
) -> dict[str, dict[str, CrowdRun]]:
    """Run what has not been run yet, of one way ``only`` where it is named; all runs by network and
    way. Raises MissingError without a network of its own, AdonError."""
    check_box()
    by_network = {}
    for network in networks:
        folder = state / network
        runs = {ALONE.name: run_alone(folder, network, say)}
        for way in WAYS:
            file = folder / f"{way.name}.json"
            run = CrowdRun.load(file)
            if run is None and only in ("", way.name):
                say(f"{network} network, {way.name}")
                known = folder / ARCHIVE if way is LEARNED else None
                run = in_box(MANY, way, network, state / "run", known, say)
                run.save(file)
            if run is not None:
                runs[way.name] = run
        by_network[network] = runs
    return by_network


def check_box() -> None:
    """Raises MissingError without a network of its own."""
    reason = box.can_box()
    if reason is not None:
        raise MissingError(f"compare: needs a network of its own: {reason}")


def run_alone(folder: Path, network: str, say: steps.Say) -> CrowdRun:
    """Each shape alone, by ADON that knows nothing; what it learns is in the folder's archive.
    Raises AdonError."""
    file = folder / f"{ALONE.name}.json"
    run = CrowdRun.load(file)
    if run is None:
        folder.mkdir(parents=True, exist_ok=True)
        say(f"{network} network, each shape alone")
        run = in_box(ONE_BY_ONE, ALONE, network, folder.parent / "run", None, say)
        shutil.move(folder.parent / "run" / ARCHIVE, folder / ARCHIVE)
        run.save(file)
    return run


def slowdown(run: CrowdRun, alone: CrowdRun) -> float:
    """The most that a workflow took, as a multiple of what its shape took alone."""
    alone_s = {workflow.shape: workflow.makespan for workflow in alone.workflows}
    return max(workflow.makespan / alone_s[workflow.shape] for workflow in run.workflows)


def forecast_error(run: CrowdRun) -> float | None:
    """How far |true ÷ expected − 1| goes in 95 of 100 workflows; None where nothing was
    expected."""
    errors = sorted(abs(w.makespan / w.expected - 1) for w in run.workflows if w.expected > 0)
    return errors[min(len(errors) - 1, int(0.95 * len(errors)))] if errors else None


def best_peer(runs: Mapping[str, CrowdRun]) -> CrowdRun | None:
    """That of Pegasus alone with the lower mean, None where none was run."""
    peers = [runs[way.name] for way in PEERS if way.name in runs]
    return min(peers, key=lambda run: run.mean, default=None)


def text(by_network: Mapping[str, Mapping[str, CrowdRun]]) -> str:
    """A row for each way, by network, and the goals."""
    lines: list[str] = []
    for network, runs in by_network.items():
        alone = runs[ALONE.name]
        lines += [
            f"{network} network; alone: "
            + ", ".join(
                f"{workflow.shape} {workflow.makespan:.0f} s" for workflow in alone.workflows
            ),
            _row("way", "mean s", "last s", "slow-down", "forecast", "moved MB", "unused", "cores"),
        ]
        lines += [_way_row(run, alone) for name, run in runs.items() if run is not alone]
        learned, peer = runs.get(LEARNED.name), best_peer(runs)
        if learned is not None and peer is not None:
            ratio = learned.mean / peer.mean
            least = min(slowdown(runs[w.name], alone) for w in PEERS if w.name in runs)
            lines.append(
                f"{LEARNED.name} ÷ {peer.way}: mean {ratio:.2f}, goal ≤ {MEAN_GOAL}; goal for its "
                f"slow-down ≤ {least:.1f}, for its forecast ≤ {FORECAST_GOAL:.0%}"
            )
        lines.append("")
    return "\n".join(lines).rstrip()


def _way_row(run: CrowdRun, alone: CrowdRun) -> str:
    error = forecast_error(run)
    return _row(
        run.way,
        f"{run.mean:.0f}",
        f"{run.end:.0f}",
        f"{slowdown(run, alone):.1f}",
        "–" if error is None else f"{error:.0%}",
        f"{run.moved / 1e6:.0f}",
        f"{run.unused / run.reserved:.0%}" if run.reserved else "–",
        f"{run.cores:.0%}",
    )


def _row(way: str, *cells: str) -> str:
    return f"  {way:<15}" + "".join(f"{cell:>11}" for cell in cells)


def build_parser() -> CommandParser:
    """The options."""
    parser = CommandParser(prog=_PROG, description=__doc__)
    parser.set_defaults(run=_run)
    parser.add_argument("--debug", action="store_true", help="show a traceback instead of one line")
    parser.add_argument("--network", metavar="NAME",
                        help=f"one of {', '.join(NETWORKS)} (default: all)")  # fmt: skip
    names = ", ".join(way.name for way in (ALONE, *WAYS))
    parser.add_argument("--way", metavar="NAME", help=f"run only one of {names}")
    parser.add_argument("--state", type=Path, default=STATE, metavar="DIR",
                        help="where runs are kept (default: %(default)s)")  # fmt: skip
    return parser


def _run(args: argparse.Namespace) -> int:
    if args.network not in (None, *NETWORKS):
        raise InputError(f"network: found {args.network!r}, expected one of {', '.join(NETWORKS)}")
    only = args.way or ""
    if only and only != ALONE.name:
        only = way_of(only).name
    networks = (args.network,) if args.network else NETWORKS
    with only_one(args.state):
        by_network = compare(args.state, steps.clock(time.monotonic()), networks, only)
    print(text(by_network))
    return 0


if __name__ == "__main__":
    sys.exit(adon_main(parser=build_parser()))
