"""A DAGMan that never says how it ended: its machine lost its power, its disk was full."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from generated import any_json
from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_files import START, Submitted, append, exiting, starting, submitted, table

from monitors.archive.archive import Archive
from monitors.jobs.condor import Dagman, Gone, Schedd, ads, command_output
from monitors.workflows.follower import Follower
from monitors.workflows.inquiries import Inquiries, inquiry_into
from monitors.workflows.logs.status import Status, WorkflowState, status_text

DAGMAN = Dagman(12, START + 0.5, "10.254.0.1:1 ap")
PAST = {"ClusterId": 12, "QDate": START, "CompletionDate": START + 50}


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitors.workflows.follower.LOOK_ANYWAY_S", 0.0)


class Commands:
    """HTCondor's commands, with what they would print; None if they fail."""

    def __init__(self, queue: Any = (), history: Any = (), address: Path | None = None) -> None:
        self.said = {
            "condor_q": None if queue is None else json.dumps(queue),
            "condor_history": None if history is None else json.dumps(history),
            "condor_config_val": None if address is None else f"{address}\n",
        }
        self.asked: list[str] = []

    def __call__(self, command: Sequence[str]) -> str | None:
        self.asked.append(command[0])
        return self.said[command[0]]


@pytest.fixture
def address(tmp_path: Path) -> Path:
    file = tmp_path / ".schedd_address"
    file.write_text("<10.254.0.1:1?addrs=10.254.0.1-1&alias=ap>\n$CondorVersion: 25.14.1 $\n")
    return file


# ---------------------------------------------------------------- what HTCondor knows


@pytest.mark.parametrize(
    ("ad", "state", "at", "said"),
    [
        ({"JobStatus": 3, "EnteredCurrentStatus": START + 60,
          "RemoveReason": "via condor_rm (by user ada)"},
         WorkflowState.REMOVED, START + 60, "was removed: via condor_rm (by user ada)"),
        ({"JobStatus": 3}, WorkflowState.REMOVED, START + 50, "was removed: nobody says why"),
        ({"JobStatus": 4, "ExitCode": 0}, WorkflowState.DONE, START + 50, "with exit code 0"),
        ({"JobStatus": 4, "ExitCode": 1}, WorkflowState.FAILED, START + 50, "with exit code 1"),
        ({"JobStatus": 4, "ExitBySignal": True}, WorkflowState.FAILED, START + 50, "by a signal"),
    ],
)  # fmt: skip
def test_how_it_ended_stands_in_the_history(
    ad: dict[str, Any], state: WorkflowState, at: float, said: str
) -> None:
    gone = Schedd(Commands(history=[PAST | ad])).gone(DAGMAN)
    assert gone is not None and (gone.state, gone.at) == (state, at) and said in gone.why


def test_a_job_that_is_nowhere_is_gone(address: Path) -> None:
    gone = Schedd(Commands(address=address)).gone(DAGMAN)
    assert gone is not None and gone.state is WorkflowState.FAILED and gone.at is None
    assert "neither in the queue nor in the history" in gone.why


def test_what_does_not_say_that_it_is_gone(address: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("<10.254.0.2:1?alias=ap>\n")
    twin = tmp_path / "twin"  # where both listen on loopback, the address is the same
    twin.write_text("<10.254.0.1:1?addrs=10.254.0.1-1&alias=other>\n")
    two = Commands(address=address)
    two.said["condor_config_val"] = f"{address} SCHEDD2\n"
    for commands in (
        Commands(queue=[{"ClusterId": 12}], address=address),  # it is there
        Commands(queue=None, address=address),  # nobody answers
        Commands(history=None, address=address),
        Commands(history=[PAST | {"QDate": START - 3600, "JobStatus": 4}], address=address),
        Commands(history=[PAST | {"JobStatus": 2}], address=address),
        Commands(address=other),  # another pool
        Commands(address=twin),
        two,  # one of several at one address
        Commands(address=tmp_path / "none"),
        Commands(),
    ):
        assert Schedd(commands).gone(DAGMAN) is None
    assert Schedd(Commands(address=address)).gone(Dagman(12, START)) is None


@pytest.mark.parametrize("answers", [True, False])
def test_one_look_at_the_queue_serves_many(answers: bool) -> None:
    """Also one without an answer: a schedd that hangs would keep each workflow waiting in turn."""
    now = 0.0
    commands = Commands(queue=[{"ClusterId": n} for n in range(100)] if answers else None)
    schedd = Schedd(commands, lambda: now)
    assert [schedd.gone(Dagman(n, START)) for n in range(100)] == [None] * 100
    now = 61.0
    schedd.gone(DAGMAN)
    assert commands.asked == ["condor_q"] * 2


Json = any_json(st.sampled_from([*PAST, "JobStatus", "ExitCode"]), max_leaves=8)


@settings(max_examples=40)
@given(Json, Json, st.text(max_size=20))
def test_whatever_htcondor_says(queue: Any, history: Any, text: str) -> None:
    schedd = Schedd(Commands(queue, history))
    gone = schedd.gone(DAGMAN)
    assert gone is None or gone.state in (
        WorkflowState.DONE,
        WorkflowState.FAILED,
        WorkflowState.REMOVED,
    )
    assert ads(text) is None or not text.strip() or isinstance(json.loads(text), list)


def test_commands_that_are_not_there_or_fail_say_nothing() -> None:
    assert command_output(["/nowhere/condor_q"]) is None
    assert command_output(["false"]) is None
    assert command_output(["echo", "[]"]) == "[]\n"
    assert command_output(["printf", r"\377"]) == "\ufffd"
    assert command_output(["sleep", "600"], 0.01) is None


# ---------------------------------------------------------------- what becomes of the workflow


class Knows:
    """Somebody who knows how every DAGMan ended."""

    def __init__(self, gone: Gone | None) -> None:
        self.answer, self.asked = gone, list[Dagman]()

    def gone(self, dagman: Dagman) -> Gone | None:
        self.asked.append(dagman)
        return self.answer


def power_lost(folder: Path, at: float = START) -> Submitted:
    """A run that was in the middle when its machine went."""
    planned = Submitted(folder)
    append(planned.dagman, submitted(12, at))
    append(planned.out, starting(at + 1) + table(at + 20, done=1, queued=2))
    for file in (planned.dagman, planned.out):
        os.utime(file, (at + 20, at + 20))
    return planned


def follower_of(planned: Submitted, archive: Archive, knows: Knows, **more: Any) -> Follower:
    inquiries = Inquiries(dagmans=inquiry_into(knows, patience_s=0.0))
    return Follower(planned.path, archive, inquiries=inquiries, **more)


def shown(archive: Archive) -> list[tuple[str, float]]:
    return [(status.details["state"], status.at - START) for status in archive.query("status")]


@pytest.mark.parametrize("at", [None, START + 3000])
def test_the_following_ends_and_says_why(
    tmp_path: Path, archive: Archive, at: float | None
) -> None:
    planned, knows = (
        power_lost(tmp_path / "run"),
        Knows(Gone(WorkflowState.FAILED, "it is gone", at)),
    )
    for _ in range(2):  # a new follower finds the same
        (last,) = follower_of(planned, archive, knows).run().values()
        assert last is not None and (last.state, last.reason) == (
            WorkflowState.FAILED,
            "it is gone",
        )
        assert status_text(last).endswith("failed: it is gone")
    assert shown(archive) == [("running", 20.0), ("failed", 20.0 if at is None else 3000.0)]
    assert knows.asked == [Dagman(12, START, "10.254.0.1:1 ap")] * 2
    record = archive.query("status")[-1]
    assert record.source == "condor" and Status.from_measurement(record) == last
    assert "reason" not in archive.query("status")[0].details


def test_a_rescue_after_that_is_followed(tmp_path: Path, archive: Archive) -> None:
    planned = power_lost(tmp_path / "run")
    follower = follower_of(planned, archive, Knows(Gone(WorkflowState.REMOVED, "it is gone")))
    follower.run()
    append(planned.dagman, submitted(13, START + 90))
    append(planned.out, starting(START + 91) + table(START + 95, done=2, queued=1))
    follower.poll()
    append(planned.out, table(START + 99, done=3) + exiting(START + 99, 0))
    assert follower.poll()
    records = [status.details for status in archive.query("status")]
    assert [(details["state"], details.get("reason", "")) for details in records] == [
        ("running", ""), ("removed", "it is gone"),
        ("running", ""), ("running", ""), ("running", ""), ("done", ""),
    ]  # fmt: skip


def test_last_words_count_more_than_what_htcondor_says(tmp_path: Path, archive: Archive) -> None:
    planned = power_lost(tmp_path / "run")

    class Late(Knows):
        def gone(self, dagman: Dagman) -> Gone | None:
            append(planned.out, table(START + 25, done=3) + exiting(START + 25, 0))
            return super().gone(dagman)

    (last,) = follower_of(planned, archive, Late(Gone(WorkflowState.FAILED, "x"))).run().values()
    assert last is not None and (last.state, last.reason) == (WorkflowState.DONE, "")


def test_nobody_is_asked_while_it_writes_or_where_it_never_ran(
    tmp_path: Path, archive: Archive
) -> None:
    knows = Knows(Gone(WorkflowState.FAILED, "x"))
    writes, ended = power_lost(tmp_path / "a"), power_lost(tmp_path / "b", START)
    append(writes.out, table(time.time(), done=2, queued=1))
    append(ended.out, exiting(START + 30, 1))
    os.utime(ended.out, (START, START))
    Submitted(tmp_path / "c", "planned alone")
    again = power_lost(tmp_path / "d", time.time())  # submitted anew, and has not written yet
    os.utime(again.out, (START, START))
    folders = [writes.path, ended.path, tmp_path / "c", again.path]
    follower = Follower(folders, archive)
    follower.poll()
    inquiries = Inquiries(dagmans=inquiry_into(knows, patience_s=0.0))
    assert inquiries.observe(follower.tree.members, time.time()) == []
    inquiries.close()
    assert knows.asked == []


def test_one_that_is_there_is_waited_for_unless_one_gives_up(
    tmp_path: Path, archive: Archive, caplog: pytest.LogCaptureFixture
) -> None:
    planned, knows = power_lost(tmp_path / "run"), Knows(None)
    follower = follower_of(planned, archive, knows, give_up_s=3600.0, clock=lambda: START + 3610)
    follower.poll()
    follower._inquire()
    assert not follower.tree.ended
    follower = follower_of(planned, archive, knows, give_up_s=3600.0, clock=lambda: START + 3700)
    (last,) = follower.run().values()
    assert last is not None and last.state is WorkflowState.RUNNING  # nobody knows better
    assert "nothing was written for 61 min: no longer waited for" in caplog.text
    append(planned.out, table(START + 4000, done=2, queued=1))
    assert not follower.poll()  # it goes on after all
    append(planned.out, table(START + 4001, done=3) + exiting(START + 4001, 0))
    assert follower.poll()
    assert [state for state, _ in shown(archive)] == ["running", "running", "running", "done"]


def test_one_that_never_began_is_given_up_by_when_it_was_planned(
    tmp_path: Path, archive: Archive
) -> None:
    planned = Submitted(tmp_path / "run")
    os.utime(planned.path / "wf-0.dag", (START, START))
    follower = Follower(planned.path, archive, give_up_s=60.0, clock=lambda: START + 61)
    assert list(follower.run().values()) == [None]
