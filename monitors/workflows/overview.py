"""All workflows and the latest status of each (the thesis's Figures 13 and 14), from measurements.

Functions of values: ``workflow`` measurements, the newest ``status`` and ``held`` of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from monitors.measurement import Measurement
from monitors.status import FIELDS, NOT_STARTED, State, Status, total
from monitors.workflows.stuck import stuck

PLANNED, STUCK = "planned", "stuck"
STATES = (PLANNED, *(str(state) for state in State), STUCK)


@dataclass(frozen=True, slots=True)
class Overview:
    """One workflow. ``state`` is a :class:`~monitors.status.State` or ``planned``, ``stuck`` why it
    does not go on, ``totals`` of it with all workflows inside it. Instants in Unix seconds."""

    id: str
    name: str = ""
    user: str = ""
    submit_dir: str = ""
    host: str = ""
    root: str = ""
    parent: str = ""
    planned_at: float | None = None
    status: Status | None = None
    source: str = ""
    stuck: str = ""
    totals: Status = NOT_STARTED
    children: Sequence[str] = field(default_factory=tuple)

    @property
    def state(self) -> str:
        """How it stands."""
        return PLANNED if self.status is None else str(self.status.state)

    @property
    def at(self) -> float:
        """When something of it was last heard of."""
        return self.status.at if self.status is not None else self.planned_at or 0.0

    def is_in(self, state: str) -> bool:
        """Whether it is in one of :data:`STATES`."""
        return bool(self.stuck) if state == STUCK else self.state == state

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        status = self.status or NOT_STARTED
        return {
            "id": self.id,
            "name": self.name,
            "user": self.user,
            "submit_dir": self.submit_dir,
            "host": self.host,
            "root": self.root,
            "parent": self.parent,
            "planned_at": self.planned_at,
            "state": self.state,
            "stuck": self.stuck,
            "reason": status.reason,
            "at": self.at,
            "percent_done": status.percent_done,
            "status": counts(status),
            "totals": {
                "done": self.totals.done,
                "fail": self.totals.fail,
                "total": self.totals.total,
                "percent_done": self.totals.percent_done,
            },
        }


def counts(status: Status) -> dict[str, float]:
    """The eight fields of Figure 16 with how many jobs there are, and how many never can run."""
    return {**status.fields(), "total": status.total, "futile": status.futile}


def overviews(
    workflows: Iterable[Measurement],
    statuses: Mapping[str, Measurement],
    held: Mapping[str, Measurement],
    now: float,
    stuck_after_s: float,
) -> dict[str, Overview]:
    """All workflows by id, newest first: those that were described, and those of which only a
    status is known. ``statuses`` and ``held`` have the newest of each."""
    described = {m.subject: m for m in workflows}
    known = {key: status_of(m) for key, m in statuses.items()}
    children: dict[str, list[str]] = {}
    for key, m in described.items():
        if parent := _text(m, "parent"):
            children.setdefault(parent, []).append(key)
    found = []
    for key in dict.fromkeys((*described, *known)):
        facts, status = described.get(key), known.get(key)
        holding = held.get(key)
        number, since = (int(holding.value), holding.at) if holding is not None else (0, 0.0)
        found.append(
            Overview(
                id=key,
                name=_text(facts, "name") or key,
                user=_text(facts, "user"),
                submit_dir=_text(facts, "submit_dir"),
                host=_text(facts, "host"),
                root=_text(facts, "root") or _text(statuses.get(key), "root") or key,
                parent=_text(facts, "parent"),
                planned_at=None if facts is None else facts.at,
                status=status,
                source=statuses[key].source if key in statuses else "",
                stuck=stuck(status, now, stuck_after_s, number, since) if status else "",
                totals=_totals(key, children, known),
                children=tuple(sorted(children.get(key, ()))),
            )
        )
    return {one.id: one for one in sorted(found, key=lambda o: (-o.at, o.id))}


def _totals(
    key: str, children: Mapping[str, Sequence[str]], known: Mapping[str, Status | None]
) -> Status:
    if key not in children:  # most have none inside, and there may be thousands
        return known.get(key) or NOT_STARTED
    return total([status for one in inside(key, children) if (status := known.get(one))])


def inside(key: str, children: Mapping[str, Sequence[str]]) -> list[str]:
    """A workflow and all below it, itself first, each once whatever anybody recorded."""
    found = {key: None}
    waiting = [key]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found[child] = None
                waiting.append(child)
    return list(found)


def status_of(measurement: Measurement) -> Status | None:
    """What a ``status`` measurement says; None for one that says none: others may record too."""
    details = measurement.details
    try:
        numbers = {name: details[name] for name in (*FIELDS, "total")}
        if all(isinstance(n, int | float) and 0 <= n < 1e15 for n in numbers.values()):
            return Status.from_measurement(measurement)
    except (KeyError, ValueError, TypeError):
        pass
    return None


def _text(measurement: Measurement | None, key: str) -> str:
    value = None if measurement is None else measurement.details.get(key)
    return value if isinstance(value, str) else ""
