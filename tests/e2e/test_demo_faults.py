"""Programs of ours that are killed while a demo runs cost it warnings, and nothing else."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from demo_runs import Demo, demo, has_environment, left_of, send, waits_for_answer

from adon.machine import box

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.long, pytest.mark.timeout(3600)]


def transfers_of(one: Demo, kind: str) -> list[int]:
    """The copies that a transfer job of some kind has started."""
    return [
        p for p in one.find("globus-url-copy") if has_environment(p, f"PEGASUS_DAG_JOB_ID={kind}")
    ]


def test_a_killed_hook_and_a_killed_broker_cost_a_warning(tmp_path: Path) -> None:
    reason = box.can_box()
    if reason:
        pytest.skip(reason)
    with demo(tmp_path) as one:
        one.says("Planned by")
        # A hook that dies between its question and the answer, which is a path.
        broker = one.runs("adon.service.serve")
        send(broker, signal.SIGSTOP)
        hook = one.until(
            lambda: next(filter(waits_for_answer, one.find("pre.py", "stage_in")), None), "a hook"
        )
        send(hook, signal.SIGKILL)
        send(broker, signal.SIGCONT)
        # A broker that dies while a transfer runs, and is there again when it ends or soon after.
        one.runs("globus-url-copy")
        send(broker, signal.SIGKILL)
        # One that is silent when a path is to be given back, and then dies. It falls silent while
        # the transfer runs: the hook after it may be over in less time than it takes to see it.
        one.until(lambda: transfers_of(one, "stage_out"), "a stage-out")
        silent = one.runs("adon.service.serve")
        send(silent, signal.SIGSTOP)
        post = one.runs("post.py", "stage_out")
        one.until(lambda: post not in one.find("post.py"), "the hook's end")
        send(silent, signal.SIGKILL)
        ran = one.ended()
    assert ran.code == 0, ran.output
    report = ran.report
    assert any("broker died and was started again 2 times" in w for w in report["warnings"])
    assert any("stage_out" in w and "left to its lease" in w for w in report["warnings"])
    assert report["open_reservations_at_end"] == report["flows_left_on_switches"] == 0
    lost, again = (
        [t for t in report["transits"] if t["job"].startswith("stage_in") and t["retry"] == retry]
        for retry in (0, 1)
    )
    abandoned = [t for t in lost if "abandoned" in t["reason"]]
    assert [t["job"] for t in abandoned] == [t["job"] for t in again]
    assert left_of(tmp_path) == []
