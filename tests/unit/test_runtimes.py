"""Job events and job records become runtimes, compute rates and queue waits."""

from __future__ import annotations

import calendar
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_files import (
    START,
    Submitted,
    aborted,
    append,
    event,
    executing,
    record_line,
    submitted,
    terminated,
)

from monitors.archive.archive import Measurement
from monitors.jobs.jobs import Jobs, Outcome
from monitors.workflows.followed import FollowedWorkflow
from monitors.workflows.logs.events import EventParser, JobEvent, Kind
from monitors.workflows.logs.records import records_in
from monitors.workflows.logs.stamps import LogTimes
from monitors.workflows.planned.foreign_files import end_of
from monitors.workflows.planned.submit_dir import JobKind, PlannedJob, SubmitDir, submit_dir_of
from monitors.workflows.report import timeline
from network_provisioner.base.errors import InputError

ONE, TWO, STAGE = (name for name, *_ in Submitted.JOBS)


def facts(planned: Submitted, kinds: bool = False) -> dict[str, list[Measurement]]:
    """By metric; waits of sites, or of ``kinds`` of jobs there."""
    workflow = FollowedWorkflow(planned.path)
    workflow.step()
    measurements, _ = workflow.take()
    by_metric: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        if measurement.metric == "dag":
            continue
        if measurement.metric != "queue_wait" or ("@" in measurement.subject) == kinds:
            by_metric.setdefault(measurement.metric, []).append(measurement)
    return by_metric


def run(cluster: int, node: str, at: float, wait_s: float = 1, runtime_s: float = 10) -> str:
    start = at + wait_s
    return (
        submitted(cluster, at, node)
        + executing(cluster, start)
        + terminated(cluster, start + runtime_s)
    )


# ------------------------------------------------------------------ event log


def parse(text: str | bytes, now: float | None = None) -> list[JobEvent]:
    parser = EventParser() if now is None else EventParser(LogTimes(latest=lambda: now))
    return parser.feed(text.encode() if isinstance(text, str) else text)


def test_events_with_milliseconds_and_names() -> None:
    assert parse(run(7, "A", START + 0.25)) == [
        JobEvent(Kind.SUBMIT, 7, 0, START + 0.25, node="A", schedd="10.254.0.1:1 ap"),
        JobEvent(Kind.EXECUTE, 7, 0, START + 1.25, slot="slot1_1@mu"),
        JobEvent(Kind.TERMINATED, 7, 0, START + 11.25, returned=0),
    ]


def test_the_way_older_versions_write() -> None:
    now = START + 5000
    text = event(16, 3, START, "POST Script terminated.", "(1) Normal termination (return value 4)")
    old = text.replace("2023-11-", "11/").replace(".000 POST", " POST")
    old = old.replace("...\n", "    DAG Node: A\n...\n")
    (job_event,) = parse(old, now)
    assert job_event == JobEvent(Kind.POST_SCRIPT_TERMINATED, 3, 0, START, node="A", returned=4)
    (job_event,) = parse("000 (001.000.000) 12/31 23:00:00 Job submitted\n...\n", now)
    assert job_event.at < now  # December of the year before, not of this one


@pytest.mark.parametrize("zone", ["Z", "+00:00", "+0000"])
def test_times_with_a_zone(zone: str) -> None:
    (job_event,) = parse(f"001 (001.000.000) 2023-11-14T22:13:20.5{zone} Job executing\n...\n")
    assert job_event.at == calendar.timegm((2023, 11, 14, 22, 13, 20)) + 0.5
    (east,) = parse("001 (001.000.000) 2023-11-14T23:13:20+01:00 Job executing\n...\n")
    assert east.at == job_event.at - 0.5


def test_a_signal_is_a_negative_return() -> None:
    text = event(5, 1, START, "Job terminated.", "(0) Abnormal termination (signal 9)")
    assert parse(text)[0].returned == -9


def test_an_event_whose_end_is_missing_still_counts() -> None:
    text = submitted(1, START, "A").replace("...\n", "") + executing(1, START + 1)
    assert [job_event.kind for job_event in parse(text)] == [Kind.SUBMIT, Kind.EXECUTE]


LOG = "".join(run(n, f"job{n}", START + 30 * n) for n in range(1, 5)).encode()


@settings(max_examples=30)
@given(st.lists(st.integers(0, len(LOG)), max_size=20))
def test_portions_do_not_matter(cuts: list[int]) -> None:
    parser, events, last = EventParser(), [], 0
    for cut in [*sorted(cuts), len(LOG)]:
        events += parser.feed(LOG[last:cut])
        last = cut
    assert events == parse(LOG)
    assert len(events) == 12


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, len(LOG)), st.binary(max_size=60)), max_size=8))
def test_garbage_never_crashes_and_what_follows_is_read(places: list[tuple[int, bytes]]) -> None:
    damaged = LOG
    for place, garbage in sorted(places, reverse=True):
        damaged = damaged[:place] + garbage + damaged[place:]
    events = parse(damaged + b"\n...\n" + run(99, "last", START).encode())
    assert [(e.kind, e.cluster) for e in events][-3:] == [
        (Kind.SUBMIT, 99),
        (Kind.EXECUTE, 99),
        (Kind.TERMINATED, 99),
    ]
    attempts = Jobs(lambda name: PlannedJob(name, JobKind.COMPUTE, "mu", "x::y:1"))
    for job_event in events:
        attempts.feed(job_event)


# ------------------------------------------------------------------ submit dir


def test_jobs_know_their_site_kind_and_task(planned: Submitted) -> None:
    submit_dir = SubmitDir(planned.path)
    assert submit_dir.workflow == planned.uuid
    assert list(submit_dir.nodes) == [ONE, TWO, STAGE]
    assert submit_dir.job(ONE) == PlannedJob(
        ONE, JobKind.COMPUTE, "mu", "soykb::bwa_mem:1.0", "ID0000001", str(planned.output(ONE)),
        str(planned.output(ONE).with_suffix(".err")),
    )  # fmt: skip
    assert submit_dir.job(STAGE).kind is JobKind.STAGE_IN
    assert submit_dir.job(STAGE).task == ""
    assert submit_dir.job("never planned").site == ""


def test_a_job_whose_files_cannot_be_read_is_followed_all_the_same(planned: Submitted) -> None:
    sub = planned.path / "00" / "00" / f"{ONE}.sub"
    sub.unlink()
    sub.mkdir()
    planned.nodes.write_text(run(1, ONE, START) + run(2, TWO, START))
    assert [m.details["job"] for m in facts(planned)["runtime"]] == [TWO]
    assert [t.job.site for t in timeline(planned.path)] == ["", "mu"]


def test_macros_and_variables_of_the_dag(tmp_path: Path) -> None:
    (tmp_path / "w.dag").write_text(
        'JOB a shared.sub DIR sub\nVARS a where="tacc" +pegasus_wf_xformation="\\"x::y:1\\""\n'
        "SUBDAG EXTERNAL inner inner.dag\n"
    )
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "shared.sub").write_text(
        "output = $(base)/$(JOB).out\nbase = $(where)-$(base2)\nbase2 = o\n"
        'MY.pegasus_site = "$(where)"\nloop = $(loop)\n'
    )
    submit_dir = SubmitDir(tmp_path)
    job = submit_dir.job("a")
    assert (job.site, job.transformation, job.kind) == ("tacc", "x::y:1", JobKind.COMPUTE)
    assert job.output == tmp_path / "sub" / "tacc-o" / "a.out"
    assert submit_dir.job("inner").kind is JobKind.SUBWORKFLOW
    assert submit_dir.workflow == str(tmp_path.resolve() / "w.dag")


@pytest.mark.parametrize(
    "line",
    ["SUBDAG EXTERNAL x inner.dag", "subdag external x ./inner.dag DIR there", "SPLICE x inner.dag",
     "INCLUDE inner.dag", "SUBDAG EXTERNAL x {folder}/inner.dag"],
)  # fmt: skip
def test_a_dag_with_parts_of_itself_beside_it(tmp_path: Path, line: str) -> None:
    (tmp_path / "inner.dag").write_text("JOB a a.sub\nSUBDAG EXTERNAL again inner.dag\n")
    (tmp_path / "outer.dag").write_text(f"JOB b b.sub\n{line.format(folder=tmp_path)}\n")
    whole = SubmitDir(tmp_path)
    assert (whole.dag, whole.name) == (tmp_path / "outer.dag", "outer")
    named = submit_dir_of(tmp_path / "outer.dag")
    assert (named.dag, named.workflow) == (whole.dag, whole.workflow)
    # Any other is followed where it is named; a DAG that comes later changes no workflow's name.
    (tmp_path / "two.dag").write_text(f"{line.replace('inner', 'nowhere/inner')}\n")
    with pytest.raises(InputError, match=r"found 3 \.dag files .*/outer\.dag, .*/two\.dag$"):
        submit_dir_of(tmp_path)
    assert submit_dir_of(tmp_path / "outer.dag").workflow == whole.workflow
    (tmp_path / "link").symlink_to(tmp_path)
    assert submit_dir_of(tmp_path / "link" / "outer.dag").workflow == whole.workflow
    assert submit_dir_of(str(tmp_path / "inner.dag")).name == "inner"
    with pytest.raises(InputError, match=r"x\.sub: found a file, expected a submit directory or"):
        (tmp_path / "x.sub").touch()
        submit_dir_of(tmp_path / "x.sub")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "found 0 .dag files"),
        ({"a.dag": "", "b.dag": ""}, "found 2 .dag files .*or one of them: .*/a.dag, .*/b.dag"),
        ({f"{name}.dag": "" for name in range(7)}, "one of them: .*/4.dag, …"),
        ({"a.dag": "INCLUDE b.dag", "b.dag": "INCLUDE a.dag"}, "one of them: .*/a.dag, .*/b.dag"),
        ({"braindump.yml": "[1, 2", "a.dag": ""}, "expected Pegasus's braindump"),
        ({"braindump.yml": "just text", "a.dag": ""}, "expected Pegasus's braindump"),
    ],
)
def test_what_is_no_submit_directory_is_told(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        SubmitDir(tmp_path)


# ------------------------------------------------------------------ facts


def test_a_job_gives_runtime_and_queue_wait(planned: Submitted) -> None:
    planned.nodes.write_text(run(1, ONE, START, wait_s=2.5, runtime_s=12.25))
    measurements = facts(planned)
    assert sorted(measurements) == ["job", "queue_wait", "runtime"]
    (runtime,) = measurements["runtime"]
    assert (runtime.subject, runtime.value, runtime.unit) == ("soykb::bwa_mem:1.0@mu", 12.25, "s")
    assert runtime.at == START + 14.75
    assert runtime.source == "event log"
    assert runtime.details["job"] == ONE
    (wait,) = measurements["queue_wait"]
    assert (wait.subject, wait.value, wait.at) == ("mu", 2.5, START + 14.75)
    (kind,) = facts(planned, kinds=True)["queue_wait"]
    assert (kind.subject, kind.value, kind.at) == (runtime.subject, wait.value, wait.at)
    assert kind.id != wait.id


def test_the_jobs_own_record_is_preferred_and_gives_the_rate(planned: Submitted) -> None:
    planned.nodes.write_text(run(1, ONE, START, wait_s=1, runtime_s=10))
    old = record_line(START - 90, START - 80, {"a": 1})
    new = record_line(START + 2, START + 10, {"a.fq": 3000, "ref.fa": 1000})
    planned.output(ONE).write_text(f"tool says hello\n{old}{new}adon-job-record: {{torn\n")
    measurements = facts(planned)
    assert measurements["runtime"][0].value == 8.0
    assert measurements["runtime"][0].details["bytes_in"] == 4000
    assert measurements["runtime"][0].details["host"] == "node1"
    (rate,) = measurements["compute_rate"]
    assert (rate.value, rate.unit, rate.subject) == (500.0, "byte/s", "soykb::bwa_mem:1.0@mu")
    (ratio,) = measurements["output_ratio"]
    assert (ratio.value, ratio.unit, ratio.subject) == (10 / 4000, "1", "soykb::bwa_mem:1.0")


def test_kickstarts_record(planned: Submitted) -> None:
    planned.nodes.write_text(run(1, ONE, START))
    planned.output(ONE).write_text(
        "pegasus-lite says\n- invocation: True\n  version: 3.0\n"
        "  start: 2023-11-14T22:13:22.500+00:00\n  duration: 6.250\n  hostname: n7\n"
        "  setup:\n    duration: 1.0\n    status:\n      regular_exitcode: 1\n"
        "  mainjob:\n    duration: 6.0\n    status:\n      raw: 0\n      regular_exitcode: 0\n"
    )
    (record,) = records_in(end_of(planned.output(ONE)))
    assert (record.runtime_s, record.exitcode, record.host) == (6.0, 0, "n7")
    assert facts(planned)["runtime"][0].source == "kickstart"


@given(st.binary(max_size=300))
def test_any_record_at_all(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.out"
    path.write_bytes(b"adon-job-record: " + data + b"\n- invocation: True\n  " + data)
    assert records_in(end_of(path)) == [] or data


@pytest.mark.parametrize(
    "line",
    [
        'adon-job-record: {"start": 1, "end": Infinity, "exitcode": 0}',
        'adon-job-record: {"start": NaN, "end": 2, "exitcode": 0}',
        'adon-job-record: {"start": 1, "end": 2, "exitcode": 0, "inputs": {"a": Infinity}}',
        'adon-job-record: {"start": 3, "end": 2, "exitcode": 0}',
        'adon-job-record: {"start": "x", "end": 2, "exitcode": 0}',
        "adon-job-record: [1]",
        "adon-job-record: " + "[" * 9999,
        "adon-job-record:",
    ],
)
def test_records_that_make_no_sense_are_none(tmp_path: Path, line: str) -> None:
    (tmp_path / "x.out").write_text(line + "\n")
    assert records_in(end_of(tmp_path / "x.out")) == []


def test_transfers_and_failures_teach_no_runtime(planned: Submitted) -> None:
    planned.nodes.write_text(
        run(1, STAGE, START)
        + submitted(2, START, ONE)
        + executing(2, START + 1)
        + terminated(2, START + 2, returned=1)
        + submitted(3, START, TWO)
        + aborted(3, START + 4)
    )
    measurements = facts(planned)
    assert sorted(measurements) == ["job", "queue_wait"]
    assert [job.details["outcome"] for job in measurements["job"]] == ["done", "failed", "removed"]


def test_a_record_of_failure_teaches_no_runtime(planned: Submitted) -> None:
    planned.nodes.write_text(run(1, ONE, START))
    planned.output(ONE).write_text(record_line(START + 2, START + 3, {}, exitcode=3))
    assert "runtime" not in facts(planned)


def test_waiting_for_ones_own_workflow_is_no_queue_wait(planned: Submitted) -> None:
    planned.nodes.write_text(
        submitted(1, START, ONE)
        + submitted(2, START + 0.1, TWO)
        + executing(1, START + 3)
        + terminated(1, START + 60)
        + executing(2, START + 61)  # it got the worker of job 1
    )
    assert [m.value for m in facts(planned)["queue_wait"]] == [3.0]


def test_a_job_waits_from_its_parents_end_and_for_its_own_start_up(planned: Submitted) -> None:
    append(planned.path / "wf-0.dag", f"PARENT {ONE} {STAGE} CHILD {TWO}\n")
    planned.nodes.write_text(
        run(1, ONE, START, wait_s=1, runtime_s=10)
        + run(2, STAGE, START, wait_s=1, runtime_s=20)
        + run(3, TWO, START + 25, wait_s=2, runtime_s=10)
    )
    planned.output(TWO).write_text(record_line(START + 28, START + 36.5, {}))
    wait = facts(planned)["queue_wait"][-1]
    assert (wait.details["job"], wait.value) == (TWO, 6.0 + 1.5)
    assert (wait.details["submitted_s"], wait.details["started_s"]) == (4.0, 2.0)


def test_a_job_that_is_tried_again_waits_from_its_last_try(planned: Submitted) -> None:
    planned.nodes.write_text(
        submitted(1, START, ONE)
        + executing(1, START + 1)
        + terminated(1, START + 10, returned=1)
        + run(2, ONE, START + 13, wait_s=1)
    )
    assert [m.value for m in facts(planned)["queue_wait"]] == [1.0, 4.0]


def test_an_evicted_job_counts_its_last_execution_and_teaches_no_wait(planned: Submitted) -> None:
    planned.nodes.write_text(
        submitted(1, START, ONE)
        + executing(1, START + 2)
        + event(4, 1, START + 20, "Job was evicted.")
        + executing(1, START + 50)
        + terminated(1, START + 57)
    )
    measurements = facts(planned)
    assert "queue_wait" not in measurements
    assert [m.value for m in measurements["runtime"]] == [7.0]


# ------------------------------------------------------------------ timeline


def test_the_timeline_has_every_attempt_of_every_job(planned: Submitted) -> None:
    planned.nodes.write_text(
        run(1, STAGE, START)
        + submitted(2, START + 20, ONE)
        + executing(2, START + 21)
        + terminated(2, START + 25, returned=1)
        + submitted(3, START + 30, ONE)
        + executing(3, START + 31)
        + terminated(3, START + 39)
        + submitted(4, START + 40, TWO)
    )
    planned.output(ONE).write_text(record_line(START + 32, START + 38.5, {}))
    attempts = timeline(planned.path)
    assert [(t.job.name, t.number, t.outcome) for t in attempts] == [
        (STAGE, 0, Outcome.DONE),
        (ONE, 0, Outcome.FAILED),
        (ONE, 1, Outcome.DONE),
        (TWO, 0, Outcome.QUEUED),
    ]
    assert (attempts[0].job.kind, attempts[0].job.site) == (JobKind.STAGE_IN, "local")
    assert (attempts[1].start, attempts[1].end) == (START + 21, START + 25)
    assert (attempts[2].start, attempts[2].end) == (START + 32, START + 38.5)
    assert (attempts[3].submit, attempts[3].start, attempts[3].end) == (START + 40, 0.0, 0.0)
