"""Broker, two scientists and condor, each a user of its own: only the broker's user opens the
archive; all others ask the broker, and tell it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hooks_world import WF_UUID, make_submit_dir, move
from network_world import star
from ordinary_user import closed, show_here

from adon.cli import pool
from adon.config.adon_yml import load_config
from adon.machine import box
from adon.planner_request import answers
from adon.service.serve import serve
from examples.testbed.ports import free_port
from monitors.archive.archive import Archive
from monitors.archive.estimate_sources import LEFT_OUT
from monitors.base.measurement import Measurement
from monitors.watcher.actions import GiveBack, Watched
from monitors.watcher.decision_file import DecisionFile
from monitors.workflows.planned import job_files
from network_provisioner.base.errors import BrokerError
from network_provisioner.client import hookconfig
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.hookclient import client_of
from pegasus_hooks.plugin.request import parse_request
from pegasus_hooks.prepost import hookrun, watched_jobs

pytestmark = [
    pytest.mark.component,
    pytest.mark.skipif(os.geteuid() != 0, reason="takes other users' parts, as root alone can"),
]
# Both may lie where other users cannot go, such as root's home.
CODE = (Path(__file__).resolve().parents[2], Path(sys.prefix), Path(sys.base_prefix))
BROKER, ADA, BOB, CONDOR = 61001, 61002, 61003, 61004
NAMES = {ADA: "ada", BOB: "bob", CONDOR: "condor"}
JOB = "stage_in_local_tacc_0_0"
RECORD = """- transfer_attempts:
  - src_url: "gsiftp://mu/f"
    src_label: "mu"
    dst_url: "gsiftp://tacc/f"
    dst_label: "tacc"
    success: True
    start: 1000
    duration: 2.0
    lfn: "f"
"""
REQUEST: dict[str, Any] = {
    "adon": 1,
    "workflow": "w",
    "limit_s": 300.0,
    "sites": [{"name": "local"}, {"name": "mu"}, {"name": "tacc"}],
    "transformations": [{"name": "t", "sites": ["mu", "tacc"]}],
    "files": [{"lfn": "f", "size": 1000, "places": [["mu", "gsiftp://mu/f"]]}],
    "jobs": [{"id": "j", "transformation": 0, "reads": [0]}],
}


def start(uid: int, function: Callable[[], Any], out: int) -> int:
    """Run in a process of this user, with a home of its own; the answer goes to ``out``."""
    child = os.fork()
    if child:
        return child
    try:
        show_here(CODE)
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        result = function()
    except BaseException as error:
        result = error
    with contextlib.suppress(OSError), os.fdopen(out, "wb") as stream:
        pickle.dump(result, stream)
    os._exit(0)


class Installation:
    """adon.yml for all to read, everything of the broker for its user alone."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        tokens = []
        (folder / "etc").mkdir()
        for uid, name in ((BROKER, "broker"), *NAMES.items()):
            home = folder / name
            home.mkdir(mode=0o700)
            token = home / "token"
            token.write_text(f"the-secret-of-{name}\n")
            token.chmod(0o600)
            for path in (home, token):
                os.chown(path, uid, uid)
            if uid != BROKER:
                sha256 = hashlib.sha256(token.read_bytes().strip()).hexdigest()
                role = "engineer" if uid == CONDOR else "researcher"
                tokens.append({"name": name, "role": role, "sha256": sha256})
        self.config = folder / "etc" / "adon.yml"
        self.archive = folder / "broker" / "archive.sqlite"
        self.config.write_text(
            json.dumps(
                {
                    "topology": star("mu", "tacc"),
                    "broker": {
                        "listen": f"127.0.0.1:{self.port}",
                        "state": "../broker/state.sqlite",
                        "archive": "../broker/archive.sqlite",
                    },
                    "security": {"tokens": tokens},
                }
            )
        )

    def ask(self, uid: int, function: Callable[[], Any]) -> Any:
        """What ``function`` gives when this user calls it, in its home."""
        read, write = os.pipe()

        def at_home() -> Any:
            home = self.folder / NAMES.get(uid, "broker")
            os.chdir(home)
            os.environ.update(HOME=str(home), ADON_TOKEN_FILE=str(home / "token"))
            return function()

        child = start(uid, at_home, write)
        os.close(write)
        with os.fdopen(read, "rb") as stream:
            result = pickle.load(stream)
        os.waitpid(child, 0)
        if isinstance(result, BaseException):
            raise result
        return result

    @contextlib.contextmanager
    def broker(self) -> Iterator[None]:
        """Runs as its user, started elsewhere."""
        read, write = os.pipe()

        def run() -> Any:
            os.chdir("/")
            return serve(self.config, say=lambda line: os.write(write, f"{line}\n".encode()))

        child = start(BROKER, run, write)
        os.close(write)
        said = b""
        with os.fdopen(read, "rb", buffering=0) as stream:
            while b"http://" not in said:
                some = stream.read(4096)
                assert some, said
                said += some
            try:
                yield
            finally:
                os.kill(child, signal.SIGTERM)
                os.waitpid(child, 0)

    def submit_dir(self, uid: int, name: str) -> Path:
        """A planned transfer of this user."""
        run = make_submit_dir(
            self.folder / NAMES[uid] / name, {JOB: [move("f", "mu", "tacc", 10**7)]}
        )
        text = (run / "braindump.yml").read_text()
        uuid = WF_UUID.replace("5555", str(uid)[-4:])
        text = text.replace(WF_UUID, uuid).replace('user: "u"', f'user: "{NAMES[uid]}"')
        (run / "braindump.yml").write_text(text)
        hooks = {
            "broker": self.url,
            "timeout_s": 60.0,
            "token_file": "token",  # beside this file
            "archive": str(self.archive),
        }
        (self.folder / NAMES[uid] / "hooks.json").write_text(json.dumps(hooks))
        return run


@pytest.fixture
def here() -> Iterator[Installation]:
    if any(map(closed, CODE)) and (reason := box.can_box()):
        pytest.skip(f"other users cannot reach this checkout: {reason}")
    folder = Path(tempfile.mkdtemp(prefix="adon-users-"))
    try:
        yield Installation(folder)
    finally:
        shutil.rmtree(folder)


def run_hook(hook: Callable[[list[str]], int], run: Path, *rest: str) -> list[str]:
    """Warnings in the journal of the submit directory after it."""
    os.chdir(run)
    assert hook(["--config", str(run.parent / "hooks.json"), JOB, "0", *rest]) == 0
    return job_files.warnings(run)


def transfer(run: Path) -> list[str]:
    """PRE and what pegasus-transfer leaves; the warnings."""
    warnings = run_hook(hookrun.pre, run, "2")
    folder = run / "00/00" / f"{JOB}.multipart"
    folder.mkdir(exist_ok=True)
    (folder / "1000-transfer").write_text(RECORD)
    return warnings


def told_later(run: Path) -> tuple[str, int, float]:
    """What the watcher does when the broker is back: the broker's word on the transfer."""
    config = hookconfig.load(run.parent / "hooks.json")
    decision = DecisionFile.read(run / "00/00" / f"{JOB}.adon.json")
    watched = Watched(job_files.braindump(run)["wf_uuid"], run, config)
    (pair,) = decision.pairs
    GiveBack(watched, lambda *_: None, decision, pair, "success", watched_jobs).do(
        client_of(config)
    )
    transit = client_of(config).get(pair.id)
    return transit.request.user, transit.usage.bytes, transit.usage.seconds


def planned(config: Path) -> tuple[dict[str, Any], list[str]]:
    """What is believed of the path when this user plans, and what its planner's log says."""
    notes: list[str] = []
    *_, last = answers(parse_request(json.dumps({**REQUEST, "config": str(config)})), notes.append)
    assert last.sites.keys() == {"j"}
    beliefs = last.tell().beliefs
    assert {n.removeprefix("warning: ") for n in notes} <= {beliefs.get("note")}
    return beliefs["paths"]["mu>tacc"]["gamma_a"], notes


def test_only_the_brokers_user_opens_the_archive(here: Installation) -> None:
    first, second = here.submit_dir(ADA, "first"), here.submit_dir(ADA, "second")
    for path in (here.folder / "ada").rglob("*"):
        os.chown(path, ADA, ADA)
    with here.broker():
        assert here.ask(ADA, lambda: transfer(first) + run_hook(hookrun.post, first, "0")) == []
        estimate, notes = here.ask(ADA, lambda: planned(here.config))
        assert (estimate["source"], estimate["value"], notes) == ("archive", 4e7, [])
        estimate, notes = here.ask(BOB, lambda: planned(here.config))
        assert (estimate["source"], notes) == ("topology", [])  # only Ada says so
        assert here.ask(ADA, lambda: transfer(second)) == []
        grown = Measurement("expansion:n:1", "expansion", "n", 4.0, "1", time.time(), "adon pool")
        here.ask(CONDOR, lambda: pool.record(load_config(here.config), grown))
    assert len(here.ask(ADA, lambda: run_hook(hookrun.post, second, "0"))) == 1  # left to its lease
    estimate, (note,) = here.ask(BOB, lambda: planned(here.config))
    assert estimate["source"] == "topology"
    assert (
        "Permission denied" in note and str(here.archive.name) in note and note.endswith(LEFT_OUT)
    )
    with here.broker():
        assert here.ask(ADA, lambda: told_later(second)) == ("ada", 10**7, 2.0)
        transit = json.loads((second / "00/00" / f"{JOB}.adon.json").read_text())["pairs"][0]["id"]
        with pytest.raises(BrokerError, match="unknown transit"):
            here.ask(
                BOB, lambda: BrokerClient(here.url, 60.0, "the-secret-of-bob").release(transit)
            )
    with Archive(here.archive, read_only=True) as archive:
        rates = [m.value for m in archive.query("throughput", "mu>tacc")]
        assert (rates, archive.metrics().count("expansion")) == ([4e7, 4e7], 1)
    databases = {path for path in here.folder.rglob("*.sqlite*")}
    assert {path.parent for path in databases} == {here.archive.parent}
    assert {path.stat().st_uid for path in databases} == {BROKER}
