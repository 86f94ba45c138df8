"""Small traces and platforms for tests of the evaluation, and a slow simulator to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from site_selector.evaluation.traces import Task, Trace, build_trace
from site_selector.evaluation.worlds import Platform

MBIT = 125_000  # bytes that one megabit per second moves in a second


def task(name: str, seconds: float, reads: Sequence[str] = (), writes: Sequence[str] = ()) -> Task:
    """A task whose parents follow from its files."""
    return Task(name, name.rstrip("0123456789"), (), (), tuple(reads), tuple(writes), seconds)


def platform(
    workers: Sequence[int],
    link_mbps: float = 1.0,
    store: int = 0,
    speed: Sequence[float] | None = None,
    queue_s: Sequence[float] | None = None,
) -> Platform:
    """Sites with equal links between all; the store is a place of its own where it is no site."""
    n = len(workers)
    places = max(n, store + 1)
    links = [[0.0 if a == b else link_mbps * 1e6 for b in range(places)] for a in range(places)]
    return Platform(
        tuple(f"s{i}" for i in range(n)),
        tuple(workers),
        tuple(speed or [1.0] * n),
        tuple(queue_s or [0.0] * n),
        tuple(tuple(row) for row in links),
        store,
    )


def random_trace(rng: Random) -> Trace:
    """Up to twelve tasks in layers, with files of many sizes, some of them empty."""
    tasks: list[Task] = []
    sizes: dict[str, float] = {"raw0": 3.0 * MBIT, "raw1": 0.0}
    made: list[str] = []
    for i in range(rng.randint(1, 12)):
        reads = rng.sample(made, rng.randint(0, min(3, len(made))))
        reads += rng.sample(["raw0", "raw1"], rng.randint(0, 2))
        writes = [f"f{i}.{k}" for k in range(rng.randint(0, 2))]
        for name in writes:
            sizes[name] = float(rng.choice([0, 1, 5, 50]) * MBIT)
        seconds = rng.choice([0.0, 1.0, 7.0, 30.0])
        tasks.append(task(f"k{rng.randint(0, 2)}t{i}", seconds, reads, writes))
        made += writes
    return build_trace("random", tasks, sizes)


def random_platform(rng: Random) -> Platform:
    """Two to four sites; the store is one of them or not."""
    n = rng.randint(2, 4)
    places = n + rng.randint(0, 1)
    links = [[0.0] * places for _ in range(places)]
    for a in range(places):
        for b in range(a):
            links[a][b] = links[b][a] = rng.choice([1e6, 8e6, 1e9])
    return Platform(
        tuple(f"s{i}" for i in range(n)),
        tuple(rng.randint(1, 3) for _ in range(n)),
        tuple(rng.choice([0.5, 1.0, 3.0]) for _ in range(n)),
        tuple(rng.choice([0.0, 2.0, 60.0]) for _ in range(n)),
        tuple(tuple(row) for row in links),
        places - 1 if places > n else rng.randrange(n),
    )
