"""Following workflows: nothing lost and nothing doubled, whatever happens to files and follower."""

from __future__ import annotations

import json
import os
import threading
import time
import tracemalloc
from collections import deque
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_files import (
    START,
    Submitted,
    append,
    executing,
    exiting,
    starting,
    submitted,
    table,
    terminated,
    whole_run,
)

from monitors.archive.archive import Archive
from monitors.workflows.followed import FollowedWorkflow
from monitors.workflows.follower import Follower
from monitors.workflows.logs.status import Status, WorkflowState
from monitors.workflows.logs.watch import InotifyWatch, StatWatch, open_watch
from network_provisioner.base.errors import InputError
from tests.bench import bench_p7_large

WAIT_S = 120.0  # how long a test waits for what should come at once


def kept(archive: Archive) -> list[Status]:
    return [Status.from_measurement(m) for m in archive.query("status")]


def shown(archive: Archive) -> list[tuple[int, int, str]]:
    return [(status.done, status.in_queue, str(status.state)) for status in kept(archive)]


# ------------------------------------------------------------------ polling


@pytest.mark.parametrize("events", [1, 2, 10_000])
def test_a_long_log_is_read_in_portions(
    planned: Submitted, monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    monkeypatch.setattr("monitors.jobs.logs._PORTION", events)
    planned.out.write_text(whole_run(steps=2))
    planned.nodes.write_text(
        "".join(
            submitted(n, START + n, f"align_ID000000{n}")
            + executing(n, START + n + 1)
            + terminated(n, START + n + 9)
            for n in (1, 2)
        )
    )
    whole, portions = FollowedWorkflow(planned.path), FollowedWorkflow(planned.path)
    assert whole.step()
    expected = whole.take()
    measurements = []
    while not portions.step(most=1):
        assert not portions.ended
        some, statuses = portions.take()
        measurements += some
        assert not statuses
    some, statuses = portions.take()
    assert measurements
    assert ([*measurements, *some], statuses) == expected


def test_records_a_finished_run_once_however_often_it_is_followed(
    planned: Submitted, archive: Archive
) -> None:
    planned.out.write_text(whole_run(steps=2))
    planned.nodes.write_text(
        submitted(1, START, "align_ID0000001") + executing(1, START + 1) + terminated(1, START + 9)
    )
    for _ in range(2):
        assert Follower(planned.path, archive).run()[planned.path] == kept(archive)[-1]
    assert shown(archive) == [
        (0, 0, "running"),
        (0, 1, "running"),
        (1, 0, "running"),
        (1, 1, "running"),
        (2, 0, "running"),
        (2, 0, "done"),
    ]
    assert len(archive.query("runtime")) == 1


def test_rotation_of_a_log_that_dagman_has_not_opened_yet(
    planned: Submitted, archive: Archive
) -> None:
    """It goes on writing to the one before, whose new name it does not know."""
    follower = Follower(planned.path, archive)
    first, second = (planned.out.with_name(f"{planned.out.name}.{n}") for n in (1, 2))
    planned.out.write_text(starting() + table(START, ready=2))
    planned.out.rename(first)
    planned.out.touch()
    os.utime(planned.out, (START, START))  # long before what comes now
    append(first, table(START, queued=2))
    follower.poll()
    planned.out.rename(second)
    planned.out.touch()
    follower.poll()
    append(first, table(START, done=2))
    follower.poll()
    assert [status.in_queue for status in kept(archive)] == [0, 2, 0]


def test_truncation_and_new_content_of_any_length(planned: Submitted, archive: Archive) -> None:
    follower = Follower(planned.path, archive)
    planned.out.write_text(starting() + table(START, queued=2))
    follower.poll()
    before = planned.out.stat().st_ino
    planned.out.write_text(starting(START + 60, 99) + table(START + 60, post=2) * 3)  # longer
    assert planned.out.stat().st_ino == before
    follower.poll()
    planned.out.write_text(table(START + 70, done=2))  # shorter
    follower.poll()
    assert [(s.in_queue, s.post, s.done) for s in kept(archive)] == [
        (2, 0, 0),
        (0, 2, 0),
        (0, 0, 2),
    ]


def test_a_log_that_is_emptied_while_nobody_follows(planned: Submitted, archive: Archive) -> None:
    """What DAGMan says again is no change of what is known; what it says then is."""
    planned.out.write_text(starting() + table(START, queued=2) + table(START + 1, post=2))
    Follower(planned.path, archive).poll()
    planned.out.write_text(table(START + 60, post=2) + table(START + 61, done=2))
    for _ in range(2):
        Follower(planned.path, archive).poll()
    assert [(s.in_queue, s.post, s.done) for s in kept(archive)] == [
        (2, 0, 0),
        (0, 2, 0),
        (0, 0, 2),
    ]


def test_a_log_that_lost_its_end_and_grew_again(planned: Submitted, archive: Archive) -> None:
    first = starting() + table(START, ready=2)
    planned.out.write_text(first + table(START + 1, queued=2))
    follower = Follower(planned.path, archive)
    follower.poll()
    planned.out.write_text(first + table(START + 5, post=2))  # same length, other content
    os.utime(planned.out, ns=(0, 0))
    follower.poll()
    assert [(s.ready, s.in_queue, s.post) for s in kept(archive)] == [
        (2, 0, 0),
        (0, 2, 0),
        (0, 0, 2),
    ]


def test_a_dagman_that_never_wrote_a_word(planned: Submitted, archive: Archive) -> None:
    planned.dagman.write_text(submitted(1, START) + terminated(1, START + 3, 1))
    assert Follower(planned.path, archive).poll()
    assert kept(archive)[-1].state is WorkflowState.FAILED


def as_json(cluster: int, at: float, node: str) -> str:
    event = {"EventTypeNumber": 0, "EventTime": time.strftime("%FT%T", time.localtime(at)),
             "Cluster": cluster, "Proc": 0, "LogNotes": f"DAG Node: {node}"}  # fmt: skip
    return json.dumps(event) + "\n"


def test_names_that_no_archive_takes_keep_nothing_else_back(
    planned: Submitted, archive: Archive, caplog: pytest.LogCaptureFixture
) -> None:
    planned.out.write_text(starting() + table(START, queued=2))
    planned.nodes.write_text(
        as_json(1, START, "odd\0name") + executing(1, START + 1) + terminated(1, START + 2)
        + submitted(2, START, "plain") + executing(2, START + 1) + terminated(2, START + 2)
    )  # fmt: skip
    follower = Follower(planned.path, archive)
    follower.poll()
    assert [m.details["job"] for m in archive.query("job")] == ["plain"]
    assert len(archive.query("status")) == 1 and "characters that are no text" in caplog.text


@settings(max_examples=15)
@given(st.data())
def test_garbled_files_never_stop_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever stands in any of its files, what is whole in the others is recorded."""
    planned = Submitted(tmp_path_factory.mktemp("wf") / "run")
    whole = {
        planned.nodes: submitted(1, START, "align_ID0000001") + executing(1, START + 1)
        + terminated(1, START + 9),
        planned.dagman: submitted(9, START) + executing(9, START),
        planned.log: submitted(1, START, "align_ID0000001"),
        planned.path / "wf-0.dag": (planned.path / "wf-0.dag").read_text(),
        planned.path / "00/00/align_ID0000001.sub": "queue\n+pegasus_site = mu\n",
    }  # fmt: skip
    for path, text in whole.items():
        garbled = text.encode()
        for _ in range(data.draw(st.integers(0, 3))):
            start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(garbled))] * 2)))
            garbled = garbled[:start] + data.draw(st.binary(max_size=20)) + garbled[end:]
        path.write_bytes(garbled)
    planned.out.write_text(whole_run(steps=2))
    with Archive(":memory:") as archive:
        follower = Follower(planned.path, archive)
        follower.poll()
        follower.poll()
        assert len(archive.query("status")) >= 6


def test_one_workflows_trouble_is_not_the_others(
    planned: Submitted, tmp_path: Path, archive: Archive, caplog: pytest.LogCaptureFixture
) -> None:
    other = Submitted(tmp_path / "run0002", "other")
    other.nodes.mkdir()  # cannot be read as a file
    other.out.write_text(whole_run())
    planned.out.write_text(whole_run())
    follower = Follower([other.path, planned.path], archive)
    follower.poll()
    follower.poll()
    assert archive.query("status", planned.uuid)[-1].details["state"] == "done"
    assert [r.getMessage() for r in caplog.records] == [
        f"{other.nodes}: cannot be read: Is a directory",
        f"{planned.nodes}: found no event log of its jobs that can be read, and"
        f" {planned.out.name} has no events",
    ]


def test_a_directory_that_vanishes_ends_the_following(
    planned: Submitted, archive: Archive, caplog: pytest.LogCaptureFixture
) -> None:
    planned.out.write_text(starting() + table(START, queued=1))
    follower = Follower(planned.path, archive)
    follower.poll()
    planned.path.rename(planned.path.with_name("gone"))
    assert follower.run()[planned.path] is not None
    assert "is gone" in caplog.text


def test_what_is_no_submit_directory_is_an_input_error(tmp_path: Path, archive: Archive) -> None:
    with pytest.raises(InputError, match="expected a submit directory"):
        Follower(tmp_path / "nowhere", archive)


# ------------------------------------------------------------------ running


@pytest.mark.parametrize("watch", [open_watch, InotifyWatch, StatWatch])
def test_runs_beside_the_workflow_until_it_ends(
    planned: Submitted, tmp_path: Path, watch: type[InotifyWatch]
) -> None:
    statuses: list[Status] = []
    condition = threading.Condition()

    def on_status(_: object, status: Status) -> None:
        with condition:
            statuses.append(status)
            condition.notify()

    def wait_for(count: int) -> None:
        with condition:
            assert condition.wait_for(lambda: len(statuses) >= count, WAIT_S), statuses

    with Archive(tmp_path / "a.sqlite") as archive:
        follower = Follower(planned.path, archive, on_status=on_status, watch=watch)
        thread = threading.Thread(target=follower.run)
        thread.start()
        append(planned.out, starting() + table(START, ready=1))
        wait_for(1)
        assert len(archive.query("status")) == 1  # told after it is in the archive
        append(planned.out, table(START + 1, queued=1))
        wait_for(2)
        append(planned.out, table(START + 2, done=1) + exiting(START + 2, 0))
        wait_for(4)
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert statuses[-1].state is WorkflowState.DONE


def test_stops_when_told(planned: Submitted, archive: Archive) -> None:
    stop = threading.Event()
    follower = Follower(planned.path, archive)
    thread = threading.Thread(target=follower.run, args=(stop,))
    thread.start()
    append(planned.out, starting() + table(START, ready=1))
    stop.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert [status.ready for status in kept(archive)] == [1]  # the last look comes after the stop


# ------------------------------------------------------------------ kill -9


def test_a_job_that_has_ended_takes_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_p7_large, "JOBS", 600)
    bench_p7_large.make_workflow(tmp_path)
    with (
        (tmp_path / "w.dag.nodes.log").open("w") as nodes,
        (tmp_path / "w.dag.dagman.out").open("w") as dagman,
    ):
        deque(bench_p7_large.steps(bench_p7_large.Logs(nodes, dagman)), maxlen=0)
    workflow = FollowedWorkflow(tmp_path)
    tracemalloc.start()
    try:
        assert workflow.step()
        assert len(workflow.attempts.all) == 600
        workflow.take()
        ours = tracemalloc.Filter(True, "*/monitors/*")
        kept = tracemalloc.take_snapshot().filter_traces([ours]).statistics("filename")
    finally:
        tracemalloc.stop()
    assert sum(file.size for file in kept) / 600 < 1400, "bytes of each of 100,000 jobs"
