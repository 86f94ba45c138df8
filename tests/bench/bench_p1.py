"""P1: how long a workflow takes where ADON puts its jobs, beside where others would put them.

The same as ``adon site evaluate``: traces on made-up platforms, every mapping executed by a
simulator that the mappers do not have, beliefs right and wrong. Two orders of start: all jobs by
urgency, under any mapping; and as HTCondor starts them, ADON's by the priorities that it hands
over, the others' as Pegasus has them. Traces are made up in the shape of SoyKB's and Montage's;
with ``make bench ONLY=P1 TRACES=DIR`` those of a folder follow.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from adon.machine.parallel import each
from site_selector.evaluation.cases import OURS, Outcome, Setting, run_case
from site_selector.evaluation.report import AS_RUN, Row, honesty, summarise
from site_selector.evaluation.traces import Trace, TraceFile, read_folder
from site_selector.evaluation.worlds import Platform, draw_platform
from tests.bench import Figure, Input, Tell, bench
from tests.bench.shapes import montage, soykb

PLATFORMS = 8
GEOMEAN, WORST = 1.10, 1.5
# Of those that may win; random shows how much there is to win.
PEERS = ("greedy", "peft", "insertion", "heft", "pegasus-heft", "random")
_WORDS = {
    "exact": "beliefs right",
    "errors": "run times, sizes, throughput off by up to 50 %",
    "wrong-waits": "these and queue waits off by up to 50 %",
    "unknown-waits": "off by up to 50 %, queue waits unknown",
}


def traces(folder: str) -> list[TraceFile]:
    """Those of a folder; made-up ones where it is not given."""
    if folder:
        return read_folder(Path(folder))[0]
    made = [soykb(3, 2), soykb(5, 10), soykb(10, 20), montage(5), montage(15), montage(40)]
    return [TraceFile(trace.name, "", trace) for trace in made]


def digests(files: Iterable[TraceFile]) -> Iterable[Input]:
    """Of traces that were read, none for made-up ones."""
    return [Input(file.path, f"sha256:{file.sha256[:16]}") for file in files if file.sha256]


def work(case: tuple[Trace, Platform, int, Setting]) -> list[Outcome]:
    """One case, in a process of its own."""
    return run_case(*case)


@bench("P1")
def mapping_quality(tell: Tell) -> Iterable[Figure]:
    """Makespans of whole mappings, as ratios."""
    return _qualities(traces(""), tell)


@bench("P1")
def recorded_traces(tell: Tell) -> Iterable[Figure | Input]:
    """The same with the traces of a folder."""
    folder = os.environ.get("TRACES", "")
    if not folder:
        tell("needs TRACES=DIR")
        return
    known = traces(folder)
    yield from digests(known)
    yield from _qualities(known, tell)


def _qualities(all_traces: list[TraceFile], tell: Tell) -> Iterable[Figure]:
    platforms = [draw_platform(0, number) for number in range(PLATFORMS)]
    cases = [(trace, number) for trace in all_traces for number in range(PLATFORMS)]
    cases.sort(key=lambda case: -len(case[0].trace.tasks))  # the long ones first, for even cores
    tell(f"{len(all_traces)} traces on {PLATFORMS} platforms")

    def show(done: int) -> None:
        if done % 10 == 0:
            tell(f"{done} of {len(cases)} cases")

    values = [(trace.trace, platforms[number], number, Setting()) for trace, number in cases]
    outcomes = each(values, work, len(os.sched_getaffinity(0)), show)
    rows = [Row(t, number, tuple(o)) for (t, number), o in zip(cases, outcomes, strict=True)]
    for regime, words in _WORDS.items():
        yield from _figures(rows, regime, "best_known", f"best known, {words}", (GEOMEAN, WORST))
        as_run = f"best known, as HTCondor starts jobs, {words}"
        yield from _figures(rows, regime, AS_RUN, as_run, None)
        result = honesty(rows, regime)
        if result is not None:
            off = max(result.true_of_shown, 1 / result.true_of_shown)
            name = f"true ÷ shown makespan, {words}, geometric mean of {result.cases}, either way"
            yield Figure(name, off, "ratio", better="lower", goal=1.03)
            name = f"true makespan within the range shown, {words}"
            yield Figure(name, result.in_range, "share", better="higher", goal=0.9)
    yield from _figures(rows, "exact", "lower_bound", "lower bound, beliefs right", None)


def _figures(
    rows: list[Row], regime: str, reference: str, words: str, goals: tuple[float, float] | None
) -> Iterable[Figure]:
    every = {name: summarise(rows, regime, name, reference) for name in (OURS, *PEERS)}
    for i, field in enumerate(("geomean", "worst")):
        values = {name: float(getattr(result, field)) for name, result in every.items()}
        ours = values.pop(OURS)
        of = "geometric mean" if field == "geomean" else "worst"
        name = f"makespan ÷ {words}, {of} of {len(rows)}"
        goal = None if goals is None else goals[i]
        yield Figure(name, ours, "ratio", better="lower", goal=goal, peers=values)
