"""A status goes into the archive and comes back, and reads well."""

from __future__ import annotations

from dataclasses import replace

from monitors.archive.archive import Archive
from monitors.workflows.logs.status import FIELDS, NOT_STARTED, Status, WorkflowState, status_text

RUNNING = Status(7, 1, 2, 3, 0, 12, 1, 46.0, 26, WorkflowState.RUNNING, 1_700_000_000.5)


def test_comes_back_from_the_archive() -> None:
    with Archive(":memory:") as archive:
        archive.record(RUNNING.measurement("uuid", "k"))
        (kept,) = archive.query("status", "uuid")
    assert Status.from_measurement(kept) == RUNNING
    assert kept.value == 46.0
    assert kept.unit == "%"
    assert set(FIELDS) | {"state"} <= set(kept.details)


def test_one_line_shows_what_is_not_zero() -> None:
    assert status_text(RUNNING, "soykb", width=10) == (
        "soykb  [####......]  46.0 %  12 of 26 done,"
        " 3 in queue, 2 pre, 1 ready, 7 unready, 1 failed  running"
    )


def test_before_the_start_and_after_a_failed_one() -> None:
    assert status_text(None).endswith("not started")
    assert status_text(NOT_STARTED, "wf").endswith("not started")
    assert status_text(replace(NOT_STARTED, state=WorkflowState.FAILED)).endswith(
        "0 of 0 done  failed"
    )


def test_what_others_wrote_reaches_no_terminal_raw() -> None:
    failed = replace(RUNNING, state=WorkflowState.FAILED, reason="no \x1b[31margument")
    assert status_text(failed, "so\x1b]0;ykb").isprintable()


def test_three_of_four_states_are_ends() -> None:
    ended = [replace(RUNNING, state=state).ended for state in WorkflowState]
    assert ended == [False, True, True, True]
