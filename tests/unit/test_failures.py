"""Which jobs failed and what they said, from files as DAGMan, HTCondor and kickstart write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitor_files import START, Submitted, append, executing, exiting, stamp, submitted, terminated
from test_kickstart import DOCUMENT

from monitors.workflows.logs.dagman import DagmanParser
from monitors.workflows.report import Failure, failures, tail_of

XML = """\
<invocation start="2026-11-21T10:00:01.000+00:00" duration="1.000" transformation="align">
  <mainjob start="2026-11-21T10:00:01.100+00:00" duration="0.9"><status raw="256"/></mainjob>
  <statcall error="0" id="stderr"><data>no &lt;such&gt; tree</data></statcall>
</invocation>
"""
ONE, TWO, STAGE = (job[0] for job in Submitted.JOBS)


def block(**reasons: str) -> str:
    """DAGMan's list of failed jobs."""
    lines = ["ERROR: the following job(s) failed:"]
    for node, reason in reasons.items():
        lines += [
            "---------------------- Node ----------------------",
            f"      Node Name: {node}",
            "           Noop: false",
            "Node return val: 3",
            f"          Error: {reason}",
            f"Job Submit File: {node}.sub",
        ]
    lines += ["---------------------------------------\t<END>", "Aborting DAG..."]
    return "".join(f"{stamp(START)} {line}\n" for line in lines)


def tried(cluster: int, job: str, at: float, returned: int) -> str:
    return (
        submitted(cluster, at, job)
        + executing(cluster, at + 1)
        + terminated(cluster, at + 2, returned)
    )


def test_a_job_that_failed_each_time(planned: Submitted) -> None:
    append(planned.nodes, tried(1, ONE, START, 3) + tried(2, ONE, START + 9, 7))
    append(planned.out, block(**{ONE: "Job proc (2.0.0) failed with status 7"}) + exiting(START, 1))
    errors = planned.output(ONE).with_suffix(".err")
    errors.write_text("reading\n\ncannot align\n")
    planned.output(ONE).write_text("adon-job-record: {}\n")
    assert failures(planned.path) == [
        Failure(
            ONE, "mu", 7, 2, "Job proc (2.0.0) failed with status 7", ["reading", "cannot align"],
            [errors, planned.output(ONE)],
        )
    ]  # fmt: skip


def test_what_failed_before_it_could_run_is_known_from_dagman_only(planned: Submitted) -> None:
    append(planned.nodes, tried(1, TWO, START, 1))
    append(
        planned.out,
        block(**{TWO: "Job proc failed", ONE: "PRE Script failed with status 2", STAGE: "x"}),
    )
    by_job = {f.job: f for f in failures(planned.path)}
    assert (by_job[ONE].exit_code, by_job[ONE].attempts, by_job[ONE].tail) == (None, 0, [])
    assert by_job[ONE].reason == "PRE Script failed with status 2"
    assert by_job[TWO].exit_code == 1


def test_where_dagman_was_killed_the_events_tell(planned: Submitted) -> None:
    append(planned.nodes, tried(1, ONE, START, 0) + tried(2, TWO, START, -9))
    (failure,) = failures(planned.path)
    assert (failure.job, failure.exit_code, failure.reason) == (TWO, -9, "")


def test_what_failed_first_comes_first(planned: Submitted) -> None:
    append(planned.nodes, tried(1, TWO, START, 1) + tried(2, ONE, START + 5, 1))
    append(planned.out, block(**{ONE: "a", TWO: "b"}))
    assert [f.job for f in failures(planned.path)] == [TWO, ONE]


def test_a_success_has_none(planned: Submitted) -> None:
    assert failures(planned.path) == []
    append(planned.nodes, tried(1, ONE, START, 1) + tried(2, ONE, START + 9, 0))
    assert failures(planned.path) == []


def test_only_the_last_run_counts(planned: Submitted) -> None:
    append(planned.out, block(**{ONE: "first"}) + block(**{TWO: "second"}))
    assert [f.job for f in failures(planned.path)] == [TWO]


def test_files_that_pegasus_exitcode_renamed_are_found_newest_first(planned: Submitted) -> None:
    append(planned.nodes, tried(1, ONE, START, 1))
    for number, words in enumerate(("old", "new")):
        planned.output(ONE).with_name(f"{ONE}.err.00{number}").write_text(words)
    (failure,) = failures(planned.path)
    assert failure.tail == ["new"] and failure.files[0].name == f"{ONE}.err.001"


@pytest.mark.parametrize(
    ("output", "tail"),
    [
        (DOCUMENT, ['lfn: "noise"', "size: 99", "- invocation: True"]),  # the program's own words
        ("ERROR: no route to host\nadon-job-record: {}\n", ["ERROR: no route to host"]),
        (XML, ["no <such> tree"]),  # of Pegasus 4
        ("", []),
    ],
)
def test_without_standard_error_the_output_tells(
    planned: Submitted, output: str, tail: list[str]
) -> None:
    append(planned.nodes, tried(1, ONE, START, 1))
    planned.output(ONE).with_suffix(".err").write_text(" \n")
    planned.output(ONE).write_text(output)
    (failure,) = failures(planned.path)
    assert [line.strip() for line in failure.tail] == tail


@given(st.text())
def test_any_text_has_a_tail_that_can_be_shown(text: str) -> None:
    lines = tail_of(text)
    assert len(lines) <= 20 and all(0 < len(k) <= 400 and k.isprintable() for k in lines)


@given(st.text(), st.integers(0, 400))
def test_a_torn_list_is_read_as_far_as_it_goes(noise: str, cut: int) -> None:
    def failed(text: str) -> dict[str, str]:
        parser = DagmanParser()
        list(parser.feed(f"{noise}\n{text}".encode()))
        return parser.failed

    whole = block(a="x", b="y")
    assert set(failed(whole[:cut])) <= {"a", "b"}
    assert failed(whole) == {"a": "x", "b": "y"}
