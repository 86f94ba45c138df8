"""Every attempt of a job becomes a measurement, with what it moved and what it said."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from generated import shared_fixtures
from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_files import (
    START,
    Submitted,
    aborted,
    append,
    event,
    executing,
    exiting,
    record_line,
    stamp,
    starting,
    submitted,
    table,
    terminated,
    whole_run,
)

from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement, to_row
from monitors.workflows.analysis import analyse
from monitors.workflows.facts.plan import FILE, placement_facts, read_plan
from monitors.workflows.followed import FollowedWorkflow
from monitors.workflows.logs.records import TAIL_BYTES, read_output, tail
from monitors.workflows.planned.submit_dir import JobKind, PlannedJob, SubmitDir
from monitors.workflows.sink import record_what_fits
from network_provisioner.base.errors import InputError

ONE, TWO, STAGE = (name for name, *_ in Submitted.JOBS)


def posted(cluster: int, at: float, node: str, returned: int = 0) -> str:
    how = f"(1) Normal termination (return value {returned})"
    return event(16, cluster, at, "POST Script terminated.", how, f"DAG Node: {node}")


def held(cluster: int, at: float) -> str:
    return event(12, cluster, at, "Job was held.", "no room")


def released(cluster: int, at: float) -> str:
    return event(13, cluster, at, "Job was released.")


def took(followed: FollowedWorkflow, metric: str = "job") -> list[Measurement]:
    followed.step()
    measurements, _ = followed.take()
    with Archive(":memory:") as archive:
        record_what_fits(archive, measurements)
    return [measurement for measurement in measurements if measurement.metric == metric]


def with_post(planned: Submitted, *jobs: str) -> None:
    (dag,) = planned.path.glob("*.dag")
    with dag.open("a") as out:
        out.writelines(f"SCRIPT POST {job} /bin/check\n" for job in jobs)


# ------------------------------------------------------------------ attempts


def test_an_attempt_says_how_it_went(planned: Submitted) -> None:
    planned.nodes.write_text(
        submitted(1, START, ONE) + executing(1, START + 2) + terminated(1, START + 12)
    )
    planned.output(ONE).write_text(record_line(START + 3, START + 11, {"a": 7}))
    (job,) = took(FollowedWorkflow(planned.path))
    assert (job.subject, job.value, job.unit) == ("soykb::bwa_mem:1.0@mu", 8.0, "s")
    assert (job.at, job.source) == (START + 12, "job record")
    assert job.details["outcome"] == "done" and job.details["exitcode"] == 0
    assert job.details["queued_s"] == 2.0
    assert job.details["bytes_in"] == 7
    assert job.details["host"] == "node1"
    assert job.details["kind"] == "compute"


def test_the_script_has_the_last_word_for_who_comes_late_too(planned: Submitted) -> None:
    """The workflow's own log has the same events, without those of scripts."""
    with_post(planned, ONE)
    ran = submitted(1, START, ONE) + executing(1, START + 1) + terminated(1, START + 5)
    planned.log.write_text(ran + submitted(2, START + 9, ONE) + executing(2, START + 10))
    planned.nodes.write_text(ran + posted(1, START + 6, ONE, 1) + submitted(2, START + 9, ONE))
    followed = FollowedWorkflow(planned.path)
    assert [job.details["outcome"] for job in took(followed)] == ["failed"]
    append(planned.nodes, executing(2, START + 10) + terminated(2, START + 12))
    append(planned.nodes, posted(2, START + 13, ONE))
    assert [(job.details["outcome"], job.details["starts"]) for job in took(followed)] == [
        ("done", 1)
    ]


def test_a_pool_that_was_made_anew_counts_its_jobs_from_the_start(planned: Submitted) -> None:
    ran = [
        submitted(1, at, ONE) + executing(1, at + 1) + terminated(1, at + 5, returned)
        for at, returned in ((START, 1), (START + 50, 0))
    ]
    planned.log.write_text("".join(ran))
    planned.nodes.write_text(ran[1])
    jobs = took(FollowedWorkflow(planned.path))
    assert [job.details["outcome"] for job in jobs] == ["failed", "done"]


@pytest.mark.parametrize("rests", [False, True])
def test_earlier_runs_count_though_their_log_could_not_be_read_at_first(
    planned: Submitted, monkeypatch: pytest.MonkeyPatch, rests: bool
) -> None:
    monkeypatch.setattr("monitors.workflows.followed._LATE_S", 0.0)
    ran = [
        submitted(n, at, ONE) + executing(n, at + 1) + terminated(n, at + 5, returned)
        for n, at, returned in ((1, START, 1), (2, START + 50, 0))
    ]
    planned.nodes.write_text(ran[1])
    planned.log.mkdir()  # is there, and is no file
    followed = FollowedWorkflow(planned.path)
    for _ in range(2):
        with pytest.raises(InputError, match="cannot be read"):
            followed.step()
        if rests:  # nothing more is expected of it
            followed.rest()
    planned.log.rmdir()
    planned.log.write_text("".join(ran))
    outcomes = [(job.details["attempt"], job.details["outcome"]) for job in took(followed)]
    assert outcomes == [(0, "failed"), (1, "done")]


def test_the_post_script_has_the_last_word(planned: Submitted) -> None:
    with_post(planned, ONE, TWO)
    followed = FollowedWorkflow(planned.path)
    planned.nodes.write_text(
        submitted(1, START, ONE) + executing(1, START + 1) + terminated(1, START + 5)
    )
    assert took(followed) == []
    append(planned.nodes, posted(1, START + 6, ONE, 1))
    (job,) = took(followed)
    assert (job.details["outcome"], job.at) == ("failed", START + 5)
    # Another attempt comes although the script of this one was never heard of.
    append(planned.nodes, submitted(2, START + 9, ONE) + executing(2, START + 10)
           + terminated(2, START + 15, returned=0) + submitted(3, START + 20, ONE))  # fmt: skip
    (job,) = took(followed)
    assert (job.details["attempt"], job.details["outcome"]) == (1, "done")


def test_what_no_script_followed_is_told_when_the_workflow_ends(planned: Submitted) -> None:
    with_post(planned, ONE)
    followed = FollowedWorkflow(planned.path)
    planned.nodes.write_text(
        submitted(1, START, ONE) + executing(1, START + 1) + terminated(1, START + 5)
    )
    append(planned.out, starting())
    assert took(followed) == []
    append(planned.out, exiting(START + 7, 1))
    assert [job.details["job"] for job in took(followed)] == [ONE]


def test_retries_count_from_the_start_of_each_dagman(planned: Submitted) -> None:
    dagman = planned.path / (planned.out.name.replace(".dagman.out", ".dagman.log"))
    dagman.write_text(submitted(90, START - 1, ""))
    text = ""
    for number, at in enumerate((START, START + 20), 1):
        text += submitted(number, at, ONE) + executing(number, at + 1)
        text += terminated(number, at + 5, returned=1)
    append(dagman, terminated(90, START + 40) + submitted(91, START + 50, ""))
    text += submitted(3, START + 60, ONE) + executing(3, START + 61) + terminated(3, START + 65)
    planned.nodes.write_text(text)
    jobs = took(FollowedWorkflow(planned.path))
    assert [(j.details["attempt"], j.details["retry"]) for j in jobs] == [(0, 0), (1, 1), (2, 0)]


def test_a_job_that_never_ran(planned: Submitted) -> None:
    planned.nodes.write_text(submitted(1, START, ONE) + aborted(1, START + 9))
    (job,) = took(FollowedWorkflow(planned.path))
    assert (job.value, job.details["outcome"]) == (0.0, "removed")
    assert job.details["started_at"] is None and job.details["exitcode"] is None
    assert job.details["queued_s"] == 9.0


def test_a_job_whose_pre_script_failed_is_known_by_dagmans_list(planned: Submitted) -> None:
    lines = ["ERROR: the following job(s) failed:", f"      Node Name: {STAGE}",
             "          Error: PRE Script failed with status 1", f"      Node Name: {ONE}",
             "          Error: Job proc (1.0.0) failed with status 3"]  # fmt: skip
    append(planned.out, starting() + "".join(f"{stamp(START + 8)} {line}\n" for line in lines))
    append(planned.out, exiting(START + 9, 1))
    planned.nodes.write_text(
        submitted(1, START, ONE) + executing(1, START + 1)
        + terminated(1, START + 5, returned=3)
    )  # fmt: skip
    jobs = {job.details["job"]: job for job in took(FollowedWorkflow(planned.path))}
    assert set(jobs) == {ONE, STAGE}
    assert jobs[STAGE].details["outcome"] == "failed"
    assert jobs[STAGE].details["reason"] == "PRE Script failed with status 1"


def test_how_many_jobs_are_held(planned: Submitted) -> None:
    planned.nodes.write_text(
        submitted(1, START, ONE) + submitted(2, START, TWO) + held(1, START + 1)
        + held(1, START + 1) + held(2, START + 2) + released(1, START + 3) + aborted(2, START + 4)
    )  # fmt: skip
    counts = took(FollowedWorkflow(planned.path), "held")
    assert [(m.value, m.at) for m in counts] == [
        (1.0, START + 1), (2.0, START + 2), (1.0, START + 3), (0.0, START + 4)
    ]  # fmt: skip


# ------------------------------------------------------------------ last words

KICKSTART = """\
- invocation: True
  start: {start}
  duration: 4.0
  hostname: "n1"
  mainjob:
    start: {start}
    usage:
      utime: 1.5
      stime: 0.5
      maxrss: 1
    status:
      raw: 768
      regular_exitcode: 3
  files:
    stdout:
      size: 0
    stderr:
      descriptor: 4
      size: 35
      data_truncated: false
      data: |
        {said}
    metadata:
      size: 0
"""


def kickstart(at: float, said: str) -> str:
    return KICKSTART.format(start=datetime.fromtimestamp(at, UTC).isoformat(), said=said)


def test_each_attempt_has_its_own_last_words(planned: Submitted) -> None:
    """pegasus-exitcode renames the output of each."""
    output = planned.output(ONE)
    text = ""
    for number, at in enumerate((START, START + 100), 1):
        text += submitted(number, at, ONE) + executing(number, at + 1)
        text += terminated(number, at + 7, returned=71)  # of PegasusLite
        record = kickstart(at + 2, f"failed {number}")
        output.with_name(f"{output.name}.00{number - 1}").write_text(record)
    planned.nodes.write_text(text)
    first, second = took(FollowedWorkflow(planned.path))
    assert (first.details["stderr"], second.details["stderr"]) == ("failed 1", "failed 2")
    assert first.details["cpu_s"] == 2.0
    assert (first.value, first.details["host"]) == (4.0, "n1")
    assert [attempt.details["exitcode"] for attempt in (first, second)] == [3, 3]
    assert [attempt.details["output"] for attempt in (first, second)] == [
        f"{output}.000",
        f"{output}.001",
    ]


def test_where_pegasus_lite_fails_its_own_words_stand(planned: Submitted) -> None:
    """Since Pegasus 5.1.3 with an exit code of its own; the program did well."""
    output = planned.output(ONE)
    done = kickstart(START + 2, "read 5 lines").replace("raw: 768", "raw: 0")
    output.write_text(done.replace("regular_exitcode: 3", "regular_exitcode: 0"))
    words = "no such host\nPegasusLite: exitcode 71, tool originally exited with exitcode 1"
    output.with_suffix(".err").write_text(words)
    os.utime(output.with_suffix(".err"), (START + 7, START + 7))
    planned.nodes.write_text(
        submitted(1, START, ONE) + executing(1, START + 1) + terminated(1, START + 7, returned=71)
    )
    (job,) = took(FollowedWorkflow(planned.path))
    assert (job.details["exitcode"], job.details["stderr"]) == (71, words)
    (failed,) = analyse([job]).failures
    assert failed.reason.startswith("exit code 71: PegasusLite failed before or after the program")


def test_a_job_without_records_has_its_error_file(planned: Submitted) -> None:
    output = planned.output(ONE)
    for number, at in enumerate((START, START + 100)):
        error = output.with_suffix(".err").with_name(f"{output.stem}.err.00{number}")
        error.write_text(f"words of {number}\n")
        os.utime(error, (at + 6, at + 6))
    planned.nodes.write_text("".join(
        submitted(n, at, ONE) + executing(n, at + 1) + terminated(n, at + 7, returned=1)
        for n, at in ((1, START), (2, START + 100))
    ))  # fmt: skip
    jobs = took(FollowedWorkflow(planned.path))
    assert [job.details["stderr"] for job in jobs] == ["words of 0", "words of 1"]
    assert [(job.details["output"], job.details["exitcode"]) for job in jobs] == [("", 1)] * 2


@settings(max_examples=25)
@given(st.text(max_size=12_000), st.integers(0, 3))
def test_the_tail_is_short_whole_and_harmless(text: str, times: int) -> None:
    kept = tail(text * (1 + times))
    assert len(kept.encode()) <= TAIL_BYTES
    assert all(c.isprintable() or c in "\n\t" for c in kept)
    if len(text.encode(errors="replace")) * (1 + times) <= TAIL_BYTES and text.isprintable():
        assert kept == text * (1 + times)


@settings(shared_fixtures, max_examples=25)
@given(
    st.binary(max_size=3000),
    st.sampled_from([".out", ".err", ".out.000", ".in", ".multipart/1-transfer"]),
)
def test_whatever_stands_in_a_jobs_files_it_is_read(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, ending: str
) -> None:
    folder = tmp_path_factory.mktemp("job")
    path = folder / f"x{ending}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data + kickstart(START + 2, "x").encode() + data)
    job = PlannedJob("x", JobKind.COMPUTE, "mu", "t::x:1", "ID1", str(folder / "x.out"))
    said = read_output(job, START, START + 10, complained=True, number=0)
    assert len(said.stderr.encode()) <= TAIL_BYTES


# ------------------------------------------------------------------ transfers

MOVED = """- transfer_attempts:
  - src_url: "gsiftp://iplant.example/raw"
    src_label: "i_plant"
    dst_url: "file:///scratch/raw"
    dst_label: "mu"
    success: False
    start: {start}
    duration: 1.0
    lfn: "raw"
  - src_url: "gsiftp://iplant.example/raw"
    src_label: "i_plant"
    dst_url: "file:///scratch/raw"
    dst_label: "mu"
    success: True
    start: {start}
    duration: 2.0
    lfn: "raw"
    bytes: 1000000
  - src_url: "gsiftp://iplant.example/third"
    src_label: "i_plant"
    dst_url: "gsiftp://mu.example/third"
    dst_label: "mu"
    success: True
    start: {start}
    duration: 2.0
    lfn: "third"
  - src_url: "file:///scratch/a"
    src_label: "mu"
    dst_url: "file:///scratch/b"
    dst_label: "mu"
    success: True
    start: {start}
    duration: 0.0
    lfn: "inside"
    bytes: 5
"""


def staged(planned: Submitted, records: str, sizes: str = "") -> None:
    output = planned.output(STAGE)
    folder = output.with_suffix(".multipart")
    folder.mkdir()
    (folder / f"{int(START)}-transfer").write_text(records)
    output.with_suffix(".in").write_text(json.dumps([
        {"type": "transfer", "lfn": "raw", "src_urls": [{"site_label": "i-plant", "url": "x"}],
         "dest_urls": [{"site_label": "mu", "url": "y"}]},
        {"type": "transfer", "lfn": "third", "attributes": {"size": sizes},
         "src_urls": [{"site_label": "i-plant", "url": "x"}],
         "dest_urls": [{"site_label": "mu", "url": "y"}]},
    ]))  # fmt: skip
    planned.nodes.write_text(
        submitted(1, START, STAGE) + executing(1, START + 1) + terminated(1, START + 9)
    )


def test_what_a_transfer_job_took_beside_moving_is_the_paths_set_up(planned: Submitted) -> None:
    staged(planned, MOVED.format(start=int(START) + 2), "4000000")
    (setup,) = took(FollowedWorkflow(planned.path), "transfer_setup")
    assert (setup.subject, setup.value, setup.unit) == ("i-plant>mu", 9.0 - 2.0, "s")
    assert setup.details["files"] == 2


THROUGH_LOCAL = """- transfer_attempts:
  - src_url: "irods://iplant.example/raw"
    src_label: "i_plant"
    dst_url: "file:///tmp/raw"
    dst_label: "local"
    success: True
    start: {start}
    duration: 3.0
    lfn: "raw"
    bytes: 1000000
  - src_url: "file:///tmp/raw"
    src_label: "local"
    dst_url: "gsiftp://mu.example/raw"
    dst_label: "mu"
    success: True
    start: {start}
    duration: 2.5
    lfn: "raw"
    bytes: 1000000
"""


def test_what_passes_through_the_submit_host_takes_both_ways_in_turn(planned: Submitted) -> None:
    staged(planned, THROUGH_LOCAL.format(start=int(START) + 2), "4000000")
    facts = took(FollowedWorkflow(planned.path), "transfer_setup")
    assert {(fact.subject, fact.value) for fact in facts} == {
        ("i-plant>local", 9.0 - 5.5), ("local>mu", 9.0 - 5.5),
    }  # fmt: skip


def test_what_a_job_moved_by_the_tools_own_records(planned: Submitted) -> None:
    staged(planned, MOVED.format(start=int(START) + 2), "4000000")
    (moved,) = took(FollowedWorkflow(planned.path), "job_transfer")
    assert (moved.subject, moved.value, moved.unit) == ("i-plant>mu", 5e6, "byte")
    assert moved.source == "pegasus-transfer"
    assert (moved.details["protocol"], moved.details["files"]) == ("gsiftp", 2)
    assert moved.details["seconds"] == 2.0  # one call moved both
    assert moved.details["goodput_bps"] == 2e7
    assert (moved.details["files"], moved.details["retries"]) == (2, 1)
    assert moved.details["path"] is None and moved.details["direction"] == "in"


def test_a_jobs_own_transfers_from_a_staging_site_that_is_local(planned: Submitted) -> None:
    """Captured from Pegasus 5.1.2: the list's URLs there are of files, as those of its own are."""
    folder = Path(__file__).parent / "lite_local"
    output = planned.output("align_ID0000001")
    output.with_suffix(".sh").write_text((folder / "split_ID1.sh").read_text())
    output.write_text((folder / "split_ID1.out").read_text())
    at = 1795378872.0  # of the captured run
    planned.nodes.write_text(submitted(1, at, ONE) + executing(1, at + 1) + terminated(1, at + 9))
    transfers = took(FollowedWorkflow(planned.path), "job_transfer")
    assert {m.subject: (m.value, m.details["direction"]) for m in transfers} == {
        "local>mu": (19.0, "in"),
        "mu>local": (19.0, "out"),
    }


def test_bytes_that_nobody_knows_are_none(planned: Submitted) -> None:
    staged(planned, MOVED.format(start=int(START) + 2))
    (moved,) = took(FollowedWorkflow(planned.path), "job_transfer")
    assert moved.value == 0.0 and moved.details["bytes"] is None
    assert moved.details["goodput_bps"] is None


LOG = """\
        2026-11-21 21:21:48,210    INFO:  Starting transfers - attempt 1
        2026-11-21 21:22:48,210    INFO:  Starting transfers - attempt 2
        2026-11-21 21:23:50,435    INFO:  Stats: Total 3 transfers, 1.5 MB
        2026-11-21 21:23:50,435    INFO:         Between sites i_plant->mu : 3 transfers, 1.5 MB\
 transferred in {seconds} seconds. Rate: 39.3 KB/s (314.6 Kb/s)
"""


@pytest.mark.parametrize(("seconds", "rate"), [(40, 8 * 1.5 * 2**20 / 40), (3, None)])
def test_without_records_there_is_what_the_tool_logged(
    planned: Submitted, seconds: int, rate: float | None
) -> None:
    staged(planned, "")
    planned.output(STAGE).write_text(kickstart(START + 2, LOG.format(seconds=seconds).strip()))
    (moved,) = took(FollowedWorkflow(planned.path), "job_transfer")
    assert (moved.subject, moved.value) == ("i-plant>mu", 1.5 * 2**20)
    assert moved.source == "log"
    assert (moved.details["files"], moved.details["retries"]) == (3, 1)
    assert moved.details["seconds"] == seconds and moved.details["goodput_bps"] == rate


def test_records_of_another_attempt_are_not_this_ones(planned: Submitted) -> None:
    staged(planned, MOVED.format(start=int(START) - 60), "1")
    assert took(FollowedWorkflow(planned.path), "job_transfer") == []


def line(**more: object) -> str:
    entry = {
        "at": START + 9.5, "hook": "post", "job": STAGE, "retry": 0, "event": "transfer",
        "id": "w:s:0:i-plant-mu", "src": "i-plant", "dst": "mu", "files": 2, "failed_attempts": 0,
        "bytes": 123, "seconds": 3.0, "path": ["i-plant", "s1", "mu"], "outcome": "success",
    } | more  # fmt: skip
    return json.dumps(entry) + "\n"


def test_the_hooks_know_the_path_and_more_sizes(planned: Submitted) -> None:
    staged(planned, MOVED.format(start=int(START) + 2))
    journal = planned.path / "adon-hooks.jsonl"
    journal.write_text(line(at=START - 50, bytes=1) + "torn {\n[]\n" + line() + line(job="other"))
    (moved,) = took(FollowedWorkflow(planned.path), "job_transfer")
    assert (moved.subject, moved.value, moved.source) == ("i-plant>mu", 123.0, "hooks")
    assert moved.details["path"] == ["i-plant", "s1", "mu"]
    assert moved.details["transit"] == "w:s:0:i-plant-mu"
    assert moved.details["seconds"] == 3.0


def test_best_effort_is_an_empty_path(planned: Submitted) -> None:
    staged(planned, "")
    (planned.path / "adon-hooks.jsonl").write_text(line(path=[], bytes=None))
    (moved,) = took(FollowedWorkflow(planned.path), "job_transfer")
    assert moved.details["path"] == [] and moved.details["bytes"] is None


@settings(shared_fixtures, max_examples=20)
@given(st.lists(st.one_of(
    st.binary(max_size=80),
    st.builds(lambda k, v: line(**{k: v}).encode(),
              st.sampled_from(["at", "src", "dst", "bytes", "seconds", "path", "job", "event"]),
              st.one_of(st.none(), st.floats(), st.integers(), st.text(max_size=3),
                        st.lists(st.integers(), max_size=2))),
), max_size=6))  # fmt: skip
def test_no_journal_breaks_anything(
    tmp_path_factory: pytest.TempPathFactory, lines: Sequence[bytes]
) -> None:
    planned = Submitted(tmp_path_factory.mktemp("wf") / "run0001")
    staged(planned, MOVED.format(start=int(START) + 2))
    (planned.path / "adon-hooks.jsonl").write_bytes(b"\n".join(lines))
    took(FollowedWorkflow(planned.path), "job_transfer")


# ------------------------------------------------------------------ HTCondor's own transfers

MOVES = """\
000 (028.000.000) 2026-11-21 21:22:10.434+00:00 Job submitted from host: <127.0.0.1:42579>
    [ DAGNodeName = "align_ID0000001"; JobBatchName = "mini-0.dag+13" ]
...
040 (028.000.000) 2026-11-21 21:22:10.500+00:00 Started transferring input files
\tTransferring to host: <127.0.0.1:37125?addrs=127.0.0.1-37125&alias=mu.adon.test>
...
040 (028.000.000) 2026-11-21 21:22:12.500+00:00 Finished transferring input files
...
001 (028.000.000) 2026-11-21 21:22:12.600+00:00 Job executing on host: <127.0.0.1:37871>
...
040 (028.000.000) 2026-11-21 21:22:20.000+00:00 Started transferring output files
...
040 (028.000.000) 2026-11-21 21:22:20.250+00:00 Finished transferring output files
...
005 (028.000.000) 2026-11-21 21:22:20.831+00:00 Job terminated.
\t(1) Normal termination (return value 0)
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Remote Usage
\t5000012  -  Run Bytes Sent By Job
\t2000937  -  Run Bytes Received By Job
\t5000012  -  Total Bytes Sent By Job
\t2000937  -  Total Bytes Received By Job
...
"""


def test_htcondors_transfers_of_a_workflow(planned: Submitted) -> None:
    log = SubmitDir(planned.path).workflow_log
    assert log is not None
    at = 1795296130.434  # of the log above
    planned.nodes.write_text(
        submitted(28, at, ONE) + executing(28, at + 2.166) + terminated(28, at + 10.397)
    )
    log.write_text(MOVES)
    brought, took_back = took(FollowedWorkflow(planned.path), "job_transfer")
    assert (brought.subject, brought.value) == ("local>mu", 2_000_937)
    assert brought.details["tool"] == "htcondor"
    assert brought.details["goodput_bps"] == pytest.approx(8 * 2_000_937 / 2.0)
    assert (took_back.subject, took_back.details["direction"]) == ("mu>local", "out")


def test_what_an_execution_moved_that_broke_off_is_not_the_next_ones(planned: Submitted) -> None:
    """Its input was there, it was evicted, and what it got next came from where it had been."""
    log = SubmitDir(planned.path).workflow_log
    assert log is not None
    at = 1795296130.434
    planned.nodes.write_text(
        submitted(28, at, ONE) + executing(28, at + 2.166) + terminated(28, at + 10.397)
    )
    began, *_ = MOVES.split("040 (028", 1)
    again = MOVES.removeprefix(began)
    first = "".join(
        f"040 (028.000.000) 2026-11-21 21:22:1{at}+00:00 {what} transferring input files\n...\n"
        for at, what in (("0.450", "Started"), ("0.460", "Finished"))
    )
    evicted = "004 (028.000.000) 2026-11-21 21:22:10.470+00:00 Job was evicted.\n...\n"
    log.write_text(began + first + evicted + again)
    brought, _ = took(FollowedWorkflow(planned.path), "job_transfer")
    assert brought.details["seconds"] == pytest.approx(2.0)
    # Of the next one nobody says when its input came.
    log.write_text(began + first + evicted + again.partition("001 (028")[2].join(["001 (028", ""]))
    (took_back,) = took(FollowedWorkflow(planned.path), "job_transfer")
    assert took_back.details["direction"] == "out"


# ------------------------------------------------------------------ placements


def test_why_a_job_is_where_it_is(planned: Submitted) -> None:
    (planned.path / FILE).write_text(json.dumps({
        "at": START, "policy": "chains", "makespan_s": 10.0, "placements": [
            {"job": "ID1", "transformation": "t", "site": "mu", "seconds": 42.5, "reason": "least",
             "alternatives": [{"site": "mu", "seconds": 42.5, "wait_s": 1}, {"site": 7}, "x"]},
            {"job": "ID2", "site": "tacc", "seconds": None}, {"job": 3, "site": "mu"}, "x"],
    }))  # fmt: skip
    planned.nodes.write_text(submitted(1, START, ONE))
    followed = FollowedWorkflow(planned.path)
    first, second = took(followed, "placement")
    assert (first.subject, first.value, first.details["reason"]) == ("mu", 42.5, "least")
    assert first.details["alternatives"] == [
        {"site": "mu", "seconds": 42.5, "wait_s": 1.0, "compute_s": None, "transfer_s": None}
    ]
    assert (second.value, second.details["seconds"]) == (0.0, None)
    assert took(followed, "placement") == []


def test_how_far_off_was_what_was_believed_of_a_job(planned: Submitted) -> None:
    believed = {"runtime": [10.0, "archive"], "queue_wait": [3.0, "schedd"],
                "i-plant>mu": [10e6, "topology", 1.5, 0.5], "x": "y",
                "z": [True, None]}  # fmt: skip
    placed = [{"job": "ID0000001", "site": "mu", "seconds": 13.0, "believed": believed},
              {"job": "ID0000002", "site": "tacc", "believed": believed}]  # fmt: skip
    (planned.path / FILE).write_text(json.dumps({"at": START, "placements": placed}))
    staged(planned, MOVED.format(start=int(START) + 2), "4000000")
    append(planned.nodes, "".join(
        submitted(n, START, job) + executing(n, START + 2) + terminated(n, START + 10)
        for n, job in ((2, ONE), (3, TWO))  # the latter ran elsewhere than it was placed
    ))  # fmt: skip
    errors = took(FollowedWorkflow(planned.path), "belief_error")
    assert [(error.subject, error.value) for error in errors] == [
        ("throughput:topology", pytest.approx((5e6 * 8 / 10e6 + 1.5 + 0.5) / 2 - 1)),
        ("runtime:archive", pytest.approx(10 / 8 - 1)),
        ("queue_wait:schedd", pytest.approx(3 / 2 - 1)),
    ]


def test_how_true_the_forecast_was_is_known_at_the_end(planned: Submitted) -> None:
    planned.out.write_text(whole_run(START, steps=3))
    assert took(FollowedWorkflow(planned.path), "forecast") == []
    (planned.path / FILE).write_text(
        json.dumps({"at": START, "makespan_s": 20.0, "range_s": [15, 40]})
    )
    (forecast,) = took(FollowedWorkflow(planned.path), "forecast")
    assert (forecast.subject, forecast.value, forecast.at) == ("wf", 30 / 20, START + 30)
    assert forecast.details == {"expected_s": 20.0, "range_s": [15, 40], "taken_s": 30.0}


def test_what_a_workflow_takes_beside_its_jobs_is_known_at_the_end(planned: Submitted) -> None:
    planned.out.write_text(whole_run(START, steps=3))
    planned.nodes.write_text(
        submitted(1, START + 4, ONE) + executing(1, START + 5) + terminated(1, START + 23)
    )
    (overhead,) = took(FollowedWorkflow(planned.path), "dag_overhead")
    assert (overhead.subject, overhead.value) == ("local", 4.0 + 7.0)


@settings(shared_fixtures, max_examples=25)
@given(st.one_of(st.binary(max_size=200), st.recursive(
    st.none() | st.floats() | st.text(max_size=4) | st.sampled_from(["mu", "ID1"]),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(
        st.sampled_from(["at", "placements", "job", "site", "seconds", "alternatives"]), x),
    max_leaves=12).map(lambda x: json.dumps(x).encode())))  # fmt: skip
def test_no_file_of_placements_breaks_anything(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("p")
    (folder / FILE).write_bytes(data)
    for fact in placement_facts(read_plan(folder), "w"):
        to_row(fact)


def test_it_is_the_same_whoever_reads_it_when(planned: Submitted) -> None:
    """Live, portion by portion, and afterwards: the same ids, and nothing twice."""
    with_post(planned, ONE)
    staged(planned, MOVED.format(start=int(START) + 2), "1")
    text = planned.nodes.read_text() + (
        submitted(2, START + 20, ONE) + executing(2, START + 21) + terminated(2, START + 30)
        + posted(2, START + 31, ONE) + held(9, START + 1)
    )  # fmt: skip
    planned.nodes.write_text("")
    live = FollowedWorkflow(planned.path)
    append(planned.out, starting() + table(START + 1, unready=3))
    ids: list[str] = []
    for start in range(0, len(text), 97):
        append(planned.nodes, text[start : start + 97])
        live.step()
        ids += [measurement.id for measurement in live.take()[0]]
    afterwards = FollowedWorkflow(planned.path)
    afterwards.step()
    assert sorted(ids) == sorted(measurement.id for measurement in afterwards.take()[0])
    assert len(ids) == len(set(ids))
