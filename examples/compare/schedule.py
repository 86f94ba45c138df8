"""Several workflows of several users: when they are submitted, and what became of them. Values."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from site_selector.wholefile import write_whole


@dataclass(frozen=True, slots=True)
class Entry:
    """A workflow of a schedule, submitted ``at_s`` from its start; None: when the one before it has
    ended."""

    shape: str
    user: str
    at_s: float | None = None


@dataclass(frozen=True, slots=True)
class OtherLoad:
    """Somebody else's jobs, which take so many ``slots`` of a site until the end, ``after_s`` the
    submission of workflow number ``entry``."""

    site: str
    slots: int
    entry: int
    after_s: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is run. Workflows that have not ended after ``most_s`` are removed and count as ended
    then. ``blind``: mappings know nothing of the pool but what its catalog says."""

    entries: tuple[Entry, ...]
    most_s: float
    others: OtherLoad | None = None
    blind: bool = False


@dataclass(frozen=True, slots=True)
class WorkflowRun:
    """One of them; seconds from the schedule's start. ``expected`` is how long the mapping said it
    would take, 0 where none did."""

    shape: str
    user: str
    state: str
    submitted: float
    ended: float
    expected: float
    sites: dict[str, int]

    @property
    def makespan(self) -> float:
        """Seconds from its submission to its end."""
        return self.ended - self.submitted


@dataclass(frozen=True, slots=True)
class CrowdRun:
    """All of them; bytes. ``moved`` went between sites, ``unused`` of what was ``reserved`` was
    not. ``cores``: mean load of all cores."""

    way: str
    workflows: tuple[WorkflowRun, ...]
    moved: float
    reserved: float
    unused: float
    cores: float

    @property
    def end(self) -> float:
        """Of the last, in seconds from the start."""
        return max(workflow.ended for workflow in self.workflows)

    @property
    def mean(self) -> float:
        """Arithmetic mean of the makespans."""
        return sum(workflow.makespan for workflow in self.workflows) / len(self.workflows)

    def save(self, file: Path) -> None:
        """Write it, whole or not at all. Raises InputError."""
        text = json.dumps(asdict(self), indent=1) + "\n"
        write_whole(file, lambda stream: stream.write(text), "a run")

    @classmethod
    def load(cls, file: Path) -> CrowdRun | None:
        """The run in ``file``, None where there is none that can be read."""
        try:
            data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            workflows = tuple(WorkflowRun(**fields) for fields in data.pop("workflows"))
            return cls(workflows=workflows, **data)
        except (OSError, ValueError, TypeError, KeyError):
            return None
