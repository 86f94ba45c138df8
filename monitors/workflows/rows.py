"""Attempts and transfers of a workflow as they are shown: rows from measurements.

Measurements may have been recorded by anybody who may, so nothing is believed of their details but
what is of the right kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monitors.measurement import Measurement
from monitors.workflows.analysis import split_subject

_MOST = 1e18


def job_row(job: Measurement, placements: Mapping[str, Measurement]) -> dict[str, Any]:
    """One attempt of one job. ``placements`` are by job, or by task of the abstract workflow."""
    name, task = text(job, "job"), text(job, "task")
    transformation, site = split_subject(job.subject)
    placed = placements.get(name) or placements.get(task)
    return {
        "workflow": job.workflow,
        "job": name,
        "task": task,
        "kind": text(job, "kind"),
        "transformation": transformation,
        "site": site,
        "host": text(job, "host") or None,
        "attempt": whole(job, "attempt") or 0,
        "retry": whole(job, "retry") or 0,
        "outcome": text(job, "outcome"),
        "exitcode": whole(job, "exitcode"),
        "submitted_at": number(job, "submitted_at"),
        "started_at": number(job, "started_at"),
        "ended_at": job.at,
        "seconds": job.value,
        "queued_s": number(job, "queued_s"),
        "cpu_s": number(job, "cpu_s"),
        "bytes_in": whole(job, "bytes_in"),
        "bytes_out": whole(job, "bytes_out"),
        "stderr": text(job, "stderr"),
        "output": text(job, "output"),
        "placement": None if placed is None else placement_row(placed),
    }


def placement_row(placed: Measurement) -> dict[str, Any]:
    """Why a job was put where it is; ``seconds`` is what was expected of it there in all."""
    return {"site": placed.subject, "seconds": placed.value, "reason": text(placed, "reason")}


def transfer_row(moved: Measurement) -> dict[str, Any]:
    """What one attempt of one job moved from one site to another."""
    src, _, dst = moved.subject.partition(">")
    path = moved.details.get("path")
    return {
        "workflow": moved.workflow,
        "job": text(moved, "job"),
        "attempt": whole(moved, "attempt") or 0,
        "src": src,
        "dst": dst,
        "ended_at": moved.at,
        "bytes": None if moved.details.get("bytes") is None else int(moved.value),
        "seconds": number(moved, "seconds"),
        "goodput_bps": number(moved, "goodput_bps"),
        "files": whole(moved, "files"),
        "retries": whole(moved, "retries") or 0,
        "outcome": text(moved, "outcome"),
        "path": [str(node) for node in path] if isinstance(path, list) else None,
        "transit": text(moved, "transit"),
        "tool": text(moved, "tool"),
        "direction": text(moved, "direction"),
    }


def text(measurement: Measurement, key: str) -> str:
    """A text of the details, "" where there is none."""
    value = measurement.details.get(key)
    return value if isinstance(value, str) else ""


def number(measurement: Measurement, key: str) -> float | None:
    """A number of the details."""
    value = measurement.details.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < _MOST:
        return None
    return float(value)


def whole(measurement: Measurement, key: str) -> int | None:
    """A number of the details, without its fraction."""
    value = number(measurement, key)
    return None if value is None else int(value)
