"""Run an example with ADON and with Pegasus alone, in turns, and say what ADON gained.

Each round runs the workflow six times: by Pegasus's Random and Heft, by Heft on ADON's network and
by ADON's mapping without it, and by ADON that knows nothing and that knows its first run. Needs
root: the network is made for it; on the busy one others send, too, and x2 and x5 are so many times
as fast, one round each. What has been run is kept and not run again.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from adon.cli.main import main as adon_main
from adon.cli.parsing import CommandParser, whole
from adon.machine import box, packages
from examples import scenario
from examples.compare.judge import Rounds
from examples.compare.record import Cores, Run, run_of
from examples.compare.report import html, text
from examples.compare.ways import FIRST, LEARNED, WAYS, Way, in_round, way_of
from examples.demo import line, steps
from examples.demo.launch import alone
from examples.demo.options import DemoOptions
from examples.scenario import CURVE, NETWORKS
from network_provisioner.base.errors import AdonError, InputError, MissingError

ROUNDS = 5
_ARCHIVE = "archive.sqlite"
_MOST_S = 200.0  # of ways without paths: it is known by then that they are not the better one
_PROG = "python -m examples.compare"


def build_parser() -> CommandParser:
    """The options."""
    parser = CommandParser(prog=_PROG, description=__doc__)
    parser.set_defaults(run=_run)
    parser.add_argument("--debug", action="store_true", help="show a traceback instead of one line")
    parser.add_argument("--example", default=scenario.DEFAULT, help="default: %(default)s")
    parser.add_argument("--rounds", type=whole(1, 99), default=ROUNDS, metavar="N",
                        help="default: %(default)s")  # fmt: skip
    parser.add_argument("--network", metavar="NAME",
                        help=f"one of {', '.join((*NETWORKS, *CURVE))} (default: all)")  # fmt: skip
    parser.add_argument("--way", metavar="NAME",
                        help=f"run only one of {', '.join(way.name for way in WAYS)}")  # fmt: skip
    parser.add_argument("--seed", type=whole(0, 2**31 - 1), default=1, metavar="N",
                        help="of the data (default: %(default)s)")  # fmt: skip
    parser.add_argument("--state", type=Path, default=Path(".adon/compare"), metavar="DIR",
                        help="where runs are kept (default: %(default)s)")  # fmt: skip
    parser.add_argument("--report", type=Path, default=Path("compare-report.html"), metavar="FILE",
                        help="default: %(default)s")  # fmt: skip
    return parser


def compare(
    example: str,
    seed: int,
    rounds: int,
    networks: tuple[str, ...],
    state: Path,
    say: Callable[[str], None],
    only: str = "",
) -> dict[str, Rounds]:
    """Run what has not been run yet, of one way ``only`` where it is named; all runs by network and
    round.

    Raises MissingError without a network of its own, AdonError.
    """
    reason = box.can_box()
    if reason is not None:
        raise MissingError(f"compare: needs a network of its own: {reason}")
    chosen = scenario.load(example)
    needed = ("condor", "gridftp", chosen.tools, "openvswitch")
    options = DemoOptions(
        example=example,
        settings={name: count.default for name, count in chosen.options.items()} | {"seed": seed},
        state=state.resolve(),
        report=state.resolve() / "report",
        programs={name: packages.ensure(name, progress=say) for name in needed},
        network_note="",
        started=time.monotonic(),
    )
    by_network: dict[str, dict[int, dict[str, Run]]] = {name: {} for name in networks}
    for number in range(1, rounds + 1):
        for network in networks:
            if number > 1 and network in CURVE:
                continue
            chosen.on(network)
            folder = options.state / f"{example}-{seed}" / network / f"round{number}"
            ways = [way for way in in_round(number) if only in ("", way.name)]
            passed = replace(options, network=network)
            by_network[network][number] = _round(number, ways, folder, passed, say)
    return {name: dict(runs) for name, runs in by_network.items()}


def _round(
    number: int,
    wanted: Collection[Way],
    folder: Path,
    options: DemoOptions,
    say: Callable[[str], None],
) -> dict[str, Run]:
    folder.mkdir(parents=True, exist_ok=True)
    runs = {}
    for way in in_round(number):
        file = folder / f"{way.name}.json"
        run = Run.load(file)
        if run is None:
            if way not in wanted:
                continue
            if way is LEARNED and not (folder / _ARCHIVE).exists():
                raise InputError(f"{way.name}: found no run of {FIRST.name} to learn from")
            say(f"{options.network} network, round {number}, {way.name}")
            _one(way, number, folder, file, options)
            run = Run.load(file)
        if run is None:
            raise AdonError(f"{way.name} of round {number} did not come to its end, see above")
        forecast = f", expected {run.expected:.0f} s" if way.by_adon else ""
        say(f"{way.name}: {run.state} after {run.makespan:.0f} s{forecast}")
        runs[way.name] = run
    return runs


def _one(way: Way, number: int, folder: Path, file: Path, options: DemoOptions) -> None:
    """One run in a box of its own. What ADON learns it learns in a copy of the round's archive,
    which takes its place when the run has come to its end."""
    kept, used = folder / _ARCHIVE, options.state / _ARCHIVE
    for stale in options.state.glob(f"{_ARCHIVE}*"):
        stale.unlink()
    if way is LEARNED:
        shutil.copyfile(kept, used)
    passed = replace(
        options, selector=way.selector, hooks=way.hooks, draw=number, started=time.monotonic(),
        most_s=0.0 if way.hooks else _MOST_S,
    )  # fmt: skip
    start = (
        f"import sys; sys.path.insert(0, {str(steps.ROOT)!r}); "
        "from examples.compare import __main__; sys.exit(__main__.inside(*sys.argv[1:]))"
    )
    words = [sys.executable, "-c", start, passed.to_json(), way.name, str(number), str(file)]
    # Not box.run: it makes one box in the life of a process.
    code = subprocess.run([*box.command(), *words], check=False).returncode
    if code == 0 and way.learns:
        shutil.move(used, kept)


def inside(options: str, way: str, number: str, file: str) -> int:
    """One run, within the box: run, write ``file``. 0 for a run that came to its end."""
    passed = DemoOptions.from_json(options)
    try:
        with Cores() as cores:
            facts, trouble = line.run(passed, steps.clock(passed.started))
        if trouble is not None:
            raise trouble
        run_of(facts, way, int(number), cores.loads).save(Path(file))
    except (AdonError, OSError, KeyboardInterrupt) as error:
        print(f"adon: {error}", file=sys.stderr)
        return 2
    return 0


def _run(args: argparse.Namespace) -> int:
    networks = (args.network,) if args.network else (*NETWORKS, *CURVE)
    say = steps.clock(time.monotonic())
    with alone(args.state):
        only = way_of(args.way).name if args.way else ""
        by_network = compare(args.example, args.seed, args.rounds, networks, args.state, say, only)
    print(text(by_network))
    args.report.write_text(html(by_network), encoding="utf-8")
    print(f"report: {args.report.resolve()}")
    return 0


if __name__ == "__main__":
    sys.exit(adon_main(parser=build_parser()))
