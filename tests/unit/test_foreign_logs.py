"""Logs as HTCondor and DAGMan write them in runs of other kinds: nodes without a job, shadows that
are no jobs, jobs that are skipped."""

from __future__ import annotations

import pytest
from monitor_files import (
    START,
    Submitted,
    event,
    executing,
    exiting,
    starting,
    submitted,
    table,
    terminated,
)

from monitors.archive.archive import Archive
from monitors.jobs.condor import ads
from monitors.workflows.analysis import Analysis, analyse
from monitors.workflows.follower import Follower
from monitors.workflows.logs.events import EventParser

ONE, TWO, STAGE = (name for name, *_ in Submitted.JOBS)


def analysed(planned: Submitted, archive: Archive, nodes: str) -> Analysis:
    planned.out.write_text(starting() + table(START + 90, done=3) + exiting(START + 91, 0))
    planned.nodes.write_text(nodes)
    Follower(planned.path, archive).poll()
    return analyse(archive.query("job"))


def numbered(log: str, *numbers: int) -> str:
    """The events of a log under another process and subprocess number."""
    return log.replace(".000.000)", "".join(f".{number:03d}" for number in numbers) + ")")


def test_a_node_without_a_job_is_no_attempt(planned: Submitted, archive: Archive) -> None:
    made_up = "".join(
        numbered(submitted(0, START, node) + terminated(0, START), 2**31 - 1, number)
        for number, node in enumerate((ONE, TWO), 1)
    )
    log = submitted(1, START, STAGE) + executing(1, START + 1) + terminated(1, START + 9)
    analysis = analysed(planned, archive, made_up + log)
    assert analysis.outcomes == {"done": 1}


def test_a_shadow_that_sends_common_files_is_no_job() -> None:
    shadow = numbered(executing(1, START + 1) + terminated(1, START + 3), -1000, 0)
    log = submitted(1, START, ONE) + shadow + executing(1, START + 4)
    assert [event.proc for event in EventParser().feed(log.encode())] == [0, 0]


def test_a_job_that_was_skipped_has_no_run_time(planned: Submitted, archive: Archive) -> None:
    skipped = event(46, 1, START + 3, "Dataflow job was skipped.", "Output files are newer")
    log = submitted(1, START, ONE) + skipped + terminated(1, START + 3)
    log += submitted(2, START, TWO) + executing(2, START + 5) + terminated(2, START + 35)
    (run,) = analysed(planned, archive, log).runtimes
    assert (run.count, run.min_s, run.failed) == (1, 30.0, 0)


@pytest.mark.parametrize(
    ("printed", "clusters"),
    [("", []), ("[\n]\n", []), ('[{"ClusterId": 1}]\n\n[\n{"ClusterId": 2}\n]\n', [1, 2]),
     ("-- Failed to fetch ads", None), ('[{"ClusterId": 1}] x', None), ("{}", None)],
)  # fmt: skip
def test_jobs_as_commands_print_them(printed: str, clusters: list[int] | None) -> None:
    jobs = ads(printed)
    assert (None if jobs is None else [ad["ClusterId"] for ad in jobs]) == clusters
