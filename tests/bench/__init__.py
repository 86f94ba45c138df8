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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Tell = Callable[[str], None]
"""Shows one line of progress."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure in ``unit``.

    ``goal`` is what it should reach at least (or at most, where lower is better), None where there
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
class Bench:
    """A function that measures figures, and the id of the group they belong to."""

    id: str
    run: Callable[[Tell], Iterable[Figure]]


BENCHES: list[Bench] = []


def bench(
    bench_id: str,
) -> Callable[[Callable[[Tell], Iterable[Figure]]], Callable[[Tell], Iterable[Figure]]]:
    """Registers a function as a bench of a group of figures, such as ``P7``."""

    def register(
        function: Callable[[Tell], Iterable[Figure]],
    ) -> Callable[[Tell], Iterable[Figure]]:
        BENCHES.append(Bench(bench_id, function))
        return function

    return register
