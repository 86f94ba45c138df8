"""The loads of bench P9, with their boot times and seeds: fixed before the decision was tuned.

Recorded ones where there is a folder of traces, and made-up ones. What is believed of run times
beforehand is their mean by transformation in *other* workflows of the family.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from random import Random
from statistics import fmean
from typing import NamedTuple

from site_selector.evaluation.traces import Trace
from tests.bench.pool_world import Boot, Dag, Load
from tests.bench.shapes import montage, soykb

BOOTS = {
    60: Boot(60, 12),
    180: Boot(180, 40),
    300: Boot(300, 60),
    420: Boot(420, 80),
    600: Boot(600, 120),
}
_UNKNOWN_S = 60.0  # believed of a kind that no other workflow has


class Case(NamedTuple):
    """A load, how machines boot in it, and the seed of their luck."""

    family: str
    load: Load
    boot: Boot
    seed: int


class _Part(NamedTuple):
    """A workflow and who submits it when."""

    user: str
    at: float
    trace: Trace
    fails: int = -1
    known: bool = True


def _load(name: str, parts: Sequence[_Part], others: Iterable[Trace]) -> Load:
    parts = sorted(parts, key=lambda part: part.at)
    seen: dict[str, list[float]] = defaultdict(list)
    for trace in others:
        for kind, seconds in zip(trace.kinds, trace.runtime_s, strict=True):
            seen[kind].append(seconds)
    kinds = sorted({kind for part in parts for kind in part.trace.kinds})
    return Load(
        name,
        tuple(
            Dag(
                p.user, p.at, p.trace.kinds, p.trace.parents, p.trace.level,
                tuple(2 if kind.endswith("2c") else 1 for kind in p.trace.kinds), p.known,
            )
            for p in parts
        ),
        tuple(p.trace.runtime_s for p in parts),
        tuple(p.fails for p in parts),
        {kind: fmean(seen[kind]) if seen[kind] else _UNKNOWN_S for kind in kinds},
    )  # fmt: skip


def forkjoin(widths: Sequence[int], seconds: Sequence[float], seed: int, suffix: str = "") -> Trace:
    """Levels of these widths, each job of which waits for the whole level before it; run times are
    drawn about the level's."""
    rng = Random(seed)
    kinds: list[str] = []
    parents: list[tuple[int, ...]] = []
    runs: list[float] = []
    level: list[int] = []
    before: tuple[int, ...] = ()
    for number, (width, mean_s) in enumerate(zip(widths, seconds, strict=True)):
        begun = len(kinds)
        for _ in range(width):
            kinds.append(f"stage{number}{suffix}")
            parents.append(before)
            runs.append(mean_s * rng.lognormvariate(-0.045, 0.3))
            level.append(number)
        before = tuple(range(begun, len(kinds)))
    return _trace(f"forkjoin-{seed}", kinds, parents, runs, level)


def _trace(
    name: str,
    kinds: Sequence[str],
    parents: Sequence[tuple[int, ...]],
    runs: Sequence[float],
    level: Sequence[int],
) -> Trace:
    nothing = ((),) * len(kinds)
    return Trace(
        name, name.partition("-")[0], tuple(map(str, range(len(kinds)))), tuple(kinds), tuple(runs),
        tuple(parents), nothing, nothing, nothing, tuple(level), (), (), (), (),
    )  # fmt: skip


_WIDTHS = ((8, 64, 1, 200, 4), (300, 120, 60, 900, 240))
_SMALL = ((1, 30, 2, 12), (60, 400, 200, 300))


def _made_up(more: int) -> list[Case]:
    """``more`` is added to every seed."""
    cases = []
    other = soykb(10, 12, seed=90 + more)
    for boot in (60, 180, 420, 600):
        wide = _load("soykb-41-12", [_Part("ann", 0, soykb(41, 12, seed=1 + more))], [other])
        cases.append(Case("SoyKB, 41 samples", wide, BOOTS[boot], 10 + boot + more))
    for boot in (60, 300, 600):
        trace, past = forkjoin(*_WIDTHS, seed=2 + more), forkjoin(*_WIDTHS, seed=92 + more)
        load = _load("forkjoin", [_Part("ann", 0, trace)], [past])
        cases.append(Case("fork and join", load, BOOTS[boot], 20 + boot + more))
        two = forkjoin(*_WIDTHS, seed=3 + more, suffix="-2c")
        past = forkjoin(*_WIDTHS, seed=93 + more, suffix="-2c")
        load = _load("forkjoin-2c", [_Part("ann", 0, two)], [past])
        cases.append(Case("fork and join", load, BOOTS[boot], 30 + boot + more))
    for boot in (60, 300):
        cases.append(Case("several users", _several(4 + more), BOOTS[boot], 40 + boot + more))
        cases.append(Case("queue without a DAG", _queue(5 + more), BOOTS[boot], 50 + boot + more))
        cases.append(
            Case("workflows by chance", _by_chance(6 + more), BOOTS[boot], 60 + boot + more)
        )
        cases.append(Case("failing midway", _failing(7 + more), BOOTS[boot], 70 + boot + more))
    return cases


def _several(seed: int) -> Load:
    rng = Random(seed)
    traces = [
        montage(40, seed=seed), soykb(5, 10, seed=seed), forkjoin(*_WIDTHS, seed=seed),
        soykb(10, 12, seed=seed + 1), forkjoin(*_SMALL, seed=seed + 1), montage(15, seed=seed + 1),
    ]  # fmt: skip
    parts = [
        _Part(("ann", "bob", "eve")[i % 3], 600.0 * i + rng.uniform(0, 300), trace)
        for i, trace in enumerate(traces)
    ]
    past = [montage(15, seed=94), soykb(10, 20, seed=94), forkjoin(*_WIDTHS, seed=94)]
    return _load("several", parts, past)


def _queue(seed: int) -> Load:
    """Three hours of jobs of some five minutes, for twenty cores on average, and two batches."""
    rng = Random(seed)
    parts, at = [], 0.0
    while at < 3 * 3600:
        at += rng.expovariate(20 / 300)
        parts.append(_Part(rng.choice(("ann", "bob")), at, _jobs(1, rng), known=False))
    parts += [_Part("eve", at, _jobs(60, rng), known=False) for at in (2000.0, 7000.0)]
    return _load("queue", parts, [_jobs(100, Random(95))])


def _jobs(count: int, rng: Random) -> Trace:
    runs = [300 * rng.lognormvariate(-0.125, 0.5) for _ in range(count)]
    return _trace("jobs", ["job"] * count, [()] * count, runs, [0] * count)


def _by_chance(seed: int) -> Load:
    rng = Random(seed)
    parts, at = [], 0.0
    while at < 4 * 3600:
        width = rng.randint(10, 60)
        shape = ((1, width, 2, max(1, width // 3)), (60, 400, 200, 300))
        parts.append(
            _Part(rng.choice(("ann", "bob")), at, forkjoin(*shape, seed=rng.randrange(99)))
        )
        at += rng.expovariate(1 / 900)
    return _load("chance", parts, [forkjoin(*_SMALL, seed=96)])


def _failing(seed: int) -> Load:
    """Each fails at a job that most of what follows waits for."""
    first, second = soykb(10, 12, seed=seed), forkjoin(*_WIDTHS, seed=seed)
    parts = [
        _Part("ann", 0.0, first, fails=first.kinds.index("indel_realign")),
        _Part("bob", 900.0, second, fails=second.kinds.index("stage2")),
    ]
    return _load("failing", parts, [soykb(5, 10, seed=97), forkjoin(*_WIDTHS, seed=97)])


def cases(recorded: Sequence[Trace], more: int = 0) -> list[Case]:
    """All of them; a recorded workflow at three boot times, with beliefs from the others of its
    family. ``more`` is added to every seed, for a second look at what was tuned on the first."""
    all_cases = []
    for number, trace in enumerate(sorted(recorded, key=lambda trace: trace.name)):
        others = [t for t in recorded if t.family == trace.family and t.name != trace.name]
        load = _load(trace.name, [_Part("ann", 0.0, trace)], others)
        for boot in (60, 300, 600):
            all_cases.append(
                Case(f"{trace.family}, recorded", load, BOOTS[boot], 100 + number + boot + more)
            )
    return all_cases + _made_up(more)
