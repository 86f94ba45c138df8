"""Runs as people bring them: held and removed jobs, ends that no job explains, directories that
were moved, logs of other versions, formats, machines and states of decay."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from cli_world import adon
from monitor_files import (
    START,
    Submitted,
    aborted,
    append,
    event,
    executing,
    exiting,
    record_line,
    removal,
    stamp,
    starting,
    submitted,
    table,
    terminated,
)

from monitors.archive.archive import Archive
from monitors.jobs.jobs import Jobs, Outcome
from monitors.jobs.named_logs import DagmanEventTail
from monitors.workflows.analysis import Analysis, analyse
from monitors.workflows.follower import Follower
from monitors.workflows.logs.dagman import DagmanParser, StatusChange
from monitors.workflows.logs.events import EventParser, JobEvent, Kind
from monitors.workflows.logs.stamps import LogTimes
from monitors.workflows.logs.status import Status, for_people
from monitors.workflows.overview import KnownWorkflows, Overview
from monitors.workflows.planned.dag import read_dag
from monitors.workflows.planned.sub_workflows import sub_workflows
from monitors.workflows.planned.submit_dir import SubmitDir, running, submit_dir_of
from network_provisioner.base.errors import InputError

ONE, TWO, STAGE = (name for name, *_ in Submitted.JOBS)
WHY = "Transfer input files failure: reading from file /home/ada/leaves.txt: (errno 2) No such file"
RULE = "The job attribute PeriodicRemove expression '( JobStatus == 5 )' evaluated to TRUE"


def held(cluster: int, at: float, why: str = WHY) -> str:
    return event(12, cluster, at, "Job was held.", why, "Code 13 Subcode 2")


def followed(path: Path, archive: Archive) -> tuple[Overview, Analysis]:
    """Where a workflow stands, and what became of its jobs."""
    Follower(path, archive).poll()
    (known,) = KnownWorkflows(archive, lambda: START + 4000, 1e9).all(lambda _: True).values()
    return known, analyse([*archive.query("job"), *archive.query("job_transfer")])


def parse(text: bytes, times: LogTimes | None = None) -> list[JobEvent]:
    return EventParser(times or LogTimes()).feed(text)


# ------------------------------------------------------------------ held, removed, and why


def test_a_held_job_is_told_of_with_its_reason(planned: Submitted, archive: Archive) -> None:
    planned.out.write_text(starting() + table(START + 5, queued=1, unready=2))
    # The shadow may write that the job left its machine after the schedd wrote that it is held.
    planned.nodes.write_text(
        submitted(1, START, ONE) + executing(1, START + 1) + held(1, START + 2)
        + event(4, 1, START + 2.5, "Job was evicted.", "(0) CPU times")
    )  # fmt: skip
    known, _ = followed(planned.path, archive)
    (job,) = known.held
    assert (job.job, job.site, job.since) == (ONE, "mu", START + 2)
    assert (job.reason, job.code, job.subcode) == (WHY, 13, 2)
    assert known.stuck.startswith("the only job in the queue held for")
    with planned.nodes.open("a") as file:
        file.write(event(13, 1, START + 9, "Job was released.", "via condor_release"))
    assert not followed(planned.path, archive)[0].held


def test_holds_outlive_dagman_but_not_the_next_run(planned: Submitted, archive: Archive) -> None:
    planned.out.write_text(
        starting() + table(START + 5, queued=1, unready=2) + removal(START + 9)
        + exiting(START + 9, 2)
    )  # fmt: skip
    planned.nodes.write_text(submitted(1, START, ONE) + held(1, START + 2))
    known, _ = followed(planned.path, archive)
    assert (known.state, [(hold.job, hold.reason) for hold in known.held]) == (
        "removed",
        [(ONE, WHY)],
    )
    append(planned.out, starting(START + 20) + table(START + 25, queued=1, unready=2))
    planned.nodes.write_text(submitted(2, START + 22, ONE) + executing(2, START + 23))
    known, _ = followed(planned.path, archive)
    assert (known.state, known.stuck, list(known.held)) == ("running", "", [])
    append(planned.nodes, held(2, START + 30))
    known, _ = followed(planned.path, archive)
    assert [hold.since for hold in known.held] == [START + 30]
    assert known.stuck.startswith("the only job in the queue held")


def test_time_on_hold_is_no_run_time(planned: Submitted, archive: Archive) -> None:
    planned.nodes.write_text(
        submitted(1, START, ONE) + executing(1, START + 1) + held(1, START + 3)
        + event(4, 1, START + 4, "Job was evicted.") + aborted(1, START + 1803)
    )  # fmt: skip
    planned.output(ONE).write_text(record_line(START + 1.5, START + 2.5, {}))
    planned.out.write_text(starting() + table(START + 1805, fail=1, unready=2))
    _, analysis = followed(planned.path, archive)
    assert (analysis.lost_s, analysis.lost_slot_s) == (1.0, 2.0)
    assert {measurement.value for measurement in archive.query("queue_wait")} == {2.0}


def test_time_on_hold_is_no_wait_for_a_worker(planned: Submitted, archive: Archive) -> None:
    planned.nodes.write_text(
        submitted(1, START, ONE) + held(1, START + 1)
        + event(13, 1, START + 1801, "Job was released.", "via condor_release")
        + executing(1, START + 1804) + terminated(1, START + 1810)
        + submitted(2, START, TWO) + executing(2, START + 5) + held(2, START + 10)
        + event(13, 2, START + 1800, "Job was released.") + executing(2, START + 1801)
        + terminated(2, START + 1805)
    )  # fmt: skip
    planned.out.write_text(starting() + table(START + 1811, done=2, unready=1))
    (waits,) = followed(planned.path, archive)[1].waits
    assert (waits.min_s, waits.max_s) == (4.0, 5.0)
    assert {measurement.value for measurement in archive.query("queue_wait")} == {4.0}


def test_a_job_submitted_on_hold_is_held_without_an_event(
    planned: Submitted, archive: Archive
) -> None:
    planned.out.write_text(starting() + table(START + 5, queued=1, unready=2))
    submit = next(planned.path.rglob(f"{ONE}.sub"))
    submit.write_text(f"Hold = True\n{submit.read_text()}")
    planned.nodes.write_text(submitted(1, START, ONE))
    (job,) = followed(planned.path, archive)[0].held
    assert (job.job, job.since) == (ONE, START)
    assert job.reason == "submitted on hold at user's request"
    planned.nodes.write_text(
        submitted(1, START, ONE) + event(13, 1, START + 5, "Job was released.", "by ada")
    )
    assert not followed(planned.path, archive)[0].held


def test_dagman_itself_may_be_held(planned: Submitted, archive: Archive) -> None:
    planned.out.write_text(starting() + table(START + 5, queued=1, unready=2))
    planned.dagman.write_text(submitted(9, START) + executing(9, START) + held(9, START + 6, "no"))
    known, _ = followed(planned.path, archive)
    assert [(hold.job, hold.reason) for hold in known.held] == [("condor_dagman", "no")]
    append(planned.dagman, aborted(9, START + 60))
    known, _ = followed(planned.path, archive)
    assert known.status is not None and known.status.reason == (
        "via condor_rm (by user adon); DAGMan was on hold before: no (code 13.2)"
    )


def test_a_job_whose_machine_does_not_come_back_waits_again(planned: Submitted) -> None:
    log = submitted(1, START, ONE) + executing(1, START + 1)
    log += event(22, 1, START + 2, "Job disconnected, attempting to reconnect")
    lost = "Can not reconnect to slot1_1@mu, rescheduling job"
    jobs = Jobs()
    for job_event in parse(
        (log + event(24, 1, START + 3, "Job reconnection failed", lost)).encode()
    ):
        jobs.feed(job_event)
    (attempt,) = jobs.all
    assert attempt.outcome is Outcome.QUEUED
    words = f"Event: ULOG_JOB_RECONNECT_FAILED for HTCondor Node {ONE} (1.0.0)"
    planned.out.write_text(f"{stamp(START + 3)} {words} {{{stamp(START + 3)}}}\n")
    (dagman_event,) = DagmanEventTail(planned.out).read()
    assert (dagman_event.kind, dagman_event.at) == (Kind.RECONNECT_FAILED, START + 3)


def test_held_then_removed_is_told_with_both_reasons(planned: Submitted, archive: Archive) -> None:
    planned.nodes.write_text(
        submitted(1, START, ONE) + executing(1, START + 1) + held(1, START + 2)
        + event(9, 1, START + 1802, "Job was aborted.", RULE)
    )  # fmt: skip
    planned.out.write_text(
        starting() + table(START + 1805, fail=1, unready=2) + exiting(START + 1806, 1)
    )
    (failed,) = followed(planned.path, archive)[1].failures
    assert (failed.job, failed.outcome, failed.reason) == (ONE, "removed", RULE)
    assert failed.hold is not None
    assert (failed.hold.reason, failed.hold.code, failed.hold.seconds) == (WHY, 13, 1800.0)


def test_the_command_shows_holds_and_removals(
    planned: Submitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    planned.nodes.write_text(
        submitted(1, START, ONE) + executing(1, START + 1) + held(1, START + 2)
        + submitted(2, START + 3, TWO) + held(2, START + 4)
        + event(9, 1, START + 1802, "Job was aborted.", RULE)
    )  # fmt: skip
    planned.out.write_text(starting() + table(START + 1805, fail=1, queued=1, unready=1))
    adon("monitor", "run", str(planned.path), "--give-up-after", "1s")
    shown = adon("monitor", "show", str(planned.path)).out
    removed = f"  | {RULE}\n  on hold for 30 min before, code 13.2\n  | {WHY}\n"
    for part in (f"Failed: {ONE} at mu", removed, "1 job is held\n", f"Held: {TWO} at mu since "):
        assert part in shown
    assert f"Held: {TWO} at mu" in adon("monitor", "status", str(planned.path)).out
    (job,) = json.loads(adon("monitor", "show", str(planned.path), "--json").out)["held"]
    assert (job["job"], job["reason"], job["code"]) == (TWO, WHY, 13)


def test_a_reason_of_several_lines_is_told_whole() -> None:
    (hold,) = parse(held(1, START, "the starter failed\n\tquota exceeded").encode())
    assert (hold.reason, hold.code) == ("the starter failed quota exceeded", 13)


def last_status(text: str) -> Status:
    changes = [
        change for change in DagmanParser().feed(text.encode()) if isinstance(change, StatusChange)
    ]
    return changes[-1].status


def test_dagmans_last_words_where_no_job_failed() -> None:
    usage = f"{stamp(START)}\nUnrecognized argument: -Insert_env_var\n{stamp(START)}\nUsage: …\n"
    assert last_status(starting() + usage + exiting(START, 1)).reason == (
        "DAGMan ended with status 1: Unrecognized argument: -Insert_env_var"
    )
    cycle = f"{stamp(START)} ... ERROR: a cycle exists in the dag, please check input\n"
    noise = f"{stamp(START)} DAGMAN_LOG_ON_NFS_IS_ERROR setting: False\n"
    assert last_status(starting() + noise + cycle + exiting(START, 1)).reason == (
        "DAGMan ended with status 1: ... ERROR: a cycle exists in the dag, please check input"
    )
    assert "does not say why" in last_status(starting() + exiting(START, 1)).reason
    assert last_status(starting() + table(START, fail=1) + cycle + exiting(START, 1)).reason == ""
    assert last_status(starting() + table(START, done=1) + cycle + exiting(START, 0)).reason == ""


def test_a_dagman_that_never_wrote_its_log(planned: Submitted, archive: Archive) -> None:
    planned.dagman.write_text(submitted(9, START) + executing(9, START) + terminated(9, START, 127))
    planned.out.with_name("wf-0.dag.lib.err").write_text("condor_dagman: libx.so: not found\n")
    known, _ = followed(planned.path, archive)
    assert known.status is not None
    assert known.status.reason == (
        "DAGMan ended with status 127: condor_dagman: libx.so: not found"
    )


def test_why_a_job_could_not_be_submitted() -> None:
    parser = DagmanParser()
    where = "(-1.-1.-1) {11/14/23 22:13:20}"
    lines = (
        f"Event: ULOG_SUBMIT_FAILURE for HTCondor Node b {where} can't open file b.sub",
        "ERROR: the following Node(s) failed:",
        "      Node Name: b",
        "          Error: Job submit failed",
    )
    list(parser.feed("".join(f"{stamp(START)} {line}\n" for line in lines).encode()))
    assert parser.failed == {"b": "Job submit failed: can't open file b.sub"}


@pytest.mark.parametrize(
    "said",
    ["From submit: ERROR: no", "From submit: Submitting job(s).ERROR: no", "ERROR: on Line 4 of "
     "submit file: no", "could not open submit file : b.sub - no", "Failed to submit job b: no"],
)  # fmt: skip
def test_what_condor_submit_said_where_dagman_tells_no_event(said: str) -> None:
    parser = DagmanParser()
    lines = ("Submitting HTCondor Node b job(s)...",
             "Submitting node b from file b.sub using direct job submission",
             said, "Submitting Condor Node c job(s)...",
             "ERROR: the following job(s) failed:", "      Node Name: b",
             "          Error: Job submit failed")  # fmt: skip
    list(parser.feed("".join(f"{stamp(START)} {line}\n" for line in lines).encode()))
    assert parser.failed["b"].startswith("Job submit failed: ") and parser.failed["b"][-2:] == "no"


def test_pegasus_plan_says_why_it_could_not_plan(planned: Submitted, archive: Archive) -> None:
    log = planned.path / f"{STAGE}.pre.log"
    log.with_name(f"{log.name}.000").write_text("2026.05.11 08:00:00.1 PST: [FATAL ERROR]\n old\n")
    log.with_name(f"{log.name}.001").write_text(
        "2026.05.11 08:00:00.1 PST: [CONFIG]  a=b\n2026.05.11 08:00:01.1 PST: [FATAL ERROR] \n"
        " [1]: no site catalog\n2026.05.11 08:00:01.2 PST: [DEBUG]  Exiting with code 2\n"
    )
    words = ("ERROR: the following job(s) failed:", f"      Node Name: {STAGE}",
             "          Error: PRE Script failed with status 2")  # fmt: skip
    planned.out.write_text(
        starting() + table(START + 5, fail=1, futile=2)
        + "".join(f"{stamp(START + 5)} {line}\n" for line in words) + exiting(START + 6, 1)
    )  # fmt: skip
    (failed,) = followed(planned.path, archive)[1].failures
    assert failed.reason == "PRE Script failed with status 2"
    assert failed.stderr.split("\n")[1:] == [" [1]: no site catalog"]


def test_of_several_processes_the_one_that_failed_is_told(
    planned: Submitted, archive: Archive
) -> None:
    log = "".join(
        text.replace("001.000.000", f"001.{proc:03d}.000")
        for proc, end in enumerate((terminated(1, START + 5, 6), aborted(1, START + 6)))
        for text in (submitted(1, START, ONE), executing(1, START + 1), end)
    )
    planned.nodes.write_text(log)
    planned.out.write_text(starting() + table(START + 8, fail=1, futile=2))
    (failed,) = followed(planned.path, archive)[1].failures
    assert (failed.outcome, failed.exitcode) == ("failed", 6)


def test_files_of_a_copy_without_times_are_known_by_their_numbers(
    planned: Submitted, archive: Archive
) -> None:
    for number in (0, 1):  # written now, long after the run, as everything there
        planned.output(ONE).with_name(f"{ONE}.err.00{number}").write_text(f"words of {number}")
    planned.nodes.write_text("".join(
        submitted(n, at, ONE) + executing(n, at + 1) + terminated(n, at + 7, returned=1)
        for n, at in ((1, START), (2, START + 100))
    ))  # fmt: skip
    planned.out.write_text(starting() + table(START + 200, fail=1, futile=2))
    (failed,) = followed(planned.path, archive)[1].failures
    assert failed.stderr == "words of 1"


# ------------------------------------------------------------------ logs of the jobs' own


def own_dag(folder: Path, log: str) -> Path:
    """A DAG as people write it; HTCondor before 7.9 kept no log but those of its jobs."""
    folder.mkdir()
    (folder / "job.sub").write_text(f"executable = /bin/true\nlog = {log}\nqueue\n")
    (folder / "diamond.dag").write_text("JOB A job.sub\nJOB B job.sub\nPARENT A CHILD B\n")
    return folder


def old(text: str) -> str:
    """As HTCondor 7 wrote it: without years, and with the node's name in words."""
    text = re.sub(r"\[ DAGNodeName = \"(\w+)\"; .*\]", r"DAG Node: \1", text)
    return re.sub(r"\d{4}-(\d\d)-(\d\d) (\S+)\.\d{3} ", r"\1/\2 \3 ", text)


def of_a_run(node: str, cluster: int, at: float, returned: int) -> str:
    ran = executing(cluster, at + 1) + terminated(cluster, at + 40, returned)
    return submitted(cluster, at, node) + ran


@pytest.mark.parametrize("log", ["diamond.log", "$(JOB).log", "logs/diamond.$(Cluster).log"])
@pytest.mark.parametrize("quiet", [True, False])
def test_jobs_own_logs_are_read_where_dagman_kept_none(
    tmp_path: Path, archive: Archive, log: str, quiet: bool
) -> None:
    """Also where DAGMan was told to say little. An earlier run and jobs of others stand there."""
    run = own_dag(tmp_path / "run", log)
    (run / "logs").mkdir()
    for node, cluster, before in (("A", 2, 900), ("B", 3, 800), ("A", 11, 0), ("B", 12, -50)):
        name = log.replace("$(JOB)", node).replace("$(Cluster)", str(cluster))
        append(run / name, old(of_a_run(node, cluster, START - before, int(node == "B"))))
        append(run / name, old(of_a_run("", cluster + 100, START - before, 0)))
    events = "" if quiet else "".join(
        f"{stamp(at)} Event: ULOG_{kind} for Condor Node {node} ({cluster}.0.0)\n"
        for node, cluster, began in (("A", 11, START), ("B", 12, START + 50))
        for kind, at in (("SUBMIT", began), ("EXECUTE", began + 5), ("JOB_TERMINATED", began + 45))
    )  # fmt: skip
    (run / "diamond.dag.dagman.out").write_text(
        starting() + events + table(START + 99, done=1, fail=1) + exiting(START + 100, 1)
    )
    made = followed(run, archive)[1]
    (failed,) = made.failures
    assert (made.attempts, failed.job, failed.exitcode) == (2, "B", 1)
    jobs = archive.query("job")
    assert [m.value for m in jobs] == [39.0, 39.0]


def test_jobs_that_their_logs_do_not_name_are_named_by_dagman(
    tmp_path: Path, archive: Archive
) -> None:
    run = own_dag(tmp_path / "run", "$(JOB).log")
    append(run / "A.log", of_a_run("", 11, START, 5))
    (run / "diamond.dag.dagman.out").write_text(
        starting()
        + f"{stamp(START)} Event: ULOG_SUBMIT for HTCondor Node A (11.0.0)\n"
        + table(START + 99, fail=1, unready=1) + exiting(START + 100, 1)
    )  # fmt: skip
    (failed,) = followed(run, archive)[1].failures
    assert (failed.job, failed.exitcode) == ("A", 5)


def test_of_jobs_whose_own_log_is_gone_dagman_tells(
    tmp_path: Path, archive: Archive, caplog: pytest.LogCaptureFixture
) -> None:
    run = own_dag(tmp_path / "run", "$(JOB).log")
    append(run / "A.log", of_a_run("A", 11, START, 0))
    (run / "diamond.dag.dagman.out").write_text(
        starting()
        + "".join(
            f"{stamp(START + 50)} Event: ULOG_{kind} for HTCondor Node B (12.0.0)\n"
            for kind in ("SUBMIT", "EXECUTE", "JOB_TERMINATED")
        )
        + f"{stamp(START + 50)} Node B job proc (12.0.0) failed with status 7.\n"
        + table(START + 99, done=1, fail=1) + exiting(START + 100, 1)
    )  # fmt: skip
    made = followed(run, archive)[1]
    assert (made.attempts, [(failure.job, failure.exitcode) for failure in made.failures]) == (
        2,
        [("B", 7)],
    )
    (message,) = [record.getMessage() for record in caplog.records]
    assert "the events of some jobs are taken from diamond.dag.dagman.out" in message


# ------------------------------------------------------------------ what was moved or is gone


def moved(tmp_path: Path) -> Path:
    """A workflow with another inside it, planned at a place that is not on this machine."""
    outer, there = Submitted(tmp_path / "planned", "outer"), "/home/bert/run0002"
    for part, name in ((outer.path, "outer"), (outer.path / "00/00/inner_J9", "inner")):
        if part != outer.path:
            Submitted(part, name)
        place = str(part).replace(str(outer.path), there)
        with (part / "braindump.yml").open("a") as file:
            file.write(f'submit_dir: "{place}"\nsubmit_hostname: "ap.far"\n')
            file.write('timestamp: "20231114T141320-0800"\n')
    text = outer.path.joinpath("wf-0.dag").read_text() + "JOB subwf 00/00/subwf.sub\n"
    outer.path.joinpath("wf-0.dag").write_text(text)
    (outer.path / "00/00/subwf.sub").write_text(
        f"initialdir = {there}/00/00/./inner_J9\n+pegasus_job_class = 10\n"
        'arguments = "-Lockfile wf-0.dag.lock -Dag wf-0.dag"\n'
    )
    for sub in outer.path.rglob("*.sub"):
        sub.write_text(sub.read_text().replace(str(outer.path), there))
    return Path(shutil.move(outer.path, tmp_path / "here"))


def test_files_of_a_moved_directory_are_found_below_it(tmp_path: Path) -> None:
    here = moved(tmp_path)
    plan = SubmitDir(here)
    assert plan.job(ONE).output == here / "00/00" / f"{ONE}.out"
    link = here / "00/00/inner_J9"
    link.rename(link.with_name("inner_J9.000"))
    link.symlink_to("/home/bert/run0002/00/00/inner_J9.000")  # as Pegasus makes it
    (inner,) = sub_workflows(plan, "subwf")
    assert inner.workflow == "inner"
    assert inner.job(ONE).error == here / "00/00/inner_J9.000/00/00" / f"{ONE}.err"
    assert plan.offset_s == -8 * 3600


def test_a_directory_of_pegasus_4(tmp_path: Path) -> None:
    here = moved(tmp_path)
    (here / "braindump.yml").unlink()
    (here / "braindump.txt").write_text(
        "dag wf-0.dag\nwf_uuid 1b2c\nsubmit_dir /home/bert/run0002\ndax_label count leaves\n"
    )
    plan = SubmitDir(here)
    assert (plan.workflow, plan.name) == ("1b2c", "count leaves")
    assert plan.job(ONE).output == here / "00/00" / f"{ONE}.out"


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    here = moved(tmp_path)
    for name in ("braindump.yml", "wf-0.dag"):
        (here / name).write_bytes(b"\xef\xbb\xbf" + (here / name).read_bytes())
    plan = SubmitDir(here)
    assert (next(iter(plan.braindump)), next(iter(plan.nodes))) == ("wf_uuid", ONE)


def test_the_dag_of_a_workflow_inside_may_be_renamed(tmp_path: Path) -> None:
    here = moved(tmp_path)
    dag = here / "00/00/inner_J9/wf-0.dag"
    dag.rename(dag.with_name("other-0.dag"))
    (inner,) = sub_workflows(SubmitDir(here), "subwf")
    assert (inner.workflow, inner.dag.name) == ("inner", "other-0.dag")


def test_a_workflow_inside_that_is_not_there_is_told_of(
    tmp_path: Path, archive: Archive, caplog: pytest.LogCaptureFixture
) -> None:
    here = moved(tmp_path)
    shutil.rmtree(here / "00/00/inner_J9")
    (here / "wf-0.dag.nodes.log").write_text(
        submitted(1, START, "subwf") + executing(1, START) + terminated(1, START + 9, 1)
    )
    Follower(here, archive).poll()
    (message,) = [record.getMessage() for record in caplog.records]
    assert message == f"{here}: found no workflow that job subwf ran, though it has ended"


def test_files_named_by_another_spelling_are_found_beside_the_submit_file(tmp_path: Path) -> None:
    here = moved(tmp_path)
    sub = here / "00/00" / f"{ONE}.sub"
    sub.write_text(sub.read_text().replace("/home/bert", "/nas/home/bert"))
    assert SubmitDir(here).job(ONE).output == here / "00/00" / f"{ONE}.out"


def test_local_times_of_a_machine_in_another_zone(tmp_path: Path, archive: Archive) -> None:
    """What is read there and what a worker's record says are of one time."""
    here = moved(tmp_path)
    header = "(001.000.000) 2023-11-14 14:13:"
    (here / "wf-0.dag.nodes.log").write_text(
        f"000 {header}20 Job submitted from host: <x>\n    DAG Node: {ONE}\n...\n"
        f"001 {header}25 Job executing on host: <x>\n...\n"
        f"005 {header}59 Job terminated.\n    (1) Normal termination (return value 2)\n...\n"
    )
    (here / "00/00" / f"{ONE}.out.000").write_text(record_line(START + 6, START + 38, {}, 2))
    Follower(here, archive).poll()
    (job,) = archive.query("job", workflow="outer")
    assert (job.value, job.at, job.details["host"]) == (32.0, START + 39, "node1")


def test_one_directory_by_several_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plots/garden").mkdir(parents=True)
    (tmp_path / "plots/garden/garden.dag").write_text("JOB sow sow.sub\n")
    (tmp_path / "plots/garden/garden.dag.dagman.out").write_text(
        starting() + table(START, done=1) + exiting(START, 0)
    )
    (tmp_path / "link").symlink_to("plots/garden")
    adon("monitor", "run", "link")
    for path in ("plots/garden", "link", "plots/../plots/garden", "link/garden.dag"):
        assert adon("monitor", "show", path).out.startswith("garden of ")


def test_a_workflow_whose_directory_is_gone_does_not_run(
    planned: Submitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    planned.out.write_text(starting() + table(START, queued=1, unready=2))
    with Archive("adon-archive.sqlite") as archive:
        follower = Follower(planned.path, archive)
        follower.poll()
        shutil.rmtree(planned.path)
        # Nobody follows it any more, and the archive says that it runs.
        assert "is stuck: its submit directory is gone" in adon("monitor", "list").out
        follower.tree.members_to_check(ended_too=False)
        follower.poll()
    shown = adon("monitor", "show", "wf").out
    assert "removed, 0 of 3 jobs done" in shown and "the submit directory is gone" in shown


# ------------------------------------------------------------------ event logs


def whole() -> str:
    """DAGMan's words on a run of one job that fails, with the events."""
    lines = [
        f"Event: ULOG_SUBMIT for Condor Node {ONE} (1.0)",
        f"Event: ULOG_EXECUTE for HTCondor Node {ONE} (1.0.0) {{{stamp(START + 2)}}}",
        f"Event: ULOG_JOB_HELD for HTCondor Job {ONE} (1.0.0) {{{stamp(START + 3)}}}",
        f"  Hold reason: {WHY}",
        f"Event: ULOG_JOB_RELEASED for HTCondor Node {ONE} (1.0.0) {{{stamp(START + 4)}}}",
        f"Event: ULOG_EXECUTE for HTCondor Node {ONE} (1.0.0) {{{stamp(START + 5)}}}",
        f"Event: ULOG_JOB_TERMINATED for HTCondor Node {ONE} (1.0.0) {{{stamp(START + 9)}}}",
        "Number of idle job procs: 0",
        f"Node {ONE} job proc (1.0.0) failed with status 3.",
        f"Event: ULOG_POST_SCRIPT_TERMINATED for Condor Node {ONE} (1.0.0)",
        f"POST Script of Node {ONE} failed with status 1",
    ]
    events = "".join(f"{stamp(START + 10)} {line}\n" for line in lines)
    end = table(START + 11, done=1, fail=1, unready=1) + exiting(START + 12, 1)
    return starting() + events + end


def test_events_in_dagmans_own_words(planned: Submitted) -> None:
    planned.out.write_text(whole())
    events = [
        (job_event.kind, job_event.at, job_event.returned)
        for job_event in DagmanEventTail(planned.out).read()
    ]
    assert events == [
        (Kind.SUBMIT, START + 10, None), (Kind.EXECUTE, START + 2, None),
        (Kind.HELD, START + 3, None), (Kind.RELEASED, START + 4, None),
        (Kind.EXECUTE, START + 5, None), (Kind.TERMINATED, START + 9, 3),
        (Kind.POST_SCRIPT_TERMINATED, START + 10, 1),
    ]  # fmt: skip
    reasons = [
        job_event.reason for job_event in DagmanEventTail(planned.out).read() if job_event.reason
    ]
    assert reasons == [WHY]


def test_a_lost_event_log_is_told_of_and_dagman_is_read(
    planned: Submitted, archive: Archive, caplog: pytest.LogCaptureFixture
) -> None:
    # Without the times of the events, as HTCondor 8.4 writes them, those of the lines count.
    planned.out.write_text(re.sub(r" \{.*\}", "", whole()))
    (failed,) = followed(planned.path, archive)[1].failures
    assert (failed.job, failed.exitcode) == (ONE, 3)
    assert [record.getMessage() for record in caplog.records] == [
        f"{planned.nodes}: found no event log of its jobs that can be read,"
        f" the events are taken from {planned.out.name}"
    ]


def test_an_event_log_that_dagman_keeps_elsewhere(
    planned: Submitted, tmp_path: Path, archive: Archive
) -> None:
    elsewhere = tmp_path / "local" / "events.log"
    elsewhere.parent.mkdir()
    elsewhere.write_text(submitted(1, START, ONE) + executing(1, START) + terminated(1, START + 9))
    planned.nodes.write_text("")  # of an earlier run
    planned.out.write_text(
        starting() + f"{stamp(START)} Default node log file is: <../local/events.log>\n"
        + table(START + 9, done=1, unready=2)
    )  # fmt: skip
    assert followed(planned.path, archive)[1].outcomes == {"done": 1}


def test_an_event_log_that_is_not_where_dagman_keeps_it_is_named(
    planned: Submitted, archive: Archive, caplog: pytest.LogCaptureFixture
) -> None:
    named = f"{stamp(START)} Default node log file is: </nowhere/events.log>\n"
    planned.out.write_text(starting() + named + table(START, done=3) + exiting(START, 0))
    followed(planned.path, archive)
    assert caplog.records[0].getMessage().startswith("/nowhere/events.log: found no event log")


def test_a_finished_workflow_without_any_events_says_so(
    planned: Submitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    planned.out.write_text(starting() + table(START, done=3) + exiting(START, 0))
    adon("monitor", "run", str(planned.path))
    assert "(found no event of its jobs" in adon("monitor", "show", "wf").out


def test_a_job_that_dagman_left_in_the_queue_was_submitted(
    planned: Submitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    planned.nodes.write_text(submitted(1, START, ONE) + held(1, START + 1))
    planned.out.write_text(starting() + table(START + 2, queued=1, ready=2) + exiting(START, 1))
    adon("monitor", "run", str(planned.path))
    assert "0 attempts (none has ended)" in adon("monitor", "show", "wf").out


TEXT = b"""000 (042.000.000) 2026-05-11T08:00:05Z Job submitted from host: <192.0.2.10:1?alias=ap>
    DAG Node: count
...
012 (042.000.000) 2026-05-11T08:00:42Z Job was held.
\tgone over memory limit & more
\tCode 34 Subcode 102
...
005 (042.000.000) 2026-05-11T08:01:05.250Z Job terminated.
\t(0) Abnormal termination (signal 9)
\t120  -  Run Bytes Sent By Job
...
"""
JSON = b"""{"EventTypeNumber": 0, "EventTime": "2026-05-11T08:00:05Z", "Cluster": 42, "Proc": 0,
  "SubmitHost": "<192.0.2.10:1?alias=ap>", "LogNotes": "DAG Node: count"
}
{
  "EventTypeNumber": 12,
  "EventTime": "2026-05-11T08:00:42Z", "Cluster": 42, "Proc": 0,
  "HoldReason": "gone over memory limit & more", "HoldReasonCode": 34, "HoldReasonSubCode": 102,
  "More": {
    "of": "}"
  }
}
{
  "EventTypeNumber": 5, "EventTime": "2026-05-11T08:01:05.250Z", "Cluster": 42, "Proc": 0,
  "TerminatedNormally": false, "TerminatedBySignal": 9, "SentBytes": 120.0
}
"""
XML = b"""<?xml version="1.0"?>
<eventlog>
<c>
    <a n="EventTypeNumber"><i>0</i></a><a n="EventTime"><s>2026-05-11T08:00:05Z</s></a>
    <a n="Cluster"><i>42</i></a><a n="Proc"><i>0</i></a>
    <a n="SubmitHost"><s>&lt;192.0.2.10:1?alias=ap&gt;</s></a>
    <a n="LogNotes"><s>DAG Node: count</s></a>
    <a n="StructuredNotes"><c>
        <a n="DAGNodeName"><s>count</s></a>
    </c></a>
</c>
<c>
    <a n="EventTypeNumber"><i>12</i></a><a n="EventTime"><s>2026-05-11T08:00:42Z</s></a>
    <a n="Cluster"><i>42</i></a><a n="Proc"><i>0</i></a><a n="HoldReasonCode"><i>34</i></a>
    <a n="HoldReason"><s>gone over memory limit &amp; more</s></a>
    <a n="HoldReasonSubCode"><i>102</i></a>
</c>
<c>
    <a n="EventTypeNumber"><i>5</i></a><a n="EventTime"><s>2026-05-11T08:01:05.250Z</s></a>
    <a n="Cluster"><i>42</i></a><a n="Proc"><i>0</i></a><a n="TerminatedNormally"><b v="f"/></a>
    <a n="TerminatedBySignal"><i>9</i></a><a n="SentBytes"><r>1.2E+02</r></a>
</c>
"""


@pytest.mark.parametrize("log", [JSON, XML], ids=["json", "xml"])
def test_events_as_ads_are_those_of_the_text(log: bytes) -> None:
    def fields(events: list[JobEvent]) -> list[tuple[object, ...]]:
        return [
            (job_event, job_event.reason, job_event.code, job_event.subcode, job_event.sent_bytes)
            for job_event in events
        ]

    assert len(parse(TEXT)) == 3
    assert fields(parse(log)) == fields(parse(TEXT))
    torn = log[: len(log) // 2] + b"\n" + log  # its writer was killed
    assert fields(parse(torn))[-3:] == fields(parse(TEXT))


HOLES = {
    "holes": TEXT.replace(b"...\n", b"...\n" + b"\0" * 70_000),
    "byte order mark": b"\xef\xbb\xbf" + TEXT,
    "torn lines before events": TEXT.replace(b"\n0", b"\n001 (04\0\0\0" + b"0"),
    "line ends of another system": TEXT.replace(b"\n", b"\r\n"),
}


def test_an_eviction_as_an_ad_is_no_end() -> None:
    evicted = b'{"EventTypeNumber": 4, "EventTime": "2026-05-11T08:00:05Z", "Cluster": 42,'
    (job_event,) = parse(evicted + b' "Proc": 0, "TerminatedNormally": false}\n')
    assert (job_event.kind, job_event.returned) == (Kind.EVICTED, None)


@pytest.mark.parametrize("log", HOLES.values(), ids=HOLES)
def test_what_spoils_a_line_costs_no_event(log: bytes) -> None:
    assert parse(log) == parse(TEXT)


@pytest.mark.parametrize(
    ("written", "at"),
    [
        ("05/11 08:00:05", "2026-05-11T08:00:05Z"),
        ("12/31 23:58:05", "2025-12-31T23:58:05Z"),
        ("5/11 08:00:05", "2026-05-11T08:00:05Z"),
        ("05/11 08:00:05.25Z", "2026-05-11T08:00:05.25Z"),
        ("2026-05-11 08:00:05,250", "2026-05-11T08:00:05.25Z"),
        ("2026-05-11T10:00:05+0200", "2026-05-11T08:00:05Z"),
    ],
)
def test_the_forms_of_times(written: str, at: str) -> None:
    times = LogTimes(0, lambda: 1_778_500_000.0)  # in the evening of 2026-05-11
    (job_event,) = parse(f"001 (1.0.0) {written} Job executing on host: <x>\n...\n".encode(), times)
    (same,) = parse(f"001 (1.0.0) {at} Job executing on host: <x>\n...\n".encode())
    assert job_event.at == same.at


def test_years_are_dagmans_where_the_event_log_has_none(
    planned: Submitted, archive: Archive
) -> None:
    log = submitted(1, START, ONE) + executing(1, START + 1) + terminated(1, START + 9)
    planned.nodes.write_text(log.replace("2023-11-", "11/"))
    planned.out.write_text(starting() + table(START + 10, done=1, unready=2))
    assert followed(planned.path, archive)[1].first_at == START


def test_years_are_those_of_the_plan_where_dagman_says_nothing(
    planned: Submitted, archive: Archive
) -> None:
    with (planned.path / "braindump.yml").open("a") as file:
        file.write('timestamp: "20231114T221000+0000"\n')
    log = submitted(1, START, ONE) + executing(1, START + 1) + terminated(1, START + 9)
    planned.nodes.write_text(log.replace("2023-11-", "11/"))
    assert followed(planned.path, archive)[1].first_at == START


def test_a_run_without_its_execute_event(planned: Submitted, archive: Archive) -> None:
    planned.nodes.write_text(submitted(1, START, ONE) + terminated(1, START + 60, 2))
    (planned.path / "00/00" / f"{ONE}.out").write_text(record_line(START + 15, START + 59, {}, 2))
    (planned.path / "00/00" / f"{ONE}.err").write_text("leaves.txt: line 7: not a leaf\n")
    analysis = followed(planned.path, archive)[1]
    assert (analysis.lost_s, analysis.failures[0].exitcode) == (44.0, 2)


def test_runs_that_lost_their_submission_or_their_end(planned: Submitted, archive: Archive) -> None:
    with (planned.path / "wf-0.dag").open("a") as file:
        file.write(f"SCRIPT POST {STAGE} /bin/true\n")
    named = f"Event: ULOG_SUBMIT for HTCondor Node {ONE} (1.0.0) {{{stamp(START)}}}"
    planned.out.write_text(
        starting() + f"{stamp(START)} {named}\n" + table(START + 90, done=3)
        + exiting(START + 91, 0)
    )  # fmt: skip
    posted = "(1) Normal termination (return value 0)", f"DAG Node: {STAGE}"
    planned.nodes.write_text(
        executing(1, START + 1) + terminated(1, START + 9)
        + submitted(2, START + 10, TWO) + executing(2, START + 11)
        + submitted(3, START + 12, STAGE) + executing(3, START + 13)
        + event(16, 3, START + 20, "POST Script terminated.", *posted)
    )  # fmt: skip
    (planned.path / "00/00" / f"{TWO}.out").write_text(record_line(START + 15, START + 59, {}))
    analysis = followed(planned.path, archive)[1]
    assert analysis.outcomes == {"done": 3}
    values = {measurement.details["job"]: measurement.value for measurement in archive.query("job")}
    assert values == {ONE: 8.0, TWO: 44.0, STAGE: 7.0}


FAILED_JOB = f"""{stamp(START + 70)} ERROR: the following job(s) failed:
{stamp(START + 70)}       Node Name: {ONE}
{stamp(START + 70)}           Error: Job proc (1.0.0) failed with status 2
"""


@pytest.mark.parametrize(
    "log",
    [
        "",
        submitted(1, START, ONE),
        submitted(1, START, ONE) + executing(1, START + 1),
        submitted(1, START, ONE)
        + event(16, 1, START + 61, "POST Script terminated.",
                "(1) Normal termination (return value 1)", f"DAG Node: {ONE}"),
    ],
    ids=["everything", "start-and-end", "end", "all-but-post"],
)  # fmt: skip
def test_what_the_log_has_lost_of_a_failed_job(
    planned: Submitted, archive: Archive, log: str
) -> None:
    planned.nodes.write_text(log)
    planned.out.write_text(
        starting() + table(START + 70, fail=1, unready=2) + FAILED_JOB + exiting(START + 71, 1)
    )
    (planned.path / "00/00" / f"{ONE}.out").write_text(record_line(START + 15, START + 59, {}, 2))
    (planned.path / "00/00" / f"{ONE}.err").write_text("leaves.txt: line 7: not a leaf\n")
    analysis = followed(planned.path, archive)[1]
    (failed,) = analysis.failures
    assert (analysis.outcomes, analysis.lost_s, failed.exitcode) == ({"failed": 1}, 44.0, 2)
    assert (failed.stderr, failed.job) == ("leaves.txt: line 7: not a leaf", ONE)


def test_what_dagman_says_of_a_job_without_end_or_record(
    planned: Submitted, archive: Archive
) -> None:
    planned.nodes.write_text(submitted(1, START, ONE))
    planned.out.write_text(
        starting() + table(START + 70, fail=1, unready=2) + FAILED_JOB + exiting(START + 71, 1)
    )
    (failed,) = followed(planned.path, archive)[1].failures
    assert failed.reason == "Job proc (1.0.0) failed with status 2"


def test_dagman_alone_tells_that_a_post_script_failed(planned: Submitted, archive: Archive) -> None:
    with (planned.path / "wf-0.dag").open("a") as file:
        file.write(f"SCRIPT POST {ONE} /bin/true\n")
    planned.nodes.write_text(
        submitted(1, START, ONE) + executing(1, START + 1) + terminated(1, START + 60)
    )
    why = "POST Script failed with status 1"
    listed = FAILED_JOB.replace("Job proc (1.0.0) failed with status 2", why)
    planned.out.write_text(
        starting() + table(START + 70, fail=1, unready=2) + listed + exiting(START + 71, 1)
    )
    (failed,) = followed(planned.path, archive)[1].failures
    assert (failed.outcome, failed.reason) == ("failed", why)


def test_jobs_that_no_log_knows_of_are_told_by_their_records(
    planned: Submitted, archive: Archive
) -> None:
    planned.out.write_text(starting() + table(START + 90, done=3) + exiting(START + 91, 0))
    (planned.path / "00/00" / f"{ONE}.out").write_text(record_line(START + 15, START + 59, {}))
    analysis = followed(planned.path, archive)[1]
    assert (analysis.outcomes, analysis.cumulative_s, analysis.waits) == ({"done": 1}, 44.0, [])


@pytest.mark.parametrize(
    ("code", "said"),
    [(2, "exit code 2"), (-9, "killed by signal 9"), (-128, "the program could not be started")],
)
def test_how_a_program_ended(
    planned: Submitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    planned.nodes.write_text(
        submitted(1, START, ONE) + executing(1, START + 1) + terminated(1, START + 60, 1)
    )
    planned.out.write_text(
        starting() + table(START + 70, fail=1, unready=2) + exiting(START + 71, 1)
    )
    (planned.path / "00/00" / f"{ONE}.out").write_text(record_line(START + 2, START + 59, {}, code))
    adon("monitor", "run", str(planned.path))
    assert f"{ONE} at mu on node1: {said}\n" in adon("monitor", "show", str(planned.path)).out


def process(number: int, text: str) -> str:
    return text.replace(".000.000)", f".{number:03d}.000)")


def test_processes_of_one_node_are_no_retries(planned: Submitted, archive: Archive) -> None:
    with (planned.path / "wf-0.dag").open("a") as file:
        file.write(f"SCRIPT POST {ONE} /bin/true\n")
    log = [process(n, submitted(1, START + n / 1000, ONE)) for n in range(3)]
    log += [process(n, executing(1, START + 1)) for n in range(3)]
    log += [process(n, terminated(1, START + 5 + n, int(n == 1))) for n in range(3)]
    log.append(event(16, 1, START + 9, "POST Script terminated.",
                     "(1) Normal termination (return value 0)", f"DAG Node: {ONE}"))  # fmt: skip
    planned.nodes.write_text("".join(log))
    analysis = followed(planned.path, archive)[1]
    assert (analysis.attempts, analysis.retries, analysis.outcomes) == (
        3,
        0,
        {"done": 2, "failed": 1},
    )
    (failed,) = analysis.failures
    assert (failed.attempts, failed.retried) == (1, False)


# ------------------------------------------------------------------ the DAG and small things


DAG = """\
# what DAGMan knows besides JOB
JOB first s.sub
SPLICE mid mid.dag DIR there
Splice two mid.dag DIR there
INCLUDE more.dag
SUBMIT-DESCRIPTION plain {
  output = plain.out
}
JOB inline @=end
  output = $(n).out
  +pegasus_site = "mu"
@end DIR there
SUBDAG EXTERNAL inner inner.dag DIR there
FINAL tidy s.sub
PROVISIONER p s.sub
VARS inline n="7"
RETRY ALL_NODES 2
CATEGORY first c
PRIORITY \\
  inline 5
CONNECT mid two
PARENT first CHILD mid
PARENT mid two CHILD more inner
"""
MID = (
    "JOB a s.sub\nJOB b s.sub\nPARENT a CHILD b\nPIN_IN a 1\nPIN_OUT b 1\nSCRIPT POST b /bin/true\n"
)


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("name = n\noutput = $(name:x)-$(none:y).out", "n-y.out"),
        ("output = a$(none:).out", "a.out"),
        ("output = \\\n   a.out", "a.out"),
        ("\ufeffoutput = a.out", "a.out"),
        ("output = a.out\narguments = --x \\\n  output = b", "a.out"),
    ],
)
def test_submit_files_are_read_as_htcondor_reads_them(
    tmp_path: Path, text: str, output: str
) -> None:
    (tmp_path / "w.dag").write_text("JOB one s.sub\n")
    (tmp_path / "s.sub").write_text(f"{text}\nqueue\n")
    plan = SubmitDir(tmp_path, tmp_path / "w.dag", "w")
    assert plan.job("one").output == tmp_path / output


def test_the_dag_is_read_as_dagman_reads_it(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "w.dag").write_text(DAG)
    (tmp_path / "there/mid.dag").write_text(MID)
    (tmp_path / "more.dag").write_text("JOB more plain\nINCLUDE more.dag\n")
    (tmp_path / "s.sub").write_text("output = $(JOB).out\n")
    (tmp_path / "there/s.sub").write_text("output = $(JOB).out\n")
    plan = SubmitDir(tmp_path / "", tmp_path / "w.dag", "w")
    nodes = read_dag(plan, moves=False).nodes
    assert set(nodes) == {"first", "inline", "inner", "tidy", "p", "more",
                          "mid+a", "mid+b", "two+a", "two+b"}  # fmt: skip
    parents = {name: set(node.parents) for name, node in nodes.items() if node.parents}
    assert parents == {
        "mid+a": {"first"}, "mid+b": {"mid+a"}, "two+a": {"mid+b"}, "two+b": {"two+a"},
        "more": {"mid+b", "two+b"}, "inner": {"mid+b", "two+b"},
    }  # fmt: skip
    assert (nodes["inline"].priority, nodes["inline"].retries, nodes["inline"].site) == (5, 2, "mu")
    assert (nodes["tidy"].retries, nodes["mid+a"].retries) == (0, 0)
    assert plan.job("inline").output == tmp_path / "there/7.out"
    assert plan.job("more").output == tmp_path / "plain.out"
    assert plan.job("mid+b").output == tmp_path / "there/mid+b.out"
    assert [name for name, node in plan.nodes.items() if node.has_post] == ["mid+b", "two+b"]
    assert plan.nodes["inner"].file == tmp_path / "there/inner.dag"


def test_words_of_a_dag_are_those_of_dagman(tmp_path: Path) -> None:
    """Quotes of both kinds, descriptions as they stand, and VARS before or after them."""
    (tmp_path / "a dir").mkdir()
    (tmp_path / "a dir/my s.sub").write_text("output = $(who).$(n:0).out\nerror = own.err\n")
    (tmp_path / "w.dag").write_text(
        "JOB one 'my s.sub' DIR 'a dir'\n"
        'JOB two "a dir"/"my s.sub"\n'
        "JOB three {\n output = three.out\n arguments = ends with \\\n}\n"
        "JOB four nothing.sub DIR here NOOP\nJOB five nothing.sub\nDONE five\n"
        "VARS one who = 'a\\'s b' error=\"other.err\"\n"
        'VARS two APPEND who="x\\"y" error="other.err"\n'
        'VARS three +site="a\x0cb"\n'
    )
    plan = SubmitDir(tmp_path, tmp_path / "w.dag", "w")
    assert [(name, node.is_noop, node.is_done) for name, node in plan.nodes.items()] == [
        ("one", False, False), ("two", False, False), ("three", False, False),
        ("four", True, False), ("five", False, True),
    ]  # fmt: skip
    one, two = plan.job("one"), plan.job("two")
    assert (one.output, one.error) == (tmp_path / "a dir/a's b.0.out", tmp_path / "a dir/own.err")
    assert (two.output, two.error) == (tmp_path / 'x"y.0.out', tmp_path / "other.err")
    assert plan.job("three").output == tmp_path / "three.out"
    assert plan.values("three")["my.site"] == "a\x0cb"


def test_a_dag_that_is_a_part_of_itself(tmp_path: Path) -> None:
    dag = tmp_path / "w.dag"
    parts = "".join(f"SPLICE s{n} w.dag\nINCLUDE ./w.dag\n" for n in range(9))
    dag.write_text(f"JOB one s.sub\n{parts}")
    assert list(SubmitDir(tmp_path, dag, "w").nodes) == ["one"]


def submit_file(dag: Path, arguments: str) -> None:
    dag.with_name(f"{dag.name}.condor.sub").write_text(
        f'arguments = "-f -l . {arguments}"\nqueue\n'
    )


def test_several_dags_that_run_as_one(tmp_path: Path, archive: Archive) -> None:
    run = own_dag(tmp_path / "run", "diamond.log")
    (run / "more.dag").write_text("JOB C job.sub\nSCRIPT POST C /bin/true\nSPLICE S part.dag\n")
    (run / "part.dag").write_text("JOB A job.sub\n")
    submit_file(run / "diamond.dag", "-Dag diamond.dag -Dag more.dag")
    (run / "diamond.dag.nodes.log").write_text(
        of_a_run("0.A", 1, START, 0) + of_a_run("1.C", 2, START, 3)
        + event(16, 2, START + 50, "POST Script terminated.",
                "(1) Normal termination (return value 0)", "DAG Node: 1.C")
    )  # fmt: skip
    (run / "diamond.dag.dagman.out").write_text(starting() + table(START + 60, done=2, unready=2))
    assert list(SubmitDir(run).nodes) == ["0.A", "0.B", "1.C", "1.S+1.A"]
    assert SubmitDir(run).nodes["0.B"].parents == ("0.A",)
    assert followed(run, archive)[1].outcomes == {"done": 2}


@pytest.mark.parametrize("option", ["", "-UseDagDir"])
def test_a_dag_that_was_submitted_from_above_its_directory(tmp_path: Path, option: str) -> None:
    run = own_dag(tmp_path / "run", "diamond.log")
    submit_file(run / "diamond.dag", f"-Dag run/diamond.dag {option}")
    folder = run if option else tmp_path
    assert running(tmp_path, "run/diamond.dag").nodes["A"].file == folder / "job.sub"
    assert SubmitDir(run).nodes["A"].file == folder / "job.sub"
    (run / "diamond.dag.dagman.out").write_text(
        f"{stamp(START)} Default node log file is: <run/events.log>\n"
    )
    assert SubmitDir(run).nodes_log == tmp_path / "run/events.log"


def test_a_dag_may_have_any_name(tmp_path: Path, archive: Archive) -> None:
    run = own_dag(tmp_path / "run", "diamond.log")
    dag = (run / "diamond.dag").rename(run / "diamond.subdag")
    dag.write_text(dag.read_text() + "INCLUDE 'more.inc'\n")
    (run / "more.inc").write_text("SUBDAG EXTERNAL in inner.txt\n")
    (run / "inner.txt").write_text("JOB X job.sub\n")
    assert list(submit_dir_of(dag).nodes) == ["A", "B", "in"]
    assert set(read_dag(submit_dir_of(dag)).nodes) == {"A", "B", "in"}
    with pytest.raises(InputError, match="expected a submit directory"):
        submit_dir_of(run / "job.sub")
    for name in (dag.name, "inner.txt"):
        (run / f"{name}.dagman.out").write_text(starting() + table(START, done=2))
    assert followed(run, archive)[0].status is not None
    (part,) = sub_workflows(SubmitDir(run), "in")
    assert part.dag == run / "inner.txt"


def test_a_service_is_removed_at_the_end_and_has_not_failed(
    tmp_path: Path, archive: Archive
) -> None:
    run = own_dag(tmp_path / "run", "diamond.log")
    append(run / "diamond.dag", "SERVICE serve job.sub\n")
    (run / "diamond.dag.nodes.log").write_text(
        submitted(3, START, "serve") + executing(3, START + 1) + of_a_run("A", 1, START, 0)
        + of_a_run("B", 2, START + 50, 0) + aborted(3, START + 99)
    )  # fmt: skip
    (run / "diamond.dag.dagman.out").write_text(
        starting() + table(START + 98, done=2) + exiting(START + 98, 0)
    )
    made = followed(run, archive)[1]
    assert (made.outcomes, made.failures, made.lost_slot_s) == ({"done": 2, "removed": 1}, [], 0.0)


def test_a_post_script_counts_where_the_dag_is_not_kept(
    planned: Submitted, archive: Archive
) -> None:
    planned.path.joinpath("wf-0.dag").unlink()
    planned.nodes.write_text(
        of_a_run(ONE, 1, START, 0)
        + event(16, 1, START + 50, "POST Script terminated.",
                "(1) Normal termination (return value 2)", f"DAG Node: {ONE}")
    )  # fmt: skip
    planned.out.write_text(starting() + table(START + 60, fail=1, unready=2))
    assert followed(planned.path, archive)[1].outcomes == {"failed": 1}


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (59.6, "60 s"), (148, "2 min 28 s"), (1808, "30 min"), (12_000, "3 h 20 min"),
     (86_400, "24 h"), (200 * 86_400, "200 d")],
)  # fmt: skip
def test_durations_are_rounded(seconds: float, shown: str) -> None:
    assert for_people(seconds) == shown
