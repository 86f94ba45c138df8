"""The facts of any run, from its submit directory: who planned it does not matter, nor how far it
has come."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from adon.report.messages import clock_text, short_name
from adon.report.run_facts import NO_MAPPING, Bar, DagJob, RunFacts
from monitors.base.measurement import Measurement
from monitors.jobs.jobs import Attempt, Outcome
from monitors.workflows.facts.plan import placement_facts, read_plan
from monitors.workflows.facts.transfers import transfers_of
from monitors.workflows.followed import FollowedWorkflow
from monitors.workflows.logs.status import Status, WorkflowState, for_people
from monitors.workflows.overview import held_jobs
from monitors.workflows.planned import job_files
from monitors.workflows.planned.dag import Node, read_dag
from monitors.workflows.planned.submit_dir import TRANSFERS, JobKind, SubmitDir
from monitors.workflows.report import failures, timeline
from network_provisioner.base.errors import InputError
from network_provisioner.base.model import (
    AgreedRequest,
    Transit,
    TransitGrant,
    TransitState,
    TransitUsage,
)

PATH_METRICS = (
    "throughput", "path_throughput", "tcp_throughput", "udp_throughput", "rtt", "one_way_delay",
    "jitter", "loss",
)  # fmt: skip
_OWN = (JobKind.COMPUTE, JobKind.SUBWORKFLOW)
_KINDS = {**dict.fromkeys(_OWN, "compute"), **dict.fromkeys(TRANSFERS, "transfer")}
_SILENT_S = 86400.0  # a job may run for long, and DAGMan has nothing to write meanwhile
_MOST_PATHS = 20
_MOST_VALUES = 1000  # of a series: no chart shows more


def facts_of_run(
    submit_dir: SubmitDir,
    now: float,
    known_transits: Sequence[Transit] = (),
    links: Sequence[Mapping[str, Any]] = (),
    warnings: Iterable[str] = (),
) -> RunFacts:
    """What the files of a run say until ``now`` (Unix seconds). ``known_transits`` are the broker's
    of this workflow, ``links`` its topology. Raises InputError if files cannot be read."""
    workflow = FollowedWorkflow(submit_dir)
    workflow.step()
    measurements, _ = workflow.take()
    problems = list(warnings)
    nodes: Mapping[str, Node] = {}
    try:
        nodes = read_dag(submit_dir, moves=False).nodes
    except InputError as error:
        problems.append(f"the DAG is not drawn: {error}")
    attempts = timeline(workflow)
    kinds = {name: node.kind for name, node in nodes.items()} or {
        a.job.name: a.job.kind for a in attempts
    }
    own = {name for name, kind in kinds.items() if kind in _OWN}
    own = own or {name for name, kind in kinds.items() if kind is JobKind.OTHER}
    bars, status, state = bars_of(attempts, own), workflow.status, _state(workflow.status)
    started = min((a.submit for a in attempts if a.submit), default=submit_dir.planned_at) or now
    ended = max((at for bar in bars for at in (bar.start, bar.end)), default=started)
    ended = max(ended, status.at if status is not None else 0.0)
    silent_s = now - workflow.written_at
    if state == "running" and silent_s > _SILENT_S:
        problems.append(f"no log entry for {for_people(silent_s)}: does DAGMan still run?")
    elif state == "running":
        ended = max(ended, now)
    failed = failures(workflow)
    reason = status.reason if status is not None else ""
    if state == "failed" and not failed:
        reason = reason or "; ".join(workflow.last_messages)
    return RunFacts(
        planner=_planner(submit_dir),
        workflow=submit_dir.name,
        state=state,
        jobs=len(own),
        dag_jobs=len(kinds),
        started=started,
        ended=max(ended, started),
        mapping=mapping_in(submit_dir),
        edges=[(parent, name) for name, node in nodes.items() for parent in node.parents],
        dag=[
            DagJob(name, short_name(_runs(node)) or str(node.kind), node.site, name in own)
            for name, node in nodes.items()
        ],
        transits=[*known_transits, *_moved(measurements, {t.id for t in known_transits})],
        bars=bars,
        links=links,
        warnings=[*problems, *job_files.warnings(submit_dir.path)],
        reason=reason,
        failures=failed,
        waiting=_held(measurements) if state == "running" else [],
        submit_dir=submit_dir.path,
    )


def bars_of(attempts: Iterable[Attempt], own: Collection[str] = ()) -> list[Bar]:
    """The Gantt's bars: every attempt that started. ``own`` are jobs of the workflow whose kind
    nobody tells."""
    return [
        Bar(
            a.job.name,
            _KINDS.get(a.job.kind, "compute" if a.job.name in own else "other"),
            a.job.site,
            a.submit,
            a.start,
            a.end,
            a.outcome is Outcome.DONE,
            a.job.transformation,
        )
        for a in attempts
        if a.start
    ]


def mapping_in(submit_dir: SubmitDir) -> Mapping[str, Any]:
    """Where ADON put the jobs and why, as a site mapping, from the file that it left there."""
    placed = placement_facts(read_plan(submit_dir.path), submit_dir.workflow)
    if not placed:
        return NO_MAPPING
    whole = placed[0].details
    expected, span = whole["workflow_s"], whole["workflow_range_s"]
    forecast = {"median_s": expected, "low_s": span[0], "high_s": span[1]} if span else None
    return {
        **NO_MAPPING,
        "policy": whole["policy"],
        "makespan_s": math.inf if expected is None else expected,
        "forecast": forecast,
        "placements": [
            {
                "job": m.details["job"],
                "transformation": m.details["transformation"],
                "site": m.subject,
                "reason": m.details["reason"],
                "alternatives": [
                    {
                        "site": other["site"],
                        "t_q_s": other["wait_s"],
                        "t_c_s": other["compute_s"],
                        "t_n_s": other["transfer_s"],
                        "t_t_s": other["seconds"],
                    }
                    for other in m.details["alternatives"]
                ],
            }
            for m in placed
        ],
    }


def path_measurements(
    facts: RunFacts, query: Callable[..., Sequence[Measurement]]
) -> list[Measurement]:
    """What was measured during the run of the paths between sites that moved most. ``query`` takes
    a metric, and a ``subject``, ``since`` and ``until`` (Unix seconds)."""
    moved_bytes: dict[str, int] = {}
    for transit in facts.transits:
        subject = f"{transit.request.src}>{transit.request.dst}"
        moved_bytes[subject] = moved_bytes.get(subject, 0) + transit.usage.bytes
    series = (
        query(metric, subject=subject, since=facts.started, until=facts.ended)
        for subject in sorted(moved_bytes, key=lambda name: -moved_bytes[name])[:_MOST_PATHS]
        for metric in PATH_METRICS
    )
    return [m for values in series for m in values[:: 1 + len(values) // _MOST_VALUES]]


def _state(status: Status | None) -> str:
    if status is None:
        return "planned"
    return "success" if status.state is WorkflowState.DONE else str(status.state)


def _planner(submit_dir: SubmitDir) -> str:
    version = submit_dir.braindump.get("planner_version", "")
    if version.startswith("ADON"):
        return "embedded"
    return f"pegasus-plan {version}" if version else ""


def _runs(node: Node) -> str:
    """The transformation of a job; of a clustered one that of its tasks."""
    return node.tasks[0].transformation if node.tasks else node.transformation


def _moved(measurements: Iterable[Measurement], known: Collection[str]) -> list[Transit]:
    """Transfers by their own reports, those left out that the broker knows."""
    return [
        Transit(
            AgreedRequest(
                m.id,
                src,
                dst,
                workflow=m.workflow,
                job=m.details["job"],
                retry=m.details["retry"],
            ),
            TransitState.RELEASED if m.details["path"] else TransitState.BEST_EFFORT,
            f"by the report of {m.source}; the job: {m.details['outcome']}",
            TransitGrant(path=list(m.details["path"] or ()), released_at=m.at),
            TransitUsage(
                bytes=int(m.value),
                seconds=m.details["seconds"] or 0.0,
                goodput_bps=m.details["goodput_bps"] or 0.0,
            ),
        )
        for src, dst, m in transfers_of(measurements)
        if m.details["transit"] not in known
    ]


def _held(measurements: Iterable[Measurement]) -> list[str]:
    """A sentence for each job that is on hold by the newest word of it."""
    holding = max((m for m in measurements if m.metric == "held"), key=lambda m: m.at, default=None)
    return [
        f"job {job.job} is on hold since {clock_text(job.since)}: {job.reason}"
        for job in (held_jobs(holding) if holding is not None else ())
    ]
