"""How much of hosts, links and domains a schedule takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from monitors.schedule.model import Agreement, LinkId, Schedule, Task


@dataclass(frozen=True, slots=True)
class Usage:
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


def usage(tasks: Iterable[Task], agreement: Agreement, schedule: Schedule) -> list[Usage]:
    """Of every host, link and bounded domain that a task needs; each kind by its share, the largest
    first."""
    by_name = {task.name: task for task in tasks}
    hosts: defaultdict[str, set[str]] = defaultdict(set)
    links: defaultdict[LinkId, set[str]] = defaultdict(set)
    for task in by_name.values():
        for host in task.hosts:
            hosts[host].add(task.name)
        for link in task.links:
            links[link].add(task.name)
    slots: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for slot in schedule.slots:
        slots[slot.task].append((slot.start_ms, slot.end_ms))

    def of(members: set[str]) -> tuple[float, int, int, float]:
        changes = sorted(
            change
            for name in members
            for begin, end in slots[name]
            for change in _changes(begin, end, schedule.hyperperiod_ms, by_name[name].load_bps)
        )
        return _sums(changes, schedule.hyperperiod_ms, len(members))

    found = [Usage("host", name, *of(members)) for name, members in hosts.items()]
    found += [
        Usage("link", "-".join(link), *of(members), 1, agreement.links.get(link))
        for link, members in links.items()
    ]
    for name, inside in agreement.domains.items():
        members = {task.name for task in by_name.values() if inside & task.links}
        at_once, most = agreement.at_once.get(name), agreement.domain_bps.get(name)
        found.append(Usage("domain", name, *of(members), at_once, most))
    kinds = ("host", "link", "domain")
    return sorted(found, key=lambda u: (kinds.index(u.kind), -u.share, u.name))


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
