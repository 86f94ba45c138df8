"""What becomes of the paths of runs, whatever happens in whatever order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_transit import changed
from transfers_world import JOB, event, move, running, transit

from condor_plugins.jobs.request_builder import Run
from condor_plugins.transfers.decide import (
    Observation,
    QueuedJob,
    Release,
    Renew,
    actions_for,
    of_schedd,
    transferring,
)
from condor_plugins.transfers.run_state import RunEvent, RunState, RunStates
from monitors.jobs.executions import Phase
from monitors.workflows.logs.events import Kind, TransferStep

RUN = Run(JOB, 1)
IN, OUT = RUN.transit("in"), RUN.transit("out")
ENDS = (Kind.TERMINATED, Kind.EVICTED, Kind.ABORTED, Kind.HELD, Kind.SHADOW_EXCEPTION,
        Kind.RECONNECT_FAILED)  # fmt: skip
NORMAL = (
    move(TransferStep.IN_QUEUED, 1),
    move(TransferStep.IN_STARTED, 2),
    move(TransferStep.IN_FINISHED, 12),
    event(Kind.EXECUTE, 12.1),
    move(TransferStep.OUT_STARTED, 20),
    move(TransferStep.OUT_FINISHED, 25),
    event(Kind.TERMINATED, 25.1, SentBytes=4000.0),
)


def after(*job_events: RunEvent) -> RunStates:
    runs = RunStates()
    runs.feed(job_events)
    return runs


def outcome(way: str, runs: RunStates, now: float = 1000.0, **known: Any) -> str:
    queue = known.get("queue", {JOB: running(RUN)})
    actions = actions_for([transit(IN if way == "in" else OUT)], Observation(runs, queue, now))
    assert all(isinstance(action, Release) for action in actions)
    return "".join(action.outcome for action in actions if isinstance(action, Release))


def test_a_normal_run_holds_each_path_as_long_as_it_needs_it() -> None:
    held_in = [not outcome("in", after(*NORMAL[:n]), 12.05) for n in range(len(NORMAL) + 1)]
    # Observed to have arrived when the job runs; until then for a second at most.
    assert held_in == [True, True, True, True, False, False, False, False]
    assert outcome("in", after(*NORMAL[:3]), 13.0) == "success"
    held_out = [not outcome("out", after(*NORMAL[:n]), 25.05) for n in range(5, len(NORMAL) + 1)]
    assert held_out == [True, True, False]


def test_what_was_moved_is_told() -> None:
    known = Observation(after(*NORMAL), {}, 30.0)
    assert actions_for([transit(IN), transit(OUT)], known) == [
        Release(IN, 1000, 10.0, "success"),
        Release(OUT, 4000, 5.0, "success"),
    ]
    unsized = actions_for([transit(IN, size=None)], known)
    assert unsized == [Release(IN, 0, 0.0, "success")]


@pytest.mark.parametrize("end", ENDS)
def test_input_that_broke_off_is_no_success(end: Kind) -> None:
    # HTCondor writes that it finished, too, when it broke off.
    for before in (NORMAL[:2], NORMAL[:3]):
        said = outcome("in", after(*before, event(end, 12.2)))
        assert said
        assert (said == "success") == (end is Kind.TERMINATED)


def test_a_lost_connection_ends_both() -> None:
    lost = event(Kind.DISCONNECTED, 5)
    assert outcome("in", after(*NORMAL[:2], lost)) == "broken off"
    assert outcome("out", after(*NORMAL[:5], lost)) == "broken off"
    assert outcome("in", after(*NORMAL[:4], lost)) == "success"
    again = move(TransferStep.OUT_STARTED, 30)
    assert outcome("out", after(*NORMAL[:5], lost, again)) == ""


def test_the_next_run_ends_the_one_before() -> None:
    runs = after(*NORMAL[:2], move(TransferStep.IN_STARTED, 40, starts=2))
    assert outcome("in", runs) == "started again"
    second = Run(JOB, 2).transit("in")
    known = Observation(runs, {JOB: running(Run(JOB, 2))}, 41.0)
    assert actions_for([transit(second)], known) == []


def test_the_queue_tells_what_events_do_not() -> None:
    nothing = RunStates()
    assert outcome("in", nothing, queue=None) == ""
    assert outcome("in", nothing, queue={}) == "gone"
    assert outcome("in", nothing) == ""
    for status in (1, 3, 4, 5):
        assert outcome("in", nothing, queue={JOB: QueuedJob(status, 1)}) == "broken off"
    assert outcome("in", nothing, queue={JOB: QueuedJob(2, 2)}) == "broken off"
    assert outcome("in", nothing, queue={JOB: QueuedJob(2, 1, executing_since=5.0)}) == "success"
    assert outcome("out", nothing, queue={JOB: QueuedJob(2, 1, sending=False)}) == "success"
    assert outcome("out", nothing, queue={JOB: QueuedJob(2, 1, sending=True)}) == ""


COMMON = Run(f"{JOB}.common1000", 1)
BLOCKED = {JOB: QueuedJob(9, 1)}


def shared(step: TransferStep, at: float) -> RunEvent:
    return replace(event(Kind.COMMON_FILES, at, 1, step), job=COMMON.job)


def test_common_files_hold_their_path_until_they_are_there() -> None:
    def actions(runs: RunStates, queue: dict[str, QueuedJob] | None) -> list[Release | Renew]:
        return actions_for([transit(COMMON.transit("in"))], Observation(runs, queue, 1000.0))

    (begun, done) = shared(TransferStep.IN_STARTED, 2), shared(TransferStep.IN_FINISHED, 12)
    name = COMMON.transit("in")
    for queue in (BLOCKED, None):
        assert actions(after(begun), queue) == []
        assert actions(after(begun, done), queue) == [Release(name, 1000, 10.0, "success")]
    # The job in whose name they are sent has a run and a path of its own.
    own = after(begun, done, *NORMAL)
    assert {state.run: state.input.seconds for state in own} == {COMMON: 10.0, RUN: 10.0}
    nothing = RunStates()
    assert actions(nothing, BLOCKED) == []
    assert actions(nothing, {JOB: running(RUN)}) == [Release(name, 0, 0.0, "success")]
    assert actions(nothing, {JOB: QueuedJob(1, 1)}) == [Release(name, 0, 0.0, "broken off")]
    assert actions(nothing, {}) == [Release(name, 0, 0.0, "gone")]
    short = changed(transit(name), lease_until=1010.0)
    assert actions_for([short], Observation(nothing, BLOCKED, 1000.0)) == [Renew(name, 180.0)]
    moving = transferring([transit(name)], after(begun))
    assert moving == {name: ((12, -1000), "in")}


def test_leases_last_as_long_as_what_they_are_for_and_no_longer_without_proof() -> None:
    short = transit(IN)
    short.grant.lease_until = 1030.0
    known = Observation(RunStates(), {JOB: running(RUN)}, 1000.0)
    assert actions_for([short], known) == [Renew(IN, 180.0)]
    assert actions_for([short], Observation(RunStates(), None, 1000.0)) == []
    assert actions_for([short], Observation(after(*NORMAL[:2]), None, 1000.0)) == [Renew(IN, 180.0)]


def test_another_access_points_paths_are_its_own() -> None:
    names = [f"condor:{name}-1.0-5:in:1" for name in ("ap@a", "ap@a-b", "x@ap@a")]
    kept = of_schedd([transit(name) for name in [*names, "wf:job:0:a-b"]], "ap@a")
    assert [t.id for t in kept] == names[:1]


job_events = st.one_of(
    st.builds(
        event, st.sampled_from([k for k in Kind if k is not Kind.FILE_TRANSFER]),
        st.floats(0, 100), st.integers(0, 3),
    ),
    st.builds(move, st.sampled_from(TransferStep), st.floats(0, 100), st.integers(1, 3)),
)  # fmt: skip


@given(st.lists(job_events, max_size=20), st.sampled_from(ENDS), st.integers(1, 3), st.booleans())
def test_after_the_end_nothing_is_held_and_nothing_comes_back(
    before: list[RunEvent], end: Kind, starts: int, schedd: bool
) -> None:
    run = Run(JOB, starts)
    runs = after(*before, event(end, 101, starts))
    queue: dict[str, QueuedJob] | None = {} if schedd else None
    live = [transit(run.transit("in")), transit(run.transit("out"))]
    gone = actions_for(live, Observation(runs, queue, 200.0))
    assert sorted(a.id for a in gone if isinstance(a, Release)) == sorted(t.id for t in live)
    runs.feed(before)
    assert len(actions_for(live, Observation(runs, queue, 200.0))) == 2


@settings(max_examples=40)
@given(st.lists(job_events, max_size=20))
def test_a_run_goes_forward_and_is_followed_for_itself(all_of_them: list[RunEvent]) -> None:
    runs, last = RunStates(), Phase.COMING
    for run_event in all_of_them:
        runs.feed([run_event])
        state = runs.get(RUN)
        if state is not None:
            back = state.phase < last
            assert not back or (last < Phase.OVER and state.phase >= Phase.RUNNING)
            last = state.phase
    whole = {c.run: c for c in after(*all_of_them)}
    assert all(isinstance(c, RunState) and c.run.starts > 0 for c in whole.values())
    assert {c.run: (c.phase, c.how) for c in runs} == {
        run: (c.phase, c.how) for run, c in whole.items()
    }


@given(st.lists(job_events, max_size=20), st.integers(0, 20))
def test_an_event_that_comes_again_is_no_news(events: list[RunEvent], read: int) -> None:
    """HTCondor's log may be read again: output that had been sent would be sent once more."""
    sequence = [replace(run_event, at=float(at)) for at, run_event in enumerate(events, 1)]
    once, again = after(*sequence[:read]), after(*sequence[:read], *sequence[:read])
    assert list(map(repr, again)) == list(map(repr, once))
    read_again = after(*(run_event for event in sequence for run_event in (event, event)))
    assert list(map(repr, read_again)) == list(map(repr, after(*sequence)))


def test_an_end_from_before_a_run_is_not_its_end() -> None:
    held, begun = event(Kind.HELD, 5, starts=0), move(TransferStep.IN_STARTED, 10)
    assert after(held, begun, held).get(RUN) == after(held, begun).get(RUN)
    ended = after(begun, event(Kind.HELD, 11, starts=0)).get(RUN)
    assert ended is not None and ended.is_over


def test_what_is_long_over_is_forgotten() -> None:
    runs = after(*NORMAL)
    runs.forget(80.0, 60.0)
    assert runs.get(RUN)
    runs.feed([move(TransferStep.IN_STARTED, 81, starts=2)])
    runs.forget(1000.0, 60.0)
    assert runs.get(RUN)
    runs.feed([event(Kind.HELD, 90, starts=2)])
    runs.forget(1000.0, 60.0)
    assert list(runs) == []
    runs.feed([shared(TransferStep.IN_STARTED, 100)])
    runs.forget(50_000.0, 60.0)
    assert runs.get(COMMON)
    runs.forget(100_000.0, 60.0)
    assert list(runs) == []
