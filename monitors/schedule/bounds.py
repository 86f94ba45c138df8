"""How much measuring is possible at all: conditions that every schedule meets, whoever makes it.

*Demand.* Take tasks of which at most ``m`` can run at once, and a stretch of time: all runs whose
windows lie within it must fit into ``m`` times its length (Baruah, Rosier and Howell, Real-Time
Systems 2, 1990, have it for one processor). Sets of such tasks are: those on one host or link (m =
1); those that need at least two of the same three hosts or links, since any two of them share one
(m = 1); those of a domain (m as agreed; likewise for its load, and for those with a high load as
many as go into what is agreed; together with those of one host or link where nothing else fits
beside so many).

*Blocking.* A run is not interrupted. So whatever conflicts with a task fits between two of its runs
that follow each other, which are at most period + deadline - 2 durations apart.

All conditions are proportional to durations, so together they say by how much these could be
multiplied. That no condition is violated does not mean that there is a schedule.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from monitors.schedule.model import Agreement, Task
from monitors.schedule.work import Domain, Resource, Work, seconds, work_of

MOST_BUSY = 64
"""Hosts and links, the busiest, that are looked at three together."""
TRIPLES = 40
"""Of these, the most demanding, of which the demand is computed."""
MOST_INSTANTS = 400
"""Begins of stretches that are looked at, and ends of each."""

BESIDE = 8
"""Hosts and links, the busiest, that are looked at together with high loads in a domain."""

HIGH = 16
"""A load is high where fewer than so many of them go into what is agreed."""

Times = tuple[int, int, int]
"""Period, deadline and offset of a task, in ms."""


@dataclass(frozen=True, slots=True)
class Bound:
    """``load``: the part of what is possible at most that the tasks take; above 1 no schedule
    exists. ``scale``, its inverse: by how much all durations could be multiplied at most, infinite
    where nothing is measured. ``why`` names what is scarcest, ``tasks`` those that need it."""

    load: float
    why: str
    tasks: tuple[str, ...]

    @property
    def scale(self) -> float:
        """By how much all durations could be multiplied at most."""
        return 1 / self.load if self.load else math.inf


@dataclass(frozen=True, slots=True)
class Group:
    """Tasks that share something: at most ``most`` (in any unit) at any time. ``needs`` says of
    each task's number how much of it a run takes while it runs."""

    what: str
    most: int
    needs: Mapping[int, int]


def bound(tasks: Iterable[Task], agreement: Agreement) -> Bound:
    """What is scarcest. Raises InputError and Infeasible as
    :func:`monitors.schedule.work.work_of`."""
    return bound_of(work_of(tasks, agreement))


def bound_of(work: Work) -> Bound:
    """The same for work that is numbered already."""
    nothing = Bound(0.0, "nothing is scarce", ())
    best = max((nothing, *_alone(work), *_blocked(work)), key=lambda b: b.load)
    groups = [*_resources(work), *_domains(work), *_threes(work)]
    # No stretch of time has a higher demand than this, so most need not be looked at.
    ceilings = {n: _ceiling(work, group) for n, group in enumerate(groups)}
    for n in sorted(ceilings, key=lambda n: -ceilings[n]):
        if ceilings[n] <= best.load:
            break
        best = max(best, demand(work, groups[n]), key=lambda b: b.load)
    return best


def _alone(work: Work) -> Iterator[Bound]:
    """For the task that takes the largest part of its own deadline."""
    for task in sorted(work.tasks, key=lambda task: -task.duration_ms / task.deadline_ms)[:1]:
        yield Bound(
            task.duration_ms / task.deadline_ms,
            f"{task.name!r} takes {seconds(task.duration_ms)} within {seconds(task.deadline_ms)}",
            (task.name,),
        )


def _blocked(work: Work) -> Iterator[Bound]:
    """For each resource the task with the least room beside the longest run of another."""
    tasks = work.tasks
    on: defaultdict[int, list[int]] = defaultdict(list)
    for index, uses in enumerate(work.uses):
        for resource in uses:
            on[resource].append(index)
    for members in on.values():
        if len(members) < 2:
            continue
        first, second = sorted(members, key=lambda i: -tasks[i].duration_ms)[:2]
        load, index = 0.0, first
        for i in members:
            task, other = tasks[i], tasks[second if i == first else first]
            part = (other.duration_ms + 2 * task.duration_ms) / (task.period_ms + task.deadline_ms)
            if part > load:
                load, index = part, i
        task, other = tasks[index], tasks[second if index == first else first]
        yield Bound(
            load,
            f"a run of {other.name!r} has to fit between two of {task.name!r}",
            (other.name, task.name),
        )


def _resources(work: Work) -> Iterator[Group]:
    members: list[dict[int, int]] = [{} for _ in work.resources]
    for index, uses in enumerate(work.uses):
        for number in uses:
            members[number][index] = 1
    for resource, needs in zip(work.resources, members, strict=True):
        yield Group(words(resource), 1, needs)


def words(resource: Resource) -> str:
    """A host or a link, for people."""
    return f"host {resource}" if isinstance(resource, str) else f"link {'-'.join(resource)}"


def _domains(work: Work) -> Iterator[Group]:
    for number, domain in enumerate(work.bounds):
        inside = [index for index, found in enumerate(work.domains) if number in found]
        if domain.at_once is not None:
            yield Group(
                f"domain {domain.name!r} (at once)", domain.at_once, dict.fromkeys(inside, 1)
            )
        if domain.most:
            needs = {index: work.load[index] for index in inside}
            yield Group(f"domain {domain.name!r} (load)", domain.most, needs)
            for load in _some({need for need in needs.values() if HIGH * need > domain.most}):
                heavy = {index: 1 for index, need in needs.items() if need >= load}
                at_once = domain.most // load
                yield Group(f"domain {domain.name!r} (high loads)", at_once, heavy)
                yield from _beside(work, domain, heavy, at_once, domain.most - at_once * load)


def _beside(
    work: Work, domain: Domain, heavy: Mapping[int, int], at_once: int, left: int
) -> Iterator[Group]:
    """Where as many runs with a high load as can be leave so little that no other fits beside them,
    one that does run takes the place of one of them. Others run at the same time, but not those
    that share a host or a link."""
    number = work.bounds.index(domain)
    on: defaultdict[int, dict[int, int]] = defaultdict(dict)
    weight: defaultdict[int, float] = defaultdict(float)
    for index, inside in enumerate(work.domains):
        if number in inside and index not in heavy and work.load[index] > left:
            for resource in work.uses[index]:
                on[resource][index] = 1
                weight[resource] += work.tasks[index].duration_ms / work.tasks[index].deadline_ms
    for resource in sorted(weight, key=lambda r: (-weight[r], r))[:BESIDE]:
        what = f"domain {domain.name!r} (high loads, and {words(work.resources[resource])})"
        yield Group(what, at_once, {**heavy, **on[resource]})


def _threes(work: Work) -> Iterator[Group]:
    """Tasks that need two of the same three of the busiest resources."""
    weight: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for index, uses in enumerate(work.uses):
        busy = tuple(r for r in uses if r < MOST_BUSY)
        if len(busy) > 1:
            weight[busy] += work.tasks[index].duration_ms / work.tasks[index].deadline_ms
    pairs: defaultdict[tuple[int, ...], float] = defaultdict(float)
    threes: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for busy, much in weight.items():
        for pair in combinations(busy, 2):
            pairs[pair] += much
        for three in combinations(busy, 3):
            threes[three] += much
    # A task that needs all three is in all three pairs.
    total = {
        (a, b, c): pairs[a, b] + pairs[a, c] + pairs[b, c] - 2 * threes.get((a, b, c), 0.0)
        for a, b, c in combinations(range(min(MOST_BUSY, len(work.resources))), 3)
        if ((a, b) in pairs) + ((a, c) in pairs) + ((b, c) in pairs) > 1
    }
    for three in sorted(total, key=lambda three: (-total[three], three))[:TRIPLES]:
        bits = sum(1 << resource for resource in three)
        yield Group(
            f"any two of {', '.join(words(work.resources[r]) for r in three)}",
            1,
            {i: 1 for i, mask in enumerate(work.mask) if (mask & bits).bit_count() > 1},
        )


def _ceiling(work: Work, group: Group) -> float:
    """What no stretch of time exceeds: with deadlines no later than periods, the demand of a task
    is never more than its duration for every deadline's length."""
    total = sum(
        need * work.tasks[i].duration_ms / work.tasks[i].deadline_ms
        for i, need in group.needs.items()
    )
    return (total / group.most if group.most else math.inf) * (1 + 1e-9)


def demand(work: Work, group: Group) -> Bound:
    """The stretch of time with the highest demand for what the tasks of the group share, by what
    there is of it."""
    whole = work.hyperperiod_ms
    total: defaultdict[Times, int] = defaultdict(int)
    for index, need in group.needs.items():
        task = work.tasks[index]
        times = task.period_ms, task.deadline_ms, task.offset_ms
        total[times] += need * task.duration_ms
    begins = _some({o + k * p for p, _, o in total for k in range(whole // p)})
    if len({o for _, _, o in total}) == 1:  # all are released together: then it is the worst
        begins = [next(o for _, _, o in total)]
    best, where = Fraction(0), (0, whole)
    for begin in begins:
        ends: set[int] = {begin + whole}
        for p, d, o in total:
            first = o + -(-(begin - o) // p) * p
            ends |= {first + k * p + d for k in range((begin + whole - first - d) // p + 1)}
        for end in _some(ends):
            inside = sum(much * _count(begin, end, p, d, o) for (p, d, o), much in total.items())
            if inside and Fraction(inside, group.most * (end - begin)) > best:
                best, where = Fraction(inside, group.most * (end - begin)), (begin, end)
    length = where[1] - where[0]
    return Bound(
        float(best),
        f"{group.what} is needed {float(best):.1%} of "
        + ("the time" if length == whole else f"some {seconds(length)}"),
        tuple(work.tasks[index].name for index in sorted(group.needs)),
    )


def _count(begin: int, end: int, period: int, deadline: int, offset: int) -> int:
    """The runs of a task whose windows lie within a stretch of time."""
    first = -(-(begin - offset) // period)
    last = (end - deadline - offset) // period
    return max(0, last - first + 1)


def _some(instants: Iterable[int]) -> list[int]:
    """All in order, or as many as are looked at, evenly."""
    ordered: Sequence[int] = sorted(instants)
    if len(ordered) <= MOST_INSTANTS:
        return list(ordered)
    step = (len(ordered) - 1) / (MOST_INSTANTS - 1)
    return [ordered[round(n * step)] for n in range(MOST_INSTANTS)]
