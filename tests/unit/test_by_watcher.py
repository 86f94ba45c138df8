"""A hook whose work the watcher does: what goes over, what comes back, and when it does its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hooks_world import PRE, FakeBroker, journal, make_submit_dir, move

from monitors.watcher.program import SOCKET, serving
from network_provisioner.client import hookclient
from pegasus_hooks import by_watcher
from pegasus_hooks.prepost import hookrun

JOB = "stage_in_local_b_0_0"
CALL = [JOB, "1", "2"]


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A submit directory that we are in, the hooks' configuration beside it."""
    for name in [name for name in os.environ if name.startswith("ADON_")]:
        monkeypatch.delenv(name)
    (tmp_path / "watch").mkdir()
    said = {"broker": "http://127.0.0.1:1", "watch": str(tmp_path / "watch")}
    (tmp_path / "hooks.json").write_text(json.dumps(said, indent=1))
    run = make_submit_dir(tmp_path / "run", {JOB: [move("f", "a", "b", 8)]})
    monkeypatch.chdir(run)
    return tmp_path


def call(where: Path, *words: str) -> list[str]:
    return ["--config", str(where / "hooks.json"), *words]


def test_words_go_over_and_the_exit_code_comes_back(where: Path) -> None:
    seen: list[list[str]] = []

    def run(words: list[str]) -> int:
        seen.append(words)
        return 4

    with serving(where / "watch", run):
        assert (where / "watch" / SOCKET).stat().st_mode & 0o777 == 0o600
        assert by_watcher.done("pre", call(where, "j\xfc", "", "2")) == 4
    assert seen == [["pre", str(where / "run"), *call(where, "j\xfc", "", "2")]]
    assert list((where / "watch").iterdir()) == []


def fails(_words: list[str]) -> int:
    raise RuntimeError


@pytest.mark.parametrize("run", [None, fails])
def test_a_watcher_that_is_not_there_or_cannot_leaves_it_to_the_hook(
    where: Path, run: Callable[[list[str]], int] | None
) -> None:
    assert by_watcher.done("pre", call(where, *CALL)) is None
    (where / "watch" / SOCKET).touch()  # of one that was killed
    assert by_watcher.done("pre", call(where, *CALL)) is None
    if run:
        with serving(where / "watch", run):
            assert by_watcher.done("pre", call(where, *CALL)) is None


def test_what_the_watcher_cannot_know_the_hook_does_itself(
    where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(where / "watch", lambda _words: 0):
        around = call(where, "--exitcode-path", "/x", "--", "-r", "0", "x.out")
        assert by_watcher.done("post", around) is None
        monkeypatch.setenv("ADON_TOKEN", "mine")
        assert by_watcher.done("pre", call(where, *CALL)) is None


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBroker]:
    fake = FakeBroker()
    monkeypatch.setattr(hookclient, "client_of", lambda _config: fake)
    yield fake


def test_the_watchers_work_is_the_hooks_own(where: Path, broker: FakeBroker) -> None:
    (where / "hooks.json").write_text('{"broker": "http://127.0.0.1:1"}')  # starts no watcher
    os.chdir("/")
    run = str(where / "run")
    assert hookrun.run_for_watcher(["pre", run, *call(where, *CALL)]) == 0
    (request,) = broker.asked
    assert (request.job, request.retry) == (JOB, 1)
    post = call(where, "--retry", "1", "--", "-r", "3", "-M", "x.meta", f".//00/00/{JOB}.out")
    assert hookrun.run_for_watcher(["post", run, *post]) == 0
    assert [(r[0], r[3]) for r in broker.released] == [(request.id, "exit 3")]
    assert [line["event"] for line in journal(where / "run")] == ["decision", "transfer"]


def test_a_hook_whose_work_is_done_imports_next_to_nothing(where: Path) -> None:
    with serving(where / "watch", lambda _words: 4):
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-X", "importtime", str(PRE), *call(where, *CALL)],
            env={}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 4
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert imported.isdisjoint({"json", "re", "pathlib", "dataclasses", "typing", "socket", "enum"})


def test_a_hook_that_asks_itself_imports_no_reader_of_records(where: Path) -> None:
    (where / "hooks.json").write_text('{"broker": "http://127.0.0.1:1"}')
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", str(PRE), *call(where, *CALL)],
        env={}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert "pegasus_hooks.prepost.prejob" in imported
    assert imported.isdisjoint({"monitors.workflows.logs", "datetime", "textwrap", "html"})
