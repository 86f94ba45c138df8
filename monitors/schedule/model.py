"""Measurement tasks, the agreement that bounds them, and a schedule: values.

Times inside the schedule are whole milliseconds: a hyperperiod, the least common multiple of all
periods, exists for whole numbers alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from network_provisioner.errors import InputError

LinkId = tuple[str, str]
"""Both ends of a link, the smaller name first: it is one link in both directions."""


@dataclass(frozen=True, slots=True)
class Task:
    """A measurement that is made again and again.

    Every ``period_ms`` from ``offset_ms`` on it is released; each release must be measured within
    ``deadline_ms`` (≤ ``period_ms``) and takes ``duration_ms``. It occupies ``hosts`` and
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
    offset_ms: int = 0


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


@dataclass(frozen=True, slots=True)
class Schedule:
    """All slots of one hyperperiod, in order of their starts; it repeats for ever."""

    hyperperiod_ms: int
    slots: tuple[Slot, ...]


class Infeasible(InputError):
    """No schedule was found: ``tasks`` names those that cannot fit, the message says why."""

    def __init__(self, message: str, tasks: tuple[str, ...]) -> None:
        super().__init__(message)
        self.tasks = tasks
