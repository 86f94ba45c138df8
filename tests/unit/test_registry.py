"""Registering a workflow and waking a watcher, while others do so at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import waiting
from hypothesis import given
from hypothesis import strategies as st

from monitors.watcher import registry
from pegasus_hooks.prepost import WATCHER

UUID = "11111111-2222-3333-4444-555555555555"
WAIT_S = 60.0
until = partial(waiting.until, timeout_s=WAIT_S)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "hooks.json"
    watch = str(tmp_path / "watch")
    file.write_text(json.dumps({"broker": "http://127.0.0.1:9", "watch": watch}))
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The watcher that was woken here is ended."""
    folder = tmp_path / "watch"
    yield folder
    assert registry.end(folder, WAIT_S)


def test_registered_once_with_all_that_is_needed(folder: Path, config: Path) -> None:
    for _ in range(2):
        registry.register(folder, config, config.parent / "run", UUID)
    (entry,) = registry.entries(folder)
    assert (entry.workflow, entry.submit_dir) == (UUID, config.parent / "run")
    assert (entry.config, entry.host) == (config, registry.this_host())
    assert folder.stat().st_mode & 0o777 == 0o700


def test_dropped_unless_registered_again(folder: Path, config: Path) -> None:
    registry.register(folder, config, config.parent, UUID)
    (old,) = registry.entries(folder)
    registry.register(folder, config, config.parent, UUID)
    assert not registry.drop(old)
    (new,) = registry.entries(folder)
    assert new.touched > old.touched
    assert registry.drop(new)
    assert list(registry.entries(folder)) == []
    assert registry.drop(new)
    assert not list(folder.glob(".*"))


def test_never_lost_between_a_watcher_and_hooks(folder: Path, config: Path) -> None:
    """A watcher drops as soon as it can; what was registered after it looked is there."""
    rounds = 60
    registry.register(folder, config, config.parent, UUID)
    stop = threading.Event()

    def watcher() -> None:
        while not stop.is_set():
            for entry in registry.entries(folder):
                registry.drop(entry)

    dropping = threading.Thread(target=watcher)
    dropping.start()
    for _ in range(rounds):
        registry.register(folder, config, config.parent, UUID)
    stop.set()
    dropping.join()
    registry.register(folder, config, config.parent, UUID)
    assert len(list(registry.entries(folder))) == 1


def test_what_is_no_entry_is_passed_over(folder: Path, config: Path) -> None:
    assert list(registry.entries(folder)) == []
    registry.register(folder, config, config.parent, UUID)
    for name, text in {"a.json": "[1]", "b.json": "{", "c.json": "{}", "d.txt": "x"}.items():
        (folder / name).write_text(text)
    assert [entry.workflow for entry in registry.entries(folder)] == [UUID]


def test_an_unwritable_folder_says_so(tmp_path: Path, config: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        registry.register(tmp_path / "file" / "watch", config, tmp_path, UUID)
    with pytest.raises(OSError):
        registry.wake(tmp_path / "file" / "watch", config, WATCHER)


def test_where_the_folder_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert registry.folder_of("~/x/watch") == Path("/home/me/x/watch")
    assert registry.folder_of("/x") == Path("/x")
    for bad in ("x", "", "~nobody-has-this-name/x"):
        with pytest.raises(OSError, match="no absolute path"):
            registry.folder_of(bad)


@given(st.text(), st.text())
def test_names_are_plain_and_differ(first: str, second: str) -> None:
    names = [registry._name(text) for text in (first, second)]
    assert all("/" not in name and name.isascii() for name in names)
    if max(map(len, names)) < 200:
        assert (names[0] == names[1]) == (first == second)


def test_environment_of_a_watcher() -> None:
    kept = registry.outlasting(
        {"_CONDOR_ANCESTOR_1": "2", "CONDOR_INHERIT": "x", "HOME": "/h", "CONDOR_CONFIG": "/c"}
    )
    assert kept == {"HOME": "/h", "CONDOR_CONFIG": "/c"}


def test_one_watcher_only_and_nobodys_child(
    folder: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_CONDOR_ANCESTOR_1", "2:3:4")
    registry.register(folder, config, config.parent / "gone", UUID)
    woken = [registry.wake(folder, config, WATCHER) for _ in range(5)]
    assert woken == [True, False, False, False, False]
    until(lambda: (folder / registry.LOCK).read_text().strip())
    pid = int((folder / registry.LOCK).read_text())
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    assert int(stat[1]) != os.getpid() and int(stat[3]) != os.getsid(0)
    environ = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"_CONDOR_ANCESTOR" not in environ
    assert Path(f"/proc/{pid}/cwd").resolve() == Path("/")
    until(lambda: f"{UUID}: watched in" in (folder / registry.LOG).read_text())


def test_one_that_is_not_there_need_not_end(folder: Path) -> None:
    assert registry.end(folder)


def test_one_that_does_not_say_who_it_is_is_left_alone(folder: Path) -> None:
    lock = registry.hold(folder)
    assert lock is not None
    assert not registry.end(folder, 0.1)
    os.close(lock)
    assert registry.end(folder)


def test_the_number_of_a_process_that_has_not_the_lock_is_no_reason_to_end_it(folder: Path) -> None:
    """Who takes the lock has not written yet, and the number before was given away again."""
    stranger = subprocess.Popen(["sleep", "60"])
    lock = registry.hold(folder)
    assert lock is not None
    (folder / registry.LOCK).write_text(f"{stranger.pid}\n")
    assert not registry.end(folder, 0.1)
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()
    os.close(lock)
