"""DAGMan's tables become statuses, in whatever portions and beside whatever garbage they come."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_files import START, exiting, removal, stamp, starting, table, whole_run

from monitors.workflows.logs.dagman import DagmanParser, StatusChange, StepKind
from monitors.workflows.logs.status import WorkflowState


def read(text: str | bytes) -> list[StatusChange]:
    return changes(DagmanParser(), text.encode() if isinstance(text, str) else text)


def changes(parser: DagmanParser, data: bytes) -> list[StatusChange]:
    return [event for event in parser.feed(data) if isinstance(event, StatusChange)]


def test_a_table_gives_the_eight_fields() -> None:
    (change,) = read(
        table(START, done=7, pre=1, queued=2, post=3, ready=4, unready=5, fail=6, futile=2)
    )
    assert list(change.status.fields().values()) == [5, 4, 1, 2, 3, 7, 6, 23.33]
    assert (change.status.total, change.status.futile, change.status.at) == (30, 2, START)
    assert change.status.state is WorkflowState.RUNNING


def test_reads_the_tables_of_versions_without_futile() -> None:
    (change,) = read(table(START, done=1, unready=3, futile=None))
    assert (change.status.done, change.status.unready, change.status.futile) == (1, 3, 0)


@pytest.mark.parametrize(
    "prefix",
    [
        "11/14/23 22:13:20.250",
        "11/14/23 22:13:20.250 (pid:77)",
        "11/14/23 22:13:20.250 (pid:77) (D_ALWAYS)",
        "2023-11-14T22:13:20.250",
        "2023-11-14 22:13:20.250",
    ],
)
def test_reads_the_time_formats_that_debug_settings_make(prefix: str) -> None:
    text = table(START, queued=1).replace(stamp(START), prefix)
    (change,) = read(text)
    assert change.status.in_queue == 1
    assert change.status.at % 1 == 0.25


@pytest.mark.parametrize(
    ("ending", "state"),
    [
        (exiting(START + 9, 1), WorkflowState.FAILED),
        (exiting(START + 9, 2), WorkflowState.FAILED),
        (removal(START + 8) + exiting(START + 9, 2), WorkflowState.REMOVED),
        (exiting(START + 9, 3), WorkflowState.RUNNING),
        (exiting(START + 9, 0), WorkflowState.DONE),
    ],
)
def test_every_end_has_its_state(ending: str, state: WorkflowState) -> None:
    parser = DagmanParser()
    changes(parser, (starting() + table(START, queued=1) + ending).encode())
    assert parser.current is not None
    assert parser.current.state is state
    assert parser.current.in_queue == 1


def test_an_end_before_any_table_is_told() -> None:
    (change,) = read(starting() + exiting(START + 1, 1))
    assert change.status.state is WorkflowState.FAILED
    assert change.status.total == 0


def test_an_earlier_removal_does_not_colour_a_later_failure() -> None:
    first = starting() + table(START, queued=1) + removal(START) + exiting(START, 2)
    second = starting(START + 9) + table(START + 9, fail=1) + exiting(START + 9, 1)
    assert [c.status.state for c in read(first + second)][-1] is WorkflowState.FAILED


def test_a_torn_table_counts_for_nothing_and_the_next_one_counts() -> None:
    torn = "".join(table(START, queued=1).splitlines(keepends=True)[:3])
    (change,) = read(torn + table(START + 1, post=1))
    assert change.status.post == 1


def test_a_table_of_unknown_columns_counts_for_nothing() -> None:
    assert read(table(START, queued=1).replace("Queued", "Queueing")) == []


def test_all_done_is_a_hundred_percent_and_nothing_else_is() -> None:
    (change,) = read(table(START, done=99_999, queued=1))
    assert change.status.percent_done == 99.99
    (change,) = read(table(START, done=100_000))
    assert change.status.percent_done == 100.0


RUN = (whole_run(steps=4) + starting(START + 99) + table(START + 99, fail=1)).encode()


@settings(max_examples=30)
@given(st.lists(st.integers(0, len(RUN)), max_size=30))
def test_portions_do_not_matter(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(RUN)]
    parser = DagmanParser()
    status_changes = [
        change
        for start, end in itertools.pairwise(edges)
        for change in changes(parser, RUN[start:end])
    ]
    assert status_changes == read(RUN)
    assert len({change.key for change in status_changes}) == len(status_changes)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, len(RUN)), st.binary(max_size=80)), max_size=8))
def test_garbage_never_crashes_and_what_follows_is_read(places: list[tuple[int, bytes]]) -> None:
    damaged = RUN
    for place, garbage in sorted(places, reverse=True):
        damaged = damaged[:place] + garbage + damaged[place:]
    parser = DagmanParser()
    changes(parser, damaged)
    changes(
        parser, b"\n" + (table(START + 500, done=3, ready=1) + exiting(START + 501, 1)).encode()
    )
    assert parser.current is not None
    assert parser.current.done == 3
    assert parser.current.ended


def test_a_file_without_line_ends_does_not_fill_the_memory() -> None:
    parser = DagmanParser()
    for _ in range(64):
        assert changes(parser, b"x" * 100_000) == []
    (change,) = changes(parser, b"\n" + table(START, queued=1).encode())
    assert change.status.in_queue == 1


def test_a_clock_that_is_set_back_leaves_the_newest_the_newest() -> None:
    status_changes = read((table(START + 3000, queued=1) + table(START + 10, done=1)).encode())
    status_changes += read((table(START, queued=1) + exiting(START - 3600, 0)).encode())
    assert [change.status.at for change in status_changes] == [
        START + 3000,
        START + 3000,
        START,
        START,
    ]
    assert len({change.key for change in status_changes}) == 4


def test_starts_and_ends_are_told_before_the_changes_that_they_make() -> None:
    text = (
        starting(START) + table(START + 1, queued=1) + starting(START + 50)
        + table(START + 51, queued=1) + exiting(START + 52, 1) + starting(START + 60)
    )  # fmt: skip
    sequence = [
        str(event.status.state)
        if isinstance(event, StatusChange)
        else (event.step, event.at - START, event.again)
        for event in DagmanParser().feed(text.encode())
        if isinstance(event, StatusChange) or event.step is not StepKind.PID
    ]
    assert sequence == [
        (StepKind.STARTED, 0, False), "running", (StepKind.STARTED, 50, False),
        (StepKind.EXITED, 52, False), "failed", (StepKind.STARTED, 60, True), "running",
    ]  # fmt: skip


@given(st.lists(st.integers(0, 6), max_size=40))
def test_there_and_back_within_a_second_is_told_each_time(counts: list[int]) -> None:
    text = "".join(table(START, queued=count, total=9) for count in counts)
    status_changes = read(text)
    expected = [count for n, count in enumerate(counts) if n == 0 or counts[n - 1] != count]
    assert [change.status.in_queue for change in status_changes] == expected
    assert len({change.key for change in status_changes}) == len(status_changes)
