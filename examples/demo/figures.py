"""The content of ``report.json``; docs/report.md says what each key means."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from examples.demo.facts import RunFacts
from examples.demo.loads import Load, loads_of
from network_provisioner.base.model import Transit

_ALTERNATIVE = (
    "site", "t_q_s", "t_c_s", "t_n_s", "t_t_s", "gamma", "path", "s_c_bytes", "s_t_bytes",
    "inputs",
)  # fmt: skip
_TRANSIT = (
    "job", "src", "dst", "path", "requested_bps", "granted_bps", "requested_at", "installed_at",
    "released_at", "bytes", "goodput_bps", "state", "layer", "switch_bytes", "seconds", "reason",
    "retry", "id",
)  # fmt: skip


def as_json(facts: RunFacts) -> dict[str, Any]:
    """Sizes in bytes, rates in bit/s, times in seconds, moments in Unix seconds; infinite is null.

    Nothing in it is infinite or not a number, so that every reader of JSON takes it.
    """
    out: dict[str, Any] = {
        "planner": facts.planner,
        "network": facts.network,
        "workflow": {
            "name": facts.workflow,
            "state": facts.state,
            "jobs": facts.jobs,
            "jobs_done": facts.jobs_done,
            "dag_jobs": facts.dag_jobs,
            "makespan_s": round(facts.makespan_s, 3),
            "started_at": facts.started,
            "ended_at": facts.ended,
        },
        "policy": facts.mapping["policy"],
        "portfolio": facts.mapping["portfolio"],
        "predicted_makespan_s": facts.expected_s,
        "predicted_range_s": facts.expected_range_s,
        "makespan_without_s": {"random": facts.without.random_s, "heft": facts.without.heft_s}
        if facts.without
        else None,
        "placements": [_placement(p) for p in facts.mapping["placements"]],
        "transits": [_transit(t) for t in facts.transits],
        "jobs": [
            {
                "job": b.job, "kind": b.kind, "site": b.site, "submitted_at": b.submit,
                "started_at": b.start, "ended_at": b.end, "ok": b.ok,
            }
            for b in facts.bars
        ],
        "links": [_link(load) for load in loads_of(facts)],
        "status_records": facts.status_records,
        "open_reservations_at_end": facts.open_reservations,
        "flows_left_on_switches": facts.flows_left,
        "science": dict(facts.science.numbers),
        "earlier_measurements": facts.earlier_measurements,
        "changed_by_measurements": {
            "makespan_s": facts.taught.get("makespan_s") if facts.earlier_measurements else None,
            "moved": list(facts.moved_jobs),
            "beliefs": list(facts.moved_beliefs),
        },
        "stopped": facts.stopped,
        "reason": facts.reason,
        "failures": [
            {
                "job": f.job, "site": f.site, "exit_code": f.exit_code, "attempts": f.attempts,
                "reason": f.reason, "stderr": list(f.tail), "files": [str(p) for p in f.files],
            }
            for f in facts.failures
        ],
        "waiting": list(facts.waiting),
        "submit_dir": str(facts.submit_dir or ""),
        "warnings": list(facts.warnings),
    }  # fmt: skip
    finite: dict[str, Any] = _finite(out)
    return finite


def _placement(placement: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "job": placement["job"],
        "transformation": placement["transformation"],
        "site": placement["site"],
        "reason": placement.get("reason", ""),
        "predicted_start_s": placement.get("start_s"),
        "predicted_end_s": placement.get("end_s"),
        "alternatives": [
            {k: alternative[k] for k in _ALTERNATIVE if k in alternative}
            for alternative in placement["alternatives"]
        ],
    }


def _transit(transit: Transit) -> dict[str, Any]:
    data = transit.as_dict()
    return {key: data[key] for key in _TRANSIT}


def _link(load: Load) -> dict[str, Any]:
    return {
        "from": load.hop[0],
        "to": load.hop[1],
        "layer": load.layer,
        "capacity_bps": load.capacity_bps,
        "most_reserved_bps": load.most_reserved_bps,
        "counted": load.counted,
        "measured_bytes": round(load.moved_bytes),
        "measured": [[r.start, r.end, round(r.bps, 1)] for r in load.measured if r.bps > 0],
    }


def _finite(value: Any) -> Any:
    """JSON has no infinity: what never comes has no time, which is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
