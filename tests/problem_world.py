"""Problems of site selection made directly, without files: by hand, and at random."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

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
    file_s: float = 0.0,
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
    for job_parents in parents:
        level.append(1 + max((level[p] for p in job_parents), default=-1))
    n_sites, n_places = len(compute_s[0]), len(seconds_per_byte)
    per_byte = np.array(seconds_per_byte, dtype=np.float64)
    setup = np.zeros((n_places, n_places)) if setup_s is None else np.array(setup_s, np.float64)
    return Problem(
        jobs=tuple(f"job{j}" for j in range(len(jobs))),
        places=tuple(f"place{p}" for p in range(n_places)),
        n_sites=n_sites,
        files=tuple(files),
        parents=tuple(tuple(job_parents) for job_parents in parents),
        children=tuple(
            tuple(c for c, job_parents in enumerate(parents) if j in job_parents)
            for j in range(len(jobs))
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
        fetches=fetches(
            tuple(tuple(range(n_sites)) for _ in jobs) if allowed is None else allowed, staging
        ),
        file_s=np.full((n_places, n_places), file_s),
    )


def fetches(allowed: Sequence[Sequence[int]], staging: str) -> tuple[tuple[int, ...], ...]:
    """The sites at which jobs fetch their files: none "per-site", all "per-job", every other job
    at sites of odd numbers and the others at the rest where "mixed"."""
    if staging == "mixed":
        return tuple(tuple(s for s in row if (s + j) % 2) for j, row in enumerate(allowed))
    return tuple(map(tuple, allowed)) if staging == "per-job" else ()


def staged_at(
    allowed: Sequence[Sequence[int]], place: int
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """All jobs with their files staged at a place."""
    return tuple(tuple((s, place) for s in row if s != place) for row in allowed)


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
    problem = problem_of(
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
        staging="per-site" if staging in ("staged", "bypassed") else staging,
        file_s=rng.choice([0.0, 0.5]),
    )
    if staging in ("staged", "bypassed"):
        staged = staged_at(problem.allowed, rng.randrange(places))
        problem = replace(problem, staged=staged, first_s=problem.setup_s / 2)
    if staging == "bypassed":
        raw = {f for f, producer in enumerate(problem.producer) if producer < 0}
        own = [
            tuple(f for f in files if f in raw and rng.random() < 0.7) for files in problem.reads
        ]
        problem = replace(problem, bypassed=tuple(own))
    if rng.random() < 0.5:
        links = [[rng.randint(-1, 1) for _ in range(places)] for _ in range(places)]
        problem = replace(problem, bottleneck=np.array(links))
    return problem


def any_sites(problem: Problem, seed: int) -> list[int]:
    """An assignment at random."""
    rng = Random(seed)
    return [rng.choice(allowed) for allowed in problem.allowed]


def plain_makespan(  # noqa: PLR0912, PLR0915  (in one piece it can be read beside the rules)
    p: Problem, site: Sequence[int], urgency: Sequence[float]
) -> float:
    """The makespan by the estimator's rules, told again in the plainest way: at every instant all
    rates are worked out anew, and time goes on to whatever comes first."""
    now = last = 0.0
    flows: list[list[Any]] = []  # [bytes left, path, files, for whom]
    landing: list[tuple[float, list[int], int, Any]] = []  # (at, files, place, for whom)
    here: set[tuple[int, int]] = set()  # (file, job): the file is at the job's site
    eligible_at: dict[int, float] = {}
    queued: set[int] = set()
    running: dict[int, float] = {}
    done: set[int] = set()
    alone = jobs_that_fetch(p, site)
    shared = shared_by(p, site)
    stage_jobs = plain_stage_jobs(p, site, urgency)
    taken_back: set[int] = set()
    own = p.bypassed or ((),) * len(p.jobs)
    under_way: dict[int, int] = {}  # of each job, its own transfers

    def publish(f: int, at: Sequence[int]) -> None:
        for j in p.readers[f]:
            dst = shared[j]
            if dst in at or f in own[j]:
                here.add((f, j))
            elif alone[j]:
                src = min(at, key=lambda h: p.seconds_per_byte[h, dst])
                flows.append([p.size[f], (src, dst), [f], j])
        back = p.producer[f] >= 0 and p.returns[f] and p.output >= 0 and p.output not in at
        if back and alone[p.producer[f]]:
            flows.append([p.size[f], (at[0], p.output), [f], -1])

    for f, producer in enumerate(p.producer):
        if producer < 0:
            publish(f, p.holders[f])
    while True:
        changed = True
        while changed:  # everything that happens now
            changed = False
            for name in [name for name, (after, _) in stage_jobs.items() if after <= done]:
                for path, files in stage_jobs.pop(name)[1].items():
                    flows.append([sum(p.size[f] for f in files), path, files, None])
            for flow in [flow for flow in flows if flow[0] <= 1e-6]:
                flows.remove(flow)
                further = float(np.asarray(p.file_s)[flow[1]]) * (len(flow[2]) - 1)
                setup_s = p.first_s if isinstance(flow[3], str) else p.setup_s
                at = now + (0.0 if setup_s is None else float(setup_s[flow[1]])) + further
                landing.append((at, flow[2], flow[1][1], flow[3]))
            for landed in [item for item in landing if item[0] <= now + 1e-9]:
                landing.remove(landed)
                _, files, place, whom = landed
                if isinstance(whom, str):
                    j = int(whom)
                    under_way[j] -= 1
                    if under_way[j]:
                        continue
                    running[j] = now if j in taken_back else now + float(p.compute_s[j, site[j]])
                    continue
                for f in files:
                    for j in p.readers[f]:
                        if shared[j] == place and whom == (j if alone[j] else None):
                            here.add((f, j))
                changed = True
            for j in [j for j, end in running.items() if end <= now + 1e-9]:
                changed = True
                if shared[j] != site[j] and p.writes[j] and j not in taken_back:
                    taken_back.add(j)
                    running[j], under_way[j] = math.inf, 1
                    size = sum(p.size[f] for f in p.writes[j])
                    flows.append([size, (site[j], shared[j]), p.writes[j], str(j)])
                    continue
                del running[j]
                done.add(j)
                for f in p.writes[j]:
                    publish(f, (shared[j],))
            for j in range(len(p.jobs)):
                ready = all(a in done for a in p.parents[j])
                if j not in eligible_at and ready and all((f, j) in here for f in p.reads[j]):
                    eligible_at[j] = now + float(p.queue_s[site[j]])
                    changed = True
            waited = {j for j, at in eligible_at.items() if at <= now + 1e-9} - queued
            queued |= waited
            changed = changed or bool(waited)
            last = now if changed else last
        for s in range(p.n_sites):
            waiting = [j for j in queued if site[j] == s and j not in running and j not in done]
            waiting.sort(key=lambda j: (-urgency[j], j))
            busy = sum(site[j] == s for j in running)
            for j in waiting[: p.workers[s] - busy]:
                running[j] = now + float(p.compute_s[j, s])
                brought: dict[Path, list[int]] = {}
                for f in p.reads[j]:
                    near = min(p.holders[f], key=lambda h: p.seconds_per_byte[h, s], default=-1)
                    src = shared[j] if f not in own[j] else s if s in p.holders[f] else near
                    if src != s:
                        brought.setdefault((src, s), []).append(f)
                if brought:
                    running[j], under_way[j] = math.inf, len(brought)
                for path, files in brought.items():
                    flows.append([sum(p.size[f] for f in files), path, files, str(j)])
        if any(end <= now for end in running.values()) or any(flow[0] <= 1e-6 for flow in flows):
            continue
        rates = []
        for _, path, *_ in flows:
            alike = [other for _, other, *_ in flows if line_of(p, other) == line_of(p, path)]
            taken = sum(
                min(1.0, float(p.occupied_per_byte[other] / p.seconds_per_byte[other]))
                for other in alike
            )
            rates.append(1 / (max(1.0, taken) * float(p.seconds_per_byte[path])))
        nexts = [flow[0] / rate for flow, rate in zip(flows, rates, strict=True)]
        nexts += [end - now for end in running.values() if end < math.inf]
        nexts += [at - now for at, *_ in landing]
        nexts += [at - now for j, at in eligible_at.items() if j not in queued]
        if not nexts:
            return last
        step = min(nexts)
        for flow, rate in zip(flows, rates, strict=True):
            flow[0] -= rate * step
        now += step


def line_of(p: Problem, path: tuple[int, int]) -> object:
    """What bounds a path: itself, or the link that it shares with others."""
    link = -1 if p.bottleneck is None else int(p.bottleneck[path])
    return path if link < 0 else link


def jobs_that_fetch(p: Problem, site: Sequence[int]) -> list[bool]:
    """Of each job whether it fetches its files at its site."""
    return [s in p.fetches[j] if p.fetches else False for j, s in enumerate(site)]


def shared_by(p: Problem, site: Sequence[int]) -> list[int]:
    """The place where the files of each job are there for all."""
    rows = p.staged or ((),) * len(site)
    return [dict(row).get(s, s) for row, s in zip(rows, site, strict=True)]


Path = tuple[int, int]


def plain_stage_jobs(
    p: Problem, site: Sequence[int], urgency: Sequence[float]
) -> dict[Any, tuple[set[int], dict[Path, list[int]]]]:
    """What Pegasus plans, by name: the jobs that a stage job waits for, and its files by path."""
    stages: dict[Any, tuple[set[int], dict[Path, list[int]]]] = {}
    brought: set[tuple[int, int]] = set()
    alone = jobs_that_fetch(p, site)
    shared = shared_by(p, site)

    def bundle(j: int) -> tuple[int, int]:
        level = [k for k, at in enumerate(p.level) if at == p.level[j]]
        return p.level[j], level.index(j) % math.ceil(len(level) / 10)

    def add(name: Any, f: int, src: int, dst: int) -> None:
        brought.add((f, dst))
        stages.setdefault(name, (set(), {}))[1].setdefault((src, dst), []).append(f)

    for j in sorted(range(len(p.jobs)), key=lambda j: (p.level[j], -urgency[j], j)):
        if alone[j]:
            continue
        dst = shared[j]
        for f in p.reads[j]:
            at = p.holders[f] if p.producer[f] < 0 else (shared[p.producer[f]],)
            if p.bypassed and f in p.bypassed[j]:
                continue
            if dst not in at and (f, dst) not in brought:
                name = ("in", bundle(j), dst) if p.producer[f] < 0 else ("inter", j)
                add(name, f, min(at, key=lambda h: p.seconds_per_byte[h, dst]), dst)
        if ("inter", j) in stages:
            writers = {p.producer[f] for f in p.reads[j]} - {-1}
            stages["inter", j][0].update(w for w in writers if shared[w] != dst)
    for f, j in enumerate(p.producer):
        if j >= 0 and not alone[j] and p.returns[f] and 0 <= p.output != shared[j]:
            name = ("out", bundle(j), shared[j])
            stages.setdefault(name, (set(), {}))[0].add(j)
            add(name, f, shared[j], p.output)
    return stages
