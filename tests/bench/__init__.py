"""Benches: what ADON does, in figures, beside what others do.

A bench is a function in a module ``tests/bench/bench_*.py``:

    @bench("P7")
    def status_lag(tell: Tell) -> Iterable[Figure]:
        tell("1,000 workflows for 15 s")
        yield Figure("status lag, 99th percentile", 0.2, "s", better="lower", goal=1.0,
                     peers={"re-reading every 5 s": 4.9})

``python -m tests.bench`` runs them all, ``--only P7`` those of one id.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

T = TypeVar("T")

Tell = Callable[[str], None]
"""Shows one line of progress."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure in ``unit``.

    ``goal`` is what it should reach at least (or at most, where lower is better), None if there
    is none; ``peers`` holds what other ways to do the same reach in the same unit, by name.
    """

    figure: str
    value: float
    unit: str
    better: Literal["higher", "lower"]
    goal: float | None = None
    peers: Mapping[str, float] = field(default_factory=dict)

    @property
    def reached(self) -> bool:
        """Whether the goal is met; True where there is none."""
        if self.goal is None:
            return True
        return self.value >= self.goal if self.better == "higher" else self.value <= self.goal


@dataclass(frozen=True, slots=True)
class Input:
    """What a bench reads, such as a folder of traces, and a digest of it."""

    name: str
    digest: str


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share of the list lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def percentiles(
    what: str,
    unit: str,
    ours: Sequence[float],
    peers: Mapping[str, Sequence[float]] | None = None,
    *,
    high: float = 0.99,
    goal: float | None = None,
) -> Iterator[Figure]:
    """The median and a high percentile, the lower the better; the goal is for the latter."""
    for words, share in (("median", 0.5), (f"{100 * high:g}th percentile", high)):
        beside = {name: percentile(values, share) for name, values in (peers or {}).items()}
        limit = goal if share == high else None
        yield Figure(f"{what}, {words}", percentile(ours, share), unit, "lower", limit, beside)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """What it makes, and the seconds that it took."""
    began = time.perf_counter()
    made = work()
    return made, time.perf_counter() - began


Measure = Callable[[Tell], Iterable[Figure | Input]]


@dataclass(frozen=True, slots=True)
class Bench:
    """A function that measures figures, and the id of the group they belong to."""

    id: str
    run: Measure


BENCHES: list[Bench] = []


def bench(bench_id: str) -> Callable[[Measure], Measure]:
    """Registers a function as a bench of a group of figures, such as ``P7``."""

    def register(function: Measure) -> Measure:
        BENCHES.append(Bench(bench_id, function))
        return function

    return register
