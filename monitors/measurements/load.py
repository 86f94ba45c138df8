"""How much is measured: how much is possible at all, and how much of each thing a schedule takes.

The bound takes conditions that every schedule meets, whoever makes it.

*Demand.* Take tasks of which at most ``m`` can run at once, and a stretch of time: all runs whose
windows lie within it must fit into ``m`` times its length (Baruah, Rosier and Howell, Real-Time
Systems 2, 1990, have it for one processor). Sets of such tasks are those on one host or link (m =
1), and those of a domain (m as agreed; likewise for its load).

*Blocking.* A run is not interrupted. So whatever conflicts with a task fits between two of its runs
that follow each other, which are at most period + deadline - 2 durations apart.

All conditions are proportional to durations, so together they say by how much these could be
multiplied. That no condition is violated does not mean that there is a schedule.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from monitors.measurements.tasks import Agreement, Resource, Schedule, Task, seconds
from network_provisioner.base.errors import InputError

MOST_RUNS = 2_000_000
"""In a hyperperiod: more than that would take minutes, and hundreds of megabytes."""
_MOST_INSTANTS = 400  # ends of stretches that are looked at


@dataclass(frozen=True, slots=True)
class LoadBound:
    """``load``: the part of what is possible at most that the tasks take; above 1 no schedule
    exists. ``scale``, its inverse: by how much all durations could be multiplied at most, infinite
    where nothing is measured. ``why`` names what is scarcest."""

    load: float
    why: str

    @property
    def scale(self) -> float:
        """By how much all durations could be multiplied at most."""
        return 1 / self.load if self.load else math.inf


def bound(tasks: Sequence[Task], agreement: Agreement) -> LoadBound:
    """What is scarcest. Raises InputError as :func:`hyperperiod`."""
    whole_ms = hyperperiod(tasks)
    best = max(
        (LoadBound(0.0, "nothing is scarce"), *_alone(tasks), *_blocked(tasks)),
        key=lambda b: b.load,
    )
    groups = [*_resources(tasks), *_domains(tasks, agreement)]
    # No stretch of time has a higher demand than its ceiling, so most need not be looked at.
    for group in sorted(groups, key=lambda group: -group.ceiling):
        if group.ceiling <= best.load:
            break
        best = max(best, group.demand(whole_ms), key=lambda b: b.load)
    return best


@dataclass(frozen=True, slots=True)
class _Group:
    """Tasks that share something: at most ``most`` (in any unit) at any time, of which a run needs
    so much."""

    what: str
    most: float
    needs: Sequence[tuple[Task, float]]

    @property
    def ceiling(self) -> float:
        """With deadlines no later than periods, the demand of a task is never more than its
        duration for every deadline's length."""
        total = sum(need * task.duration_ms / task.deadline_ms for task, need in self.needs)
        return (total / self.most if self.most else math.inf) * (1 + 1e-9)

    def demand(self, whole_ms: int) -> LoadBound:
        """The stretch of time with the highest demand. All tasks are released together, and the
        stretches that begin then are the worst."""
        total: defaultdict[tuple[int, int], float] = defaultdict(float)
        for task, need in self.needs:
            total[task.period_ms, task.deadline_ms] += need * task.duration_ms
        ends = {end for p, d in total for end in range(d, whole_ms + 1, p)} | {whole_ms}
        best, length = 0.0, whole_ms
        for end in _some(sorted(ends)):
            inside = sum(m * ((end - d) // p + 1) for (p, d), m in total.items() if end >= d)
            part = inside / (self.most * end) if self.most else math.inf
            if part > best:
                best, length = part, end
        during = "the time" if length == whole_ms else f"some {seconds(length)}"
        return LoadBound(best, f"{self.what} is needed {best:.1%} of {during}")


def _alone(tasks: Sequence[Task]) -> Iterator[LoadBound]:
    """For the task that takes the largest part of its own deadline."""
    for task in sorted(tasks, key=lambda task: -task.duration_ms / task.deadline_ms)[:1]:
        yield LoadBound(
            task.duration_ms / task.deadline_ms,
            f"{task.name!r} takes {seconds(task.duration_ms)} within {seconds(task.deadline_ms)}",
        )


def _blocked(tasks: Sequence[Task]) -> Iterator[LoadBound]:
    """For each resource the task with the least room beside the longest run of another."""
    for members in on_each(tasks).values():
        longest = sorted(members, key=lambda task: -task.duration_ms)[:2]
        best, pair = 0.0, None
        for task in members:
            other = next((candidate for candidate in longest if candidate is not task), None)
            if other is not None:
                part = other.duration_ms + 2 * task.duration_ms
                if part / (task.period_ms + task.deadline_ms) > best:
                    best, pair = part / (task.period_ms + task.deadline_ms), (other, task)
        if pair is not None:
            names = f"a run of {pair[0].name!r} has to fit between two of {pair[1].name!r}"
            yield LoadBound(best, names)


def _resources(tasks: Sequence[Task]) -> Iterator[_Group]:
    for resource, members in on_each(tasks).items():
        yield _Group(resource_text(resource), 1, [(task, 1) for task in members])


def _domains(tasks: Sequence[Task], agreement: Agreement) -> Iterator[_Group]:
    for name in sorted(agreement.domains):
        inside = [task for task in tasks if agreement.domains[name] & task.links]
        if name in agreement.at_once:
            most = agreement.at_once[name]
            yield _Group(f"domain {name!r} (at once)", most, [(task, 1) for task in inside])
        if agreement.domain_bps.get(name):
            loads = [(task, task.load_bps) for task in inside]
            yield _Group(f"domain {name!r} (load)", agreement.domain_bps[name], loads)


def on_each(tasks: Iterable[Task]) -> Mapping[Resource, list[Task]]:
    """The tasks that need each host and link."""
    on_resource: defaultdict[Resource, list[Task]] = defaultdict(list)
    for task in tasks:
        for resource in task.needs:
            on_resource[resource].append(task)
    return on_resource


def shares(tasks: Iterable[Task]) -> Mapping[Resource, float]:
    """The part of the time that each host and link is needed."""
    return {
        resource: sum(task.duration_ms / task.period_ms for task in members)
        for resource, members in on_each(tasks).items()
    }


def resource_text(resource: Resource) -> str:
    """A host or a link, for people."""
    return f"host {resource}" if isinstance(resource, str) else f"link {'-'.join(resource)}"


def _some(ordered: Sequence[int]) -> Sequence[int]:
    """All, or as many as are looked at, evenly."""
    if len(ordered) <= _MOST_INSTANTS:
        return ordered
    step = (len(ordered) - 1) / (_MOST_INSTANTS - 1)
    return [ordered[round(n * step)] for n in range(_MOST_INSTANTS)]


def hyperperiod(tasks: Iterable[Task], whole_ms: int = 1) -> int:
    """The least common multiple of all periods and of ``whole_ms``, in ms.

    Raises InputError where it has more runs than can be planned, naming the periods.
    """
    counts = Counter(max(1, task.period_ms) for task in tasks)
    whole = math.lcm(whole_ms, *counts)
    runs = sum(count * (whole // period) for period, count in counts.items())
    if runs <= MOST_RUNS:
        return whole
    periods = sorted(counts)
    shown = [seconds(p) for p in (periods if len(periods) < 9 else [*periods[:4], *periods[-4:]])]
    raise InputError(
        f"measurement tasks have the periods {', '.join(shown)}, which come together again only "
        f"every {whole / 86_400_000:.3g} days after {runs:.3g} runs, expected at most "
        f"{MOST_RUNS:,} runs; {_suggestion(periods)}"
    )


def _suggestion(periods: Sequence[int]) -> str:
    """The period that does most harm, and one nearby that divides, or is a multiple of, others."""
    odd = max(
        periods, key=lambda p: math.lcm(*periods) // math.lcm(*(q for q in periods if q != p), 1)
    )
    longest = max((p for p in periods if p != odd), default=odd)
    parts = (d for d in range(1, 10_001) if longest % d == 0)
    better = min((longest // d for d in parts), key=lambda p: (abs(math.log(p / odd)), p))
    if odd > longest:
        better = longest * max(1, round(odd / longest))
    return f"{seconds(better)} instead of {seconds(odd)} would help"


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Of one host, link or domain.

    ``share``         part of the time in which something runs there, 0 to 1
    ``tasks``         how many tasks need it
    ``at_once``       how many run at the same time at most, and ``load_bps`` with what load
    ``agreed``        how many may, by the agreement, and ``agreed_bps``; None: any
    """

    kind: Literal["host", "link", "domain"]
    name: str
    share: float
    tasks: int
    at_once: int
    load_bps: float
    agreed: int | None = None
    agreed_bps: float | None = None


def usage(tasks: Iterable[Task], agreement: Agreement, schedule: Schedule) -> list[ResourceUse]:
    """Of every host, link and bounded domain that a task needs; each kind by its share, the largest
    first."""
    tasks = list(tasks)
    slots: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for slot in schedule.slots:
        slots[slot.task].append((slot.start_ms, slot.end_ms))

    def of(members: Sequence[Task]) -> tuple[float, int, int, float]:
        changes = sorted(
            change
            for task in members
            for begin, end in slots[task.name]
            for change in _changes(begin, end, schedule.hyperperiod_ms, task.load_bps)
        )
        return _sums(changes, schedule.hyperperiod_ms, len(members))

    uses = []
    for resource, members in on_each(tasks).items():
        if isinstance(resource, str):
            uses.append(ResourceUse("host", resource, *of(members)))
        else:
            most_bps = agreement.links.get(resource)
            uses.append(ResourceUse("link", "-".join(resource), *of(members), 1, most_bps))
    for name, inside in agreement.domains.items():
        members = [task for task in tasks if inside & task.links]
        at_once, most = agreement.at_once.get(name), agreement.domain_bps.get(name)
        uses.append(ResourceUse("domain", name, *of(members), at_once, most))
    kinds = ("host", "link", "domain")
    return sorted(uses, key=lambda u: (kinds.index(u.kind), -u.share, u.name))


def _changes(begin: int, end: int, whole: int, load: float) -> Iterator[tuple[int, int, float]]:
    """What begins and ends within the hyperperiod: when, how many more, how much more load."""
    start = begin % whole
    stop = start + end - begin
    for first, last in [(start, stop)] if stop <= whole else [(start, whole), (0, stop - whole)]:
        yield first, 1, load
        yield last, -1, -load


def _sums(
    changes: list[tuple[int, int, float]], whole: int, members: int
) -> tuple[float, int, int, float]:
    busy = since = count = most = 0
    load = highest = 0.0
    for at, more, load_bps in changes:  # what ends comes before what begins at the same instant
        busy += at - since if count else 0
        since, count, load = at, count + more, load + load_bps
        most, highest = max(most, count), max(highest, load)
    return busy / whole, members, most, highest
