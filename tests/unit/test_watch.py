"""Watching directories that come, go and are made anew, with and without the kernel's notice."""

from __future__ import annotations

import errno
import os
import resource
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from monitors.workflows.logs import watch as module
from monitors.workflows.logs.watch import (
    ANY,
    BestWatch,
    FileWatch,
    InotifyWatch,
    StatWatch,
    open_watch,
)

WAIT_S = 120.0


def heard(watch: FileWatch, folder: Path) -> bool:
    """Whether a change of ``folder`` is told; whatever was told about it before is."""
    return folder in watch.wait(WAIT_S)


@pytest.fixture(params=[BestWatch, InotifyWatch, StatWatch])
def watch(request: pytest.FixtureRequest) -> Iterable[FileWatch]:
    made: FileWatch = request.param({})
    yield made
    made.close()


def test_directories_are_added_and_dropped(watch: FileWatch, tmp_path: Path) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    for folder in (first, second):
        folder.mkdir()
        watch.add(folder, ["log"])
    (first / "log").write_text("x")
    (first / "other").write_text("x")
    assert watch.wait(WAIT_S) == {first}
    watch.add(first, ["other"])
    watch.drop(second)
    watch.drop(tmp_path / "never")
    (second / "log").write_text("x")
    (first / "other").write_text("xx")
    assert watch.wait(WAIT_S) == {first}
    assert watch.wait(0) == set()


def test_every_file_of_a_directory(watch: FileWatch, tmp_path: Path) -> None:
    watch.add(tmp_path, [ANY])
    (tmp_path / "whatever").write_text("x")
    assert heard(watch, tmp_path)


def test_a_file_that_comes_within_a_tick_of_the_directorys_own_time(tmp_path: Path) -> None:
    before = tmp_path.stat()
    watch = StatWatch({tmp_path: [ANY]})
    (tmp_path / "whatever").write_text("x")
    os.utime(tmp_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert watch.wait(0) == {tmp_path}
    assert watch.wait(0) == set()


def test_two_names_of_one_directory(watch: FileWatch, tmp_path: Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to("folder")
    watch.add(folder, ["log"])
    watch.add(link, ["log"])
    (folder / "log").write_text("x")
    assert watch.wait(WAIT_S) == {folder, link}
    watch.drop(folder)
    (folder / "log").write_text("xx")
    assert watch.wait(WAIT_S) == {link}


def test_a_directory_that_is_made_anew(tmp_path: Path) -> None:
    watch = open_watch({})
    folder = tmp_path / "folder"
    folder.mkdir()
    watch.add(folder, ["log"])
    folder.rename(tmp_path / "away")
    assert heard(watch, folder)
    folder.mkdir()
    (folder / "log").write_text("x")
    assert heard(watch, folder)
    (tmp_path / "away" / "log").write_text("x")
    while changed := watch.wait(0.3):
        assert changed == {folder}
    watch.close()


def test_one_that_is_not_there_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AGAIN_S", 0.0)
    watch = open_watch({tmp_path / "later": ["log"]})
    (tmp_path / "later").mkdir()
    assert heard(watch, tmp_path / "later")  # by the kernel from now on
    (tmp_path / "later" / "log").write_text("x")
    assert heard(watch, tmp_path / "later")
    watch.close()


def test_limits_that_are_used_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three are watched by the kernel, the others by their sizes."""
    add = InotifyWatch.add
    taken: set[Path] = set()

    def add_three(self: InotifyWatch, folder: Path, names: Iterable[str]) -> None:
        if len(taken | {folder}) > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken.add(folder)
        add(self, folder, names)

    monkeypatch.setattr(InotifyWatch, "add", add_three)
    folders = [tmp_path / str(number) for number in range(6)]
    for folder in folders:
        folder.mkdir()
    watch = open_watch({folder: ["log"] for folder in folders})
    for folder in folders:
        (folder / "log").write_text("x")
    seen: set[Path] = set()
    while seen != set(folders):
        changed = watch.wait(WAIT_S)
        assert changed
        seen |= changed
    assert len(taken) == 3
    watch.close()


def test_no_inotify_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(self: InotifyWatch, files: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(InotifyWatch, "__init__", none)
    watch = open_watch({tmp_path: ["log"]})
    (tmp_path / "log").write_text("x")
    assert heard(watch, tmp_path)
    watch.drop(tmp_path)
    watch.close()


class Watched(RuleBasedStateMachine):
    """Whatever is added, dropped, moved and written: a write to what is watched is told."""

    def __init__(self) -> None:
        super().__init__()
        import tempfile  # noqa: PLC0415

        self.root = tempfile.TemporaryDirectory()
        self.watch = open_watch({})
        self.watched: set[Path] = set()
        self.number = 0

    def folder(self, number: int) -> Path:
        return Path(self.root.name) / str(number)

    @rule(number=st.integers(0, 3))
    def is_added(self, number: int) -> None:
        self.folder(number).mkdir(exist_ok=True)
        self.watch.add(self.folder(number), ["log"])
        self.watched.add(self.folder(number))

    @rule(number=st.integers(0, 3))
    def is_dropped(self, number: int) -> None:
        self.watch.drop(self.folder(number))
        self.watched.discard(self.folder(number))

    @rule(number=st.integers(0, 3))
    def is_moved_away_and_made_anew(self, number: int) -> None:
        self.number += 1
        folder = self.folder(number)
        if folder.exists():
            folder.rename(folder.with_name(f"away{self.number}"))
        folder.mkdir()
        self.watch.wait(0)

    @rule(number=st.integers(0, 3))
    def is_written(self, number: int) -> None:
        folder = self.folder(number)
        if folder not in self.watched:
            return
        while self.watch.wait(0):
            pass
        self.number += 1
        with (folder / "log").open("a") as file:
            file.write(f"{self.number}\n")
        assert folder in self.watch.wait(WAIT_S)

    def teardown(self) -> None:
        self.watch.close()
        self.root.cleanup()


TestWatched = Watched.TestCase
TestWatched.settings = settings(max_examples=10, stateful_step_count=15)


def test_a_process_with_many_open_files(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("may not open so many")
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
        while not taken or taken[-1] < 1024:
            taken.append(os.open(os.devnull, os.O_RDONLY))
        watch = InotifyWatch({tmp_path: ["log"]})
        (tmp_path / "log").write_text("x")
        assert heard(watch, tmp_path)
        watch.close()
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_directories_are_added_while_another_thread_waits(watch: FileWatch, tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(100)]
    failed: list[Exception] = []
    ended = threading.Event()

    def waits() -> None:
        try:
            while not ended.is_set():
                watch.wait(0.0)
                time.sleep(0)  # whoever waits for its lock has a turn
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=waits)
    thread.start()
    for folder in folders:
        folder.mkdir()
        watch.add(folder, ["log"])
    for folder in folders[::2]:
        watch.drop(folder)
    ended.set()
    thread.join()
    assert failed == []
