"""A whole workflow in a storm: it fails or is removed and is run again as a rescue, while its logs
come in pieces of any length, are rotated, cannot be read for a while, the archive is full now and
then, and followers are killed, begin again, and follow it twice.

What counts is what a follower finds that nothing ever happened to.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from monitor_files import (
    START,
    Submitted,
    aborted,
    append,
    event,
    executing,
    exiting,
    removal,
    starting,
    submitted,
    table,
    terminated,
)  # fmt: skip

from monitors.archive import Archive, ArchiveError
from monitors.measurement import Measurement
from monitors.workflows.follower import Follower
from monitors.workflows.logs import tail

JOBS = [job[0] for job in Submitted.JOBS]
RUNS = ["failed", "removed", "removed while held", "killed", "done"]
EMPTIED = ""  # DAGMan empties nodes.log at every start


@dataclass(frozen=True)
class Act:
    """Something that DAGMan or HTCondor does: ``text`` goes to the end of ``file``."""

    file: str
    text: str


def held(cluster: int, at: float) -> str:
    return event(12, cluster, at, "Job was held.", "Error from slot1_1@mu: no more disk")


def both(text: str) -> Iterator[Act]:
    """What HTCondor tells of a job stands in DAGMan's log of it and in the workflow's."""
    yield Act("log", text)
    yield Act("nodes", text)


def script(ends: Iterable[str]) -> Iterator[Act]:
    """Runs one after the other in one directory, each taking up what the one before left."""
    at, cluster, left = START, 10, list(JOBS)
    for end in ends:
        at += 100
        dagman, cluster = cluster, cluster + 1
        yield Act("dagman", submitted(dagman, at))
        yield Act("dagman", executing(dagman, at + 0.5))
        yield Act("nodes", EMPTIED)
        yield Act("out", starting(at + 1))
        done = len(JOBS) - len(left)
        for job in list(left):
            at += 10
            rest = len(left) - 1
            yield from both(submitted(cluster, at + 0.25, job))
            yield Act("out", table(at + 1, done=done, queued=1, unready=rest))
            yield from both(executing(cluster, at + 2.5))
            if end == "removed while held":
                yield from both(held(cluster, at + 3.125))
            if end.startswith("removed") or end == "killed":
                break
            yield from both(terminated(cluster, at + 6.5, int(end == "failed")))
            if end == "failed":
                yield Act("out", table(at + 7, done=done, fail=1, unready=rest))
                break
            done, cluster = done + 1, cluster + 1
            left.remove(job)
            yield Act("out", table(at + 7, done=done, unready=rest))
        at += 20
        if end.startswith("removed"):
            yield Act("out", removal(at))
            yield from both(aborted(cluster, at + 0.5))
            yield Act("dagman", aborted(dagman, at + 0.75))
        elif end != "killed":  # of a killed one nobody writes anything
            code = int(end != "done")
            yield Act("out", exiting(at, code))
            yield Act("dagman", terminated(dagman, at + 0.5, code))
        cluster += 1
        if not left:
            return


def path_of(planned: Submitted, file: str) -> Path:
    paths = {"out": planned.out, "nodes": planned.nodes, "dagman": planned.dagman}
    return paths.get(file, planned.log)


class Door:
    """An archive whose disk is full now and then."""

    def __init__(self) -> None:
        self.archive, self.is_full = Archive(":memory:"), False

    def record_many(self, measurements: Iterable[Measurement]) -> int:
        if self.is_full:
            raise ArchiveError("the disk is full")
        return self.archive.record_many(measurements)


def found(archive: Archive) -> dict[str, Any]:
    """All measurements, without where the directory is."""
    every = [one for metric in archive.metrics() for one in archive.query(metric)]
    return {
        one.id: (one.metric, one.subject, one.value, one.at, dict(one.details) | {"output": ""})
        for one in every
        if one.metric != "workflow"
    }


def undisturbed(acts: Iterable[Act], folder: Path) -> dict[str, Any]:
    """What a follower finds that looks after every act."""
    planned = Submitted(folder / "calm")
    with Archive(":memory:") as archive:
        follower = Follower(planned.path, archive)
        for act in acts:
            path = path_of(planned, act.file)
            if act.text == EMPTIED:
                path.write_bytes(b"")
            append(path, act.text)
            follower.poll()
        return found(archive)


class Storm(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.planned = Submitted(Path(self.folder.name) / "run")
        self.door = Door()
        self.followers = [Follower(self.planned.path, self.door)]
        self.locked: set[str] = set()
        self.acts: list[Act] = []
        self.next, self.part = 0, 0
        self.aside = 0
        open_file = os.open

        def opened(path: Any, flags: int, *rest: Any, **more: Any) -> int:
            if str(path) in self.locked and not flags & os.O_CREAT:
                raise PermissionError(13, "Permission denied", str(path))
            return open_file(path, flags, *rest, **more)

        self.patch = mock.patch.object(tail.os, "open", opened)
        self.patch.start()

    @initialize(ends=st.lists(st.sampled_from(RUNS), min_size=1, max_size=3))
    def planned_so(self, ends: list[str]) -> None:
        self.acts = list(script(ends))

    def write(self, n_chars: int) -> None:
        while n_chars > 0 and self.next < len(self.acts):
            act = self.acts[self.next]
            path = path_of(self.planned, act.file)
            if act.text == EMPTIED:
                path.write_bytes(b"")  # whoever has not read it yet finds it in the other log
            piece = act.text[self.part : self.part + n_chars]
            append(path, piece)
            n_chars -= len(piece) or 1
            self.part += len(piece)
            if self.part >= len(act.text):
                self.next, self.part = self.next + 1, 0

    @property
    def full(self) -> bool:
        return self.door.is_full

    def look(self) -> None:
        for follower in self.followers:
            try:
                follower.poll()
            except ArchiveError:
                assert self.full

    @rule(n_chars=st.integers(1, 2000))
    def something_is_written(self, n_chars: int) -> None:
        self.write(n_chars)

    @rule()
    def followers_look(self) -> None:
        self.look()

    @rule(which=st.integers(0, 2))
    def a_follower_is_killed(self, which: int) -> None:
        del self.followers[which : which + 1]

    @precondition(lambda self: len(self.followers) < 2)
    @rule()
    def a_follower_begins(self) -> None:
        self.followers.append(Follower(self.planned.path, self.door))

    @rule(full=st.booleans())
    def the_disk_is_full_or_not(self, full: bool) -> None:
        self.door.is_full = full

    @rule(file=st.sampled_from(["out", "nodes", "dagman", "log"]), locked=st.booleans())
    def a_file_cannot_be_read_or_can(self, file: str, locked: bool) -> None:
        name = str(path_of(self.planned, file))
        (self.locked.add if locked else self.locked.discard)(name)

    def ends_with_a_line(self) -> bool:
        """DAGMan writes whole lines, and whoever rotates does it between two."""
        return self.planned.out.exists() and self.planned.out.read_bytes()[-1:] in (b"", b"\n")

    @rule()
    def dagmans_log_is_put_aside(self) -> None:
        # By one scheme: of files written in one tick of the kernel's clock names alone tell which
        # was first.
        self.aside += 1
        path = self.planned.out.with_name(f"{self.planned.out.name}.{self.aside}")
        if self.ends_with_a_line() and not path.exists():
            self.planned.out.rename(path)
            self.planned.out.touch()

    @rule()
    def dagmans_log_is_copied_and_emptied(self) -> None:
        self.aside += 1
        path = self.planned.out.with_name(f"{self.planned.out.name}.{self.aside}")
        if self.ends_with_a_line() and not path.exists():
            path.write_bytes(self.planned.out.read_bytes())
            os.truncate(self.planned.out, 0)

    def teardown(self) -> None:
        try:
            self.write(10**9)
            self.locked.clear()
            self.door.is_full = False
            self.look()
            again = Follower(self.planned.path, self.door)
            again.poll()
            calm = undisturbed(self.acts, Path(self.folder.name))
            stormy = found(self.door.archive)
            assert {key: (stormy.get(key), calm.get(key)) for key in stormy | calm
                    if stormy.get(key) != calm.get(key)} == {}  # fmt: skip
        finally:
            self.patch.stop()
            self.door.archive.close()
            self.folder.cleanup()


TestStorm = pytest.mark.long(Storm.TestCase)
TestStorm.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def test_one_storm() -> None:
    """A small one, always the same."""
    storm = Storm()
    try:
        storm.planned_so(["failed", "removed while held", "done"])
        for turn in range(60):
            storm.write(170)
            storm.the_disk_is_full_or_not(turn % 11 == 5)
            storm.a_file_cannot_be_read_or_can(("out", "nodes", "dagman", "log")[turn % 4],
                                               turn % 7 == 3)  # fmt: skip
            if turn % 9 == 4:
                storm.dagmans_log_is_put_aside()
            if turn % 13 == 8:
                storm.a_follower_is_killed(0)
            if len(storm.followers) < 2:
                storm.a_follower_begins()
            storm.look()
    finally:
        storm.teardown()
