"""From a run that ended to the facts of its report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.demo.demo_run import DemoRun, Ended, Interrupted
from examples.demo.facts import Bar, RunFacts, live
from examples.demo.running import stuck_words
from examples.demo.supervise import BrokerProcess
from monitors.archive.archive import Archive
from monitors.jobs.jobs import Outcome
from monitors.workflows.planned import job_files
from monitors.workflows.planned.submit_dir import TRANSFERS, JobKind, SubmitDir
from monitors.workflows.report import JobTimes, failures, last_complaint, timeline
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import Transit
from network_provisioner.client.broker import BrokerClient
from site_selector.explain.text import changes

LEARNT = ("throughput", "runtime", "compute_rate", "queue_wait")
_BROKER_CATCHES_UP_S = 10.0
NO_MAPPING: Mapping[str, Any] = {
    "policy": "", "portfolio": {}, "makespan_s": 0.0, "placements": [], "beliefs": {},
}  # fmt: skip
"""Of a run that ended before sites were chosen."""


def learnt(archive: Archive) -> int:
    """How many measurements that decide placements the archive holds."""
    return sum(len(archive.query(metric)) for metric in LEARNT)


def bars_of(times: Sequence[JobTimes]) -> list[Bar]:
    """The Gantt's bars: every attempt that started and ended."""
    kinds = {JobKind.COMPUTE: "compute", **dict.fromkeys(TRANSFERS, "transfer")}
    return [
        Bar(
            t.job, kinds.get(t.kind, "other"), t.site, t.submit, t.start, t.end,
            t.status is Outcome.DONE,
        )
        for t in times
        if t.start and t.end
    ]  # fmt: skip


def settled(client: BrokerClient, workflow: str) -> tuple[list[Transit], list[str]]:
    """The transits of a workflow that has ended, and a warning for each that was given back here.

    DAGMan leaves when its last POST hook has; what still holds bandwidth then was left to its lease
    because the broker was away. A broker that died is waited for some seconds while it is started
    again. Raises BrokerError.
    """
    transits = _when_it_answers(client, workflow)
    lost = live(transits, time.time())
    for transit in lost:
        client.release(transit.id, outcome="left behind by its hook")
    warnings = [
        f"{t.request.job}: its path was given back at the end of the workflow only" for t in lost
    ]
    return (client.list(workflow=workflow) if lost else transits), warnings


def _when_it_answers(client: BrokerClient, workflow: str) -> list[Transit]:
    deadline = time.monotonic() + _BROKER_CATCHES_UP_S
    while True:
        try:
            return client.list(workflow=workflow)
        except BrokerError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def hook_warnings(submit_dir: Path) -> list[str]:
    """What the hooks could not do, in their own words, from their journal."""
    return [
        f"{line.get('job', '')}: {line.get('reason', '')}"
        for line in job_files.read_lines(submit_dir / job_files.HOOK_JOURNAL)
        if line.get("event") == "warning"
    ]


def ending(run: DemoRun) -> str:
    """``success`` and the like as HTCondor says, else ``interrupted`` or ``broken off``."""
    if run.trouble is not None:
        return "interrupted" if isinstance(run.trouble, Interrupted) else "broken off"
    return run.end.state if run.end else "broken off"


def gather(
    run: DemoRun,
    workflow: str,
    network: str,
    network_note: str,
    earlier: int,
    archive: Archive,
    broker: BrokerProcess,
) -> RunFacts:
    """Everything the report needs of a run as far as it came.

    Raises AdonError where a run that came to its end cannot be told of, as the broker does not
    answer; of one that was cut short what can be had is told.
    """
    told = _Network([], [], 0, [])
    warnings = list(broker.warnings)
    try:
        told = _ask(broker.client, run)
    except BrokerError as error:
        if run.trouble is None:
            raise
        warnings.append(f"what the broker knew is not in this report: {error}")
    now = time.time()
    planned, placed = run.planned, run.placed
    bars = bars_of(timeline(planned.submit_dir)) if planned else []
    end = run.end or Ended("", run.submitted_at or now, now)
    ended_as = ending(run)
    failed = failures(planned.submit_dir) if planned and ended_as != "success" else []
    why = end.reason
    if planned and ended_as == "failed" and not failed:
        why = why or last_complaint(planned.submit_dir)
    return RunFacts(
        planner=planned.planner if planned else "none",
        network=network,
        network_note=network_note,
        workflow=planned.name if planned else workflow,
        state=ended_as,
        jobs=len(placed.mapping.placements) if placed else 0,
        dag_jobs=len(SubmitDir(planned.submit_dir).job_names()) if planned else 0,
        started=end.started,
        ended=end.ended,
        mapping=placed.mapping.as_dict() if placed else NO_MAPPING,
        edges=[(p, c) for c, ps in placed.inputs.workflow.parents.items() for p in ps]
        if placed
        else [],
        transits=told.transits,
        bars=bars,
        status_records=len(archive.query("status", workflow=planned.wf_uuid)) if planned else 0,
        open_reservations=len(live(told.transits, now)),
        flows_left=told.flows_left,
        science=run.science,
        links=told.links,
        samples=broker.samples,
        taught=changes(run.before.mapping, placed.mapping) if run.before and placed else {},
        earlier_measurements=earlier,
        warnings=[
            *warnings,
            *(hook_warnings(planned.submit_dir) if planned else []),
            *told.left_behind,
        ],
        stopped=run.stopped,
        reason=why,
        failures=failed,
        waiting=stuck_words(run.stuck) if ended_as != "success" else [],
        submit_dir=planned.submit_dir if planned else None,
    )


@dataclass(frozen=True, slots=True)
class _Network:
    """What the broker knows of a run, and a warning for each path that was given back here."""

    transits: list[Transit]
    links: list[Mapping[str, Any]]
    flows_left: int
    left_behind: list[str]


def _ask(client: BrokerClient, run: DemoRun) -> _Network:
    if run.planned is None:
        return _Network([], client.topology()["links"], len(client.counters()["installed"]), [])
    transits, left_behind = settled(client, run.planned.wf_uuid)
    flows = len(client.counters()["installed"])
    return _Network(transits, client.topology()["links"], flows, left_behind)
