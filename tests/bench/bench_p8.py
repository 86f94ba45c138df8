"""P8: measurements scheduled without conflicts, and how near to what is possible at all.

Ten thousand tasks between 500 hosts on networks of four kinds (:mod:`tests.bench.meshes`), due by
the end of their periods or earlier. Of each set all durations are multiplied so that it takes the
wanted part of what every schedule must keep to (:mod:`monitors.measurements.load`). What is found
is looked at by :func:`tests.schedule_check.verify`, which shares nothing with the scheduler.

Peers, on the same tasks: the thesis's Algorithm 1; earliest deadline first without conflict edges
(it misses nothing, and measurements disturb each other); one measurement at a time in the whole
network, which needs no conflict edges.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random

from monitors.measurements.load import bound
from monitors.measurements.schedule import arrive, leave, plan, squeeze
from monitors.measurements.tasks import Agreement, Infeasible, Schedule, Task
from tests.bench import Figure, Tell, bench
from tests.bench.edf_ce import Starts, sweep
from tests.bench.meshes import HOSTS, HOUR_MS, NETWORKS, TASKS, measurements
from tests.schedule_check import verify

LOADS = (0.5, 0.6, 0.7, 0.8, 0.9)
PEERS_AT = (0.5, 0.8)
GOAL_AT = 0.8
GOAL_S = 5.0
SEEDS = (1, 2, 3)  # the first at all loads, the others where the goal is
DUE = {"by the end of the period": (1.0,), "within 25 to 100 % of it": (0.25, 0.5, 1.0)}
FREE = Agreement()


@dataclass
class Found:
    """Sums over all sets of tasks with a load."""

    tasks: int = 0
    missed: int = 0
    conflicts: int = 0
    slowest_s: float = 0.0
    peers: int = 0  # runs of the sets that the peers were given
    edf_ce: int = 0
    alone: int = 0
    disturbed: int = 0


def scaled(tasks: list[Task], load: float, possible: float) -> list[Task]:
    """All durations multiplied so that the tasks take that part of what is possible, or up to a
    millisecond a run more; all that is possible is never exceeded."""
    whole = math.ceil if load < 1 else math.floor
    return [
        replace(task, duration_ms=max(1, min(whole(task.duration_ms * load * possible),
                                             task.deadline_ms)))
        for task in tasks
    ]  # fmt: skip


def sets() -> Iterator[tuple[str, int, list[Task]]]:
    """Name, seed and tasks."""
    for seed in SEEDS:
        for network in NETWORKS:
            for due, within in DUE.items():
                yield f"{network}, due {due}", seed, measurements(network, seed, within)


def disturbed(tasks: list[Task], starts: Starts) -> int:
    """How many runs share a host or a link with another at some time."""
    on: defaultdict[object, list[tuple[int, int, tuple[int, int]]]] = defaultdict(list)
    for run, at in starts.items():
        task = tasks[run[0]]
        for resource in task.needs:
            on[resource].append((at, at + task.duration_ms, run))
    runs: set[tuple[int, int]] = set()
    for times in on.values():
        times.sort()
        until, last = -1, (0, 0)
        for start, end, run in times:
            if start < until:
                runs |= {run, last}
            if end > until:
                until, last = end, run
    return len(runs)


def add_peers(counts: Found, tasks: list[Task]) -> None:
    """What the others make of the same tasks."""
    starts, missed = sweep(tasks)
    counts.peers += len(starts) + missed
    counts.edf_ce += missed
    single_host = frozenset({"the network"})
    counts.alone += sweep([replace(t, hosts=single_host, links=frozenset()) for t in tasks])[1]
    nobody: frozenset[str] = frozenset()
    loose = [replace(t, hosts=nobody, links=frozenset()) for t in tasks]
    counts.disturbed += disturbed(tasks, sweep(loose)[0])


def add_ours(counts: Found, tasks: list[Task]) -> None:
    """The schedule, looked at by somebody else. Of a set without one, all tasks that found no room
    count as missed."""
    began = time.process_time()
    try:
        result = plan(tasks, FREE)
    except Infeasible as error:
        counts.missed += len(error.tasks)
        return
    finally:
        counts.slowest_s = max(counts.slowest_s, time.process_time() - began)
        counts.tasks += len(tasks)
    wrong = verify(tasks, FREE, result)
    counts.conflicts += sum(" are both on " in words for words in wrong)
    if wrong:
        raise AssertionError(f"a schedule is not right: {wrong[0]}")


@bench("P8")
def schedule(tell: Tell) -> Iterable[Figure]:
    """Misses by load, conflicts, and the time that a schedule takes."""
    table = {load: Found() for load in LOADS}
    for name, seed, tasks in sets():
        most = bound(tasks, FREE)
        tell(f"{name}, seed {seed}: scarcest is {most.why}")
        for load in LOADS if seed == SEEDS[0] else (GOAL_AT,):
            loaded = scaled(tasks, load, most.scale)
            before = table[load].missed
            add_ours(table[load], loaded)
            if table[load].missed > before:
                tell(f"{table[load].missed - before} tasks without room at {load:.0%} of the bound")
            if load in PEERS_AT and seed == SEEDS[0]:
                add_peers(table[load], loaded)
    yield from figures(table)


def figures(table: dict[float, Found]) -> Iterator[Figure]:
    """Of what was found."""
    within_goal = [counts for load, counts in table.items() if load <= GOAL_AT]
    yield Figure(
        f"time to schedule {TASKS:,} tasks on {HOSTS} hosts, one core, longest",
        max(counts.slowest_s for counts in within_goal), "s", better="lower", goal=GOAL_S,
    )  # fmt: skip
    peers = [counts for counts in within_goal if counts.peers]
    yield Figure(
        f"runs disturbed by another, up to {GOAL_AT:.0%} of the bound",
        sum(counts.conflicts for counts in within_goal), "runs", better="lower", goal=0,
        peers={"EDF without conflict edges": sum(counts.disturbed for counts in peers)},
    )  # fmt: skip
    for load, counts in table.items():
        names = {"EDF-CE (Algorithm 1)": counts.edf_ce, "one at a time": counts.alone}
        yield Figure(
            f"tasks without room at {load:.0%} of the bound (peers: runs late)",
            100 * counts.missed / counts.tasks, "%", better="lower",
            goal=0 if load <= GOAL_AT else None,
            peers={n: 100 * missed / counts.peers for n, missed in names.items() if counts.peers},
        )  # fmt: skip


@bench("P8")
def online(tell: Tell) -> Iterable[Figure]:
    """A task that arrives, and a run on demand, beside 10,000 tasks at 35 % of the bound."""
    tasks = measurements("abilene", SEEDS[0])
    tasks = scaled(tasks, 0.35, bound(tasks, FREE).scale)
    whole = plan(tasks, FREE)
    now_ms = 10 * HOUR_MS + 1_234_567  # no instant that is special
    arrival_s, demand_s, waits_ms = [], [], []
    for task in tasks[:: len(tasks) // 10]:
        others = [other for other in tasks if other.name != task.name]
        without: Schedule = leave(whole, task.name)
        began = time.process_time()
        arrive(without, others, FREE, task)
        arrival_s.append(time.process_time() - began)
        began = time.process_time()
        slot = squeeze(whole, tasks, FREE, replace(task, name="now"), now_ms, now_ms + HOUR_MS)
        demand_s.append(time.process_time() - began)
        waits_ms.append(slot.start_ms - now_ms)
    tell(f"runs on demand waited {sorted(waits_ms)[len(waits_ms) // 2] / 1000:.0f} s (median)")
    for words, times in (("a task arrives", arrival_s), ("a run on demand", demand_s)):
        yield Figure(
            f"{words} beside {TASKS:,} tasks, longest of {len(times)}", max(times), "s",
            better="lower",
        )  # fmt: skip


SMALL_SETS = 1000
SMALL_MS = (10, 20)


def small_set(rng: Random) -> list[Task]:
    """Three to six tasks between four hosts."""
    tasks = []
    for number in range(rng.randint(3, 6)):
        period, duration = rng.choice(SMALL_MS), rng.randint(1, 5)
        deadline = rng.randint(duration, period)
        hosts = frozenset(rng.sample("abcd", 2))
        tasks.append(Task(f"t{number}", period, duration, deadline, hosts))
    return tasks


def exists(tasks: list[Task]) -> bool:
    """Whether there is a schedule: all starts of all runs are tried."""
    whole = math.lcm(*(task.period_ms for task in tasks))
    ways = []
    for task in tasks:
        for release in range(0, whole, task.period_ms):
            last = release + task.deadline_ms - task.duration_ms
            times = [
                sum(1 << at % whole for at in range(start, start + task.duration_ms))
                for start in range(release, last + 1)
            ]
            ways.append((task.hosts, times))

    def complete(left: list[tuple[frozenset[str], list[int]]], busy: dict[str, int]) -> bool:
        if not left:
            return True
        open_ways = [
            (hosts, [t for t in times if not any(busy[h] & t for h in hosts)])
            for hosts, times in left
        ]
        hosts, times = min(open_ways, key=lambda way: len(way[1]))
        rest = list(open_ways)
        rest.remove((hosts, times))
        return any(complete(rest, {**busy, **{h: busy[h] | t for h in hosts}}) for t in times)

    return complete(ways, dict.fromkeys("abcd", 0))


def fits(tasks: list[Task]) -> bool:
    """Whether it is planned."""
    try:
        plan(tasks, FREE)
    except Infeasible:
        return False
    return True


@bench("P8")
def small_sets(tell: Tell) -> Iterable[Figure]:
    """Sets so small that whether there is a schedule can be found out by trying everything."""
    rng = Random(1)
    possible = planned = edf = refused = 0
    for _ in range(SMALL_SETS):
        tasks = small_set(rng)
        if exists(tasks):
            possible += 1
            planned += fits(tasks)
            edf += not sweep(tasks)[1]
        else:
            refused += bound(tasks, FREE).load > 1
    tell(f"{possible} of {SMALL_SETS} sets have a schedule")
    yield Figure(
        "of small sets that have a schedule, planned", 100 * planned / possible, "%",
        better="higher", peers={"EDF-CE (Algorithm 1)": 100 * edf / possible},
    )  # fmt: skip
    yield Figure(
        "of small sets that have none, refused by the bound",
        100 * refused / (SMALL_SETS - possible), "%", better="higher",
    )  # fmt: skip
