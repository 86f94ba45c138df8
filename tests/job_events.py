"""Events of a workflow's logs, for tests: what HTCondor and DAGMan tell, in few words."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from monitors.jobs.jobs import AnyEvent, DagEvent, DagmanState, Jobs
from monitors.workflows.logs.dagman import DagmanStep, StepKind
from monitors.workflows.logs.events import JobEvent, Kind


class EventKind(StrEnum):
    """What happens to a job, or to the DAG."""

    PRE_STARTED = "pre_started"
    PRE_ENDED = "pre_ended"
    SUBMITTED = "submitted"
    RUNNING = "running"
    HELD = "held"
    UNHELD = "unheld"
    EVICTED = "evicted"
    ENDED = "ended"
    REMOVED = "removed"
    POST_ENDED = "post_ended"
    DAG_STARTED = "dag_started"
    DAG_ENDED = "dag_ended"
    DAG_GONE = "dag_gone"


_KINDS = {
    EventKind.SUBMITTED: Kind.SUBMIT,
    EventKind.RUNNING: Kind.EXECUTE,
    EventKind.HELD: Kind.HELD,
    EventKind.UNHELD: Kind.RELEASED,
    EventKind.EVICTED: Kind.EVICTED,
    EventKind.ENDED: Kind.TERMINATED,
    EventKind.REMOVED: Kind.ABORTED,
    EventKind.POST_ENDED: Kind.POST_SCRIPT_TERMINATED,
}
_STEPS = {
    EventKind.PRE_STARTED: StepKind.PRE_STARTED,
    EventKind.PRE_ENDED: StepKind.PRE_ENDED,
    EventKind.SUBMITTED: StepKind.SUBMITTED,
}
_STATES = {
    EventKind.DAG_STARTED: DagmanState.STARTED,
    EventKind.DAG_ENDED: DagmanState.ENDED,
    EventKind.DAG_GONE: DagmanState.GONE,
}


def happened(
    what: EventKind, at: float, job: str = "", code: int | None = None, cluster: int = 0,
    nth: int = 0,
) -> AnyEvent:  # fmt: skip
    """An event as the logs tell it; SUBMITTED without a number is what DAGMan tells."""
    if what in _STATES:
        return DagEvent(_STATES[what], at, code)
    if what in _STEPS and not (what is EventKind.SUBMITTED and cluster):
        return DagmanStep(_STEPS[what], at, job, code or 0)
    node = job if what is EventKind.SUBMITTED else ""
    return JobEvent(_KINDS[what], cluster, 0, at, node=node, returned=code, nth=nth)


def jobs_after(events: Iterable[AnyEvent]) -> Jobs:
    """The jobs of a workflow to which all this happened."""
    jobs = Jobs()
    for event in events:
        jobs.take(event)
    return jobs
