"""The watcher over several workflows, and as a program."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from broker_model import BrokerModel
from hooks_world import FakeBroker, make_submit_dir, move
from made_transit import made_transit

from adon.cli.main import main
from monitors.jobs.jobs import DagmanState, Jobs
from monitors.watcher import program, registry, watcher
from monitors.watcher.actions import Watched
from monitors.watcher.decision_file import DecisionFile
from monitors.watcher.pending import PendingActions
from monitors.watcher.registered import Files, RegisteredWorkflows
from monitors.watcher.watcher import Watcher
from monitors.workflows.logs.watch import FileWatch, StatWatch
from monitors.workflows.planned import job_files
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.model import TransitState
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.hookconfig import HookConfig
from pegasus_hooks.prepost import watched_jobs

JOB = "stage_in_local_tacc_0_0"
ENDED = "11/21/26 10:00:00 **** condor_dagman (condor_DAGMAN) pid 3 EXITING WITH STATUS 0\n"
CONFIG = HookConfig("http://fallback")


class Listening:
    """Hears everything."""

    def __init__(self) -> None:
        self.heard: list[DagmanState] = []
        self.ticks = 0

    def on(self, jobs: Jobs, name: str, /) -> None:
        if not name and jobs.dag is not None:
            self.heard.append(jobs.dag.state)

    def tick(self, now: float, /) -> None:
        self.ticks += 1


class World:
    """A folder with one workflow, a clock and a watcher."""

    def __init__(self, tmp_path: Path) -> None:
        self.time = 0.0
        self.folder = tmp_path / "watch"
        self.config = tmp_path / "hooks.json"
        self.run = make_submit_dir(tmp_path / "run", {JOB: [move("f", "mu", "tacc", 5)]})
        self.write_config()
        registry.register(self.folder, self.config, self.run, "wf")
        self.listener = Listening()
        self.configs: list[HookConfig] = []
        self.waits = 0
        self.stop = threading.Event()
        self.restart()

    def restart(self) -> None:
        workflows = RegisteredWorkflows(
            self.folder, CONFIG, watched_jobs, listener_of=self.listen, clock=lambda: self.time
        )
        self.watcher = Watcher(workflows, self.client_of, lambda: self.time, self.watch)

    def write_config(self) -> None:
        data = {"broker": "http://127.0.0.1:9", "watch": str(self.folder)}
        self.config.write_text(json.dumps(data))

    def listen(self, watched: Watched) -> Listening:
        self.configs.append(watched.config)
        return self.listener

    def client_of(self, config: HookConfig) -> FakeBroker:
        raise InputError("no broker in this world")

    def watch(self, files: Mapping[Path, Iterable[str]]) -> FileWatch:
        world = self

        class Quick(StatWatch):
            def wait(self, timeout_s: float) -> set[Path]:
                world.time += timeout_s
                world.waits += 1
                if world.waits > 1000:
                    world.stop.set()
                return set()

        return Quick(files)

    def steps(self, count: int) -> bool:
        busy = False
        for _ in range(count):
            busy = self.watcher.step()
            self.time += 1.0
        return busy

    def end(self) -> None:
        with (self.run / "flow-0.dag.dagman.out").open("a") as out:
            out.write(ENDED)

    def registered(self) -> int:
        return len(list(registry.entries(self.folder)))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_followed_until_its_dag_has_ended(world: World) -> None:
    assert world.steps(20)
    assert world.registered() == 1
    world.end()
    world.steps(3)
    assert world.listener.heard == [DagmanState.ENDED]
    assert world.listener.ticks >= 20
    assert world.configs[0].broker == "http://127.0.0.1:9"


def test_a_workflow_without_a_name_is_not_swept_and_ends(tmp_path: Path) -> None:
    world = World(tmp_path)
    (entry,) = registry.entries(world.folder)
    registry.drop(entry)
    registry.register(world.folder, world.config, world.run, "")
    world.end()
    assert not world.steps(12)
    assert world.registered() == 0


def test_one_that_runs_again_is_followed_on(world: World) -> None:
    world.end()
    world.steps(3)
    registry.register(world.folder, world.config, world.run, "wf")
    with (world.run / "flow-0.dag.dagman.out").open("a") as out:
        out.write("11/21/26 10:00:09 ** condor_dagman (CONDOR_DAGMAN) STARTING UP\n")
    assert world.steps(30)
    assert world.registered() == 1


@pytest.mark.parametrize("followed", [True, False])
def test_what_a_deleted_directory_held_is_back_within_10_s(
    world: World, monkeypatch: pytest.MonkeyPatch, followed: bool
) -> None:
    """No log tells how it ended, no decision file what it holds; the watcher may be another one."""
    ids = [f"wf:{JOB}:{retry}:mu-tacc" for retry in (0, 1)]
    broker = BrokerModel({i: made_transit(i, "mu", "tacc", TransitState.INSTALLED) for i in ids})
    monkeypatch.setattr(world, "client_of", lambda _config: broker)
    world.restart()
    if followed:
        job_files.write_json(world.run / "00/00" / f"{JOB}.adon.json", {"pairs": [{"id": ids[0]}]})
        world.steps(3)
    shutil.rmtree(world.run)
    world.steps(10)
    assert broker.live() == []
    assert not world.steps(2)
    assert world.registered() == 0


def test_a_directory_that_cannot_be_seen_is_not_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(_path: Path) -> bool:
        raise OSError(errno.ESTALE, "Stale file handle")

    world.steps(1)
    monkeypatch.setattr(Path, "exists", stale)
    assert world.steps(20)
    assert world.registered() == 1


def test_a_damaged_workflow_is_not_the_others_trouble(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "braindump.yml").write_text("{")
    registry.register(world.folder, world.config, bad, "bad")
    assert world.steps(3)
    assert [r.getMessage() for r in caplog.records if "braindump" in r.getMessage()] != []
    world.end()
    world.steps(3)
    assert DagmanState.ENDED in world.listener.heard


def test_a_fault_in_one_workflow_is_not_the_others_trouble(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = make_submit_dir(tmp_path / "bad", {})
    registry.register(world.folder, world.config, bad, "a")
    read = Files.decision_files

    def failing(files: Files) -> list[DecisionFile]:
        if files.logs[0].parent == bad:
            raise ValueError("what nobody thought of")
        return read(files)

    monkeypatch.setattr(Files, "decision_files", failing)
    world.end()
    world.steps(3)
    assert world.listener.heard == [DagmanState.ENDED]


def test_a_configuration_that_is_gone_has_a_stand_in(world: World) -> None:
    world.config.unlink()
    world.steps(1)
    assert world.configs == [CONFIG]


def test_it_runs_until_nothing_is_left(world: World) -> None:
    shutil.rmtree(world.run)
    world.watcher.run(world.stop, idle_s=60.0)
    assert world.time >= 60.0
    assert not world.stop.is_set()


def test_it_runs_until_it_is_stopped(world: World) -> None:
    world.watcher.run(world.stop, idle_s=60.0)
    assert world.stop.is_set()


def test_what_is_added_again_is_tried_for_no_longer() -> None:
    class Refused:
        key, owner, config, kept_s = "release a", "wf", CONFIG, 10.0

        def do(self, _: BrokerClient) -> None:
            raise BrokerError("not now", "conflict")

    now = [0.0]
    client: Any = None
    pending = PendingActions(lambda _: client, lambda: now[0])
    for now[0] in (0.0, 6.0, 12.0):
        assert len(pending) == (now[0] > 0)
        pending.add(Refused())
        pending.work()
    assert len(pending) == 0


def test_what_comes_when_the_lock_is_given_up_is_still_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    runs = []

    def run(_: Watcher, stop: threading.Event, idle_s: float | None = None) -> None:
        runs.append(idle_s)
        if len(runs) == 2:
            for entry in registry.entries(world.folder):
                registry.drop(entry)

    lock = registry.hold(world.folder)
    assert lock is not None
    monkeypatch.setattr(Watcher, "run", run)
    workflows = RegisteredWorkflows(world.folder, CONFIG, watched_jobs)
    program.watch(workflows, lock, world.stop, lambda _words: 0, 60.0)
    assert runs == [60.0, 60.0]
    free = registry.hold(world.folder)
    assert free is not None
    os.close(free)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "no key 'broker'"),
        ('{"broker": "http://b"}', "no key 'watch'"),
    ],
)
def test_the_command_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    file = tmp_path / "hooks.json"
    file.write_text(text)
    assert main(["watch", "--hooks", str(file)]) == 2
    assert words in capsys.readouterr().err


def test_the_command_runs_until_it_is_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And waits for another watcher's end."""
    other = registry.hold(world.folder)
    assert other is not None

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            os.close(other)
            return False

    calls = []
    monkeypatch.setattr(watcher, "stop_event", Stop)
    monkeypatch.setattr(program, "watch", lambda *arguments: calls.append(arguments))
    assert main(["watch", "--hooks", str(world.config)]) == 0
    assert "another watcher" in capsys.readouterr().out
    ((watching, lock, _stop, _run_hook),) = calls
    place = watching.folder, watching.config.broker
    assert place == (world.folder, "http://127.0.0.1:9")
    os.close(lock)
