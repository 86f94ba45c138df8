"""A workflow in a storm: it fails or is removed and is run again as a rescue, while its logs come
in pieces of any length, are rotated, cannot be read for a while, the archive is full now and then,
and followers are killed, begin again, and follow it twice.

What counts is what a follower finds that nothing ever happened to.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from follow_histories import History, World, found, histories
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from monitors.archive.archive import Archive, ArchiveError
from monitors.base.measurement import Measurement
from monitors.workflows.follower import Follower
from monitors.workflows.logs import tail


class Door:
    """An archive whose disk is full now and then."""

    def __init__(self) -> None:
        self.archive, self.is_full = Archive(":memory:"), False

    def record_many(self, measurements: Iterable[Measurement]) -> int:
        if self.is_full:
            raise ArchiveError("the disk is full")
        return self.archive.record_many(measurements)


def undisturbed(acts: Sequence[tuple[str, str]], folder: Path) -> dict[str, Any]:
    """What a follower finds that looks after every act."""
    world = World(folder, acts, [])
    with Archive(":memory:") as archive:
        follower = Follower(world.planned.path, archive)
        for _, text in acts:
            world.write(len(text) or 1)
            follower.poll()
        return found(archive)


class Storm(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.world = World(Path(self.folder.name) / "run", [], [])
        self.planned = self.world.planned
        self.door = Door()
        self.followers = [Follower(self.planned.path, self.door)]
        self.locked: set[str] = set()
        self.aside = 0
        open_file = os.open

        def opened(path: Any, flags: int, *rest: Any, **more: Any) -> int:
            if str(path) in self.locked and not flags & os.O_CREAT:
                raise PermissionError(13, "Permission denied", str(path))
            return open_file(path, flags, *rest, **more)

        self.patch = mock.patch.object(tail.os, "open", opened)
        self.patch.start()

    @initialize(history=histories())
    def planned_so(self, history: History) -> None:
        self.world.acts = history.acts

    def observe(self) -> None:
        for follower in self.followers:
            try:
                follower.poll()
            except ArchiveError:
                assert self.door.is_full

    @rule(n_chars=st.integers(1, 2000))
    def something_is_written(self, n_chars: int) -> None:
        self.world.write(n_chars)

    @rule()
    def followers_look(self) -> None:
        self.observe()

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
        name = str(getattr(self.planned, file))
        (self.locked.add if locked else self.locked.discard)(name)

    def is_between_lines(self) -> bool:
        """DAGMan writes whole lines, and rotation happens between two."""
        out = self.world.open_out
        return out.exists() and out.read_bytes()[-1:] in (b"", b"\n")

    def may_be_rotated(self) -> bool:
        return self.world.open_out == self.planned.out and self.is_between_lines()

    def next_aside(self) -> Path:
        # By one scheme: of files written in one tick of the kernel's clock names alone tell which
        # was first.
        self.aside += 1
        return self.planned.out.with_name(f"{self.planned.out.name}.{self.aside}")

    @precondition(may_be_rotated)
    @rule(is_open=st.booleans())
    def dagmans_log_is_put_aside(self, is_open: bool) -> None:
        """Where DAGMan has it open, it goes on writing to it until it opens the new one."""
        aside = self.next_aside()
        self.planned.out.rename(aside)
        self.planned.out.touch()
        if is_open:
            self.world.open_out = aside

    @precondition(is_between_lines)
    @rule()
    def dagman_opens_its_log_anew(self) -> None:
        self.world.open_out = self.planned.out

    @precondition(may_be_rotated)
    @rule()
    def dagmans_log_is_copied_and_emptied(self) -> None:
        self.next_aside().write_bytes(self.planned.out.read_bytes())
        os.truncate(self.planned.out, 0)

    def teardown(self) -> None:
        try:
            self.world.write(10**9)
            self.locked.clear()
            self.door.is_full = False
            self.observe()
            Follower(self.planned.path, self.door).poll()
            calm = undisturbed(self.world.acts, Path(self.folder.name) / "calm")
            stormy = found(self.door.archive)
            assert {key: (stormy.get(key), calm.get(key)) for key in stormy | calm
                    if stormy.get(key) != calm.get(key)} == {}  # fmt: skip
        finally:
            self.patch.stop()
            self.door.archive.close()
            self.folder.cleanup()


TestStorm = pytest.mark.long(Storm.TestCase)
TestStorm.settings = settings(max_examples=100, stateful_step_count=30)


@settings(max_examples=4)
@given(histories())
def test_a_small_storm(history: History) -> None:
    storm = Storm()
    try:
        storm.planned_so(history)
        for turn in range(60):
            storm.something_is_written(170)
            storm.the_disk_is_full_or_not(turn % 11 == 5)
            storm.a_file_cannot_be_read_or_can(("out", "nodes", "dagman", "log")[turn % 4],
                                               turn % 7 == 3)  # fmt: skip
            if turn % 9 == 4 and storm.may_be_rotated():
                storm.dagmans_log_is_put_aside(turn % 2 == 0)
            if turn % 9 == 7 and storm.is_between_lines():
                storm.dagman_opens_its_log_anew()
            if turn % 13 == 8:
                storm.a_follower_is_killed(0)
            if len(storm.followers) < 2:
                storm.a_follower_begins()
            storm.observe()
    finally:
        storm.teardown()
