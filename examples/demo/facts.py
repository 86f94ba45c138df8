"""What a run was: the values that the report and the summary are drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.scenario import CheckedResult
from monitors.workflows.report import Failure
from network_provisioner.base.model import LIVE, Transit


@dataclass(frozen=True, slots=True)
class Bar:
    """One job's time on the Gantt chart. ``kind`` is ``compute``, ``transfer`` or ``other``."""

    job: str
    kind: str
    site: str
    submit: float
    start: float
    end: float
    ok: bool


@dataclass(frozen=True, slots=True)
class LinkSample:
    """Bytes a switch had sent from ``a`` towards ``b`` at Unix second ``at``."""

    a: str
    b: str
    bytes: int
    at: float


@dataclass(frozen=True, slots=True)
class AsPegasusComes:
    """Seconds until the end as Pegasus maps a workflow, and moves its data by the default route:
    by its default selector Random (mean of its dice), and by its Heft."""

    random_s: float
    heft_s: float


@dataclass(slots=True)
class RunFacts:
    """One run of the line, from its start to its end or to what cut it short.

    ``jobs`` are the workflow's own, ``dag_jobs`` also those that the planner added. ``mapping`` is
    a site mapping as JSON, ``taught`` what :func:`site_selector.explain.text` says of the
    mapping by catalogs alone and the one that ran, ``links`` the broker's topology.

    ``planner`` is "none" where the run did not come so far.

    ``stopped`` is the sentence of what cut it short, ``waiting`` has one for each reason for which
    jobs waited in vain at the end, ``reason`` is HTCondor's for a workflow that did not succeed.
    ``without``: what it would have taken without ADON, by the model; None where nobody can tell.
    """

    planner: str
    network: str
    network_note: str
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
    status_records: int
    open_reservations: int
    flows_left: int
    science: CheckedResult
    links: Sequence[Mapping[str, Any]] = ()
    samples: Sequence[LinkSample] = ()
    taught: Mapping[str, Any] = field(default_factory=dict)
    earlier_measurements: int = 0
    warnings: Sequence[str] = field(default_factory=list)
    stopped: str = ""
    reason: str = ""
    failures: Sequence[Failure] = ()
    waiting: Sequence[str] = ()
    submit_dir: Path | None = None
    without: AsPegasusComes | None = None

    @property
    def makespan_s(self) -> float:
        """Seconds from submission to the end of the last job."""
        return self.ended - self.started

    @property
    def expected_s(self) -> float | None:
        """Seconds that site selection expected it to take; None for never."""
        found: float | None = (self.mapping.get("forecast") or {}).get("median_s")
        return self.mapping["makespan_s"] if found is None else found

    @property
    def expected_range_s(self) -> tuple[float | None, float | None] | None:
        """What it was to be between with 90 % probability; None where nothing was in doubt."""
        found = self.mapping.get("forecast")
        return (found["low_s"], found["high_s"]) if found else None

    @property
    def was_planned(self) -> bool:
        """Whether it came so far that something could be submitted."""
        return self.planner != "none"

    @property
    def jobs_done(self) -> int:
        """How many of the workflow's own jobs succeeded."""
        return len({bar.job for bar in self.bars if bar.kind == "compute" and bar.ok})

    @property
    def moved_jobs(self) -> Sequence[Mapping[str, Any]]:
        """The jobs that measurements moved to another site; none where nothing was measured."""
        return self.taught.get("moved", ()) if self.earlier_measurements else ()

    @property
    def moved_beliefs(self) -> Sequence[Mapping[str, Any]]:
        """The beliefs that measurements changed, those first that changed most."""
        return self.taught.get("beliefs", ()) if self.earlier_measurements else ()


def live(transits: Sequence[Transit], now: float) -> list[Transit]:
    """The transits that still hold bandwidth at ``now``."""
    return [t for t in transits if t.state in LIVE and t.grant.lease_until > now]
