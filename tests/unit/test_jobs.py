"""The state machine of jobs and their attempts, whatever becomes of the events in the logs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_events import EventKind, happened, jobs_after

from monitors.jobs.executions import ENDS, Execution
from monitors.jobs.jobs import AnyEvent, DagmanState, Jobs, Outcome
from monitors.watcher.connections import Connection, JobConnections, Tables, flows
from monitors.workflows.logs.dagman import DagmanStep
from monitors.workflows.logs.events import JobEvent, Kind, TransferStep
from network_provisioner.base.flows import MAX_FLOWS, Flow
from pegasus_hooks.advance.progress import NOT_BEGUN, JobPhase, progress_of

T0 = 1_700_000_000.0
NAMES = ("align", "align_2")
# What may stand between the submission of a process and its end.
MIDDLES: dict[str, tuple[EventKind, ...]] = {
    "runs": (EventKind.RUNNING,),
    "is held": (EventKind.HELD, EventKind.UNHELD, EventKind.RUNNING),
    "is held while it runs": (EventKind.RUNNING, EventKind.HELD, EventKind.UNHELD),
    "is evicted": (EventKind.RUNNING, EventKind.EVICTED, EventKind.RUNNING),
    "never runs": (),
}


@dataclass(frozen=True)
class Told:
    """An event, whose it is, and whether DAGMan reports it."""

    job: str
    event: AnyEvent
    by_dagman: bool = False


@st.composite
def lives(draw: st.DrawFn, name: str) -> list[Told]:
    """What happens to one job: attempts of one or two processes, with PRE and POST, in order."""
    history: list[Told] = []
    at = T0
    first = 10 * (1 + NAMES.index(name))

    def tell(what: EventKind, code: int | None = None, cluster: int = 0, proc: int = 0) -> None:
        nonlocal at
        at += draw(st.sampled_from([0.25, 1.0, 5.0]))
        event = happened(what, at, name, code, cluster)
        if isinstance(event, JobEvent):
            event = replace(event, proc=proc)
        history.append(Told(name, event, not isinstance(event, JobEvent)))

    for cluster in range(first, first + draw(st.integers(1, 3))):
        if draw(st.booleans()):
            tell(EventKind.PRE_STARTED)
            failed = draw(st.sampled_from([0, 0, 1, -9]))
            tell(EventKind.PRE_ENDED, failed)
            if failed:
                continue
        procs = range(draw(st.integers(1, 2)))
        for proc in procs:
            tell(EventKind.SUBMITTED, cluster=cluster, proc=proc)
        for proc in procs:
            for what in MIDDLES[draw(st.sampled_from(sorted(MIDDLES)))]:
                tell(what, cluster=cluster, proc=proc)
        for proc in procs:
            code = draw(st.sampled_from([0, 1, -9, None]))
            ends = EventKind.REMOVED if code is None else EventKind.ENDED
            tell(ends, code, cluster, proc)
        if draw(st.booleans()):
            tell(EventKind.POST_ENDED, draw(st.sampled_from([0, 1])), cluster)
    return history


@st.composite
def workflows(draw: st.DrawFn) -> list[Told]:
    """What happens to two jobs, the events of both in order."""
    first, second = (draw(lives(name)) for name in NAMES)
    both = [*first, *second]
    return sorted(both, key=lambda report: report.event.at)


def state(jobs: Jobs, *names: str) -> object:
    """All that is known of these jobs, or of all."""
    return {
        job.name: (
            job.pre,
            job.pre_failures,
            job.current and job.current.key,
            [repr(attempt) for attempt in job.attempts],
        )
        for job in jobs
        if not names or job.name in names
    }


def events(reports: list[Told]) -> list[AnyEvent]:
    return [report.event for report in reports]


@given(workflows(), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 6)), min_size=1))
def test_an_event_that_comes_again_changes_nothing(
    reports: list[Told], copies: list[tuple[int, int]]
) -> None:
    """Two logs have the same events, and each may be read again from its beginning."""
    once = events(reports)
    again = list(once)
    for number, later in sorted(copies, reverse=True):
        if number < len(reports) and not reports[number].by_dagman:
            again.insert(number + 1 + later, reports[number].event)
    assert state(jobs_after(again)) == state(jobs_after(once))
    of_jobs = [report.event for report in reports if not report.by_dagman]
    expected = state(jobs_after(of_jobs))
    assert state(jobs_after(event for event in of_jobs for _ in range(2))) == expected
    assert state(jobs_after([*of_jobs, *of_jobs])) == expected


@given(workflows(), st.randoms(use_true_random=False))
def test_the_order_in_which_several_jobs_are_told_of_does_not_matter(
    reports: list[Told], random: object
) -> None:
    queues = {name: [report for report in reports if report.job == name] for name in NAMES}
    shuffled: list[AnyEvent] = []
    while left := [name for name in NAMES if queues[name]]:
        shuffled.append(queues[random.choice(left)].pop(0).event)  # type: ignore[attr-defined]
    assert state(jobs_after(shuffled)) == state(jobs_after(events(reports)))


@given(workflows(), st.integers(0, 60))
def test_dagmans_words_may_come_late(reports: list[Told], cut: int) -> None:
    """Jobs' logs are read first: what DAGMan says of the same comes in one piece after it."""
    portion = reports[:cut]
    late = [
        *(report.event for report in portion if not report.by_dagman),
        *(report.event for report in portion if report.by_dagman),
    ]
    in_order, out_of_order = jobs_after(events(portion)), jobs_after(late)
    for name in NAMES:
        assert [repr(a) for a in out_of_order.of_job(name)] == [
            repr(a) for a in in_order.of_job(name)
        ]


@given(lives(NAMES[0]))
def test_an_attempt_that_is_over_stays_so(reports: list[Told]) -> None:
    jobs = jobs_after(events(reports))
    before = state(jobs)
    for attempt in list(jobs.all):
        if not attempt.is_over:
            continue
        for kind in (Kind.EXECUTE, Kind.HELD, Kind.RELEASED, Kind.EVICTED, Kind.ABORTED):
            late = JobEvent(kind, attempt.cluster, attempt.proc, attempt.at + 3)
            assert jobs.take(late) is None
    assert state(jobs) == before


@given(lives(NAMES[0]))
def test_an_end_counts_though_no_log_says_that_it_ran(reports: list[Told]) -> None:
    whole = jobs_after(events(reports))
    remaining = [
        report.event
        for report in reports
        if not (isinstance(report.event, JobEvent) and report.event.kind is Kind.EXECUTE)
    ]
    lost = jobs_after(remaining)
    ends = [(a.key, a.end, a.returned, a.outcome) for a in whole.all]
    assert [(a.key, a.end, a.returned, a.outcome) for a in lost.all] == ends
    assert all(not a.starts for a in lost.all)


@given(lives(NAMES[0]))
def test_each_submission_is_an_attempt_of_its_own(reports: list[Told]) -> None:
    jobs = jobs_after(events(reports))
    attempts = jobs.of_job(NAMES[0])
    assert [attempt.number for attempt in attempts] == list(range(len(attempts)))
    assert len({attempt.key for attempt in attempts}) == len(attempts)
    submissions = [
        report.event.cluster
        for report in reports
        if isinstance(report.event, JobEvent) and report.event.kind is Kind.SUBMIT
    ]
    assert [attempt.cluster for attempt in attempts] == submissions
    job = jobs.get(NAMES[0])
    if job is not None and job.current is not None:
        assert job.current.cluster == submissions[-1]


def test_the_end_of_a_post_script_that_is_told_again_is_no_news() -> None:
    jobs = Jobs()
    kinds = EventKind.SUBMITTED, EventKind.RUNNING, EventKind.ENDED, EventKind.POST_ENDED
    events = [happened(kind, T0 + n, "align", 0, 10) for n, kind in enumerate(kinds)]
    assert [jobs.take(event) for event in (*events, events[-1])] == ["align"] * 4 + [None]


@given(lives(NAMES[0]))
def test_a_job_runs_as_long_as_one_of_its_processes_does(reports: list[Told]) -> None:
    jobs = Jobs()
    for report in reports:
        jobs.take(report.event)
        job = jobs.get(NAMES[0])
        if job is None or job.current is None or job.current.last is Kind.POST_SCRIPT_TERMINATED:
            continue
        newest = [a for a in job.attempts if a.cluster == job.current.cluster]
        assert job.current.is_over == all(attempt.is_over for attempt in newest)


@given(workflows(), st.sampled_from([kind for kind in Kind if kind <= 16]))
def test_what_happens_to_one_job_is_nothing_to_another(reports: list[Told], kind: Kind) -> None:
    """Not even where their names begin alike."""
    jobs = jobs_after(events(reports))
    before = state(jobs, NAMES[1])
    jobs.take(JobEvent(kind, 99, 0, T0 + 9000, node=NAMES[0]))
    for attempt in list(jobs.of_job(NAMES[0])):
        jobs.take(JobEvent(kind, attempt.cluster, attempt.proc, T0 + 9001, returned=1))
    assert state(jobs, NAMES[1]) == before


@given(st.sampled_from([kind for kind in Kind if kind <= 16 and kind is not Kind.SUBMIT]))
def test_an_event_before_the_submission_is_of_another(kind: Kind) -> None:
    jobs = jobs_after([])
    assert jobs.take(JobEvent(kind, 4, 0, T0)) is None  # of a job that nobody knows
    jobs.take(happened(EventKind.SUBMITTED, T0 + 100, "align", cluster=4))
    before = state(jobs)
    assert jobs.take(JobEvent(kind, 4, 0, T0 + 50)) is None
    assert state(jobs) == before


def test_a_job_whose_submission_is_lost_is_named_by_dagman() -> None:
    jobs = jobs_after([happened(EventKind.SUBMITTED, T0, "align")])
    jobs.names[4] = "align"
    assert jobs.take(JobEvent(Kind.TERMINATED, 4, 0, T0 + 9, returned=0)) == "align"
    (attempt,) = jobs.of_job("align")
    assert (attempt.submit, attempt.end, attempt.outcome) == (T0 + 9, T0 + 9, Outcome.DONE)


def test_what_an_earlier_dagman_left_in_the_queue_is_not_the_newest_attempt() -> None:
    """DAGMan has emptied nodes.log since that was submitted, and its job ends in the new one."""
    jobs = jobs_after([happened(EventKind.SUBMITTED, T0 + 60, "align", cluster=9)])
    jobs.names[4] = "align"
    before = jobs.get("align")
    assert before is not None
    current = before.current
    assert jobs.take(happened(EventKind.ENDED, T0 + 70, code=1, cluster=4)) is None
    assert before.current is current and len(before.attempts) == 2


def test_in_a_pool_made_anew_numbers_begin_again() -> None:
    """The job of the same name and number is another attempt, and what was left is not it."""
    jobs = jobs_after([
        happened(EventKind.SUBMITTED, T0, "align", cluster=4),
        happened(EventKind.RUNNING, T0 + 1, cluster=4),
        happened(EventKind.SUBMITTED, T0 + 500, "align", cluster=4),
        happened(EventKind.ENDED, T0 + 502, code=1, cluster=4),
    ])  # fmt: skip
    job = jobs.get("align")
    assert job is not None and job.current is job.attempts[1]
    outcomes = [(attempt.number, attempt.outcome) for attempt in job.attempts]
    assert outcomes == [(0, Outcome.RUNNING), (1, Outcome.FAILED)]
    # Of another node with the same number the events belong to that, however soon it comes.
    other = jobs.take(happened(EventKind.SUBMITTED, T0 + 503, "sort", cluster=4))
    assert other == "sort" and jobs.take(happened(EventKind.RUNNING, T0 + 504, cluster=4)) == "sort"
    assert job.current.outcome is Outcome.FAILED
    assert [attempt.outcome for attempt in jobs.of_job("sort")] == [Outcome.RUNNING]


def removed() -> list[AnyEvent]:
    return [
        happened(EventKind.SUBMITTED, T0 + 1, "align", cluster=4),
        happened(EventKind.RUNNING, T0 + 2, cluster=4),
        happened(EventKind.REMOVED, T0 + 3, cluster=4),
    ]


def test_a_removed_job_does_not_run() -> None:
    jobs = jobs_after(removed())
    (attempt,) = jobs.all
    assert (attempt.outcome, attempt.end, attempt.last) == (Outcome.REMOVED, T0 + 3, Kind.ABORTED)
    assert progress_of(jobs.get("align"), retries=2).phase is JobPhase.NEVER


@pytest.mark.parametrize("before", [DagmanState.ENDED, DagmanState.GONE])
def test_a_rescue_runs_again_what_another_dagman_goes_on_with(before: DagmanState) -> None:
    ends = {DagmanState.ENDED: EventKind.DAG_ENDED, DagmanState.GONE: EventKind.DAG_GONE}
    jobs = jobs_after([
        happened(EventKind.DAG_STARTED, T0),
        *removed()[:2],
        happened(ends[before], T0 + 5),
        happened(EventKind.DAG_STARTED, T0 + 60),
    ])  # fmt: skip
    progress = progress_of(jobs.get("align"), 1, jobs.began, T0 + 60)
    goes_on = before is DagmanState.GONE
    assert (progress.phase is JobPhase.RUNNING) == goes_on and (progress == NOT_BEGUN) != goes_on
    assert jobs.began == (T0 if goes_on else T0 + 60)
    jobs.take(happened(EventKind.SUBMITTED, T0 + 70, "align", cluster=9))
    jobs.take(happened(EventKind.ENDED, T0 + 80, code=1, cluster=9))
    progress = progress_of(jobs.get("align"), 1, jobs.began, T0 + 60)
    assert (progress.phase, progress.failures) == (JobPhase.WAITING, 1)


def test_what_dagman_says_of_itself_twice_is_heard_once() -> None:
    jobs = Jobs()
    sequence = [
        (EventKind.DAG_STARTED, ""), (EventKind.DAG_STARTED, None), (EventKind.DAG_GONE, ""),
        (EventKind.DAG_STARTED, ""), (EventKind.DAG_ENDED, ""), (EventKind.DAG_GONE, None),
        (EventKind.DAG_STARTED, ""),
    ]  # fmt: skip
    for at, (what, name) in enumerate(sequence):
        assert jobs.take(happened(what, T0 + at)) == name


def test_a_pre_counts_until_its_job_is_submitted() -> None:
    jobs = jobs_after([
        happened(EventKind.SUBMITTED, T0 + 1, "align", cluster=4),
        happened(EventKind.ENDED, T0 + 2, code=1, cluster=4),
        happened(EventKind.PRE_STARTED, T0 + 3, "align"),
    ])  # fmt: skip
    job = jobs.get("align")
    assert job is not None and job.pre is not None and job.pre.status is None
    jobs.take(happened(EventKind.PRE_ENDED, T0 + 4, "align", 0))
    assert job.pre is not None and (job.pre.start, job.pre.status) == (T0 + 3, 0)
    jobs.take(happened(EventKind.SUBMITTED, T0 + 5, "align", cluster=5))
    assert job.pre is None
    # Read late: DAGMan reports the PRE when the job's log has the submission after it.
    for what in (EventKind.PRE_STARTED, EventKind.PRE_ENDED):
        jobs.take(happened(what, T0 + 4, "align", 0))
    late = happened(EventKind.SUBMITTED, T0 + 6, "align")
    assert isinstance(late, DagmanStep) and jobs.take(late) == "align" and job.pre is None


some_events = st.lists(
    st.tuples(
        st.sampled_from([Kind.EXECUTE, Kind.DISCONNECTED, Kind.FILE_TRANSFER]),
        st.sampled_from(sorted(TransferStep)),
    )
)


@given(some_events, st.sampled_from(sorted(ENDS)), some_events)
def test_an_execution_that_is_over_stays_so(
    before: list[tuple[Kind, TransferStep]], end: Kind, after: list[tuple[Kind, TransferStep]]
) -> None:
    execution = Execution()
    for at, (kind, step) in enumerate(before, 1):
        execution.apply(kind, at, step if kind is Kind.FILE_TRANSFER else None)
        assert not execution.is_over
    execution.apply(end, 100)
    assert (execution.is_over, execution.how, execution.at) == (True, ENDS[end], 100)
    assert execution.ran == any(kind is Kind.EXECUTE for kind, _ in before)
    kept = repr(execution)
    for at, (kind, step) in enumerate([*after, (Kind.TERMINATED, None)], 101):
        execution.apply(kind, at, step if kind is Kind.FILE_TRANSFER else None)
    assert repr(execution) == kept


CLIENT = """
import socket, sys
one = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print(one.getsockname()[1], flush=True)
one.recv(1)
"""


def test_the_processes_of_jobs_are_known_by_their_environment() -> None:
    clock = [0.0]
    seen = JobConnections(lambda: clock[0])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        running = {}
        for job in ("stage_in", "stage_out"):
            env = {"PEGASUS_WF_UUID": f"wf-{port}", "PEGASUS_DAG_JOB_ID": job}
            argv = [sys.executable, "-I", "-S", "-c", CLIENT, str(port)]
            running[job] = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
        for job, process in running.items():
            assert process.stdout is not None
            here = int(process.stdout.readline())
            assert seen(f"wf-{port}", job) == {Connection((here, port), "127.0.0.1")}
            clock[0] += 1.0
        assert seen("another", "stage_in") == set()
    for process in running.values():  # the server closed their connections
        process.communicate()
    assert seen(f"wf-{port}", "stage_in") == set()  # known from before, and gone


@pytest.mark.parametrize(("listens", "far"), [("::1", "::1"), ("::ffff:127.0.0.1", "127.0.0.1")])
def test_connections_over_ipv6(listens: str, far: str) -> None:
    if not Path("/proc/net/tcp6").exists():
        pytest.skip("no IPv6 here")
    with socket.socket(socket.AF_INET6) as server, socket.socket(socket.AF_INET6) as client:
        server.bind((listens, 0))
        server.listen()
        client.connect(server.getsockname())
        ends = client.getsockname()[1], server.getsockname()[1]
        assert Connection(ends, far) in Tables().connections(Path(f"/proc/{os.getpid()}"))


def test_no_more_flows_than_a_transit_may_have() -> None:
    assert flows([(40_001, 80)], at_source=False) == [Flow("tcp", (80, 80), (40_001, 40_001))]
    assert len(flows([(port, 80) for port in range(40_000, 40_100)], True)) == MAX_FLOWS
