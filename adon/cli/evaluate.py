"""``adon site evaluate``: how good mappings are, on traces of real workflows."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli.output import Column, print_fields, print_records, progress
from adon.cli.parsing import add_output, one_of, option, whole
from adon.cli.terminal import grid
from network_provisioner.base.errors import InputError

if TYPE_CHECKING:
    from site_selector.evaluation.adversary import JudgedPuzzle
    from site_selector.evaluation.cases import Outcome, Setting
    from site_selector.evaluation.traces import Trace
    from site_selector.evaluation.worlds import Platform, Staging

    Case = tuple[Trace, Platform, int, Setting]


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 0.99:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number from 0 to 0.99")
    return value


OPTIONS = (
    one_of(
        option(
            "--instances", "folder of traces in WfFormat (*.json, also in subfolders)", "DIR", Path
        ),
        option(
            "--adversary", "search for small workflows on which ADON loses to a built-in policy",
            "STEPS", whole(1, 10**6),
        ),
        required=True,
    ),
    option(
        "--platforms", "platforms to generate for each trace, or number of searches", "N",
        whole(1, 10_000), default=10,
    ),
    option("--seed", "seed of platforms and errors", "N", whole(0, 10**9), default=0),
    option(
        "--errors", "largest error of estimates, from 0 to 0.99: 0.5 is 50 %%", "SHARE",
        _share, default=0.5,
    ),
    option(
        "--staging", "whether a file moves once to each site, or for every job",
        choices=("per-site", "per-job"), default="per-site",
    ),
    option(
        "--jobs", "number of processes (default: one per core)", "N", whole(1, 1024),
        default=len(os.sched_getaffinity(0)),
    ),
    option("--save", "write all results as JSON", "FILE", Path),
    add_output,
)  # fmt: skip


def evaluate(args: argparse.Namespace) -> int:
    """Evaluate the mapping policies on traces of real workflows.

    Maps every trace to generated platforms, and executes each policy's mapping in a simulator with
    true values, while the policies see estimated ones. Compares makespans with the best known
    mapping, which is made with the true values too, and with a lower bound.

    Four regimes: 'exact', estimates are true; 'errors', run times, sizes and throughput have errors
    of up to --errors; 'wrong-waits', queue waits as well; 'unknown-waits', the same, and true queue
    waits are exponential about the estimates. The same traces and options give the same file.

    Examples:
      adon site evaluate --instances traces --save evaluation.json
      adon site evaluate --instances traces --platforms 2 --seed 7 --save quick.json
      adon site evaluate --adversary 300 --platforms 4 --save lost.json
    """
    _check_target(args.save)
    return _compare(args) if args.adversary is None else _search(args)


def _compare(args: argparse.Namespace) -> int:
    from adon.machine.parallel import each
    from site_selector.evaluation import report
    from site_selector.evaluation.cases import Setting
    from site_selector.evaluation.traces import read_folder
    from site_selector.evaluation.worlds import draw_platform

    traces, skipped = read_folder(args.instances)
    for line in skipped:
        print(line, file=sys.stderr)
    for trace in traces:
        for note in trace.trace.notes:
            print(f"{trace.path}: {note}", file=sys.stderr)
    setting = Setting(args.seed, args.errors, args.staging)
    platforms = [draw_platform(args.seed, number) for number in range(args.platforms)]
    cases = [(i, k) for i in range(len(traces)) for k in range(len(platforms))]
    # The long ones first, so that all processes end at about the same time.
    cases.sort(key=lambda case: (-len(traces[case[0]].trace.tasks), case))
    work = [(traces[i].trace, platforms[k], k, setting) for i, k in cases]
    with progress(len(work), "cases") as done:
        outcomes = each(work, _work, args.jobs, done)
    by_case = dict(zip(cases, outcomes, strict=True))
    rows = [report.Row(traces[i], k, tuple(by_case[i, k])) for i, k in sorted(by_case)]
    names = [line.rpartition("/")[2] for line in skipped]
    everything = report.as_dict(rows, platforms, setting, names)
    if args.save is not None:
        _write(args.save, everything)
    return print_fields(
        args,
        _records(everything["summary"]),
        lambda: _text(everything["summary"], everything["forecasts"]),
        everything,
    )


def _search(args: argparse.Namespace) -> int:
    from adon.machine.parallel import each
    from site_selector.evaluation import adversary

    # One after the other, a search is a number of steps; they are distinguished by their seeds.
    seeds = [args.seed * 10_000 + number for number in range(args.platforms)]
    with progress(len(seeds), "searches") as done:
        work = [(seed, args.adversary, args.staging) for seed in seeds]
        judged = each(work, _hunt, args.jobs, done)
    judged.sort(key=lambda case: -case.ratio)
    records = []
    for case in judged:
        rival, least = adversary.rival(case)
        puzzle = case.puzzle
        records.append(
            {
                "ratio": case.ratio,
                "adon_s": case.makespan_s["adon"],
                "best_s": least,
                "best": rival,
                "tasks": len(puzzle.runtime_s),
                "sites": len(puzzle.platform.sites),
            }
        )
    everything = adversary.as_dict(judged, args.seed, args.adversary, args.staging)
    if args.save is not None:
        _write(args.save, everything)
    return print_records(
        args,
        (
            Column("ratio", "adon ÷ best built-in>", "{:.3f}".format),
            Column("adon_s", "adon>", "{:.1f} s".format),
            Column("best_s", "best built-in>", "{:.1f} s".format),
            Column("best", "which"),
            Column("tasks", "tasks>"),
            Column("sites", "sites>"),
        ),
        records,
        document=everything,
        text=lambda shown: f"The worst of each search, makespans by the simulator\n{shown}",
    )


def _records(summary: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"regime": regime, "reference": reference, "family": family, "policy": policy, **row}
        for regime, references in summary.items()
        for reference, families in references.items()
        for family, policies in families.items()
        for policy, row in policies.items()
    ]


def _text(summary: dict[str, Any], forecasts: dict[str, Any]) -> str:
    from site_selector.evaluation import report

    lines = [
        "Makespans as ratios, geometric mean and worst; 1 is best. All jobs start by urgency; as "
        "run, ADON's\nstart by its priorities, the others' by level."
    ]
    for regime, rows in report.tables(summary):
        worst = summary[regime]["best_known"][report.OVERALL]["adon"]
        lines.append(f"\n{regime}\n{grid(report.HEAD, rows)}")
        lines.append(f"adon's worst: {worst['worst']:.3f} for {worst['worst_case']}")
        if regime in forecasts:
            forecast = forecasts[regime]
            lines.append(
                f"adon's forecasts: true ÷ shown {forecast['true_of_shown']:.3f}, "
                f"{100 * forecast['in_range']:.0f} % within the range"
            )
    return "\n".join(lines)


def _work(case: Case) -> list[Outcome]:
    from site_selector.evaluation.cases import run_case

    return run_case(*case)


def _hunt(task: tuple[int, int, Staging]) -> JudgedPuzzle:
    from site_selector.evaluation.adversary import search

    seed, steps, staging = task
    return search(seed, steps, staging)


def _check_target(path: Path | None) -> None:
    """Better now than after an hour."""
    if path is None:
        return
    if not path.parent.is_dir():
        raise InputError(f"{path}: found no folder {path.parent}, expected it to be there")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: found {path.parent} not writable, expected to write there")
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: found no regular file, expected a file or a free name")


def _write(path: Path, everything: dict[str, Any]) -> None:
    from site_selector.wholefile import write_whole

    text = json.dumps(everything, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(path, lambda stream: stream.write(text), "the evaluation")
