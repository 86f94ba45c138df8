"""A run that cannot come to its end says what it waits for, and leaves a report when stopped."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest
from demo_runs import SMALL, demo, left_of, send

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]


def test_a_stopped_run_leaves_a_report_and_nothing_else(tmp_path: Path) -> None:
    with demo(tmp_path, (*SMALL, "--simulate")) as demo_run:
        demo_run.says(" done, ")  # the first status: the workflow is in the queue
        send(demo_run.pid, signal.SIGTERM)
        ran = demo_run.ended()
    assert ran.code == 128 + signal.SIGTERM, ran.output
    assert ran.output.endswith("adon: interrupted by SIGTERM\n")
    report = ran.report
    assert report["workflow"]["state"] == "interrupted"
    assert report["stopped"] == "interrupted by SIGTERM, while the workflow ran"
    assert report["open_reservations_at_end"] == 0
    assert left_of(tmp_path) == []


def test_a_killed_run_leaves_nothing_that_goes_on(tmp_path: Path) -> None:
    with demo(tmp_path, (*SMALL, "--simulate")) as demo_run:
        demo_run.runs("condor_schedd")
        demo_run.stop()
        assert left_of(tmp_path) == []


@pytest.mark.long
def test_a_run_that_is_stopped_says_what_failed_and_what_waited(tmp_path: Path) -> None:
    words = (sys.executable, str(Path(__file__).with_name("spoiled_demo.py")), *SMALL[3:])
    with demo(tmp_path, words) as demo_run:
        demo_run.says("Planned by")
        where = Path(re.findall(r" jobs in (\S+)", demo_run.output)[0])
        (broken,) = (file.stem for file in where.rglob("bwa_index_ID*.task"))
        (misplaced,) = (file.stem for file in where.rglob("faidx_ID*.task"))
        demo_run.says(f"job {misplaced} matches no slot: none of 8 slots has ")
        demo_run.says("1 failed")
        send(demo_run.pid, signal.SIGTERM)
        ran = demo_run.ended()
    assert ran.code == 128 + signal.SIGTERM, ran.output
    summary = ran.output[ran.output.index("workflow   interrupted: ") :]
    assert re.match(r"workflow   interrupted: \d of 15 jobs done in ", summary)
    assert re.search(rf"failed +{broken} at \w+: exit code 7, the last of \d attempts\n", summary)
    assert "| reading\n" in summary and "| cannot do it\n" in summary
    assert f"{where}/00/00/{broken}.err\n" in summary
    assert f"waiting    job {misplaced} matches no slot" in summary
    assert summary.endswith("adon: interrupted by SIGTERM\n")
    report = ran.report
    assert report["workflow"]["state"] == "interrupted"
    assert report["stopped"] == "interrupted by SIGTERM, while the workflow ran"
    assert [f["job"] for f in report["failures"]] == [broken]
    assert report["open_reservations_at_end"] == report["flows_left_on_switches"] == 0
    assert broken in ran.page and "cannot do it" in ran.page
    assert left_of(tmp_path) == []
