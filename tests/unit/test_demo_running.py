"""How a run ended, by HTCondor's word and DAGMan's log, and what is shown until then."""

from __future__ import annotations

import errno
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from monitor_files import Submitted

from condor_plugins.dagman import DagEnd
from examples.demo.course import Interrupted
from examples.demo.running import _Following, behind, end_state
from monitors.archive.archive import Archive
from monitors.workflows.status import NOT_STARTED, Status, WorkflowState
from network_provisioner.base.errors import AdonError


@pytest.mark.parametrize(
    ("end", "last", "state"),
    [
        ("success", WorkflowState.DONE, "success"),
        ("success", WorkflowState.FAILED, "failed"),  # pegasus-dagman leaves with 0
        ("success", WorkflowState.REMOVED, "removed"),
        ("success", WorkflowState.RUNNING, "failed"),  # DAGMan never wrote its end
        ("success", None, "failed"),
        ("failed", WorkflowState.FAILED, "failed"),
        ("held", WorkflowState.RUNNING, "held"),
        ("removed", WorkflowState.REMOVED, "removed"),
    ],
)
def test_a_success_stands_in_both(end: str, last: WorkflowState | None, state: str) -> None:
    status = None if last is None else replace(NOT_STARTED, state=last)
    assert end_state(DagEnd(end), status) == state


def test_the_last_change_is_shown_although_it_came_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing may come after it for as long as a job waits in vain."""
    said: list[str] = []
    planned = Submitted(tmp_path / "run")
    with Archive(":memory:") as archive:
        following = _Following(planned.path, archive, said.append)
        for done in (0, 1):
            following._show(following._follower.workflows[0].dir, status(done))
        following.show_rest()
        assert len(said) == 1 and "0 of 2 done" in said[0]
        monkeypatch.setattr("examples.demo.running._SHOW_EVERY_S", 0.0)
        following.show_rest()
        following.show_rest()
    assert len(said) == 2 and "1 of 2 done" in said[1]


def status(done: int) -> Status:
    return replace(NOT_STARTED, total=2, done=done, unready=2 - done)


def test_behind_what_ended_may_be_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, stopped = AdonError("HTCondor at hub ended"), Interrupted(signal.SIGTERM)
    assert behind(ended, tmp_path) is ended

    def full(_path: Path, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    said = f"{tmp_path}: No space left on device; HTCondor at hub ended"
    assert str(behind(ended, tmp_path)) == said
    assert behind(stopped, tmp_path) is stopped
    assert list(tmp_path.iterdir()) == []
