"""The content of ``report.json``, and both files of a report; docs/report.md says what each key
means."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from operator import methodcaller
from pathlib import Path
from typing import Any

from adon.report.link_loads import Load, loads_of
from adon.report.run_facts import RunFacts
from network_provisioner.base.model import Transit
from site_selector.wholefile import write_whole

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
        "measurements": [
            {
                "metric": m.metric, "subject": m.subject, "value": m.value, "unit": m.unit,
                "at": m.at, "source": m.source,
            }
            for m in facts.measured
        ],
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
    shown: dict[str, Any] = finite(out)
    return shown


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
        "capacity_bps": load.capacity_bps or None,
        "most_reserved_bps": load.most_reserved_bps,
        "counted": bool(load.counted),
        "measured_bytes": round(load.transferred_bytes),
        "measured": [[r.start, r.end, round(r.bps, 1)] for r in load.measured if r.bps > 0],
    }


def finite(value: Any) -> Any:
    """JSON has no infinity: what never comes has no time, which is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value


def write_report(file: Path, page: str, document: Mapping[str, Any]) -> tuple[Path, Path]:
    """Write the page, and its values beside it as ``.json``, each whole or not at all. Raises
    InputError, OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    written = file, file.with_suffix(".json")
    for each, text in zip(written, (page, data + "\n"), strict=True):
        write_whole(each, methodcaller("write", text), "the report")
    return written
