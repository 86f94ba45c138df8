"""Tasks and agreement as numbers: what a scheduler works on.

Hosts and links are *resources*: of the tasks that need one, one at a time runs. They are numbered,
the busiest first, and a set of them is a whole number with a bit for each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from monitors.schedule.model import Agreement, Infeasible, Task
from network_provisioner.errors import InputError
from network_provisioner.units import format_rate

MOST_RUNS = 2_000_000
"""In a hyperperiod: more than that would take minutes, and hundreds of megabytes."""

Resource = str | tuple[str, str]
"""A host's name, or both ends of a link."""


@dataclass(frozen=True, slots=True)
class Domain:
    """What the agreement says of a domain: its bounds, None where there is none. ``most`` is in
    the same units as :attr:`Work.load`."""

    name: str
    most: int | None
    at_once: int | None


@dataclass(frozen=True)
class Work:
    """All tasks, in the order of their names; other fields have an item for each of them.

    ``uses``     the numbers of the resources that it needs, in order
    ``mask``     the same as a set of bits
    ``domains``  the numbers of the bounded domains that it puts load on
    ``load``     its load in units of which every load and bound has a whole number: sums of them
                 are exact
    ``use``      the share of time that each *resource* is needed
    ``unit``     how many units 1 b/s is
    """

    tasks: tuple[Task, ...]
    hyperperiod_ms: int
    resources: tuple[Resource, ...]
    uses: tuple[tuple[int, ...], ...]
    mask: tuple[int, ...]
    bounds: tuple[Domain, ...]
    domains: tuple[tuple[int, ...], ...]
    load: tuple[int, ...]
    use: tuple[float, ...]
    unit: int

    @property
    def runs(self) -> int:
        """How many runs a hyperperiod has."""
        return sum(self.hyperperiod_ms // task.period_ms for task in self.tasks)


def work_of(tasks: Iterable[Task], agreement: Agreement, whole_ms: int = 1) -> Work:
    """Checked and numbered. The hyperperiod is a multiple of ``whole_ms`` too.

    Raises InputError for tasks that cannot be meant and for a hyperperiod that is too long, and
    Infeasible where the agreement does not allow a task at all.
    """
    ordered = tuple(sorted(tasks, key=lambda task: task.name))
    return numbered(ordered, agreement, hyperperiod(ordered, whole_ms))


def numbered(ordered: tuple[Task, ...], agreement: Agreement, whole_ms: int) -> Work:
    """The same for tasks in the order of their names, and a hyperperiod of ``whole_ms``."""
    for name, count in Counter(task.name for task in ordered).items():
        if count > 1:
            raise InputError(f"measurement task {name!r} is there twice, expected one of a name")
    for task in ordered:
        check(task)
        _check_load(task, agreement)
    use: dict[Resource, float] = {}
    for task in ordered:
        for resource in needs(task):
            use[resource] = use.get(resource, 0.0) + task.duration_ms / task.period_ms
    resources = sorted(use, key=lambda r: (-use[r], isinstance(r, tuple), r))
    number = {resource: n for n, resource in enumerate(resources)}
    unit = max(
        rate.as_integer_ratio()[1]
        for rate in (1.0, *(t.load_bps for t in ordered), *agreement.domain_bps.values())
    )
    bounds, of_link = _domains(agreement, unit)
    uses, masks, domains = [], [], []
    kept: dict[tuple[frozenset[str], frozenset[tuple[str, str]]], tuple[tuple[int, ...], int]] = {}
    for task in ordered:
        key = task.hosts, task.links
        found = kept.get(key)
        if found is None:
            numbers = tuple(sorted(number[resource] for resource in needs(task)))
            found = kept[key] = numbers, sum(1 << n for n in numbers)
        uses.append(found[0])
        masks.append(found[1])
        domains.append(tuple(sorted({d for link in task.links for d in of_link.get(link, ())})))
    return Work(
        ordered,
        whole_ms,
        tuple(resources),
        tuple(uses),
        tuple(masks),
        bounds,
        tuple(domains),
        tuple(_units(task.load_bps, unit) for task in ordered),
        tuple(use[resource] for resource in resources),
        unit,
    )


def joined(work: Work, tasks: Sequence[Task], agreement: Agreement) -> Work:
    """The same with more tasks, which come after those that are there; resources that only they
    need come last, too. A load that is no whole number of units is rounded up.

    Raises InputError and Infeasible as :func:`numbered` does.
    """
    number = {resource: n for n, resource in enumerate(work.resources)}
    names = {bound.name: n for n, bound in enumerate(work.bounds)}
    uses, domains, loads = [], [], []
    for task in tasks:
        check(task)
        _check_load(task, agreement)
        for resource in sorted(needs(task), key=lambda r: (isinstance(r, tuple), r)):
            number.setdefault(resource, len(number))
        uses.append(tuple(sorted(number[resource] for resource in needs(task))))
        inside = (n for name, n in names.items() if agreement.domains[name] & task.links)
        domains.append(tuple(sorted(inside)))
        loads.append(math.ceil(Fraction(task.load_bps) * work.unit))
    return replace(
        work,
        tasks=(*work.tasks, *tasks),
        resources=tuple(number),
        uses=(*work.uses, *uses),
        mask=(*work.mask, *(sum(1 << n for n in found) for found in uses)),
        domains=(*work.domains, *domains),
        load=(*work.load, *loads),
        use=(*work.use, *[0.0] * (len(number) - len(work.use))),
    )


def needs(task: Task) -> list[Resource]:
    """The resources of a task."""
    return [*task.hosts, *task.links]


def check(task: Task) -> None:
    """Raises InputError for times that cannot be meant."""
    what = f"measurement task {task.name!r}"
    if task.duration_ms < 1:
        raise InputError(f"{what} takes {task.duration_ms} ms, expected at least 1 ms")
    if not task.duration_ms <= task.deadline_ms <= task.period_ms:
        raise InputError(
            f"{what} takes {seconds(task.duration_ms)} within {seconds(task.deadline_ms)} every "
            f"{seconds(task.period_ms)}, expected each to be no longer than the next"
        )
    if not 0 <= task.offset_ms < task.period_ms:
        raise InputError(
            f"{what} begins at {task.offset_ms} ms, expected 0 or more and less than its period"
        )
    if not (math.isfinite(task.load_bps) and task.load_bps >= 0):
        raise InputError(f"{what} puts {task.load_bps!r} b/s on the network, expected 0 or more")


def seconds(ms: int) -> str:
    """Milliseconds for people."""
    return f"{ms / 1000:g} s"


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


def _check_load(task: Task, agreement: Agreement) -> None:
    for link in sorted(task.links):
        most = agreement.links.get(link)
        if most is not None and task.load_bps > most:
            raise Infeasible(
                f"measurement task {task.name!r} puts {format_rate(task.load_bps)} on link "
                f"{'-'.join(link)}, the agreement allows {format_rate(most)} there",
                (task.name,),
            )
    for name in sorted(agreement.domains):
        if agreement.domains[name].isdisjoint(task.links):
            continue
        most, at_once = agreement.domain_bps.get(name), agreement.at_once.get(name)
        if most is not None and task.load_bps > most:
            raise Infeasible(
                f"measurement task {task.name!r} puts {format_rate(task.load_bps)} on domain "
                f"{name!r}, the agreement allows {format_rate(most)} there",
                (task.name,),
            )
        if at_once is not None and at_once < 1:
            raise Infeasible(
                f"measurement task {task.name!r} crosses domain {name!r}, where the agreement "
                "allows no measurement",
                (task.name,),
            )


def _units(rate_bps: float, unit: int) -> int:
    """A rate in units of 1 / ``unit`` b/s, a power of two as all denominators of floats are."""
    count, of = rate_bps.as_integer_ratio()
    return count * (unit // of)


def _domains(
    agreement: Agreement, unit: int
) -> tuple[tuple[Domain, ...], dict[tuple[str, str], list[int]]]:
    """The domains that are bounded, and for each link the numbers of those it belongs to."""
    bounds: list[Domain] = []
    of_link: dict[tuple[str, str], list[int]] = {}
    for name in sorted(agreement.domains):
        most, at_once = agreement.domain_bps.get(name), agreement.at_once.get(name)
        if most is None and at_once is None:
            continue
        for link in agreement.domains[name]:
            of_link.setdefault(link, []).append(len(bounds))
        bounds.append(Domain(name, None if most is None else _units(most, unit), at_once))
    return tuple(bounds), of_link
