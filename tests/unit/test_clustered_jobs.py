"""Tasks that Pegasus put together into one job: each is a run of its own transformation."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from monitor_files import START, SUB, Submitted, event, executing, submitted, terminated

from condor_plugins.pool.run_times import RunTimes
from monitors.alerts.notices.workflows import workflow_notice
from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement
from monitors.workflows.analysis import FailedTask, analyse
from monitors.workflows.followed import FollowedWorkflow
from monitors.workflows.overview import Overview, job_row
from monitors.workflows.planned.dag import read_dag
from monitors.workflows.report import failures, timeline

MERGE = "merge_count_PID1_ID1"
LISTED = (("1", "t::count:1.0", "ID1"), ("2", "t::count:1.0", "ID2"), ("3", "t::sum:1.0", "ID3"))
COMMENTS = "".join(f"#@ {' '.join(task)} \n/opt/bin/x\n" for task in LISTED)


def when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def document(at: float, task: str, seconds: float, code: int = 0, said: str = "") -> str:
    name = next(name for _, name, key in LISTED if key == task)
    data = f"      data: |\n        {said}\n" if said else ""
    return (
        f"- invocation: True\n  version: 3.0\n  start: {when(at)}\n  duration: {seconds + 1}\n"
        f'  transformation: "{name}"\n  derivation: "{task}"\n  hostname: n1\n'
        f"  mainjob:\n    start: {when(at + 0.25)}\n    duration: {seconds}\n"
        f"    usage:\n      utime: 1.500\n      stime: 0.500\n"
        f"    status:\n      raw: {code << 8}\n      regular_exitcode: {code}\n"
        f'  files:\n    a.txt:\n      lfn: "a.txt"\n      size: 1000\n    stderr:\n{data}'
        "    metadata:\n      size: 0\n"
    )


def line(number: int, at: float, seconds: float, status: int = 0) -> str:
    return (
        f'[cluster-task id={number}, start="{when(at)}", duration={seconds + 1.1:.3f},'
        f' status={status}, line={2 * number}, pid=4001, app="/opt/bin/x"]\n'
    )


@pytest.fixture
def planned(tmp_path: Path) -> Submitted:
    made = Submitted(tmp_path / "run0001")
    text = SUB.format(
        name=made.output(MERGE).with_suffix(""), site="mu", transformation="pegasus::seqexec",
        task="null", job_class=1,
    )  # fmt: skip
    made.output(MERGE).with_suffix(".sub").write_text(text)
    made.output(MERGE).with_suffix(".in").write_text(COMMENTS)
    with (made.path / "wf-0.dag").open("a") as dag:
        dag.write(f"JOB {MERGE} 00/00/{MERGE}.sub\n")
    return made


def ran(planned: Submitted, output: str, returned: int = 0) -> dict[str, list[Measurement]]:
    end = START + 100
    planned.nodes.write_text(
        submitted(1, START, MERGE)
        + executing(1, START + 5)
        + terminated(1, end, returned)
        + event(6, 1, end, "Image size of job updated: 1")
    )
    planned.output(MERGE).write_text(output)
    followed = FollowedWorkflow(planned.path)
    followed.step()
    measurements: dict[str, list[Measurement]] = {}
    for measurement in followed.take()[0]:
        measurements.setdefault(measurement.metric, []).append(measurement)
    return measurements


def test_each_task_is_a_run_of_its_transformation(planned: Submitted) -> None:
    """The second was not run by kickstart, the third prints no end of its last line."""
    text = document(START + 6, "ID1", 10) + line(1, START + 6, 10) + "hello\n"
    text += line(2, START + 20, 18.9) + " x = 5" + document(START + 41, "ID3", 30)
    measurements = ran(planned, text + line(3, START + 41, 30))
    assert [
        (measurement.subject, measurement.value, measurement.details["task"])
        for measurement in measurements["runtime"]
    ] == [
        ("t::count:1.0@mu", pytest.approx(10), "ID1"),
        ("t::count:1.0@mu", pytest.approx(20), "ID2"),
        ("t::sum:1.0@mu", pytest.approx(30), "ID3"),
    ]
    assert [measurement.value for measurement in measurements["compute_rate"]] == [
        pytest.approx(100),
        pytest.approx(1e3 / 30),
    ]
    kinds = [measurement.subject for measurement in measurements["queue_wait"]]
    assert kinds == ["mu", "t::count:1.0@mu", "t::sum:1.0@mu"]  # the job waited once
    (times,) = timeline(planned.path)
    assert (times.start, times.end) == pytest.approx((START + 6.25, START + 71.25))
    analysis = analyse([*measurements["job"], *measurements["task"]])
    assert [(row.transformation, row.count) for row in analysis.runtimes] == [
        ("t::count:1.0", 2), ("t::sum:1.0", 1),
    ]  # fmt: skip
    assert (analysis.attempts, round(analysis.cumulative_s, 3)) == (1, 60)
    placed = Measurement("p", "placement", "mu", 1.0, "s", START, "site selection", "b7a9c3f0")
    row = job_row(measurements["job"][0], {"ID2": placed})
    assert row.placement is not None and row.placement.site == "mu"


def test_a_task_has_one_number_whatever_became_of_those_before_it(planned: Submitted) -> None:
    """By it what is recorded twice counts once."""
    text = document(START + 6, "ID1", 10, 7) + line(1, START + 6, 10, 7 << 8)
    text += document(START + 20, "ID2", 20) + line(2, START + 20, 20)
    measurements = ran(planned, text, returned=5)
    (runtime,), (_, second) = measurements["runtime"], measurements["task"]
    assert (runtime.details["task"], second.details["task"]) == ("ID2", "ID2")
    assert runtime.id.removeprefix("runtime:") == second.id.removeprefix("task:")


def test_the_task_that_failed_is_named(planned: Submitted) -> None:
    text = document(START + 6, "ID1", 10) + line(1, START + 6, 10)
    text += document(START + 20, "ID2", 20, 7, "no leaves at all") + line(2, START + 20, 20, 7 << 8)
    measurements = ran(planned, text, returned=5)
    analysis = analyse([*measurements["job"], *measurements["task"]])
    (failed,) = analysis.failures
    assert failed.failed_tasks == [FailedTask("ID2", "t::count:1.0", 7)]
    assert (failed.exitcode, failed.stderr) == (7, "no leaves at all")
    (row,) = analysis.runtimes
    assert (row.count, row.failed, analysis.lost_s) == (1, 1, pytest.approx(20))
    assert [measurement.details["task"] for measurement in measurements["runtime"]] == ["ID1"]
    notice = workflow_notice(Overview("b7a9c3f0", "wf"), "failed", analysis.failures)
    assert "in task ID2 (t::count:1.0)" in notice.text
    assert failures(planned.path)[0].tail == ["no leaves at all"]


def test_pegasus_mpi_cluster_runs_them_side_by_side(planned: Submitted) -> None:
    """Pegasus 4 wrote XML. Lines come as tasks end; one that could not be started has no record."""
    xml = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<invocation xmlns="http://x" version="2.3"'
        ' start="{start}" duration="21.000" transformation="t::count:1.0" derivation="{task}"'
        ' resource="mu" hostname="n2">\n  <mainjob start="{start}" duration="20.000" pid="1">\n'
        '    <usage utime="1.000" stime="0.500" maxrss="1"/>\n'
        '    <status raw="{raw}"><regular exitcode="3"/></status>\n  </mainjob>\n'
        '  <usage utime="9.000" stime="9.000"/>\n'
        '  <statcall error="0" id="final" lfn="b.txt">\n'
        '    <file name="/s/b.txt"/>\n    <statinfo mode="0100644" size="77" inode="1"/>\n'
        '  </statcall>\n  <statcall error="0" id="stderr">\n'
        "    <data>a &lt; b</data>\n  </statcall>\n</invocation>\n"
    )
    pmc = '[cluster-task id={n}, name={task}, start="{start}", duration=21.5, status={raw}]\n'
    text = '[cluster-summary stat="failed", tasks=3, submitted=3, succeeded=1, failed=2]\n'
    text += "".join(
        xml.format(start=when(START + 6), task=task, raw=raw)
        for task, raw in (("ID1", 0), ("ID2", 768))
    )
    text += "".join(
        pmc.format(n=n, task=f"ID{n}", start=when(START + 5.9), raw=raw)
        for n, raw in ((3, 256), (2, 768), (1, 0))
    )
    measurements = ran(planned, text, returned=1)
    (runtime,) = measurements["runtime"]
    assert (runtime.details["task"], runtime.value, runtime.details["cpu_s"]) == ("ID1", 20.0, 1.5)
    (job,) = measurements["job"]
    assert [(task["task"], task["exitcode"]) for task in job.details["failed_tasks"]] == [
        ("ID2", 3), ("ID3", 1),
    ]  # fmt: skip
    assert (job.value, job.details["stderr"]) == (pytest.approx(21.5), "a < b")
    assert job.details["bytes_out"] == 154


def test_nothing_is_learned_of_the_cluster_as_such(planned: Submitted) -> None:
    assert "runtime" not in ran(planned, "no record at all\n")


def test_how_long_a_cluster_runs_is_the_sum_of_its_tasks(planned: Submitted) -> None:
    """In PegasusLite the script holds the list."""
    listed = planned.output(MERGE).with_suffix(".in")
    script = f"pegasus-cluster << EOF\n{COMMENTS}EOF\n"
    listed.rename(listed.with_suffix(".sh")).write_text(script)
    node = read_dag(planned.path).nodes[MERGE]
    assert [task.id for task in node.tasks] == ["ID1", "ID2", "ID3"]
    with Archive(":memory:") as archive:
        known = RunTimes(archive, 600.0, lambda: START)
        for name, seconds in (("t::count:1.0", 10.0), ("t::sum:1.0", 30.0)):
            archive.record(Measurement(name, "runtime", f"{name}@mu", seconds, "s", START, "test"))
        ad = {"pegasus_wf_xformation": "pegasus::seqexec", "pegasus_site": "mu"}
        assert known.of_job(ad, node.runs) == 50.0
        assert known.of_job(ad, (*node.runs, "t::other:1.0")) == 600.0


def test_a_task_that_was_tried_again_did_not_fail(planned: Submitted) -> None:
    text = document(START + 6, "ID1", 10, 7) + document(START + 20, "ID1", 20)
    measurements = ran(planned, text)
    (job,) = measurements["job"]
    assert (job.details["exitcode"], job.details["failed_tasks"]) == (0, [])
    (row,) = analyse([job, *measurements["task"]]).runtimes
    assert (row.count, row.failed) == (1, 1)
