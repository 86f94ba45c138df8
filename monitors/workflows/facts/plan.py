"""What is known of a workflow before it runs: who it is (metric ``workflow``, recorded once for
each before anything else), and why each job was put where it is (metric ``placement``), from the
file that whoever mapped the workflow left in its submit directory.

    adon-placements.json
    {"at": 1700000000.0, "policy": "chains+search", "makespan_s": 812.5, "range_s": [780.0, 990.0],
     "estimate_s": 790.0, "portfolio": {"random": 1290.0, "heft": 840.0, …},
     "placements": [{"job": "ID1", "transformation": "soykb::bwa_mem:1.0", "site": "mu",
                     "seconds": 42.0, "reason": "…",
                     "alternatives": [{"site": "mu", "seconds": 42.0, "wait_s": 1.0,
                                       "compute_s": 30.0, "transfer_s": 11.0}, …],
                     "believed": {"runtime": [30.0, "archive"], "queue_wait": [1.0, "schedd"],
                                  "iplant>mu": [2e8, "topology", 1.5, 0.5]}}, …]}

``job`` is the id in the abstract workflow. Seconds are what was expected, null for never. What was
estimated of the job's site (s) and paths (bit/s, and s before bytes move and for each further file)
stands with its source: once the truth is known, how far off beliefs of this source are becomes
metric ``belief_error``.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from monitors.base.measurement import Measurement, number_in
from monitors.workflows.planned.job_files import read_json
from monitors.workflows.planned.submit_dir import SubmitDir
from network_provisioner.base.units import transfer_time

FILE = "adon-placements.json"
_MOST_SITES = 50  # of those that could have run a job
_TERMS = ("seconds", "wait_s", "compute_s", "transfer_s")
Estimated = Mapping[tuple[str, ...], tuple[float, str, float, float]]
"""A value, its source, and seconds before bytes move and for each further file: by job, site and
metric, or by path alone."""
_NOTHING = (0.0, "", 0.0, 0.0)


def read_plan(submit_dir: Path) -> Mapping[str, Any]:
    """What whoever mapped the workflow left, nothing where there is no such file."""
    return read_json(submit_dir / FILE)


def plan_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """How a workflow was mapped: by which ``policy``, the seconds that it takes if all estimates
    are right (``expected_s``), and those of every policy that was compared (``portfolio``); empty
    where nobody left a file."""
    expected, rows = number_in(data.get("estimate_s")), data.get("portfolio")
    if expected is None:
        return {}
    pairs = rows.items() if isinstance(rows, Mapping) else ()
    known = ((str(name)[:50], number_in(seconds)) for name, seconds in list(pairs)[:_MOST_SITES])
    portfolio = {name: seconds for name, seconds in known if seconds is not None}
    policy = str(data.get("policy") or "")[:100]
    return {"policy": policy, "expected_s": expected, "portfolio": portfolio}


def forecast_facts(submit_dir: SubmitDir, began: float, ended: float) -> list[Measurement]:
    """How true the forecast was of a workflow that ran from ``began`` to ``ended`` (Unix seconds):
    metric ``forecast`` of its label, true over expected seconds. None where nobody forecast it."""
    data = read_plan(submit_dir.path)
    expected, span_s = number_in(data.get("makespan_s")), _range(data)
    taken = ended - began
    if not expected or expected <= 0 or taken <= 0:
        return []
    return [
        Measurement(
            id=f"forecast:{submit_dir.workflow}",
            metric="forecast",
            subject=submit_dir.braindump.get("dax_label", "") or submit_dir.name,
            value=taken / expected,
            unit="1",
            at=ended,
            source="site selection",
            workflow=submit_dir.workflow,
            details={"expected_s": expected, "range_s": span_s, "taken_s": taken},
        )
    ]


def _range(data: Mapping[str, Any]) -> list[float] | None:
    """What the makespan is between with 90 % probability, in seconds; None where nobody knows."""
    interval = data.get("range_s")
    ends = [number_in(end) for end in interval] if isinstance(interval, list) else []
    return [end for end in ends if end is not None] if len(ends) == 2 and None not in ends else None


def estimates_in(placements: Iterable[Measurement]) -> Estimated:
    """What was estimated when jobs were placed."""
    return {
        (name,) if ">" in name else (placement.details["job"], placement.subject, name): estimated
        for placement in placements
        for name, estimated in placement.details["believed"].items()
    }


def estimate_errors(
    task: str, site: str, facts: Iterable[Measurement], estimated: Estimated
) -> list[Measurement]:
    """How far off the truth was what was estimated of a job, or of the task that a fact names:
    |estimated / true - 1| of seconds, by what and source of belief, ``runtime:archive``."""
    measurements = []
    for fact in facts:
        if fact.metric == "job_transfer":
            metric, known = "throughput", fact.details["goodput_bps"] is not None
            taken = fact.details["seconds"] if known else None
            rate_bps, source, first_s, further_s = estimated.get((fact.subject,), _NOTHING)
            beside_s = first_s + further_s * ((fact.details["files"] or 1) - 1)
            expected = transfer_time(fact.value, rate_bps) + beside_s if rate_bps > 0 else 0.0
        else:
            metric, taken = fact.metric, fact.value
            own = str(fact.details.get("task") or task)
            expected, source, _, _ = estimated.get((own, site, metric), _NOTHING)
        # A factor tells nothing of what was estimated, or turned out, to take no time.
        if expected > 0 and taken and taken > 0:
            measurements.append(
                Measurement(
                    id=f"belief_error:{fact.id}",
                    metric="belief_error",
                    subject=f"{metric}:{source}",
                    value=abs(expected / taken - 1),
                    unit="1",
                    at=fact.at,
                    source="site selection",
                    workflow=fact.workflow,
                    details={"of": fact.subject, "expected_s": expected, "taken_s": taken},
                )
            )
    return measurements


def placement_facts(data: Mapping[str, Any], workflow: str) -> list[Measurement]:
    """A measurement for each job that was placed; none where nobody left a file. Never fails: what
    is not understood is passed over."""
    at, rows = number_in(data.get("at")), data.get("placements")
    if at is None or not isinstance(rows, list):
        return []
    whole = {
        "policy": str(data.get("policy") or ""),
        "workflow_s": number_in(data.get("makespan_s")),
        "workflow_range_s": _range(data),
    }
    facts = (_fact(row, at, whole, workflow) for row in rows)
    return [fact for fact in facts if fact is not None]


def placement_id(workflow: str, job: str) -> str:
    """The id of the measurement that says where a job of a workflow was put."""
    return f"placement:{workflow}:{job}"


def _fact(row: object, at: float, whole: dict[str, Any], workflow: str) -> Measurement | None:
    if not isinstance(row, Mapping):
        return None
    job, site = row.get("job"), row.get("site")
    if not isinstance(job, str) or not isinstance(site, str) or not job or not site:
        return None
    seconds = number_in(row.get("seconds"))
    others = row.get("alternatives")
    return Measurement(
        id=placement_id(workflow, job),
        metric="placement",
        subject=site,
        value=seconds or 0.0,
        unit="s",
        at=at,
        source="site selection",
        workflow=workflow,
        details={
            "job": job,
            "transformation": str(row.get("transformation", "")),
            "seconds": seconds,
            "reason": str(row.get("reason", ""))[:2000],
            **whole,
            "alternatives": [
                _alternative(other)
                for other in (others if isinstance(others, list) else [])[:_MOST_SITES]
                if isinstance(other, Mapping) and isinstance(other.get("site"), str)
            ],
            "believed": _estimated(row.get("believed")),
        },
    )


def _estimated(rows: object) -> dict[str, tuple[float, str, float, float]]:
    pairs = rows.items() if isinstance(rows, Mapping) else ()
    estimates = {}
    for name, estimate in list(pairs)[:_MOST_SITES]:
        if isinstance(estimate, list) and len(estimate) > 1 and (value := number_in(estimate[0])):
            first_s, further_s = (number_in(n) or 0.0 for n in (*estimate[2:4], 0.0, 0.0)[:2])
            estimates[name] = (value, str(estimate[1])[:50], first_s, further_s)
    return estimates


def _alternative(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"site": row["site"]} | {term: number_in(row.get(term)) for term in _TERMS}


def workflow_facts(submit_dir: SubmitDir, root: str = "", parent: str = "") -> Measurement:
    """What the submit directory says of the workflow, which is a part of ``root`` and is run by a
    job of ``parent`` (UUIDs, "" where it is a part of none).

    ``planned_at`` and ``at`` are when it was planned, in Unix seconds.
    """
    dump, workflow = submit_dir.braindump, submit_dir.workflow
    # A part's DAG may lie elsewhere, and be called as another one in the directory.
    folder, dag = submit_dir.path, submit_dir.dag
    planned = planned_at(submit_dir)
    return Measurement(
        id=f"workflow:{workflow}",
        metric="workflow",
        subject=workflow,
        value=1.0,
        unit="1",
        at=planned,
        source="submit directory",
        workflow=workflow,
        details={
            "name": submit_dir.name,
            "label": dump.get("dax_label", ""),
            "user": _user(dump.get("user", ""), submit_dir.owner),
            "submit_dir": str(folder.absolute()),
            "dag": str(dag.relative_to(folder) if dag.is_relative_to(folder) else dag.absolute()),
            "host": _host(dump.get("submit_hostname", "")),
            "root": root or dump.get("root_wf_uuid") or workflow,
            "parent": parent,
            "planned_at": planned,
        },
    )


def planned_at(submit_dir: SubmitDir) -> float:
    """When a workflow was planned, or its DAG written (Unix seconds); 0 where nobody knows."""
    try:
        return submit_dir.planned_at or submit_dir.dag.stat().st_mtime
    except OSError:
        return 0.0


def _user(name: str, owner: int) -> str:
    """Whose it is: whoever owns the directory, whatever its files say, but for root and for whom
    this process runs as, who could say so elsewhere, too."""
    if name and owner in (0, os.geteuid()):
        return name
    try:
        return pwd.getpwuid(owner).pw_name
    except KeyError:  # not known on this machine
        return ""


def _host(name: str) -> str:
    return name if name not in ("", "localhost") else os.uname().nodename
