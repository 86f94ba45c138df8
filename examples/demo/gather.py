"""From a run that ended to the facts of its report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from adon.report.run_facts import NO_MAPPING, NOT_PLANNED, RunFacts
from adon.report.submit_report import facts_of_run
from examples.demo.demo_run import DemoRun, Ended, Interrupted
from examples.demo.facts import DemoFacts
from examples.demo.running import stuck_words
from examples.demo.supervise import BrokerProcess
from monitors.archive.archive import Archive
from monitors.workflows.planned.submit_dir import SubmitDir
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import LIVE, Transit
from network_provisioner.client.broker import BrokerClient
from site_selector.explain.text import changes

LEARNT = ("throughput", "runtime", "compute_rate", "queue_wait")
_BROKER_CATCHES_UP_S = 10.0


def learnt(archive: Archive) -> int:
    """How many measurements that decide placements the archive holds."""
    return sum(len(archive.query(metric)) for metric in LEARNT)


def live(transits: Sequence[Transit], now: float) -> list[Transit]:
    """The transits that still hold bandwidth at ``now``."""
    return [t for t in transits if t.state in LIVE and t.grant.lease_until > now]


def settled(client: BrokerClient, workflow: str) -> tuple[list[Transit], list[str]]:
    """The transits of a workflow that has ended, and a warning for each that was released here.

    DAGMan leaves when its last POST hook has; what still holds bandwidth then was left to its lease
    because the broker was away. A broker that died is waited for some seconds while it is started
    again. Raises BrokerError.
    """
    transits = _when_it_answers(client, workflow)
    lost = live(transits, time.time())
    for transit in lost:
        client.release(transit.id, outcome="left behind by its hook")
    warnings = [
        f"{t.request.job}: its path was released only at the end of the workflow" for t in lost
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
) -> DemoFacts:
    """Everything the report needs of a run as far as it came.

    Raises AdonError if a run that came to its end cannot be told of, as the broker does not
    answer; of one that was cut short what can be had is told.
    """
    known = _Network([], [], 0, [], answered=False)
    warnings = list(broker.warnings)
    try:
        known = _ask(broker.client, run)
    except BrokerError as error:
        if run.trouble is None:
            raise
        warnings.append(f"what the broker knew is not in this report: {error}")
    now = time.time()
    planned, placed = run.planned, run.placed
    end = run.end or Ended("", run.submitted_at or now, now)
    state = ending(run)
    if planned:
        facts = facts_of_run(SubmitDir(planned.submit_dir), now, known.transits, known.links)
    else:
        facts = RunFacts(
            NOT_PLANNED, workflow, state, 0, 0, 0.0, 0.0, NO_MAPPING, (), (), (), links=known.links
        )
    facts.state, facts.started, facts.ended = state, end.started, end.ended
    facts.network, facts.network_note = network, network_note
    facts.stopped, facts.samples = run.stopped, broker.samples
    facts.warnings = [*warnings, *facts.warnings, *known.left_behind]
    facts.waiting = stuck_words(run.stuck) if state != "success" else []
    facts.reason = end.reason or facts.reason if state == "failed" else end.reason
    if known.answered:
        facts.transits = known.transits
    if planned:
        facts.planner, facts.workflow = planned.planner, planned.name
    elif placed:
        parents = placed.inputs.workflow.parents
        facts.edges = [(parent, job) for job, above in parents.items() for parent in above]
    if placed:
        facts.jobs, facts.mapping = len(placed.mapping.placements), placed.mapping.as_dict()
    return DemoFacts(
        **{field.name: getattr(facts, field.name) for field in fields(facts)},
        status_records=len(archive.query("status", workflow=planned.wf_uuid)) if planned else 0,
        open_reservations=len(live(known.transits, now)),
        flows_left=known.flows_left,
        science=run.science,
        taught=changes(run.before.mapping, placed.mapping) if run.before and placed else {},
        earlier_measurements=earlier,
    )


@dataclass(frozen=True, slots=True)
class _Network:
    """What the broker knows of a run, and a warning for each path that was released here."""

    transits: list[Transit]
    links: list[Mapping[str, Any]]
    flows_left: int
    left_behind: list[str]
    answered: bool = True


def _ask(client: BrokerClient, run: DemoRun) -> _Network:
    if run.planned is None:
        return _Network([], client.topology()["links"], len(client.counters()["installed"]), [])
    transits, left_behind = settled(client, run.planned.wf_uuid)
    flows = len(client.counters()["installed"])
    return _Network(transits, client.topology()["links"], flows, left_behind)
