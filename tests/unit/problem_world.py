"""Problems of site selection made directly, without files: by hand, and at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import numpy as np

from site_selector.problem import Problem


def problem_of(
    jobs: Sequence[tuple[Sequence[str], Sequence[str]]],
    sizes: Mapping[str, float],
    held: Mapping[str, Sequence[int]],
    compute_s: Sequence[Sequence[float]],
    seconds_per_byte: Sequence[Sequence[float]],
    *,
    workers: Sequence[int] | None = None,
    queue_s: Sequence[float] | None = None,
    setup_s: Sequence[Sequence[float]] | None = None,
    occupied: float = 1.0,
    allowed: Sequence[Sequence[int]] | None = None,
    wanted: Sequence[str] = (),
    output: int = -1,
    after: Sequence[tuple[int, int]] = (),
    staging: str = "per-site",
) -> Problem:
    """``jobs`` are (reads, writes) in topological order, ``after`` edges without a file."""
    files = list(dict.fromkeys(f for reads, writes in jobs for f in (*reads, *writes)))
    index = {name: i for i, name in enumerate(files)}
    producer = {f: j for j, (_, writes) in enumerate(jobs) for f in writes}
    parents: list[dict[int, None]] = [{} for _ in jobs]
    for j, (reads, _) in enumerate(jobs):
        parents[j].update((producer[f], None) for f in reads if f in producer)
    for above, below in after:
        parents[below][above] = None
    level: list[int] = []
    for found in parents:
        level.append(1 + max((level[p] for p in found), default=-1))
    n_sites, n_places = len(compute_s[0]), len(seconds_per_byte)
    per_byte = np.array(seconds_per_byte, dtype=np.float64)
    setup = np.zeros((n_places, n_places)) if setup_s is None else np.array(setup_s, np.float64)
    return Problem(
        jobs=tuple(f"job{j}" for j in range(len(jobs))),
        places=tuple(f"place{p}" for p in range(n_places)),
        n_sites=n_sites,
        files=tuple(files),
        parents=tuple(tuple(found) for found in parents),
        children=tuple(
            tuple(c for c, found in enumerate(parents) if j in found) for j in range(len(jobs))
        ),
        reads=tuple(tuple(index[f] for f in reads) for reads, _ in jobs),
        writes=tuple(tuple(index[f] for f in writes) for _, writes in jobs),
        readers=tuple(tuple(j for j, (reads, _) in enumerate(jobs) if f in reads) for f in files),
        producer=tuple(producer.get(f, -1) for f in files),
        holders=tuple(() if f in producer else tuple(held[f]) for f in files),
        returns=tuple(f in wanted for f in files),
        size=tuple(float(sizes[f]) for f in files),
        guessed=(False,) * len(files),
        allowed=tuple(
            tuple(range(n_sites)) if allowed is None else tuple(allowed[j])
            for j in range(len(jobs))
        ),
        level=tuple(level),
        input_bytes=np.array([max(1.0, sum(sizes[f] for f in reads)) for reads, _ in jobs]),
        compute_s=np.array(compute_s, dtype=np.float64),
        queue_s=np.zeros(n_sites) if queue_s is None else np.array(queue_s, dtype=np.float64),
        workers=tuple(workers or [1] * n_sites),
        seconds_per_byte=per_byte,
        occupied_per_byte=per_byte * occupied,
        setup_s=setup,
        output=output,
        compute=((None,) * n_sites,) * len(jobs),
        staging=staging,
    )


def random_problem(seed: int, staging: str = "per-site", longest: int = 25) -> Problem:
    """One to ``longest`` jobs on one to four sites; times and sizes often the same or zero."""
    rng = Random(seed)
    sites, n = rng.randint(1, 4), rng.randint(1, longest)
    places = sites + rng.randint(0, 1)
    shared = [f"shared{i}" for i in range(3)]
    names, sizes, held, after = list(shared), {}, {}, []
    jobs: list[tuple[list[str], list[str]]] = []
    for j in range(n):
        reads = [rng.choice(shared)] if rng.random() < 0.5 else []
        reads += [f"raw{j}"] if rng.random() < 0.3 else []
        for p in rng.sample(range(j), min(j, rng.randint(0, 3))):
            written = jobs[p][1]
            if written and rng.random() < 0.9:
                reads.append(rng.choice(written))
            else:
                after.append((p, j))
        jobs.append((list(dict.fromkeys(reads)), [f"{j}.{k}" for k in range(rng.randint(0, 3))]))
        names += [f"raw{j}", *jobs[-1][1]]
    for name in names:
        sizes[name] = rng.choice([0.0, 1e6, float(rng.randint(1, 10**9))])
        held[name] = rng.sample(range(places), rng.randint(1, places))
    rates = [
        [0.0 if a == b else rng.choice([1e-8, rng.uniform(1e-9, 1e-6)]) for b in range(places)]
        for a in range(places)
    ]
    waits = [
        [0.0 if a == b else rng.choice([0.0, 2.5]) for b in range(places)] for a in range(places)
    ]
    return problem_of(
        jobs,
        sizes,
        held,
        [[rng.choice([0.0, 1.0, rng.uniform(0, 60)]) for _ in range(sites)] for _ in range(n)],
        rates,
        workers=[rng.randint(1, 4) for _ in range(sites)],
        queue_s=[rng.choice([0.0, 5.0, 60.0]) for _ in range(sites)],
        setup_s=waits,
        occupied=rng.choice([1.0, 0.5]),
        allowed=[sorted(rng.sample(range(sites), rng.randint(1, sites))) for _ in range(n)],
        wanted=[name for name in names if rng.random() < 0.4 and "." in name],
        output=rng.choice([-1, places - 1, 0]),
        after=after,
        staging=staging,
    )


def any_sites(problem: Problem, seed: int) -> list[int]:
    """An assignment at random."""
    rng = Random(seed)
    return [rng.choice(allowed) for allowed in problem.allowed]
