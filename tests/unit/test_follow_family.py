"""Workflows within workflows: each has its status under its own UUID, and all end with the root."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitor_files import (
    START,
    Submitted,
    aborted,
    append,
    exiting,
    starting,
    submitted,
    table,
    terminated,
)

from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement
from monitors.workflows.discovery import Discovery, FoundWorkflow, PegasusDatabase
from monitors.workflows.followed import FollowedWorkflow
from monitors.workflows.follower import Follower
from monitors.workflows.inquiries import Fallback, Inquiries
from monitors.workflows.logs.events import JobEvent, Kind
from monitors.workflows.logs.status import NOT_STARTED, Status, WorkflowState, percent, total
from monitors.workflows.logs.watch import StatWatch
from monitors.workflows.planned.sub_workflows import derived_uuid, root_of
from monitors.workflows.planned.submit_dir import SubmitDir
from monitors.workflows.service import read_now

PLANNED = """\
executable = /usr/bin/condor_dagman
universe = scheduler
arguments = " -p 0  -f -l . -Debug 3 -Lockfile wf-0.dag.lock -Dag wf-0.dag -AutoRescue 1 "
initialdir = {folder}/00/00/./inner
log = {folder}/wf-0.log
+pegasus_wf_xformation = "condor::dagman"
+pegasus_job_class = 10
+pegasus_site = "local"
queue
"""


class Outer(Submitted):
    """A workflow with a job that plans and runs another one, as Pegasus has it."""

    def __init__(self, path: Path, uuid: str = "outer-uuid") -> None:
        super().__init__(path, uuid)
        append(path / "wf-0.dag", "JOB plan_sub 00/00/plan_sub.sub\n")
        (path / "00/00/plan_sub.sub").write_text(PLANNED.format(folder=path))
        self.link = path / "00" / "00" / "inner"

    def plan(self, number: int) -> Submitted:
        """What the job's PRE script does."""
        name = f"inner.{number:03d}"
        inner = Submitted(self.link.with_name(name), f"inner-{number}")
        append(inner.path / "braindump.yml", f'root_wf_uuid: "{self.uuid}"\n')
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(name)
        return inner


def states(archive: Archive) -> dict[str, str]:
    return {m.subject: m.details["state"] for m in archive.query("status")}


def facts(archive: Archive) -> dict[str, Measurement]:
    return {m.subject: m for m in archive.query("workflow")}


def test_a_planned_sub_workflow_is_followed_when_its_job_is_submitted(
    tmp_path: Path, archive: Archive
) -> None:
    outer = Outer(tmp_path / "run")
    outer.out.write_text(starting() + table(START, queued=1, unready=1))
    follower = Follower(outer.path, archive)
    follower.poll()
    inner = outer.plan(0)
    follower.poll()
    assert list(facts(archive)) == ["outer-uuid"]  # planned, not begun
    append(outer.nodes, submitted(7, START + 5, "plan_sub"))
    append(inner.out, starting(START + 6) + table(START + 6, done=1, queued=2))
    follower.poll()
    details = facts(archive)["inner-0"].details
    assert (details["root"], details["parent"]) == ("outer-uuid", "outer-uuid")
    assert details["submit_dir"] == str(inner.path)
    (status,) = archive.query("status", "inner-0")
    assert (status.details["in_queue"], status.details["root"]) == (2, "outer-uuid")
    (root,) = follower.workflows
    whole = follower.tree.total_of(root)
    assert (whole.done, whole.in_queue, whole.unready, whole.total) == (1, 3, 1, 5)

    append(inner.out, table(START + 8, done=3) + exiting(START + 9, 0))
    append(outer.nodes, terminated(7, START + 9.5))
    assert not follower.poll()
    append(outer.out, table(START + 10, done=2) + exiting(START + 10, 0))
    assert follower.poll()
    assert states(archive) == {"outer-uuid": "done", "inner-0": "done"}


def test_one_that_is_planned_again_is_another_workflow(tmp_path: Path, archive: Archive) -> None:
    outer = Outer(tmp_path / "run")
    outer.out.write_text(starting() + table(START, queued=1))
    follower = Follower(outer.path, archive)
    first = outer.plan(0)
    append(first.out, starting(START) + table(START, fail=1) + exiting(START + 1, 1))
    append(outer.nodes, submitted(7, START, "plan_sub") + terminated(7, START + 1, 1))
    follower.poll()
    second = outer.plan(1)
    append(second.out, starting(START + 2) + table(START + 2, done=1))
    append(outer.nodes, submitted(8, START + 2, "plan_sub"))
    follower.poll()
    append(second.out, exiting(START + 3, 0))
    append(outer.out, table(START + 4, done=1) + exiting(START + 4, 0))
    assert follower.poll()
    expected = {"outer-uuid": "done", "inner-0": "failed", "inner-1": "done"}
    assert states(archive) == expected
    (root,) = follower.workflows
    assert follower.tree.total_of(root).done == 2  # the plan that counts is the newest
    with Archive(":memory:") as afterwards:
        assert Follower(outer.path, afterwards).poll()
        assert states(afterwards) == expected
        assert {m.id for m in afterwards.query("status")} == {m.id for m in archive.query("status")}


def test_an_end_is_that_of_the_plan_that_ran_then(tmp_path: Path, archive: Archive) -> None:
    """Who begins to follow late finds both plans at once: the first was killed without a word."""
    outer = Outer(tmp_path / "run")
    outer.out.write_text(starting() + table(START, queued=1))
    for number, at in enumerate((START, START + 20)):
        inner = outer.plan(number)
        append(inner.out, starting(at) + table(at, queued=1 + number))
        os.utime(inner.path / "wf-0.dag", (at - 1, at - 1))
        append(outer.nodes, submitted(7 + number, at, "plan_sub"))
        append(outer.nodes, "" if number else aborted(7, START + 10))
    Follower(outer.path, archive).poll()
    assert states(archive) == {"outer-uuid": "running", "inner-0": "removed", "inner-1": "running"}


@pytest.mark.parametrize("code", [0, 1])
def test_what_runs_when_the_whole_has_ended_has_failed(
    tmp_path: Path, archive: Archive, code: int
) -> None:
    outer = Outer(tmp_path / "run")
    inner = outer.plan(0)
    inner.out.write_text(starting() + table(START, queued=1))
    append(outer.nodes, submitted(7, START, "plan_sub"))
    outer.out.write_text(starting() + table(START, queued=1) + exiting(START + 9, code))
    for _ in range(2):
        assert Follower(outer.path, archive).poll()
    assert states(archive)["inner-0"] == "failed"
    assert len(archive.query("status", "inner-0")) == 2


def test_a_part_is_measured_at_once_and_not_what_has_its_name(
    tmp_path: Path, archive: Archive
) -> None:
    (tmp_path / "deep").mkdir()
    outer, inner = tmp_path / "wf.dag", tmp_path / "deep" / "wf.dag"
    outer.write_text("SUBDAG EXTERNAL one deep/wf.dag\n")
    inner.write_text("JOB a a.sub\n")
    for dag, done in ((outer, 1), (inner, 2)):
        dag.with_name("wf.dag.dagman.out").write_text(starting() + table(START, done=done))
    (tmp_path / "wf.dag.nodes.log").write_text(submitted(1, START, "one"))
    Follower(tmp_path, archive).poll()
    part = derived_uuid(str(outer), "one")
    for workflow, done in ((str(outer), 1), (part, 2)):
        *_, status = read_now(facts(archive)[workflow], "now")
        assert (status.subject, status.details["done"]) == (workflow, done)


def test_dags_that_hold_each_other_end_somewhere(tmp_path: Path, archive: Archive) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.dag").write_text(f"SUBDAG EXTERNAL {other} {other}.dag\n")
        (tmp_path / f"{name}.dag.nodes.log").write_text(submitted(1, START, other))
        (tmp_path / f"{name}.dag.dagman.out").write_text(starting() + exiting(START + 1, 0))
    follower = Follower((), archive)
    follower.tree.take_in(FoundWorkflow(tmp_path, "a.dag"))
    follower.tree.take_in(FoundWorkflow(tmp_path, "b.dag"))
    assert follower.poll()
    assert len(states(archive)) == 2


def test_what_was_found_by_itself_before_what_it_is_a_part_of(
    tmp_path: Path, archive: Archive
) -> None:
    outer = Outer(tmp_path / "run")
    inner = outer.plan(0)
    outer.out.write_text(starting() + table(START, queued=1))
    inner.out.write_text(starting() + table(START, queued=1))
    append(outer.nodes, submitted(7, START, "plan_sub"))
    follower = Follower(inner.path, archive)
    follower.poll()
    assert len(follower.workflows) == 1
    follower.tree.take_in(FoundWorkflow(outer.path))
    follower.poll()
    assert [m.dir.workflow for m in follower.workflows] == ["outer-uuid"]
    assert len(archive.query("status", "inner-0")) == 1
    assert root_of(inner.path) == outer.path
    assert root_of(outer.path) == outer.path
    assert root_of(tmp_path / "none") == tmp_path / "none"


def test_those_inside_rest_and_run_again_too(tmp_path: Path, archive: Archive) -> None:
    changes: list[tuple[str, str, int]] = []

    def on_status(submit_dir: SubmitDir, status: Status) -> None:
        changes.append((submit_dir.workflow, str(status.state), status.done))

    outer = Outer(tmp_path / "run")
    inner = outer.plan(0)
    outer.out.write_text(starting() + table(START, fail=1) + exiting(START + 3, 1))
    inner.out.write_text(
        starting()
        + table(START, queued=2)
        + table(START + 1, done=1, fail=1)
        + exiting(START + 2, 1)
    )
    outer.nodes.write_text(submitted(7, START, "plan_sub") + terminated(7, START + 2.5, 1))
    follower = Follower(outer.path, archive, on_status=on_status, keep=True)
    assert follower.poll()
    assert changes == [("outer-uuid", "failed", 0), ("inner-0", "failed", 1)]
    changes.clear()
    append(outer.out, starting(START + 60) + table(START + 60, queued=1))
    append(inner.out, starting(START + 61) + table(START + 61, done=1, queued=1))
    outer.nodes.write_text(submitted(9, START + 60.5, "plan_sub"))  # DAGMan empties it
    append(outer.log, submitted(7, START, "plan_sub") + terminated(7, START + 2.5, 1))
    assert not follower.poll()
    append(inner.out, table(START + 62, done=2) + exiting(START + 62, 0))
    append(outer.nodes, terminated(9, START + 62.5))
    append(outer.out, table(START + 63, done=1) + exiting(START + 63, 0))
    assert follower.poll()
    assert [change for change in changes if change[0] == "inner-0"] == [
        ("inner-0", "running", 1), ("inner-0", "running", 1),
        ("inner-0", "running", 2), ("inner-0", "done", 2),
    ]  # fmt: skip
    ids = [m.id for m in archive.query("status")]
    assert len(ids) == len(set(ids))


def test_a_job_whose_plan_cannot_be_read_is_no_trouble_for_others(
    tmp_path: Path, archive: Archive, caplog: pytest.LogCaptureFixture
) -> None:
    outer = Outer(tmp_path / "run")
    inner = outer.plan(0)
    (inner.path / "braindump.yml").write_text("dag: [\n")
    append(outer.nodes, submitted(7, START, "plan_sub"))
    outer.out.write_text(starting() + table(START, queued=1))
    follower = Follower(outer.path, archive)
    follower.poll()
    follower.poll()
    assert states(archive) == {"outer-uuid": "running"}
    assert len(caplog.records) == 1 and "braindump" in caplog.text
    (inner.path / "braindump.yml").write_text('wf_uuid: "inner-0"\ndag: "wf-0.dag"\n')
    inner.out.write_text(starting() + table(START, queued=1))
    follower.poll()
    follower.poll()
    assert states(archive)["inner-0"] == "running"


STATUSES = st.builds(
    lambda counts, state, at: Status(
        *counts, percent_done=percent(counts[5], sum(counts)), total=sum(counts), state=state, at=at
    ),
    st.lists(st.integers(0, 1000), min_size=7, max_size=7),
    st.sampled_from(WorkflowState),
    st.floats(0, 2e9),
)


@given(st.lists(STATUSES, max_size=6))
def test_a_total_has_every_job_of_each(statuses: list[Status]) -> None:
    whole = total(statuses)
    if not statuses:
        assert whole == NOT_STARTED
        return
    assert whole.state is statuses[0].state
    assert whole.total == sum(status.total for status in statuses)
    counts = (whole.unready, whole.ready, whole.pre, whole.in_queue, whole.post, whole.done)
    assert sum(counts) + whole.fail == whole.total
    assert 0 <= whole.percent_done <= 100
    assert (whole.percent_done == 100) == (whole.done == whole.total > 0)
    for rest in itertools.permutations(statuses[1:3]):
        assert total([statuses[0], *rest, *statuses[3:]]) == whole


def test_a_name_that_is_none_stops_nobody(tmp_path: Path, archive: Archive) -> None:
    """Whatever another user's directory says."""
    good, bad = Submitted(tmp_path / "good", "good"), Submitted(tmp_path / "bad", "bad")
    (bad.path / "braindump.yml").write_text('wf_uuid: "bad"\ndag: "a\\0b.dag"\n')
    good.out.write_text(starting() + table(START, queued=1))
    follower = Follower((), archive, inquiries=Inquiries(Fallback(lambda _: "")))
    for path in (bad.path, good.path):
        follower.tree.take_in(FoundWorkflow(path))
    follower.poll()
    assert states(archive) == {"good": "running"}


def test_a_folder_that_may_not_be_read_stops_nobody(
    tmp_path: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_: Path) -> bool:
        raise PermissionError("not yours")

    Submitted(tmp_path / "run")
    follower = Follower((), archive)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "is_dir", refuses)
        patched.setattr(Path, "is_file", refuses)
        follower.tree.take_in(FoundWorkflow(tmp_path / "run"))
        assert PegasusDatabase(tmp_path / "workflow.db", lambda: 0.0).observe() == []
    assert follower.tree.members == []


def test_what_is_planned_where_one_was_deleted_is_another_workflow(
    tmp_path: Path, archive: Archive
) -> None:
    watched: set[Path] = set()
    run, stop = tmp_path / "run", threading.Event()

    class Watched(StatWatch):
        def add(self, folder: Path, names: Iterable[str]) -> None:
            super().add(folder, names)
            watched.add(folder)

        def drop(self, folder: Path) -> None:
            super().drop(folder)
            watched.discard(folder)

        def wait(self, timeout_s: float) -> set[Path]:
            next(turns, None)  # between the follower's own, never beside them
            return set()

    def happens() -> Iterator[None]:
        for number in range(2):
            outer = Outer(run, f"outer-{number}")
            inner = outer.plan(number)
            inner.out.write_text(starting() + table(START, done=1) + exiting(START + 1, 0))
            outer.nodes.write_text(submitted(7, START, "plan_sub"))
            outer.out.write_text(starting() + table(START, done=1) + exiting(START + 2, 0))
            follower.tree.take_in(FoundWorkflow(run))
            follower.poll()
            assert watched == {run, inner.path}
            shutil.rmtree(run)
            follower.tree.members_to_check(ended_too=True)
            assert watched == set()
            yield
        stop.set()

    turns = happens()
    follower = Follower((), archive, keep=True, watch=Watched)
    follower.run(stop)
    assert states(archive) == {f"{w}-{n}": "done" for w in ("outer", "inner") for n in range(2)}


def test_jobs_that_are_removed_after_their_dagman(tmp_path: Path, archive: Archive) -> None:
    planned = Submitted(tmp_path / "run", "one")
    job = planned.JOBS[0][0]
    planned.out.write_text(starting() + table(START, queued=1) + exiting(START + 9, 1))
    planned.nodes.write_text(submitted(7, START, job))
    follower = Follower(planned.path, archive, keep=True)
    follower.poll()
    append(planned.nodes, aborted(7, START + 12))
    follower.poll()
    (measurement,) = archive.query("job")
    assert (measurement.details["outcome"], measurement.at) == ("removed", START + 12)
    assert [m.details["state"] for m in archive.query("status")] == ["running", "failed"]


def test_what_others_told_of_an_end_holds_when_jobs_are_removed_later(tmp_path: Path) -> None:
    planned = Submitted(tmp_path / "run", "one")
    planned.out.write_text(starting() + table(START, queued=1))
    planned.nodes.write_text(submitted(7, START, planned.JOBS[0][0]))
    followed = FollowedWorkflow(planned.path)
    followed.step()
    for kind, at in ((Kind.SUBMIT, START), (Kind.ABORTED, START + 9)):
        followed.dagman_event(JobEvent(kind, 3, 0, at))  # from the log of what runs it
    followed.take()
    followed.rest()
    append(planned.nodes, aborted(7, START + 12))
    followed.step()
    assert followed.ended and followed.status is not None
    assert followed.status.state is WorkflowState.REMOVED
    measurements, statuses = followed.take()
    assert statuses == []
    assert [m.details["outcome"] for m in measurements if m.metric == "job"] == ["removed"]


def test_a_source_that_fails_ends_no_discovery(tmp_path: Path) -> None:
    class Broken:
        def files(self) -> dict[Path, list[str]]:
            return {}

        def observe(self) -> list[FoundWorkflow]:
            raise RuntimeError("broken")

    class Folder(Broken):
        def observe(self) -> list[FoundWorkflow]:
            return [FoundWorkflow(tmp_path)]

    discovery = Discovery([Broken(), Folder()])
    discovery.start()
    assert discovery.take() == {FoundWorkflow(tmp_path)}
    discovery.close()
