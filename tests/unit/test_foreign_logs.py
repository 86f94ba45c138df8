"""Logs as HTCondor and DAGMan write them in runs of other kinds: nodes without a job, shadows that
are no jobs, jobs that are skipped."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
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
from monitors.workflows.logs.events import EventParser, Kind
from monitors.workflows.planned.dag_file import variables

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


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda values: st.lists(values, max_size=2),
)
ATTRIBUTES = {
    "EventTypeNumber": 40,
    "EventTime": "2026-11-21T08:24:36",
    "Cluster": 1,
    "Proc": 0,
    "Type": 2,
    "LogNotes": "DAG Node: a",
    "SubmitHost": "<192.0.2.1:9618>",
}


@given(st.sampled_from([*ATTRIBUTES]), ANYTHING)
def test_an_event_in_json_may_have_any_values(name: str, value: object) -> None:
    ad = json.dumps(ATTRIBUTES | {name: value})
    for read in EventParser(kinds=frozenset(Kind)).feed(f"{ad}\n".encode()):
        read.node.encode()  # no half of a character


def test_an_event_in_xml_may_have_any_characters() -> None:
    ad = (
        '<c>\n<a n="EventTypeNumber"><i>9</i></a>\n<a n="Cluster"><i>1</i></a>\n'
        '<a n="EventTime"><s>2026-11-21T08:24:36</s></a>\n<a n="Reason"><s>\x1b[1m by \xe9</s></a>'
        "\n</c>\n"
    )
    (read,) = EventParser().feed(ad.encode("latin-1"))
    assert read.reason == "\ufffd[1m by \ufffd"


def test_a_long_word_in_a_line_of_variables_is_looked_at_once() -> None:
    text = f"""a="x y"b=1 c = 'z' {"w" * 200_000} +d="=" """
    assert variables(text) == {"a": "x y", "b": "1", "c": "z", "my.d": "="}


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
