"""Programs of ours that are killed while a demo runs cost it warnings, and nothing else."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from demo_runs import Demo, demo, has_environment, left_of, send, waits_for_answer

from adon.machine import box

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.long, pytest.mark.timeout(3600)]


def transfers_of(demo_run: Demo, kind: str) -> list[int]:
    """The copies that a transfer job of some kind has started."""
    return [
        p
        for p in demo_run.find("globus-url-copy")
        if has_environment(p, f"PEGASUS_DAG_JOB_ID={kind}")
    ]


def test_a_killed_hook_and_a_killed_broker_cost_a_warning(tmp_path: Path) -> None:
    reason = box.can_box()
    if reason:
        pytest.skip(reason)
    with demo(tmp_path) as demo_run:
        demo_run.says("Planned by")
        # A hook that dies between its question and the answer, which is a path.
        broker = demo_run.runs("adon.service.serve")
        send(broker, signal.SIGSTOP)
        hook = demo_run.until(
            lambda: next(filter(waits_for_answer, demo_run.find("pre.py", "stage_in")), None),
            "a hook",
        )
        send(hook, signal.SIGKILL)
        send(broker, signal.SIGCONT)
        # A broker that dies while a transfer runs, and is there again when it ends or soon after.
        demo_run.runs("globus-url-copy")
        send(broker, signal.SIGKILL)
        # One that is silent when a path is to be given back, and then dies. It falls silent while
        # the transfer runs: the hook after it may be over in less time than it takes to see it.
        demo_run.until(lambda: transfers_of(demo_run, "stage_out"), "a stage-out")
        silent = demo_run.runs("adon.service.serve")
        send(silent, signal.SIGSTOP)
        post = demo_run.runs("post.py", "stage_out")
        demo_run.until(lambda: post not in demo_run.find("post.py"), "the hook's end")
        send(silent, signal.SIGKILL)
        ran = demo_run.ended()
    assert ran.code == 0, ran.output
    report = ran.report
    assert any("broker died and was started again 2 times" in w for w in report["warnings"])
    assert any("stage_out" in w and "ends with its lease" in w for w in report["warnings"])
    assert report["open_reservations_at_end"] == report["flows_left_on_switches"] == 0
    lost, again = (
        [t for t in report["transits"] if t["job"].startswith("stage_in") and t["retry"] == retry]
        for retry in (0, 1)
    )
    abandoned = [t for t in lost if "abandoned" in t["reason"]]
    assert [t["job"] for t in abandoned] == [t["job"] for t in again]
    assert left_of(tmp_path) == []
