"""What a run was: the values that the report and the summary are drawn from.

Everything here was measured or decided during the run; nothing is a constant of the program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from network_provisioner.model import LIVE, Transit


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


@dataclass(slots=True)
class RunFacts:
    """One run of the line, complete.

    ``jobs`` are the workflow's own, ``dag_jobs`` also those that the planner added.
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
    science: Mapping[str, float]
    links: Sequence[Mapping[str, Any]] = ()
    samples: Sequence[LinkSample] = ()
    changes: Sequence[str] = ()
    learnt_text: str = ""
    earlier_measurements: int = 0
    warnings: Sequence[str] = field(default_factory=list)

    @property
    def makespan_s(self) -> float:
        """Seconds from submission to the end of the last job."""
        return self.ended - self.started


def as_json(facts: RunFacts) -> dict[str, Any]:
    """The content of ``report.json``: sizes in bytes, rates in bits/s, times in seconds."""
    return {
        "planner": facts.planner,
        "network": facts.network,
        "workflow": {
            "name": facts.workflow,
            "state": facts.state,
            "jobs": facts.jobs,
            "dag_jobs": facts.dag_jobs,
            "makespan_s": round(facts.makespan_s, 3),
        },
        "policy": facts.mapping["policy"],
        "portfolio": facts.mapping["portfolio"],
        "predicted_makespan_s": facts.mapping["makespan_s"],
        "placements": [_placement(p) for p in facts.mapping["placements"]],
        "transits": [_transit(t) for t in facts.transits],
        "status_records": facts.status_records,
        "open_reservations_at_end": facts.open_reservations,
        "flows_left_on_switches": facts.flows_left,
        "science": dict(facts.science),
        "changed_by_measurements": list(facts.changes),
        "earlier_measurements": facts.earlier_measurements,
        "warnings": list(facts.warnings),
    }


def _placement(placement: Mapping[str, Any]) -> dict[str, Any]:
    terms = ("site", "t_q_s", "t_c_s", "t_n_s", "t_t_s", "gamma", "inputs")
    return {
        "job": placement["job"],
        "transformation": placement["transformation"],
        "site": placement["site"],
        "reason": placement.get("reason", ""),
        "alternatives": [
            {k: _finite(alternative[k]) for k in terms if k in alternative}
            for alternative in placement["alternatives"]
        ],
    }


def _finite(value: Any) -> Any:
    """JSON has no infinity: a site without resources has no time, which is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _transit(transit: Transit) -> dict[str, Any]:
    data = transit.as_dict()
    keys = (
        "job", "src", "dst", "path", "requested_bps", "granted_bps", "requested_at", "installed_at",
        "released_at", "bytes", "goodput_bps", "state", "layer", "switch_bytes", "seconds",
        "reason", "id",
    )  # fmt: skip
    return {key: data[key] for key in keys}


def live(transits: Sequence[Transit], now: float) -> list[Transit]:
    """The transits that still hold bandwidth at ``now``."""
    return [t for t in transits if t.state in LIVE and t.lease_until > now]
