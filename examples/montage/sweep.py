"""Montage's execution time over provisioned bandwidth, as Figures 5 and 9 of its paper have it.

Each round runs the workflow with each rate of the links, with a disk that the head shares with the
workers' scratch ("default"), and with a disk for each ("isolated"). Needs root: network and disks
are made for it. What has been run is kept and not run again, so that it can be made in pieces.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from adon.cli.main import main
from adon.cli.parsing import CommandParser, whole
from adon.cli.transfer import spread_of
from adon.dashboard.standalone import COLOURS, Panel, drawing
from adon.machine import box, packages, syscalls
from examples.demo import steps
from examples.demo.demo_run import interruptible
from examples.demo.launch import alone
from examples.montage.sweep_run import PLACEMENTS, SweepRun, make
from examples.testbed.testbed import Programs
from network_provisioner.base.errors import AdonError, InputError, MissingError
from network_provisioner.base.units import format_rate, parse_rate
from site_selector.explain.tables import table

RATES = "1 Mb/s,2.5 Mb/s,10 Mb/s,20 Mb/s"
DISK = "12 Mb/s"
Points = Mapping[tuple[str, float], Sequence[SweepRun]]
"""Runs that succeeded, by placement and rate."""
_WIDTH, _HIGH, _SMALL, _GAP = 960.0, 260.0, 110.0, 60.0


def build_parser() -> CommandParser:
    """The options."""
    parser = CommandParser(prog="python -m examples.montage.sweep", description=__doc__)
    parser.set_defaults(run=_run)
    parser.add_argument("--debug", action="store_true", help="show a traceback instead of one line")
    parser.add_argument("--runs", type=whole(1, 99), default=4, metavar="N",
                        help="with each rate and placement (default: %(default)s)")  # fmt: skip
    parser.add_argument("--rates", default=RATES, help="of the links (default: %(default)s)")
    parser.add_argument("--placements", default="default,isolated",
                        help=f"of {', '.join(PLACEMENTS)} (default: %(default)s)")  # fmt: skip
    parser.add_argument("--disk", default=DISK, help="rate of each disk (default: %(default)s)")
    parser.add_argument("--state", type=Path, default=Path(".adon/sweep"), metavar="DIR",
                        help="where runs are kept (default: %(default)s)")  # fmt: skip
    parser.add_argument("--report", type=Path, default=Path("sweep-report"), metavar="NAME",
                        help="of an .svg and a .json (default: %(default)s)")  # fmt: skip
    return parser


def sweep(
    rates_bps: Sequence[float],
    disk_bps: float,
    runs: int,
    state: Path,
    say: steps.Say,
    placements: Sequence[str] = ("default", "isolated"),
) -> list[SweepRun]:
    """Run what has not been run yet; all runs. Raises MissingError without a network of its own,
    AdonError."""
    reason = box.can_box()
    if reason is not None:
        raise MissingError(f"sweep: needs a network of its own: {reason}")
    # Mounts of its own: else each box that somebody starts meanwhile would keep the disks.
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    names = ("condor", "gridftp", "montage", "openvswitch")
    programs = Programs(*(packages.ensure(name, progress=say) for name in names))
    results = []
    for number in range(1, runs + 1):
        for rate_bps in rates_bps:
            for placement in placements:
                rates = f"{rate_bps / 1e6:g}-{disk_bps / 1e6:g}"
                file = state.resolve() / f"{placement}-{rates}-{number}.json"
                if not file.exists():
                    say(f"run {number}, {format_rate(rate_bps)}, {placement}")
                    run = SweepRun(placement, rate_bps, disk_bps, number)
                    make(run, state.resolve(), programs, file)
                result = SweepRun.load(file)
                if result is None:
                    raise AdonError(f"{file.stem} did not come to its end, see above")
                say(f"{placement}, {format_rate(rate_bps)}: {result.state}, {result.seconds:.0f} s")
                results.append(result)
    return results


def points(runs: Sequence[SweepRun]) -> Points:
    """By placement, then rate."""
    runs_by_point: dict[tuple[str, float], list[SweepRun]] = {}
    for run in sorted(runs, key=lambda run: (run.placement, run.rate_bps)):
        if run.state == "success":
            runs_by_point.setdefault((run.placement, run.rate_bps), []).append(run)
    return runs_by_point


def text(runs_by_point: Points) -> str:
    """A line for each point."""
    rows = []
    for (placement, rate_bps), runs in runs_by_point.items():
        time_s = spread_of([run.seconds for run in runs])
        waiting = fmean(run.io_wait[-1] for run in runs)
        cores, back = (fmean(getattr(run, of) for run in runs) for of in ("cores", "given_back"))
        rows.append(
            (placement, format_rate(rate_bps), f"{time_s.mean:.1f}", f"{time_s.sd:.1f}",
             f"{waiting:.0%}", f"{cores:.0%}", f"{back:.0%}")
        )  # fmt: skip
    head = (
        "placement", "bandwidth>", "seconds>", "sd>", "I/O wait over 90 %>", "cores>", "given back>"
    )  # fmt: skip
    return table(head, rows)


def figure(runs_by_point: Points) -> str:
    """Figures 5 and 9, and below them 6, 10 and 11: an SVG."""
    rates = sorted({rate_bps for _, rate_bps in runs_by_point})
    most = 20.0 * (max(run.seconds for runs in runs_by_point.values() for run in runs) // 20 + 1)
    top = Panel(_GAP, 40, _WIDTH - 2 * _GAP, _HIGH, len(rates), most)
    top.axes(
        "Execution time in seconds by provisioned bandwidth, mean and standard deviation; below: "
        "shares of I/O waits of the head's processes, below 10 % to 100 %",
        [format_rate(rate_bps) for rate_bps in rates],
        [(most * n / 4, f"{most * n / 4:g}") for n in range(5)],
    )
    panels, wide = [top], (_WIDTH - _GAP) / len(rates)
    placements = [name for name in PLACEMENTS if any(name == of for of, _ in runs_by_point)]
    for row, (placement, colour) in enumerate(zip(placements, COLOURS, strict=False)):
        below = _HIGH + (_SMALL + _GAP) * row + 2 * _GAP
        curve = []
        for slot, rate_bps in enumerate(rates):
            if not (runs := runs_by_point.get((placement, rate_bps))):
                continue
            time_s = spread_of([run.seconds for run in runs])
            curve.append((slot, time_s.mean))
            top.whisker(slot, time_s.mean - time_s.sd, time_s.mean + time_s.sd, colour)
            small = Panel(_GAP + slot * wide, below, wide - 30, _SMALL, 10, 1.0)
            small.axes(f"{placement}, {format_rate(rate_bps)}", (), [(0, "0"), (1, "1")])
            for tenth, shares in enumerate(zip(*(run.io_wait for run in runs), strict=True)):
                share = spread_of(shares)
                small.bar(tenth, share.mean, share.sd, colour)
            panels.append(small)
        top.curve(curve, colour)
        top.dots(curve, colour)
    return drawing(_WIDTH, _HIGH + len(placements) * (_SMALL + _GAP) + _GAP, panels)


def _run(args: argparse.Namespace) -> int:
    rates_bps = [parse_rate(word, "--rates") for word in args.rates.split(",")]
    disk_bps = parse_rate(args.disk, "--disk")
    placements = args.placements.split(",")
    if unknown := set(placements) - {*PLACEMENTS}:
        raise InputError(
            f"--placements: found {min(unknown)!r}, expected some of {', '.join(PLACEMENTS)}"
        )
    say = steps.clock(time.monotonic())
    with alone(args.state), interruptible():
        runs = sweep(rates_bps, disk_bps, args.runs, args.state, say, placements)
    good = points(runs)
    print(text(good))
    args.report.with_suffix(".svg").write_text(figure(good), encoding="utf-8")
    numbers = json.dumps([asdict(run) for run in runs], indent=1) + "\n"
    args.report.with_suffix(".json").write_text(numbers, encoding="utf-8")
    print(f"report: {args.report.resolve()}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main(parser=build_parser()))
