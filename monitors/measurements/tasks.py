"""Measurement tasks, the agreement that bounds them, and a schedule: values.

Times inside the schedule are whole milliseconds: a hyperperiod, the least common multiple of all
periods, exists for whole numbers alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from network_provisioner.base.errors import InputError
from network_provisioner.base.units import format_rate

LinkId = tuple[str, str]
"""Both ends of a link, the smaller name first: it is one link in both directions."""

Resource = str | LinkId
"""A host's name, or a link."""


@dataclass(frozen=True, slots=True)
class Task:
    """A measurement that is made again and again.

    Every ``period_ms`` it is released; each release must be measured within ``deadline_ms``
    (≤ ``period_ms``) and takes ``duration_ms``. It occupies ``hosts`` and
    ``links`` while it runs, and puts ``load_bps`` on each of those links. Tasks that share a host
    or a link conflict: they never run at the same time. What measures a host without load on the
    network (CPU, memory) has ``hosts`` empty and conflicts with nothing.
    """

    name: str
    period_ms: int
    duration_ms: int
    deadline_ms: int
    hosts: frozenset[str] = frozenset()
    links: frozenset[LinkId] = frozenset()
    load_bps: float = 0.0

    @property
    def needs(self) -> tuple[Resource, ...]:
        """Hosts and links that it needs for itself."""
        return (*self.hosts, *self.links)


@dataclass(frozen=True, slots=True)
class Agreement:
    """The measurement-level agreement ψ: how much load measurements may put on what, at any time.

    ``links`` bounds the load on a link in bit/s (a link that is not named is not bounded);
    ``domains`` names for each domain the links that belong to it, ``domain_bps`` bounds the sum of
    the loads of all tasks that run on any of them, and ``at_once`` how many of them may run.
    """

    links: Mapping[LinkId, float] = field(default_factory=dict)
    domains: Mapping[str, frozenset[LinkId]] = field(default_factory=dict)
    domain_bps: Mapping[str, float] = field(default_factory=dict)
    at_once: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """One run of a task: the ``number``-th job of the hyperperiod, from ``start_ms`` to ``end_ms``,
    which lie between its release and its deadline."""

    start_ms: int
    end_ms: int
    task: str
    number: int
    release_ms: int
    deadline_ms: int

    def later(self, by_ms: int, number: int | None = None) -> Slot:
        """The slot ``by_ms`` later, as run ``number``."""
        return Slot(
            self.start_ms + by_ms,
            self.end_ms + by_ms,
            self.task,
            self.number if number is None else number,
            self.release_ms + by_ms,
            self.deadline_ms + by_ms,
        )


@dataclass(frozen=True, slots=True)
class Schedule:
    """All slots of one hyperperiod, in order of their starts; it repeats for ever."""

    hyperperiod_ms: int
    slots: tuple[Slot, ...]

    def repeated(self, whole_ms: int) -> Schedule:
        """The same schedule, written down for a multiple of its hyperperiod."""
        length, counts = self.hyperperiod_ms, Counter(slot.task for slot in self.slots)
        return Schedule(
            whole_ms,
            tuple(
                slot.later(turn * length, slot.number + turn * counts[slot.task])
                for turn in range(whole_ms // length)
                for slot in self.slots
            ),
        )


class Infeasible(InputError):
    """No schedule was found: ``tasks`` names those that cannot fit, the message says why."""

    def __init__(self, message: str, tasks: tuple[str, ...]) -> None:
        super().__init__(message)
        self.tasks = tasks


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
    if not (math.isfinite(task.load_bps) and task.load_bps >= 0):
        raise InputError(f"{what} puts {task.load_bps!r} b/s on the network, expected 0 or more")


def check_load(task: Task, agreement: Agreement) -> None:
    """Raises Infeasible for a task that the agreement does not allow at all."""
    for link in sorted(task.links):
        most = agreement.links.get(link)
        if most is not None and task.load_bps > most:
            raise Infeasible(
                f"measurement task {task.name!r} puts {format_rate(task.load_bps)} on link "
                f"{'-'.join(link)}, the agreement allows {format_rate(most)} there",
                (task.name,),
            )
    for domain in sorted(agreement.domains):
        if agreement.domains[domain].isdisjoint(task.links):
            continue
        most, at_once = agreement.domain_bps.get(domain), agreement.at_once.get(domain)
        if most is not None and task.load_bps > most:
            raise Infeasible(
                f"measurement task {task.name!r} puts {format_rate(task.load_bps)} on domain "
                f"{domain!r}, the agreement allows {format_rate(most)} there",
                (task.name,),
            )
        if at_once is not None and at_once < 1:
            raise Infeasible(
                f"measurement task {task.name!r} crosses domain {domain!r}, where the agreement "
                "allows no measurement",
                (task.name,),
            )


def seconds(ms: int) -> str:
    """Milliseconds as text in seconds."""
    return f"{ms / 1000:g} s"
