"""What a run was: the values that its report is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitors.base.measurement import Measurement
from monitors.workflows.report import Failure
from network_provisioner.base.model import Transit

NO_MAPPING: Mapping[str, Any] = {
    "policy": "", "portfolio": {}, "makespan_s": 0.0, "placements": [], "beliefs": {},
}  # fmt: skip
"""Of a run whose sites ADON did not choose."""
NOT_PLANNED = "none"


@dataclass(frozen=True, slots=True)
class Bar:
    """One job's time on the Gantt chart. ``kind`` is ``compute``, ``transfer`` or ``other``;
    ``end`` is 0 if it has not ended."""

    job: str
    kind: str
    site: str
    submit: float
    start: float
    end: float
    ok: bool
    transformation: str = ""


@dataclass(frozen=True, slots=True)
class DagJob:
    """One job of the DAG. Jobs that the planner added are not ``shown``: those above them are
    joined to those below them."""

    job: str
    name: str
    site: str
    shown: bool = True


@dataclass(frozen=True, slots=True)
class LinkSample:
    """Bytes a switch had sent from ``a`` towards ``b`` at Unix second ``at``."""

    a: str
    b: str
    bytes: int
    at: float


@dataclass(slots=True)
class RunFacts:
    """One run from its start to its end, or as far as it has come.

    ``jobs`` are the workflow's own, ``dag_jobs`` also those that the planner added. ``mapping`` is
    a site mapping as JSON, ``links`` the broker's topology. ``dag`` is empty if the placements
    of the mapping are the jobs that ``edges`` join.

    ``planner`` is "none" for a run that ended before it was planned. ``network`` is "" if nobody
    says what switches there are. ``stopped`` is the sentence of what cut it short, ``waiting`` has
    one for each reason for which jobs waited without a match at the end, ``reason`` says why a
    workflow did not succeed. ``measured`` are measurements of the paths that it used, during the
    run.
    """

    planner: str
    workflow: str
    state: str
    jobs: int
    dag_jobs: int
    started: float
    ended: float
    mapping: Mapping[str, Any]
    edges: Sequence[tuple[str, str]]
    transits: Sequence[Transit]
    bars: Sequence[Bar]
    dag: Sequence[DagJob] = ()
    network: str = ""
    network_note: str = ""
    links: Sequence[Mapping[str, Any]] = ()
    samples: Sequence[LinkSample] = ()
    measured: Sequence[Measurement] = ()
    warnings: Sequence[str] = field(default_factory=list)
    stopped: str = ""
    reason: str = ""
    failures: Sequence[Failure] = ()
    waiting: Sequence[str] = ()
    submit_dir: Path | None = None

    @property
    def makespan_s(self) -> float:
        """Seconds from submission to the end of the last job."""
        return self.ended - self.started

    @property
    def expected_s(self) -> float | None:
        """Seconds that site selection expected it to take; None for never."""
        median: float | None = (self.mapping.get("forecast") or {}).get("median_s")
        return self.mapping["makespan_s"] if median is None else median

    @property
    def expected_range_s(self) -> tuple[float | None, float | None] | None:
        """What it was to be between with 90 % probability; None if nothing was in doubt."""
        forecast = self.mapping.get("forecast")
        return (forecast["low_s"], forecast["high_s"]) if forecast else None

    @property
    def was_planned(self) -> bool:
        """Whether it came so far that something could be submitted."""
        return self.planner != NOT_PLANNED

    @property
    def went_wrong(self) -> bool:
        """Whether it ended, and not as it should have."""
        return self.state not in ("success", "running", "planned")

    @property
    def jobs_done(self) -> int:
        """How many of the workflow's own jobs succeeded."""
        return len({bar.job for bar in self.bars if bar.kind == "compute" and bar.ok})
