"""Whatever follows within a second, in whatever order the files are read, and whichever begins
when: what is recorded is what happened, once.

Runs of a workflow, one after the other in one directory, as DAGMan and HTCondor write them (seen
with 25.14.1): DAGMan's own words in whole seconds, HTCondor's events in milliseconds, or in whole
seconds too. Between any two files that a follower reads more is written to all of them.
"""

from __future__ import annotations

import itertools
import math
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from follow_histories import ONE, TWO, History, World, found, histories
from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_files import (
    START,
    Submitted,
    aborted,
    append,
    event,
    executing,
    exiting,
    stamp,
    starting,
    submitted,
    table,
    terminated,
)

from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement
from monitors.jobs import logs
from monitors.workflows.follower import Follower
from monitors.workflows.logs.tail import Piece, Tail

READ = Tail.read


def counts_of(statuses: list[Measurement]) -> list[tuple[Any, ...]]:
    names = ("state", "done", "in_queue", "fail", "total")
    return [tuple(status.details[name] for name in names) for status in statuses]


def check(history: History, portions: list[int], each: int, keep: bool, together: int) -> None:
    """What is recorded is what happened, with a follower that looks whenever something was written
    ``together`` events at a time, and with one that reads it all afterwards."""
    with (
        mock.patch("monitors.workflows.followed._LATE_S", 0.0),
        tempfile.TemporaryDirectory() as name,
        Archive(":memory:") as archive,
        Archive(":memory:") as afterwards,
    ):
        world = World(Path(name) / "run", history.acts, portions)

        def read(self: Tail) -> Iterator[Piece]:
            world.more()
            return READ(self)

        live = Follower(world.planned.path, archive, keep=keep)
        with mock.patch.object(Tail, "read", read), mock.patch.object(logs, "_PORTION", together):
            for look in itertools.count():
                if not world.portions:
                    break
                world.more()
                live.poll()
                if look % each == 0:
                    Follower(world.planned.path, archive).poll()
        world.write(10**9)
        assert live.poll() and Follower(world.planned.path, afterwards).poll()
        calm, stormy = found(afterwards), found(archive)
        assert {key: (stormy.get(key), calm.get(key)) for key in stormy | calm
                if stormy.get(key) != calm.get(key)} == {}  # fmt: skip
        for store in (archive, afterwards):
            assert counts_of(store.query("status")) == history.statuses
            jobs = [m.details for m in store.query("job")]
            by_key = {
                (m.details["job"], int(m.id.split(":")[-2].split(".")[0])): m.details
                for m in store.query("job")
            }
            ran = {key: job for key, job in by_key.items() if key[1]}
            assert {
                key: {name: job[name] for name in history.attempts.get(key, job)}
                for key, job in ran.items()
            } == history.attempts
            assert sorted(j["job"] for j in jobs if not j["submitted_at"] or j["reason"]
                          .startswith("PRE")) == sorted(history.lost)  # fmt: skip
            held = [m for m in store.query("held") if ":run:" not in m.id]
            assert not held or held[-1].value == 0
            assert math.isclose(sum(m.value for m in held) * 2, len(held))


CASES = given(
    histories(), st.lists(st.integers(0, 900), max_size=60), st.integers(1, 5), st.booleans(),
    st.sampled_from([1, 10_000]),
)  # fmt: skip
test_what_is_recorded_is_what_happened = settings(max_examples=6)(CASES(check))
test_what_is_recorded_is_what_happened_long = pytest.mark.long(
    settings(max_examples=100)(CASES(check))
)


# ---------------------------------------------------------------- the smallest that went wrong


def read_now(planned: Submitted, archive: Archive) -> None:
    Follower(planned.path, archive).poll()


def both(planned: Submitted, text: str) -> None:
    append(planned.log, text)
    append(planned.nodes, text)


def test_the_last_words_of_a_run_that_nobody_read_before_the_next_began(tmp_path: Path) -> None:
    """The follower was stopped for a while; DAGMan empties its log of the jobs at every start."""
    planned = Submitted(tmp_path / "run")
    with Archive(":memory:") as archive:
        live = Follower(planned.path, archive)
        both(planned, submitted(1, START, ONE) + executing(1, START + 1))
        live.poll()
        append(planned.log, terminated(1, START + 5, 1))
        append(planned.log, submitted(2, START + 9, ONE))
        planned.nodes.write_text(submitted(2, START + 9, ONE))
        live.poll()
        assert [m.details["outcome"] for m in archive.query("job")] == ["failed"]


def test_how_a_script_ended_is_known_after_its_log_was_emptied(tmp_path: Path) -> None:
    """The job returned 0 and its POST failed it: DAGMan's own log says so for good."""
    planned = Submitted(tmp_path / "run")
    append(planned.path / "wf-0.dag", f"SCRIPT POST {ONE} /bin/check\n")
    ran = submitted(1, START, ONE) + executing(1, START + 1) + terminated(1, START + 5)
    append(planned.log, ran + submitted(2, START + 20, ONE))
    planned.nodes.write_text(submitted(2, START + 20, ONE))
    now = stamp(START + 7)
    append(
        planned.out,
        starting(START)
        + f"{now} Event: ULOG_POST_SCRIPT_TERMINATED for HTCondor Node {ONE} (1.0.0) {{{now}}}\n"
        + f"{now} POST Script of node {ONE} died on signal 9 (Killed)\n"
        + exiting(START + 8, 1)
        + starting(START + 19),
    )
    with Archive(":memory:") as archive:
        read_now(planned, archive)
        assert [m.details["outcome"] for m in archive.query("job")] == ["failed"]
        assert archive.query("runtime") == []


def test_a_rerun_within_the_second_in_which_the_run_before_was_killed(tmp_path: Path) -> None:
    """Its words have whole seconds: they are not older than the end that HTCondor reported."""
    planned = Submitted(tmp_path / "run")
    append(planned.dagman, submitted(6, START + 0.1) + executing(6, START + 0.1))
    append(planned.out, starting(START) + table(START, queued=1))
    append(planned.dagman, aborted(6, START + 0.5) + submitted(8, START + 0.6))
    append(planned.out, starting(START))
    with Archive(":memory:") as archive:
        live = Follower(planned.path, archive)
        live.poll()
        assert archive.query("status")[-1].details["state"] == "running"
        append(planned.out, table(START, done=1) + exiting(START, 0))
        append(planned.dagman, terminated(8, START + 0.9))
        assert live.poll()
        states = [m.details["state"] for m in archive.query("status")]
    assert states == ["running", "removed", "running", "running", "done"]


def test_one_that_waits_to_run_again_has_not_ended(tmp_path: Path) -> None:
    """Where HTCondor's logs have whole seconds, it was submitted when the one before ended."""
    planned = Submitted(tmp_path / "run")
    append(planned.dagman, submitted(6, START - 9) + executing(6, START - 9))
    append(planned.out, starting(START - 9) + table(START, fail=1) + exiting(START, 1))
    append(planned.dagman, terminated(6, START, 1) + submitted(8, START))
    with Archive(":memory:") as archive:
        assert not Follower(planned.path, archive).poll()


def test_jobs_that_never_ran_are_known_of_every_run(tmp_path: Path) -> None:
    """DAGMan's list of what failed stands at the end of each run, also before a later one."""
    planned = Submitted(tmp_path / "run")
    for number, at in enumerate((START, START + 100)):
        append(planned.dagman, submitted(6 + number, at) + executing(6 + number, at))
        append(planned.out, starting(at) + table(at + 1, fail=1))
        append(planned.out, f"{stamp(at + 2)} ERROR: the following job(s) failed:\n")
        append(planned.out, f"{stamp(at + 2)}       Node Name: {(ONE, TWO)[number]}\n")
        append(planned.out, exiting(at + 2, 1))
        append(planned.dagman, terminated(6 + number, at + 2.5, 1))
    append(planned.dagman, submitted(9, START + 200) + executing(9, START + 200))
    append(planned.out, starting(START + 200) + exiting(START + 210, 1))  # no list, no jobs
    with Archive(":memory:") as archive:
        read_now(planned, archive)
        lost = [(m.details["job"], m.at) for m in archive.query("job")]
    assert lost == [(ONE, START + 2), (TWO, START + 102)]


def test_held_released_and_held_within_a_second(tmp_path: Path) -> None:
    planned = Submitted(tmp_path / "run")
    held = event(12, 1, START + 2, "Job was held.", "no more disk")
    again = held + event(13, 1, START + 2, "Job was released.") + held
    both(planned, submitted(1, START, ONE) + executing(1, START + 1) + again)
    with Archive(":memory:") as archive:
        read_now(planned, archive)
        assert [m.value for m in archive.query("held")] == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("removed_at", [START + 3, START + 8])
def test_when_the_end_of_a_removed_job_is_read_changes_nothing_of_the_next_run(
    tmp_path: Path, removed_at: float
) -> None:
    """HTCondor writes it while the rescue runs. Who reads along knows the rescue's jobs before, who
    reads afterwards knows the end first: DAGMan has emptied its log of the run that was removed."""
    planned = Submitted(tmp_path / "run")
    with Archive(":memory:") as archive, Archive(":memory:") as afterwards:
        live = Follower(planned.path, archive)
        append(planned.dagman, submitted(1, START) + executing(1, START))
        both(planned, submitted(2, START + 1, TWO) + executing(2, START + 2))
        live.poll()
        append(planned.dagman, aborted(1, START + 3))
        append(planned.dagman, submitted(3, START + 4) + executing(3, START + 4))
        planned.nodes.write_text("")
        both(planned, submitted(4, START + 5, TWO) + executing(4, START + 6))
        live.poll()
        both(planned, aborted(2, removed_at))
        live.poll()
        both(planned, terminated(4, START + 9))
        live.poll()
        read_now(planned, afterwards)
        assert found(archive) == found(afterwards)
        waits = [m.details for m in afterwards.query("queue_wait", "mu")]
        assert [(wait["started_s"], wait["width"]) for wait in waits] == [(1.0, 1), (1.0, 1)]


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("season", [(2026, 1, 1), (2026, 7, 1)])
def test_the_hour_that_comes_twice(tmp_path: Path, season: tuple[int, int, int]) -> None:
    """Clocks go back from 3:00 to 2:00: a job that ends then has not ended before it began, and
    every follower takes it for the same, whatever times it was asked for before."""
    autumn = datetime(2026, 10, 25, 0, 40, tzinfo=UTC).timestamp()  # 2:40 for the first time
    planned = Submitted(tmp_path / "run")
    ran = submitted(1, autumn, ONE) + executing(1, autumn + 60) + terminated(1, autumn + 1800)
    both(planned, ran)  # at 2:10 for the second
    append(planned.dagman, submitted(9, autumn) + executing(9, autumn + 1))
    append(planned.out, starting(autumn) + table(autumn, queued=1))
    append(planned.dagman, aborted(9, autumn + 1900))
    time.mktime((*season, 0, 0, 0, 0, 0, -1))  # the C library remembers whether it was summer
    with Archive(":memory:") as archive:
        read_now(planned, archive)
        (job,) = archive.query("job")
        assert (job.details["submitted_at"], job.at) == (autumn, autumn + 1800)
        assert archive.query("status")[-1].details["state"] == "removed"
        assert archive.query("status")[-1].at == autumn + 1900


# ---------------------------------------------------------------- runs within one second

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
    recorded_states = follow(RESCUED, portions)
    assert (
        recorded_states.count("failed"),
        recorded_states.count("done"),
        recorded_states[-1],
    ) == (1, 1, "done")


@pytest.mark.parametrize("portions", [[], [3], [7]])
def test_a_run_that_was_killed_within_the_second_in_which_it_began(portions: list[int]) -> None:
    recorded_states = follow(KILLED, portions)
    assert (recorded_states.count("failed"), recorded_states.count("removed")) == (1, 1)
