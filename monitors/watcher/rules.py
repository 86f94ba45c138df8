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
from dataclasses import dataclass, replace

from monitors.watcher.events import Event, EventKind

SOON_S = 1.0
BRIEF_S = 2.0
POST_S = 6.0
DAG_ENDED, DAGMAN_GONE = "dag_ended", "dagman_gone"  # outcomes
_CLOCKS_S = 2.0  # two logs may write the time of one event differently

_PRE = frozenset({EventKind.PRE_STARTED, EventKind.PRE_ENDED})
_DAG = frozenset({EventKind.DAG_STARTED, EventKind.DAG_ENDED, EventKind.DAG_GONE})
_WAITS_S = {
    EventKind.HELD: BRIEF_S,
    EventKind.EVICTED: POST_S,
    EventKind.ENDED: POST_S,
    EventKind.REMOVED: POST_S,
    EventKind.POST_ENDED: SOON_S,
}
_DAG_WAITS_S = {EventKind.DAG_ENDED: BRIEF_S, EventKind.DAG_GONE: POST_S}
_OVER = frozenset({EventKind.ENDED, EventKind.REMOVED, EventKind.POST_ENDED})
_PAUSED = frozenset({EventKind.HELD, EventKind.EVICTED})


@dataclass(frozen=True, slots=True)
class Fact:
    """An event as it was heard: in which look at the files, and when by the watcher's own clock."""

    event: Event
    look: int
    heard: float

    @property
    def what(self) -> EventKind:
        """What happened."""
        return self.event.what


@dataclass(frozen=True, slots=True)
class JobState:
    """Where a job stands.

    ``pre`` is its PRE, as long as nothing was submitted after it; ``attempt`` the newest word about
    its newest submission, ``cluster``; ``returned`` how that ended; ``past`` older submissions.
    """

    pre: Fact | None = None
    attempt: Fact | None = None
    cluster: int = 0
    returned: int | None = None
    past: frozenset[int] = frozenset()

    @property
    def last(self) -> Fact | None:
        """The word that counts."""
        return self.pre or self.attempt


@dataclass(frozen=True, slots=True)
class DecisionTime:
    """When a PRE asked, in Unix seconds; the first look that found its decision file; and whether
    nothing of it is left to give back."""

    at: float
    look: int
    given_back: bool = False


@dataclass(frozen=True, slots=True)
class Due:
    """Why, in one word, and ``pause``: whether the job may want a path again."""

    outcome: str
    pause: bool = False


def after(state: JobState, fact: Fact) -> JobState:
    """Where a job stands after one more event of its own."""
    event = fact.event
    if event.what in _PRE:
        return replace(state, pre=fact)
    if event.what is EventKind.SUBMITTED:
        return _submitted(state, fact)
    over = state.attempt is not None and state.attempt.what in _OVER
    if event.cluster != state.cluster or (over and event.what is not EventKind.POST_ENDED):
        return state  # a late word about an earlier submission, or one that was told before
    own_end = event.what in (EventKind.ENDED, EventKind.REMOVED)
    returned = event.code if own_end else state.returned
    return replace(state, attempt=fact, returned=returned)


def _submitted(state: JobState, fact: Fact) -> JobState:
    cluster, last = fact.event.cluster, state.attempt
    if not cluster:
        return replace(state, pre=None)  # DAGMan tells what the job's log told before
    known = cluster == state.cluster or cluster in state.past
    if known and last is not None and fact.event.at <= last.event.at + _CLOCKS_S:
        return replace(state, pre=None)  # another log tells it, too
    # A known number, but later: in a pool made anew the numbers begin again.
    past = (state.past | {state.cluster}) - {cluster}
    return JobState(None, fact, cluster, None, past)


def dag_after(dag: Fact | None, fact: Fact) -> Fact | None:
    """Where the DAG stands after one more event, which may be any."""
    if fact.what not in _DAG:
        return dag
    if dag is not None and dag.what is fact.what:
        return dag  # two logs tell of it; the first word counts
    if dag is not None and (dag.what, fact.what) == (EventKind.DAG_ENDED, EventKind.DAG_GONE):
        return dag
    return fact


def due(decision: DecisionTime, state: JobState | None, dag: Fact | None, now: float) -> Due | None:
    """What is due now; None where the job may need its paths still, or they are given back.

    ``state`` is of the decision's job, ``now`` by the clock of ``heard``.
    """
    if decision.given_back:
        return None
    last = state.last if state is not None else None
    if last is not None and not _counts(last, decision):
        last = None
    found = _of_job(state, last, now) if last is not None and state is not None else None
    over = None
    if dag is not None and now - dag.heard >= _DAG_WAITS_S.get(dag.what, math.inf):
        over = dag.what
    if over is EventKind.DAG_ENDED:
        if found is not None and not found.pause:
            return found  # a failed PRE says more than the end that came of it
        ended = last is not None and state is not None and last.what in _OVER
        return Due(outcome_of(state) if ended and state is not None else DAG_ENDED)
    # Whatever was submitted runs on without its DAGMan.
    if over is EventKind.DAG_GONE and (last is None or last.what in _PRE):
        return found or Due(DAGMAN_GONE)
    return found


def runs(decision: DecisionTime, state: JobState | None) -> bool:
    """Whether a job is running now, and not as it did before its PRE asked."""
    last = state.last if state is not None else None
    return (
        last is not None
        and last.what is EventKind.RUNNING
        and not decision.given_back
        and _counts(last, decision)
    )


def _of_job(state: JobState, last: Fact, now: float) -> Due | None:
    if last.what is EventKind.PRE_ENDED:
        failed = last.event.code != 0 and now - last.heard >= SOON_S
        return Due("pre_failed") if failed else None
    wait_s = _WAITS_S.get(last.what)
    if wait_s is None or now - last.heard < wait_s:
        return None
    if last.what in _PAUSED:
        return Due(str(last.what), pause=True)
    return Due(outcome_of(state))


def outcome_of(state: JobState) -> str:
    """How a job ended: ``success``, ``exit 1``, ``signal 9``, ``removed``."""
    code = state.returned
    if code is None:
        return "removed"
    if code < 0:
        return f"signal {-code}"
    return f"exit {code}" if code else "success"


def _counts(fact: Fact, decision: DecisionTime) -> bool:
    at = fact.event.at
    since = decision.at if at % 1 else math.floor(decision.at)
    return fact.look > decision.look or at >= since
