"""The hooks as DAGMan runs them, around the real pegasus-transfer, with a real broker and with
brokers that are broken in every way."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hooks_world
import pytest
from broker_service import BrokerService
from hooks_world import (
    PATIENT_S,
    POST,
    PRE,
    WF_UUID,
    hook,
    journal,
    listening,
    make_submit_dir,
    move,
)
from network_world import star
from Pegasus import transfer as pegasus_transfer

from monitors.watcher.actions import GiveBack, Watched
from monitors.watcher.decision_file import DecisionFile
from monitors.workflows.planned import job_files
from network_provisioner.base.model import TransitState
from network_provisioner.client import hookconfig
from network_provisioner.client.broker import BrokerClient
from pegasus_hooks.prepost import watched_jobs

pytestmark = pytest.mark.component

JOB = "stage_in_local_tacc_0_0"
TRANSIT = f"{WF_UUID}:{JOB}:0:mu-tacc"
SIZE = 300_000
NETWORK = star("mu", "tacc")
# So that a test's few bytes are worth a circuit.
TEMPLATES = {
    "default": {
        "qspec": {"min_throughput": "10 Mb/s"},
        "rspec": {"max_throughput": "1 Gb/s"},
        "break_even": 0,
        "tuning": {"streams": 7, "buffer": "2 MiB"},
    }
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    with BrokerService(tmp_path, NETWORK, TEMPLATES) as service:
        yield service.url


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """One stage-in of a real file, declared without a size in its list."""
    source, target = tmp_path / "mu", tmp_path / "tacc"
    source.mkdir()
    (source / "reads.fq").write_bytes(os.urandom(SIZE))
    entry = move("reads.fq", "mu", "tacc", None, str(source), str(target))
    run = make_submit_dir(tmp_path / "run", {JOB: [entry]}, ["align_ID1"])
    (run / "00/00" / f"{JOB}.multipart").mkdir()
    return run


def config(run: Path, url: str, **more: Any) -> str:
    return str(hooks_world.write_config(run / "hooks.json", url, **more))


def transfer(run: Path) -> int:
    """The transfer job as its submit file runs it."""
    tool = Path(pegasus_transfer.__file__).parent / "cli" / "pegasus-transfer.py"
    multipart = run / "00/00" / f"{JOB}.multipart"
    with (run / "00/00" / f"{JOB}.in").open() as entries:
        return subprocess.call(
            [sys.executable, str(tool), "--threads", "1", "--max-attempts", "1"],
            stdin=entries,
            stdout=subprocess.DEVNULL,
            env={"PATH": "/usr/bin:/bin", "PEGASUS_MULTIPART_DIR": str(multipart)},
        )


def test_path_asked_for_transfer_measured_and_path_given_back(broker: str, run_dir: Path) -> None:
    file = config(run_dir, broker)
    assert hook(PRE, run_dir, "--config", file, JOB, "0", "2").returncode == 0
    client = BrokerClient(broker, PATIENT_S)
    transit = client.get(TRANSIT)
    assert (transit.state, transit.grant.path) == (TransitState.INSTALLED, ["mu", "s1", "tacc"])
    assert transit.grant.granted_bps > 0
    code = transfer(run_dir)
    assert code == 0
    assert hook(POST, run_dir, "--config", file, JOB, "0", str(code)).returncode == 0
    ended = client.get(TRANSIT)
    assert (ended.state, ended.usage.bytes) == (TransitState.RELEASED, SIZE)
    decision, moved = journal(run_dir)
    assert (decision["event"], decision["state"]) == ("decision", "installed")
    assert (moved["event"], moved["bytes"], moved["outcome"]) == ("transfer", SIZE, "success")
    assert client.health()["live"] == 0


def test_a_failed_transfer_gives_its_path_back(broker: str, run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "mu" / "reads.fq").unlink()
    file = config(run_dir, broker)
    hook(PRE, run_dir, "--config", file, JOB, "0", "2")
    code = transfer(run_dir)
    assert code != 0
    assert hook(POST, run_dir, "--config", file, JOB, "0", str(code)).returncode == code
    assert BrokerClient(broker, PATIENT_S).get(TRANSIT).state is TransitState.RELEASED
    assert journal(run_dir)[-1]["failed_attempts"] == 1


def test_around_pegasus_exitcode(broker: str, run_dir: Path) -> None:
    file = config(run_dir, broker)
    hook(PRE, run_dir, "--config", file, JOB, "1", "2")
    code = transfer(run_dir)
    seen = run_dir / "seen"
    check = run_dir / "pegasus-exitcode"
    check.write_text(f'#!/bin/sh\nprintf "%s|" "$@" > {seen}\nexit 41\n')
    check.chmod(0o755)
    theirs = ["-r", str(code), "-l", "f.log", "-s", "a b", f".//00/00/{JOB}.out"]  # Pegasus 5.1's
    ours = ["--config", file, "--exitcode-path", str(check), "--retry", "1"]
    done = hook(POST, run_dir, *ours, "--", *theirs)
    assert done.returncode == 41
    assert seen.read_text() == "".join(f"{word}|" for word in theirs)
    second = TRANSIT.replace(":0:", ":1:")
    assert BrokerClient(broker, PATIENT_S).get(second).state is TransitState.RELEASED


def test_a_broker_that_stopped_in_between_is_told_later(
    broker: str, run_dir: Path, tmp_path: Path
) -> None:
    hook(PRE, run_dir, "--config", config(run_dir, broker), JOB, "0", "2")
    assert transfer(run_dir) == 0
    (record,) = (run_dir / "00/00" / f"{JOB}.multipart").iterdir()
    # A local copy takes less than the tenth of a second that the tool resolves.
    record.write_text(record.read_text().replace("duration: 0.0", "duration: 0.2"))
    archive = tmp_path / "archive.sqlite"
    away = config(run_dir, "http://127.0.0.1:9", archive=str(archive))
    assert hook(POST, run_dir, "--config", away, JOB, "0", "0").returncode == 0
    assert "ends with its lease" in job_files.warnings(run_dir)[0]
    assert not archive.exists()  # it is the broker's alone
    decision = DecisionFile.read(run_dir / "00/00" / f"{JOB}.adon.json")
    watched = Watched(WF_UUID, run_dir, hookconfig.load(Path(away)))
    later = GiveBack(watched, lambda *_: None, decision, decision.pairs[0], "", watched_jobs)
    later.do(BrokerClient(broker, PATIENT_S))
    transit = BrokerClient(broker, PATIENT_S).get(TRANSIT)
    assert (transit.state, transit.usage.bytes) == (TransitState.RELEASED, SIZE)


BROKEN: dict[str, Callable[[socket.socket], None]] = {
    "never answers": hooks_world.never,
    "answers 500": hooks_world.respond(hooks_world.http("500 No", b"oops")),
    "answers garbage": hooks_world.respond(b"\x00\xff garbage\r\n\r\n"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_broker_stops_nobody_and_is_recorded(run_dir: Path, how: str) -> None:
    with listening(BROKEN[how]) as url:
        file = config(run_dir, url, timeout_s=0.3)
        assert hook(PRE, run_dir, "--config", file, JOB, "0", "2").returncode == 0
        assert hook(POST, run_dir, "--config", file, JOB, "0", "7").returncode == 7
    reasons = job_files.warnings(run_dir)
    assert "best effort" in reasons[0]
    assert journal(run_dir)[0]["state"] == "unasked"


def test_a_broker_that_is_down(run_dir: Path) -> None:
    file = config(run_dir, "http://127.0.0.1:9")
    assert hook(PRE, run_dir, "--config", file, JOB, "0", "2").returncode == 0
    assert "127.0.0.1:9" in job_files.warnings(run_dir)[0]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda run: (run / "00/00" / f"{JOB}.in").write_text("[{"), "expected a JSON transfer"),
        (lambda run: (run / "braindump.yml").unlink(), "expected Pegasus's braindump.yml"),
        (lambda run: (run / "flow-0.dag").unlink(), "cannot be read"),
        (lambda run: (run / "hooks.json").write_text("{}"), "no key 'broker'"),
        (lambda run: (run / "hooks.json").write_text('{"broker": "mailto:x"}'), "broker URL"),
    ],
)
def test_a_damaged_submit_directory_stops_nobody(
    run_dir: Path, damage: Callable[[Path], object], words: str
) -> None:
    file = config(run_dir, "http://127.0.0.1:9")
    damage(run_dir)
    assert hook(PRE, run_dir, "--config", file, JOB, "0", "2").returncode == 0
    assert words in job_files.warnings(run_dir)[0]


def test_a_journal_that_cannot_be_written_stops_nobody(run_dir: Path) -> None:
    file = config(run_dir, "http://127.0.0.1:9")
    (run_dir / "adon-hooks.jsonl").symlink_to("/dev/full")  # no link is followed
    done = hook(PRE, run_dir, "--config", file, JOB, "0", "2")
    assert done.returncode == 0 and "adon pre hook: " in done.stderr


def test_a_killed_hook_leaves_nothing_half_written(run_dir: Path, broker: str) -> None:
    request_seen = threading.Event()

    def swallow(connection: socket.socket) -> None:
        connection.recv(65536)
        request_seen.set()

    with listening(swallow) as url:
        file = config(run_dir, url)
        command = [sys.executable, "-I", "-S", str(PRE), "--config", file, JOB, "0", "2"]
        with subprocess.Popen(command, cwd=run_dir) as running:
            assert request_seen.wait(PATIENT_S)
            running.send_signal(signal.SIGKILL)
    assert journal(run_dir) == []
    record = json.loads((run_dir / "00/00" / f"{JOB}.adon.json").read_text())
    assert [p["id"] for p in record["pairs"]] == [TRANSIT]
    assert not list((run_dir / "00/00").glob(".*"))
    # The retry, with the broker back, asks anew and holds one path only.
    assert hook(PRE, run_dir, "--config", config(run_dir, broker), JOB, "1", "2").returncode == 0
    live = [t.id for t in BrokerClient(broker, PATIENT_S).list(state="installed")]
    assert live == [f"{WF_UUID}:{JOB}:1:mu-tacc"]
    assert job_files.warnings(run_dir) == []
