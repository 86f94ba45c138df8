"""Small traces and platforms for tests of the evaluation, and a slow simulator to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from site_selector.evaluation.traces import Task, Trace, build_trace
from site_selector.evaluation.worlds import Platform
from site_selector.problem import Problem

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


def fluid_makespan(  # noqa: PLR0912, PLR0915  (in one piece it can be read beside the rules)
    p: Problem, site: Sequence[int], urgency: Sequence[float]
) -> float:
    """The makespan by the simulator's rules, told again in the plainest way: at every instant all
    rates are worked out anew, and time goes on to whatever comes first."""
    per_job = p.staging == "per-job"
    now = 0.0
    flows: list[list[object]] = []  # [bytes left, path, file, for whom]
    asked: set[tuple[int, int]] = set()
    here: set[tuple[int, int]] = set()  # (file, job): the file is at the job's site
    eligible_at: dict[int, float] = {}
    queued: set[int] = set()
    running: dict[int, float] = {}
    done: set[int] = set()

    def publish(f: int, at: Sequence[int]) -> None:
        for j in p.readers[f]:
            dst = site[j]
            if dst in at:
                here.add((f, j))
                continue
            src = min(at, key=lambda h: p.seconds_per_byte[h, dst])
            if per_job:
                flows.append([p.size[f], (src, dst), f, j])
            elif (f, dst) not in asked:
                asked.add((f, dst))
                flows.append([p.size[f], (src, dst), f, None])
        back = p.producer[f] >= 0 and p.returns[f] and p.output >= 0 and p.output not in at
        if back and (f, p.output) not in asked:
            flows.append([p.size[f], (at[0], p.output), f, -1])

    for f, producer in enumerate(p.producer):
        if producer < 0:
            publish(f, p.holders[f])
    last = 0.0
    while True:
        changed = True
        while changed:  # everything that happens now
            changed = False
            for flow in [flow for flow in flows if flow[0] <= 1e-6]:  # type: ignore[operator]
                flows.remove(flow)
                _, path, f, whom = flow
                for j in p.readers[f]:  # type: ignore[index]
                    if whom == j or (whom is None and site[j] == path[1]):  # type: ignore[index]
                        here.add((f, j))  # type: ignore[arg-type]
                changed, last = True, now
            for j in [j for j, end in running.items() if end <= now + 1e-9]:
                del running[j]
                done.add(j)
                for f in p.writes[j]:
                    publish(f, (site[j],))
                changed, last = True, now
            for j in range(len(p.jobs)):
                ready = all(a in done for a in p.parents[j])
                if j not in eligible_at and ready and all((f, j) in here for f in p.reads[j]):
                    eligible_at[j] = now + float(p.queue_s[site[j]])
                    changed = True
            for j, at in eligible_at.items():
                if at <= now + 1e-9 and j not in queued:
                    queued.add(j)
                    changed = True
                    last = max(last, now)
        for s in range(p.n_sites):
            waiting = [j for j in queued if site[j] == s and j not in running and j not in done]
            waiting.sort(key=lambda j: (-urgency[j], j))
            busy = sum(site[j] == s for j in running)
            for j in waiting[: p.workers[s] - busy]:
                running[j] = now + float(p.compute_s[j, s])
        if any(end <= now for end in running.values()):
            continue
        share = [
            1 / float(p.seconds_per_byte[flow[1]]) / sum(o[1] == flow[1] for o in flows)  # type: ignore[index]
            for flow in flows
        ]
        nexts = [flow[0] / rate for flow, rate in zip(flows, share, strict=True)]  # type: ignore[operator]
        nexts += [end - now for end in running.values()]
        nexts += [at - now for j, at in eligible_at.items() if j not in queued]
        if not nexts:
            return last
        step = min(nexts)
        for flow, rate in zip(flows, share, strict=True):
            flow[0] -= rate * step  # type: ignore[operator]
        now += step
