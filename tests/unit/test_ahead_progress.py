"""Where a run stands, however late and in whatever portions its logs are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ahead_run import Direct
from broker_rig import Rig
from hooks_world import make_submit_dir
from hypothesis import given
from hypothesis import strategies as st
from job_events import EventKind, happened, jobs_after
from monitor_files import executing, stamp, starting, submitted, terminated

from monitors.jobs.jobs import AnyEvent, Jobs
from monitors.watcher.registered import Files
from monitors.workflows.planned.dag import Moving, Node, PlannedDag
from monitors.workflows.planned.submit_dir import JobKind
from network_provisioner.base.model import Transit, TransitRequest
from pegasus_hooks.advance.booking import WorkflowReservations
from pegasus_hooks.advance.job_estimates import JobEstimates
from pegasus_hooks.advance.listening import EVERY_S, LOOK_S, REST_AT_MOST_S, AdvanceReservations
from pegasus_hooks.advance.progress import JobPhase, JobProgress, progress_of

T0 = 1_700_000_000.0
IN, RUN, OUT = "stage_in", "run", "stage_out"
DAG = PlannedDag(
    "w",
    Path("/nowhere"),
    {
        IN: Node(IN, JobKind.STAGE_IN, retries=1, first=(Moving("mu", "tacc", 10**9),)),
        RUN: Node(RUN, JobKind.STAGE_IN, retries=1, parents=(IN,), first=()),
        OUT: Node(
            OUT, JobKind.STAGE_OUT, parents=(RUN,), first=(Moving("tacc", "mu", 5 * 10**9),)
        ),
    },
)  # fmt: skip
RUN_S = 600.0


# -- one job ---------------------------------------------------------------------------------------


@st.composite
def attempts(draw: st.DrawFn) -> list[tuple[bool, AnyEvent]]:
    """What happens to a job with a PRE and a POST, in order; and of each whether DAGMan tells it.
    The last attempt may go on still; DAGMan knows then that the job was submitted."""
    happens: list[tuple[bool, EventKind, int | None, int]] = []
    ends = draw(st.lists(st.sampled_from(["pre fails", "fails", "post fails"]), max_size=3))
    last = draw(st.sampled_from(["asks", "submitted", "runs", "is held", "is done", "fails"]))
    for cluster, end in enumerate([*ends, last], 7):
        happens.append((True, EventKind.PRE_STARTED, None, 0))
        if end == "asks":
            break
        happens.append((True, EventKind.PRE_ENDED, int(end == "pre fails"), 0))
        if end == "pre fails":
            continue
        own: list[tuple[bool, EventKind, int | None, int]] = [
            (False, EventKind.SUBMITTED, None, cluster)
        ]
        if end != "submitted":
            own.append((False, EventKind.RUNNING, None, cluster))
        if end == "is held":
            own.append((False, EventKind.HELD, None, cluster))
        if end in ("is done", "fails", "post fails"):
            own.append((False, EventKind.ENDED, int(end == "fails"), cluster))
        # DAGMan reads its log every few seconds, and before it runs POST.
        own.insert(draw(st.integers(1, len(own))), (True, EventKind.SUBMITTED, None, 0))
        if end in ("is done", "fails", "post fails"):
            own.append((False, EventKind.POST_ENDED, int(end != "is done"), cluster))
        happens += own
    return [
        (by_dagman, happened(what, T0 + at, "j", code, cluster))
        for at, (by_dagman, what, code, cluster) in enumerate(happens)
    ]


def stand_after(events: list[AnyEvent], retries: int) -> JobProgress:
    return progress_of(jobs_after(events).get("j"), retries)


@given(attempts(), st.lists(st.integers(0, 30)), st.integers(3, 5))
def test_it_does_not_depend_on_when_the_logs_are_read(
    happens: list[tuple[bool, AnyEvent]], cuts: list[int], retries: int
) -> None:
    in_turn = stand_after([event for _, event in happens], retries)
    looks, begin = [], 0
    for cut in [*sorted(cuts), len(happens)]:
        portion = happens[begin:cut]
        looks += [event for by_dagman, event in portion if not by_dagman]
        looks += [event for by_dagman, event in portion if by_dagman]
        begin = max(begin, cut)
    progress = stand_after(looks, retries)
    assert (progress.phase, progress.failures) == (in_turn.phase, in_turn.failures)
    if progress.phase not in (JobPhase.WAITING, JobPhase.NEVER):
        assert progress.since == in_turn.since


# -- a run -----------------------------------------------------------------------------------------


@dataclass
class Slow:
    """A broker that holds nothing, and takes its time to say so."""

    now: float = 0.0
    takes_s: float = 0.0
    looks: list[float] = field(default_factory=list)

    def list(self, state: str | None = None, workflow: str | None = None) -> list[Transit]:
        self.looks.append(self.now)
        self.now += self.takes_s
        return []


def listening(broker: Slow | None = None) -> AdvanceReservations:
    broker = broker or Slow()

    def estimates_at(now: float) -> JobEstimates:
        return JobEstimates({RUN: RUN_S}, rate_bps={("tacc", "mu"): 1e9, ("mu", "tacc"): 1e9})

    booking = WorkflowReservations("w", broker, lambda job: {})  # type: ignore[arg-type]
    return AdvanceReservations(DAG, booking, estimates_at, clock=lambda: broker.now)


def hear(ahead: AdvanceReservations, jobs: Jobs, *events: AnyEvent) -> None:
    for event in events:
        if (name := jobs.take(event)) is not None:
            ahead.on(jobs, name)


def well(job: str, at: float, cluster: int) -> Iterator[AnyEvent]:
    """A job that is submitted at ``at`` and done 10 s later."""
    yield happened(EventKind.SUBMITTED, at, job, None, cluster)
    yield happened(EventKind.RUNNING, at + 1, job, None, cluster)
    yield happened(EventKind.ENDED, at + 10, job, 0, cluster)


def last_begins(ahead: AdvanceReservations, now: float) -> float:
    """In how many seconds the last transfer is estimated to begin."""
    ahead.observe(now)
    (window,) = [w for w in ahead.prediction.windows if w.job == OUT]
    return window.start - now


def said(at: float, text: str) -> str:
    return f"{stamp(at)} {text}\n"


def test_a_watcher_that_begins_late_knows_for_how_long_a_job_has_run(tmp_path: Path) -> None:
    """DAGMan reports a submission when it has read of it in the log, with the job's start."""
    run = make_submit_dir(tmp_path / "run", {IN: []}, [RUN, OUT])
    (run / "flow-0.dag.nodes.log").write_text(
        submitted(2, T0 + 5, IN) + executing(2, T0 + 6) + terminated(2, T0 + 16)
        + submitted(3, T0 + 20, RUN) + executing(3, T0 + 21)
    )  # fmt: skip
    (run / "flow-0.dag.dagman.out").write_text(
        starting(T0)
        + said(T0 + 2, f"Running PRE script of Node {IN}...")
        + said(T0 + 3, f"PRE Script of node {IN} completed successfully.")
        + said(T0 + 10, f"Event: ULOG_SUBMIT for HTCondor Node {IN} (2.0.0) {{}}")
        + said(T0 + 25, f"Event: ULOG_SUBMIT for HTCondor Node {RUN} (3.0.0) {{}}")
    )
    ahead, jobs = listening(), Jobs()
    hear(ahead, jobs, *Files(run).events())
    left = RUN_S - 200.0
    assert left < last_begins(ahead, T0 + 221.0) < left + 20.0


def test_where_a_dagman_was_killed_the_next_one_finds_its_jobs_running() -> None:
    ahead, jobs = listening(), Jobs()
    hear(ahead, jobs, happened(EventKind.DAG_STARTED, T0), *well(IN, T0 + 5, 2))
    hear(ahead, jobs, *list(well(RUN, T0 + 20, 3))[:2], happened(EventKind.DAG_GONE, T0 + 100))
    hear(
        ahead,
        jobs,
        happened(EventKind.DAG_STARTED, T0 + 130),
        happened(EventKind.SUBMITTED, T0 + 132, RUN),
    )
    left = RUN_S - 200.0
    assert left < last_begins(ahead, T0 + 221.0) < left + 20.0


def test_a_rescue_runs_again_what_failed_or_was_left() -> None:
    ahead, jobs = listening(), Jobs()
    hear(ahead, jobs, happened(EventKind.DAG_STARTED, T0), *well(IN, T0 + 5, 2))
    hear(
        ahead,
        jobs,
        *list(well(RUN, T0 + 20, 3))[:2],
        happened(EventKind.REMOVED, T0 + 90, RUN, None, 3),
    )
    hear(
        ahead,
        jobs,
        happened(EventKind.DAG_ENDED, T0 + 91, code=1),
        happened(EventKind.DAG_STARTED, T0 + 5000),
    )
    assert RUN_S < last_begins(ahead, T0 + 5001.0) < RUN_S + 20.0


@pytest.mark.parametrize("why", ["it is tried again", "it is a rescue", "it was read late"])
def test_what_passed_otherwise_is_not_what_dagman_takes_between_two_jobs(why: str) -> None:
    """The prediction would put that much between any two jobs."""
    ahead, jobs = listening(), Jobs()
    start = happened(EventKind.DAG_STARTED, T0)
    if why == "it is tried again":
        fails = [*list(well(RUN, T0 + 20, 3))[:2], happened(EventKind.ENDED, T0 + 520, RUN, 1, 3)]
        again = happened(EventKind.PRE_STARTED, T0 + 1020, RUN)
        hear(ahead, jobs, start, *well(IN, T0 + 5, 2), *fails, again)
    elif why == "it is a rescue":
        hear(
            ahead, jobs, start, *well(IN, T0 + 5, 2), happened(EventKind.DAG_ENDED, T0 + 91, code=1)
        )
        hear(
            ahead,
            jobs,
            happened(EventKind.DAG_STARTED, T0 + 1000),
            happened(EventKind.PRE_STARTED, T0 + 1020, RUN),
        )
    else:  # the jobs' logs of both runs come before DAGMan's
        hear(ahead, jobs, *well(IN, T0 + 5, 2), *list(well(RUN, T0 + 1020, 3))[:2], start)
        hear(
            ahead,
            jobs,
            happened(EventKind.DAG_ENDED, T0 + 91, code=1),
            happened(EventKind.DAG_STARTED, T0 + 1000),
        )
    assert last_begins(ahead, T0 + 1022.0) < RUN_S + 20.0


def test_a_look_that_took_long_on_a_busy_machine_does_not_stop_the_next() -> None:
    broker = Slow(takes_s=10.0)
    ahead, jobs = listening(broker), Jobs()
    hear(ahead, jobs, happened(EventKind.DAG_STARTED, T0))
    for _ in range(300):
        ahead.tick(T0 + broker.now)
        broker.now += 1.0
    gaps = [b - a for a, b in zip(broker.looks, broker.looks[1:], strict=False)]
    assert gaps and max(gaps) <= LOOK_S + broker.takes_s + REST_AT_MOST_S + EVERY_S


def test_only_a_first_attempt_is_reserved_for(tmp_path: Path) -> None:
    """The next one asks by another id: what is held for it would be in its own way."""
    rig = Rig(tmp_path / "state.sqlite")

    def requests_of(job: str) -> dict[tuple[str, str], TransitRequest]:
        pairs = [moving.pair for moving in DAG.nodes[job].first]
        return {
            pair: TransitRequest(
                f"w:{job}:0:{'-'.join(pair)}", *pair, size_bytes=10**9, workflow="w", job=job
            )
            for pair in pairs
        }

    estimates = JobEstimates({RUN: RUN_S})
    now = rig.clock.now
    booking = WorkflowReservations("w", Direct(rig), requests_of)
    ahead = AdvanceReservations(DAG, booking, lambda _: estimates, clock=lambda: rig.clock.now)
    jobs = Jobs()
    fails = [
        happened(EventKind.PRE_STARTED, now + 1, IN),
        happened(EventKind.PRE_ENDED, now + 2, IN, 1),
    ]
    hear(ahead, jobs, happened(EventKind.DAG_STARTED, now), fails[0])
    ahead.observe(now + 1)
    assert [t.request.job for t in rig.broker.list()] == [OUT]
    hear(ahead, jobs, fails[1])
    ahead.observe(now + 2)
    assert [t.request.job for t in rig.broker.list()] == [OUT]
