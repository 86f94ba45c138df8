"""A run that cannot come to its end says what it waits for, and leaves a report when stopped."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from demo_runs import SMALL, Demo, demo, left_of, send

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

WORDS = "echo reading >&2; echo cannot do it >&2; exit 7"


def test_a_stopped_run_leaves_a_report_and_nothing_else(tmp_path: Path) -> None:
    with demo(tmp_path, (*SMALL, "--simulate")) as one:
        one.says(" done, ")  # the first status: the workflow is in the queue
        send(one.pid, signal.SIGTERM)
        ran = one.ended()
    assert ran.code == 128 + signal.SIGTERM, ran.output
    assert ran.output.endswith("adon: interrupted by SIGTERM\n")
    report = ran.report
    assert report["workflow"]["state"] == "interrupted"
    assert report["stopped"] == "interrupted by SIGTERM, while the workflow ran"
    assert report["open_reservations_at_end"] == 0
    assert left_of(tmp_path) == []


def test_a_killed_run_leaves_nothing_that_goes_on(tmp_path: Path) -> None:
    with demo(tmp_path, (*SMALL, "--simulate")) as one:
        one.runs("condor_schedd")
        one.stop()
        assert left_of(tmp_path) == []


def submit_dir(one: Demo) -> Path:
    """Where the workflow was planned to; its first job for a site is still seconds away."""
    one.says("Planned by")
    return Path(re.findall(r" jobs in (\S+)", one.output)[0])


def break_job(where: Path, name: str) -> str:
    """Have a job fail; its name."""
    (task,) = where.rglob(f"{name}_ID*.task")
    data = json.loads(task.read_text())
    data |= {"executable": "/bin/sh", "arguments": ["-c", WORDS], "stdout": None, "stderr": None}
    task.write_text(json.dumps(data))
    return task.stem


def misplace_job(where: Path, name: str) -> str:
    """Have a job ask for a site that is not there; its name."""
    (file,) = where.rglob(f"{name}_ID*.sub")
    text = file.read_text()
    assert "PegasusSite" in text
    file.write_text(re.sub(r'PegasusSite == "\w+"', 'PegasusSite == "mars"', text))
    return file.stem


def submitted(where: Path, *jobs: str) -> bool:
    """Whether DAGMan has submitted any of them."""
    said = "".join(log.read_text() for log in where.glob("*.dag.dagman.out"))
    return any(f"Submitting HTCondor Node {job} " in said for job in jobs)


@contextmanager
def doomed(tmp_path: Path) -> Iterator[tuple[Demo, Path, str, str]]:
    """A demo, where it was planned to, a job of it that will fail and one that will wait. A busy
    machine may not let us break them before they run: then there is another."""
    for number in range(5):
        place = tmp_path / str(number)
        place.mkdir()
        with demo(place) as one:
            where = submit_dir(one)
            broken = break_job(where, "bwa_index")
            misplaced = misplace_job(where, "faidx")
            if not submitted(where, broken, misplaced):
                yield one, where, broken, misplaced
                return
    pytest.fail("the jobs ran before they were broken, every time")


@pytest.mark.long
def test_a_run_that_is_stopped_says_what_failed_and_what_waited(tmp_path: Path) -> None:
    with doomed(tmp_path) as (one, where, broken, misplaced):
        one.says(f"job {misplaced} matches no slot: none of 8 slots has ")
        one.says("1 failed")
        send(one.pid, signal.SIGTERM)
        ran = one.ended()
    assert ran.code == 128 + signal.SIGTERM, ran.output
    said = ran.output[ran.output.index("workflow   interrupted: ") :]
    assert re.match(r"workflow   interrupted: \d of 15 jobs done in ", said)
    assert re.search(rf"failed +{broken} at \w+: exit code 7, the last of \d attempts\n", said)
    assert "| reading\n" in said and "| cannot do it\n" in said
    assert f"{where}/00/00/{broken}.err\n" in said
    assert f"waiting    job {misplaced} matches no slot" in said
    assert said.endswith("adon: interrupted by SIGTERM\n")
    report = ran.report
    assert report["workflow"]["state"] == "interrupted"
    assert report["stopped"] == "interrupted by SIGTERM, while the workflow ran"
    assert [f["job"] for f in report["failures"]] == [broken]
    assert report["open_reservations_at_end"] == report["flows_left_on_switches"] == 0
    assert broken in ran.page and "cannot do it" in ran.page
    assert left_of(one.place) == []
