"""From a run that ended to the facts of its report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adon.demo.facts import Bar, LinkSample, RunFacts, live
from adon.placement import Placed
from monitors.archive import Archive
from monitors.attempts import Outcome
from monitors.submit_dir import TRANSFERS, JobKind, SubmitDir
from monitors.timeline import JobTimes, timeline
from network_provisioner.client import BrokerClient
from network_provisioner.errors import BrokerError
from network_provisioner.model import Transit
from pegasus_hooks import submitdir
from pegasus_hooks.planner.model import PlannedWorkflow
from site_selector.explain import changes

LEARNT = ("throughput", "runtime", "compute_rate", "queue_wait")
_BROKER_CATCHES_UP_S = 10.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How the run ended: its state and Unix seconds."""

    state: str
    started: float
    ended: float


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
    warnings = [f"{t.job}: its path was given back at the end of the workflow only" for t in lost]
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
        for line in submitdir.read_lines(submit_dir / submitdir.HOOK_JOURNAL)
        if line.get("event") == "warning"
    ]


def gather(
    planned: PlannedWorkflow,
    network: str,
    network_note: str,
    before: Placed,
    placed: Placed,
    earlier: int,
    end: Ended,
    archive: Archive,
    client: BrokerClient,
    samples: Sequence[LinkSample],
    science: dict[str, Any],
    warnings: Sequence[str],
) -> RunFacts:
    """Everything the report needs. Raises AdonError where the broker does not answer."""
    transits, left_behind = settled(client, planned.wf_uuid)
    state = client.counters()
    times = timeline(planned.submit_dir)
    return RunFacts(
        planner=planned.planner,
        network=network,
        network_note=network_note,
        workflow=planned.name,
        state=end.state,
        jobs=len(placed.mapping.placements),
        dag_jobs=len(SubmitDir(planned.submit_dir).job_names()),
        started=end.started,
        ended=end.ended,
        mapping=placed.mapping.as_dict(),
        edges=[(p, c) for c, ps in placed.inputs.workflow.parents.items() for p in ps],
        transits=transits,
        bars=bars_of(times),
        status_records=len(archive.query("status", workflow=planned.wf_uuid)),
        open_reservations=len(live(transits, time.time())),
        flows_left=len(state["installed"]),
        science=science,
        links=client.topology()["links"],
        samples=samples,
        taught=changes(before.mapping, placed.mapping),
        earlier_measurements=earlier,
        warnings=[*warnings, *hook_warnings(planned.submit_dir), *left_behind],
    )
