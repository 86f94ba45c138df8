"""One run of a measurement task, as the coordinator keeps it: values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from monitors.measurement import Measurement
from monitors.measurements.messages import Assignment
from monitors.measurements.tasks import LinkId


class State(StrEnum):
    """Where a run stands. All but ``planned`` are ends; a late result still makes a run that was
    missed a done one."""

    PLANNED = "planned"
    DONE = "done"
    FAILED = "failed"
    MISSED = "missed"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Part:
    """What one agent has to do in a run: ``told``, whether it was given it; ``reported``, whether
    it said what came of it, and ``error``, why there is nothing."""

    agent: str
    assignment: Assignment
    told: bool = False
    reported: bool = False
    error: str = ""

    @property
    def measures(self) -> bool:
        """Whether the measurements come from this end."""
        return self.assignment.role != "server"

    def as_dict(self) -> dict[str, Any]:
        """For JSON and the store."""
        return {
            "agent": self.agent,
            "assignment": self.assignment.as_dict(),
            "told": self.told,
            "reported": self.reported,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class Uses:
    """What a run needs for itself while it lasts, and the load that it puts on each link."""

    hosts: frozenset[str] = frozenset()
    links: frozenset[LinkId] = frozenset()
    load_bps: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For the store."""
        return {
            "hosts": sorted(self.hosts),
            "links": sorted(map(list, self.links)),
            "load_bps": self.load_bps,
        }


@dataclass(frozen=True, slots=True)
class Run:
    """One run, from ``at_ms`` to ``end_ms`` (Unix time). ``release_ms`` tells the runs of a task
    apart: each release is measured once. ``demanded``: by whom it was asked for, "" where the
    schedule says so. ``measured``: the metrics that were recorded."""

    id: str
    task: str
    tool: str
    subject: str
    at_ms: int
    end_ms: int
    release_ms: int
    parts: tuple[Part, ...]
    uses: Uses = Uses()
    demanded: str = ""
    state: State = State.PLANNED
    error: str = ""
    measured: tuple[str, ...] = ()

    def part_of(self, agent: str) -> Part | None:
        """The agent's part in it."""
        return next((part for part in self.parts if part.agent == agent), None)

    def as_dict(self) -> dict[str, Any]:
        """For people and programs that ask over HTTP: without what only the ends need to know."""
        return {
            "id": self.id,
            "task": self.task,
            "tool": self.tool,
            "subject": self.subject,
            "at": self.at_ms / 1000,
            "until": self.end_ms / 1000,
            "state": str(self.state),
            "error": self.error,
            "demanded": self.demanded,
            "measured": list(self.measured),
            "agents": [
                {
                    "agent": part.agent,
                    "role": part.assignment.role,
                    "told": part.told,
                    "reported": part.reported,
                    "error": part.error,
                }
                for part in self.parts
            ],
        }


def after(run: Run, part: Part, measurements: Sequence[Measurement]) -> Run:
    """The run after one of its agents reported: ``part`` as it is then, and what was measured."""
    parts = tuple(part if p.agent == part.agent else p for p in run.parts)
    if not part.measures:
        said = run.state is State.FAILED and part.error
        error = f"{run.error}; {part.agent}: {part.error}" if said else run.error
        return replace(run, parts=parts, error=error)
    if measurements:
        measured = tuple(m.metric for m in measurements)
        return replace(run, parts=parts, state=State.DONE, error="", measured=measured)
    others = [f"{p.agent}: {p.error}" for p in parts if p.error and not p.measures]
    error = "; ".join([f"{part.agent}: {part.error}", *others])
    return replace(run, parts=parts, state=State.FAILED, error=error)


def uses_from_dict(data: Mapping[str, Any]) -> Uses:
    """The inverse of :meth:`Uses.as_dict`."""
    links = frozenset((a, b) for a, b in data["links"])
    return Uses(frozenset(data["hosts"]), links, float(data["load_bps"]))


def part_from_dict(data: Mapping[str, Any]) -> Part:
    """The inverse of :meth:`Part.as_dict`."""
    return Part(**{**data, "assignment": Assignment(**data["assignment"])})
