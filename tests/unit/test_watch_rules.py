"""What is due of what happened: single cases, and every order of events."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_events import EventKind, happened

from monitors.jobs.jobs import AnyEvent, DagmanState, Jobs, Reading
from monitors.watcher import rules
from monitors.watcher.rules import DecisionTime, Due, Fact, due
from monitors.workflows.logs.events import JobEvent, Kind

JOB = "stage_in_local_tacc_0_0"
FIRST = DecisionTime(100.5, look=2)
LONG_S = 100.0


Heard = tuple[AnyEvent, int, float]
"""An event, the look in which it was read, and when."""


def fact(what: EventKind, at: float = 101.0, look: int = 3, code: int | None = None,
         cluster: int = 7, heard: float = 0.0) -> Heard:  # fmt: skip
    job = "" if what.startswith("dag_") else JOB
    return happened(what, at, job, code, cluster), look, heard


def observed(*facts: Heard) -> Jobs:
    jobs = Jobs()
    for n, (event, look, heard) in enumerate(facts):
        jobs.reading = Reading(look, heard)
        jobs.take(replace(event, nth=n) if isinstance(event, JobEvent) else event)
    return jobs


def standing(*facts: Heard) -> Fact | None:
    return rules.newest_event(observed(*facts).get(JOB))


def dag(what: EventKind) -> Fact | None:
    return rules.newest_of_dag(observed(fact(what)))


SUBMITTED, RUNNING = fact(EventKind.SUBMITTED), fact(EventKind.RUNNING)
ENDED = fact(EventKind.ENDED, code=1)


@pytest.mark.parametrize(
    ("facts", "outcome", "after_s"),
    [
        ([fact(EventKind.PRE_STARTED), fact(EventKind.PRE_ENDED, code=-9)], "pre_failed", 1.0),
        ([SUBMITTED, RUNNING, ENDED], "exit 1", 6.0),
        ([SUBMITTED, RUNNING, fact(EventKind.ENDED, code=0)], "success", 6.0),
        ([SUBMITTED, RUNNING, fact(EventKind.ENDED, code=-9)], "signal 9", 6.0),
        ([SUBMITTED, RUNNING, fact(EventKind.REMOVED)], "removed", 6.0),
        ([SUBMITTED, fact(EventKind.REMOVED)], "removed", 6.0),
        ([SUBMITTED, RUNNING, ENDED, fact(EventKind.POST_ENDED, code=-9)], "exit 1", 1.0),
        ([SUBMITTED, RUNNING, fact(EventKind.HELD)], "held", 2.0),
        ([SUBMITTED, RUNNING, fact(EventKind.EVICTED)], "evicted", 6.0),
    ],
)
def test_due_after_its_time(facts: list[Heard], outcome: str, after_s: float) -> None:
    newest = standing(*facts)
    assert due(FIRST, newest, None, after_s - 0.1) is None
    became = due(FIRST, newest, None, after_s)
    assert became == Due(outcome, pause=outcome in ("held", "evicted"))


@pytest.mark.parametrize(
    "facts",
    [
        [],
        [fact(EventKind.PRE_STARTED)],
        [fact(EventKind.PRE_STARTED), fact(EventKind.PRE_ENDED, code=0)],
        [SUBMITTED],
        [SUBMITTED, RUNNING],
        [SUBMITTED, RUNNING, fact(EventKind.HELD), fact(EventKind.UNHELD)],
        [SUBMITTED, RUNNING, fact(EventKind.EVICTED), RUNNING],
        # a retry: what ended is the attempt before
        [SUBMITTED, ENDED, fact(EventKind.PRE_STARTED)],
        [SUBMITTED, ENDED, fact(EventKind.SUBMITTED, cluster=8)],
        [SUBMITTED, ENDED, fact(EventKind.SUBMITTED, cluster=8), fact(EventKind.POST_ENDED)],
    ],
)
def test_not_due_while_needed(facts: list[Heard]) -> None:
    assert due(FIRST, standing(*facts), None, LONG_S) is None
    assert due(FIRST, standing(*facts), dag(EventKind.DAG_STARTED), LONG_S) is None
    ended = due(FIRST, standing(*facts), dag(EventKind.DAG_ENDED), LONG_S)
    assert ended is not None and not ended.pause


def test_a_failed_pre_is_the_reason_also_where_its_dag_has_ended_since() -> None:
    failed = standing(fact(EventKind.PRE_ENDED, code=1))
    assert due(FIRST, failed, dag(EventKind.DAG_ENDED), LONG_S) == Due("pre_failed")


def test_what_happened_before_the_decision_is_no_word_about_it() -> None:
    old = standing(*((event, 1, 0.0) for event, *_ in (SUBMITTED, ENDED)))
    before = DecisionTime(102.5, look=2)
    assert due(before, old, None, LONG_S) is None
    # read in a later look: it came after the decision, whatever the clock says
    assert due(before, standing(SUBMITTED, ENDED), None, LONG_S) is not None


def test_that_a_retry_is_submitted_is_no_news_of_the_attempt_before() -> None:
    """DAGMan reports it before its job's log was read: its path would go."""
    ended = ((event, 1, 0.0) for event, *_ in (SUBMITTED, ENDED))
    pre_script = (fact(EventKind.PRE_STARTED, look=2), fact(EventKind.PRE_ENDED, look=2, code=0))
    again = fact(EventKind.SUBMITTED, at=103.0, look=3, cluster=0)
    assert (
        due(DecisionTime(102.5, look=2), standing(*ended, *pre_script, again), None, LONG_S) is None
    )


def test_what_ended_within_the_second_of_the_next_decision_is_no_word_about_it() -> None:
    """A retry, where DAGMan's log is too short to tell of its PRE: its path would go while its job
    is being submitted."""
    ended = standing(*((event, 2, 0.0) for event, *_ in (SUBMITTED, ENDED)),
                     fact(EventKind.POST_ENDED, at=102.1, look=2, code=1))  # fmt: skip
    assert due(DecisionTime(102.4, look=2), ended, None, LONG_S) is None
    # Whole seconds do not say which was first, and what is over is given back.
    whole = standing(SUBMITTED, fact(EventKind.ENDED, at=102.0, look=2, code=1))
    assert due(DecisionTime(102.4, look=2), whole, None, LONG_S) is not None


def test_a_job_in_the_queue_outlives_its_dagman_but_not_its_dag() -> None:
    gone = dag(EventKind.DAG_GONE)
    assert due(FIRST, standing(SUBMITTED, RUNNING), gone, LONG_S) is None
    assert due(FIRST, standing(fact(EventKind.PRE_STARTED)), gone, LONG_S) == Due("dagman_gone")
    assert due(FIRST, None, gone, 5.9) is None
    assert due(FIRST, None, dag(EventKind.DAG_ENDED), 2.0) == Due("dag_ended")


def test_a_job_that_runs_again_wants_its_path_again() -> None:
    held = (SUBMITTED, RUNNING, fact(EventKind.HELD))
    assert not rules.runs(FIRST, standing(*held))
    assert rules.runs(FIRST, standing(*held, RUNNING))
    assert not rules.runs(FIRST, standing(*held, fact(EventKind.REMOVED)))


def test_the_dag_is_where_its_last_word_says() -> None:
    jobs = Jobs()
    for what, expected in [
        (EventKind.DAG_STARTED, DagmanState.STARTED),
        (EventKind.DAG_GONE, DagmanState.GONE),
        (EventKind.DAG_STARTED, DagmanState.STARTED),
        (EventKind.DAG_ENDED, DagmanState.ENDED),
        (EventKind.DAG_GONE, DagmanState.ENDED),  # its process is found to be no more: nothing new
        (EventKind.RUNNING, DagmanState.ENDED),
        (EventKind.DAG_STARTED, DagmanState.STARTED),  # a rescue DAG
    ]:
        jobs.take(fact(what)[0])
        assert jobs.dag is not None and jobs.dag.state is expected


def test_what_is_told_twice_changes_nothing() -> None:
    ended = standing(SUBMITTED, ENDED)
    assert standing(SUBMITTED, ENDED, SUBMITTED) == ended
    assert standing(SUBMITTED, ENDED, fact(EventKind.SUBMITTED, cluster=0)) == ended
    before = standing(fact(EventKind.PRE_STARTED), SUBMITTED)
    assert before == standing(SUBMITTED)
    # a pool made anew counts from the beginning
    anew = standing(SUBMITTED, ENDED, fact(EventKind.SUBMITTED, at=200.0))
    assert anew is not None and anew.event is Kind.SUBMIT


JOB_EVENTS = [what for what in EventKind if not what.startswith("dag_")]
DAG_EVENTS = [what for what in EventKind if what.startswith("dag_")]
some_events = st.lists(
    st.tuples(
        st.sampled_from([*JOB_EVENTS, *DAG_EVENTS]),
        st.integers(7, 9),
        st.sampled_from([None, 0, 1, -9]),
    ),
    max_size=12,
)
how_it_ends = st.sampled_from(
    [
        [(EventKind.SUBMITTED, 99, None), (EventKind.ENDED, 99, 1)],
        [
            (EventKind.SUBMITTED, 99, None),
            (EventKind.RUNNING, 99, None),
            (EventKind.REMOVED, 99, None),
        ],
        [(EventKind.SUBMITTED, 99, None), (EventKind.ENDED, 99, 0), (EventKind.POST_ENDED, 99, 1)],
        [(EventKind.PRE_STARTED, 0, None), (EventKind.PRE_ENDED, 0, -9)],
        [(EventKind.DAG_STARTED, 0, None), (EventKind.DAG_ENDED, 0, 1)],
        [(EventKind.SUBMITTED, 99, None), (EventKind.HELD, 99, None)],
    ]
)


@given(some_events, how_it_ends, st.integers(0, 12))
def test_whatever_happens_the_end_makes_it_due(
    events: list[tuple[EventKind, int, int | None]],
    end: list[tuple[EventKind, int, int | None]],
    decided: int,
) -> None:
    """Told in any order, with any number of looks before the decision."""
    facts: list[Heard] = []
    decision = DecisionTime(105.0, look=min(decided, len(events)))
    for look, (what, cluster, code) in enumerate([*events, *end], start=1):
        item = fact(what, at=100.0 + look, look=look, code=code, cluster=cluster, heard=look)
        facts.append(item)
    jobs = observed(*facts)
    newest_event, ended = rules.newest_event(jobs.get(JOB)), rules.newest_of_dag(jobs)
    assert due(decision, newest_event, ended, 1000.0) is not None
