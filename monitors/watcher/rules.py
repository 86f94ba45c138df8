"""Of what happened, what is to be given back. Pure: values in, values out.

A job holds its paths from its PRE on, while it waits for a slot and while it runs. They are due

| when | after | since |
|---|---|---|
| its PRE failed or was killed | 1 s | it may have got them nevertheless |
| it is held, or evicted and not yet run again | 2 s, 6 s | nothing moves meanwhile |
| it ended or was removed | 6 s | POST reports more than we can know: it goes first |
| its POST ended | 1 s | and left them |
| its DAGMan ended for good | 2 s | whatever the job's log says: there is no POST any more |
| its DAGMan is gone and the job was not submitted | 6 s | nobody is there to submit it |

The time runs from when the watcher heard of it, by a clock that no one sets, so that neither a
clock that jumps nor a watcher that starts late shortens or lengthens it.

What happened before a PRE asked is no word about what it got. An event counts for a decision if it
stands in the logs in a later look than the decision, or is not older than it by its time, as far as
that is told: some logs have whole seconds only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from monitors.jobs.jobs import DagmanState, Job, Jobs, Reading
from monitors.workflows.logs.events import Kind

SOON_S = 1.0
BRIEF_S = 2.0
POST_S = 6.0
DAG_ENDED, DAGMAN_GONE = "dag_ended", "dagman_gone"  # outcomes

_WAITS_S: dict[object, float] = {
    Kind.HELD: BRIEF_S,
    Kind.EVICTED: POST_S,
    Kind.SHADOW_EXCEPTION: POST_S,
    Kind.TERMINATED: POST_S,
    Kind.ABORTED: POST_S,
    Kind.POST_SCRIPT_TERMINATED: SOON_S,
}
_DAG_WAITS_S: dict[object, float] = {DagmanState.ENDED: BRIEF_S, DagmanState.GONE: POST_S}
_OVER = frozenset({Kind.TERMINATED, Kind.ABORTED, Kind.POST_SCRIPT_TERMINATED})
_PAUSED: dict[object, str] = {
    Kind.HELD: "held",
    Kind.EVICTED: "evicted",
    Kind.SHADOW_EXCEPTION: "evicted",
}


class Fact(NamedTuple):
    """The newest event of a job or of DAGMan, and when it was read. ``event`` is None for a PRE
    script, and ``code`` how that, the job or DAGMan ended, minus the signal where one ended it,
    None where nobody says. ``at`` in Unix seconds."""

    event: Kind | DagmanState | None
    at: float
    code: int | None
    read: Reading


def newest_event(job: Job | None) -> Fact | None:
    """The newest event of a job; that of its PRE, as long as the job is not submitted."""
    if job is not None and job.pre is not None:
        return Fact(None, job.pre.at, job.pre.status, job.pre.read)
    attempt = job.current if job is not None else None
    if attempt is None:
        return None
    return Fact(attempt.last, attempt.at, attempt.returned, attempt.read)


def newest_of_dag(jobs: Jobs) -> Fact | None:
    """The newest event of DAGMan."""
    dag = jobs.dag
    return None if dag is None else Fact(dag.state, dag.at, dag.code, jobs.dag_read)


class DecisionTime(NamedTuple):
    """When a PRE asked, in Unix seconds; and the first look that found its decision file."""

    at: float
    look: int


@dataclass(frozen=True, slots=True)
class Due:
    """Why, in one word, and ``pause``: whether the job may want a path again."""

    outcome: str
    pause: bool = False


def due(decision: DecisionTime, last: Fact | None, dag: Fact | None, now: float) -> Due | None:
    """What is due now; None where the job may need its paths still.

    ``last`` is of the decision's job, ``now`` by the clock of :class:`~monitors.jobs.jobs.Reading`.
    """
    if last is not None and not _counts(last, decision):
        last = None
    action = _of_job(last, now) if last is not None else None
    over = None
    if dag is not None and now - dag.read.at >= _DAG_WAITS_S.get(dag.event, math.inf):
        over = dag.event
    if over is DagmanState.ENDED:
        if action is not None and not action.pause:
            return action  # a failed PRE says more than the end that came of it
        return Due(outcome_of(last) if last is not None and last.event in _OVER else DAG_ENDED)
    # Whatever was submitted runs on without its DAGMan.
    if over is DagmanState.GONE and (last is None or last.event is None):
        return action or Due(DAGMAN_GONE)
    return action


def runs(decision: DecisionTime, last: Fact | None) -> bool:
    """Whether a job is running now, and not as it did before its PRE asked."""
    return last is not None and last.event is Kind.EXECUTE and _counts(last, decision)


def _of_job(last: Fact, now: float) -> Due | None:
    if last.event is None:
        failed = last.code and now - last.read.at >= SOON_S
        return Due("pre_failed") if failed else None
    wait_s = _WAITS_S.get(last.event)
    if wait_s is None or now - last.read.at < wait_s:
        return None
    if last.event in _PAUSED:
        return Due(_PAUSED[last.event], pause=True)
    return Due(outcome_of(last))


def outcome_of(fact: Fact) -> str:
    """How a job ended: ``success``, ``exit 1``, ``signal 9``, ``removed``."""
    code = fact.code
    if code is None:
        return "removed"
    if code < 0:
        return f"signal {-code}"
    return f"exit {code}" if code else "success"


def _counts(fact: Fact, decision: DecisionTime) -> bool:
    since = decision.at if fact.at % 1 else math.floor(decision.at)
    return fact.read.look > decision.look or fact.at >= since
