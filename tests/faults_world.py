"""Programs that are killed and come back: a broker, and switches, each a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml
from hooks_world import ROOT
from network_world import star

from examples.testbed.ports import free_port
from examples.testbed.procs import Daemon
from monitors.workflows.planned import job_files
from network_provisioner.base.errors import AdonError, BrokerError
from network_provisioner.base.model import ENDED, Transit, TransitState
from network_provisioner.client.broker import BrokerClient

ALL = os.environ.get("ADON_FAULTS") == "all"
PATIENT_S = 600.0  # far above what any of it takes, also on a busy machine
# So much is moved that no lease ends while a test runs: what is given back, somebody gave back.
# That takes 10 s from the job's end on a machine that has the time for it (test_watcher_real).
SIZE = 100_000_000_000
GIVEN_BACK_S = 180.0
# A hook waits 2 s for a broker that does not answer; one that did so twice would take twice that.
SLOWEST_HOOK_S = 3.5
TOPOLOGY = star("mu", "tacc", capacity="100 Gb/s")
# Every transfer takes its path for as long as nobody gives it back, whatever its size.
TEMPLATES = {
    "steady": {
        "qspec": {"min_throughput": "10 Mb/s"},
        "rspec": {"max_throughput": "1 Gb/s"},
        "break_even": "0 B",
        "patience": "5 s",
    }
}


class Kept:
    """A program that is started again whenever it has died, as long as ``revive`` is set.

    ``<folder>/<name>.pid`` has its process, ``<folder>/<name>.log`` what it says.
    """

    def __init__(self, folder: Path, name: str, ready: str) -> None:
        """It is up once it has written a line with ``ready`` in it."""
        self.folder = folder
        self.revive = True
        self.deaths = 0
        self._name, self._ready = name, ready
        self._daemon: Daemon | None = None
        self._serves, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def words(self) -> list[str]:
        """What is started."""
        raise NotImplementedError

    def _start(self) -> None:
        """It ends with the thread that started it, which is why one thread does it every time."""
        # Where the drivers of tests are found.
        paths = [str(ROOT / "tests"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        before = len(self.log())
        file = self.folder / f"{self._name}.log"
        self._daemon = Daemon(self.words(), file, name=self._name, env=env, cwd=ROOT)
        with contextlib.suppress(AdonError):  # it was killed before it was ready
            self._daemon.wait(lambda: self._ready in self.log()[before:], PATIENT_S)
            replace(self.folder / f"{self._name}.pid", str(self._daemon.pid))
            self._serves.set()

    def _keep(self) -> None:
        self._start()
        while not self._over.wait(0.05):
            if self._daemon is not None and not self._daemon.running():
                self._serves.clear()
                if self.revive:
                    self.deaths += 1
                    self._daemon.stop(0.0)
                    self._start()
        self.kill()

    def pid(self) -> int:
        """Of its process."""
        return int((self.folder / f"{self._name}.pid").read_text())

    def kill(self) -> None:
        """kill -9, if it lives."""
        if self._daemon is not None:
            self._daemon.stop(0.0, signal.SIGKILL)
            self._serves.clear()

    def wait(self) -> None:
        """Until it serves."""
        assert self._serves.wait(PATIENT_S), self.log()[-2000:]

    def log(self) -> str:
        """What it said."""
        file = self.folder / f"{self._name}.log"
        return file.read_text() if file.exists() else ""

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


class Switches(Kept):
    """The process of :mod:`switch_fault`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "switches", "ready")
        self.port = free_port()
        (folder / "switches.port").write_text(str(self.port))

    def words(self) -> list[str]:
        """See Kept."""
        return [sys.executable, str(ROOT / "tests/switch_fault.py"), str(self.port)]

    def controller(self, answer_s: float = 1.0) -> dict[str, Any]:
        """The section of a broker's adon.yml that has it use them, and wait so long for them."""
        options = {"port": self.port, "answer_s": answer_s}
        return {"driver": "switch_fault:FarSwitches", "options": options}


class Service(Kept):
    """A broker, and what :mod:`hook_fault` does to hooks."""

    def __init__(self, folder: Path, before: Sequence[str] = (), **config: Any) -> None:
        """``before``: words that start the words after them; ``config``: sections of adon.yml."""
        super().__init__(folder, "broker", "http://")
        self._before = list(before)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = BrokerClient(self.url, PATIENT_S)
        content: dict[str, Any] = {
            "topology": TOPOLOGY,
            "templates": TEMPLATES,
            "controller": {"driver": "simulated"},
            "broker": {
                "state": str(folder / "broker.sqlite"),
                "archive": str(folder / "archive.sqlite"),
            },
        } | config
        content["broker"] = {**content["broker"], "listen": f"127.0.0.1:{self.port}"}
        (folder / "adon.yml").write_text(yaml.safe_dump(content))
        self.plan({})
        self.set_clock(0)
        (folder / "broker.port").write_text(str(self.port))

    def words(self) -> list[str]:
        """See Kept."""
        program, clock = ROOT / "tests" / "broker_fault.py", self.folder / "clock"
        broker = [sys.executable, str(program), str(clock), str(self.folder / "adon.yml")]
        return [*self._before, *broker]

    def plan(self, faults: Mapping[str, Mapping[str, object]]) -> None:
        """What is to happen to hooks."""
        replace(self.folder / "plan.json", json.dumps(faults))

    def set_clock(self, by_s: float) -> None:
        """Set the wall clock of broker and hooks, in seconds from the right time."""
        (self.folder / "clock").write_text(str(by_s))

    def told(self, event: str) -> list[dict[str, Any]]:
        """What became of hooks, as :mod:`hook_fault` has it."""
        lines = job_files.read_lines(self.folder / "log")
        return [line for line in lines if line["event"] == event]

    def slowest_s(self) -> float:
        """How long the slowest hook worked and waited for others, in seconds."""
        return max(float(line["spent_s"]) for line in self.told("ended"))

    def transits(self) -> dict[str, Transit]:
        """All transits there ever were."""
        return {transit.id: transit for transit in self.client.list(limit=10_000)}

    def says(self) -> str:
        """Every transit in a line."""
        return "\n".join(f"{t.id} {t.state} {t.reason}" for t in self.transits().values())

    def held(self) -> list[str]:
        """What holds a path now, or waits for one."""
        return [t.id for t in self.transits().values() if t.state not in ENDED]

    def __exit__(self, *_: object) -> None:
        end_watchers(self.folder.parent)
        super().__exit__()


def end_watchers(folder: Path) -> None:
    """End the watchers of workflows below a folder, which would look on for a minute."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_text(errors="replace").split("\0")
            if any(w.endswith("/watcher.py") for w in words) and any(
                w.startswith(f"{folder}/") for w in words
            ):
                os.kill(int(entry.name), signal.SIGKILL)


def holds(service: Service, count: int) -> None:
    """Wait until so many transits hold a path or wait for one."""
    until(lambda: len(service.held()) == count, said=service.says)


def nothing_held(service: Service) -> float:
    """Seconds until nothing is held any more. Raises AssertionError after GIVEN_BACK_S."""
    return nothing_held_but(service, 0)


def nothing_held_but(service: Service, count: int, within_s: float = GIVEN_BACK_S) -> float:
    """Seconds until so many transits hold or wait for a path. Raises as :func:`nothing_held`."""
    began = time.monotonic()
    until(lambda: len(service.held()) == count, within_s, service.says)
    return time.monotonic() - began


def until(
    what: Callable[[], bool], within_s: float = PATIENT_S, said: Callable[[], str] = lambda: ""
) -> None:
    """Wait until it is so. Raises AssertionError."""
    deadline = time.monotonic() + within_s
    while True:
        with contextlib.suppress(BrokerError):
            if what():
                return
        assert time.monotonic() < deadline, said()
        time.sleep(0.1)


def replace(file: Path, text: str) -> None:
    """Write a file that others may read at any moment: they find all of it."""
    draft = file.with_name(f"{file.name}.draft")
    draft.write_text(text)
    draft.replace(file)


def some(steps: Sequence[Any], few: int) -> list[Any]:
    """All where all are wanted, else a few, evenly spread, with the first and the last."""
    if ALL or len(steps) <= few:
        return list(steps)
    return [steps[round(i * (len(steps) - 1) / (few - 1))] for i in range(few)]


def without_reason(transits: Sequence[Transit]) -> list[Transit]:
    """Those that had no path and do not say why."""
    return [t for t in transits if t.state is TransitState.BEST_EFFORT and not t.reason]
