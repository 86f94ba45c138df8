"""Runs one after the other within a second: DAGMan tells whole seconds, HTCondor parts of them."""

from __future__ import annotations

import tempfile
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_files import (
    START,
    Submitted,
    aborted,
    append,
    exiting,
    starting,
    submitted,
    table,
    terminated,
)

from monitors.archive import Archive
from monitors.follow.follower import Follower

FAILED = ("out", table(START, fail=1) + exiting(START, 1))
DONE = ("out", table(START, done=1) + exiting(START, 0))
BEGINS = ("out", starting(START))


def log(text: str) -> tuple[str, str]:
    return ("dagman", text)


# In the order in which they are written.
RESCUED = [
    log(submitted(6, START + 0.1)), BEGINS, FAILED, log(terminated(6, START + 0.5, 1)),
    log(submitted(8, START + 0.7)), BEGINS, ("out", table(START, queued=1)), DONE,
    log(terminated(8, START + 0.9)),
]  # fmt: skip
KILLED = [*RESCUED[:7], log(aborted(8, START + 0.8))]  # without a word of its own


def states(archive: Archive) -> list[str]:
    return [m.details["state"] for m in archive.query("status")]


def follow(written: list[tuple[str, str]], portions: list[int]) -> list[str]:
    """Reads after so many more were written, each time with a follower that knows nothing."""
    with tempfile.TemporaryDirectory() as folder, Archive(":memory:") as archive:
        planned = Submitted(Path(folder) / "run")
        live = Follower(planned.path, archive)
        at = 0
        for end in [*accumulate(portions), len(written)]:
            for name, text in written[at:end]:
                append(getattr(planned, name), text)
            at = max(at, end)
            live.poll()
            Follower(planned.path, archive).poll()
        assert live.poll(), "an end is not seen"
        assert Follower(planned.path, archive).poll(), "an end is not seen by who begins late"
        return states(archive)


@pytest.mark.parametrize("portions", [[], [4], [5], [6], [3, 3]])
def test_the_end_of_the_run_before_is_told_once(portions: list[int]) -> None:
    told = follow(RESCUED, portions)
    assert (told.count("failed"), told.count("done"), told[-1]) == (1, 1, "done")


@settings(max_examples=30)
@given(st.lists(st.integers(1, 3), max_size=6))
def test_whenever_it_is_read(portions: list[int]) -> None:
    told = follow(RESCUED, portions)
    assert (told.count("failed"), told.count("done")) == (1, 1)
    told = follow(KILLED, portions)
    assert (told.count("failed"), told.count("removed")) == (1, 1)
