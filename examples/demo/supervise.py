"""The demo's broker, started again when it dies, with what is read from it; and its watcher."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from adon.report.run_facts import LinkSample
from examples.testbed.procs import Daemon
from monitors.watcher import registry
from network_provisioner.base.errors import AdonError, BrokerError
from network_provisioner.client.broker import BrokerClient
from pegasus_hooks.prepost import WATCHER

_READY_S = 90.0  # it waits 20 s for the switches; all else is a busy machine
_STOP_S = 10.0
_SAMPLE_EVERY_S = 0.5


class BrokerProcess:
    """A broker on loopback. A context manager; while it is open, a broker that dies is restarted.

    The hooks continue while it is away: their transfers run best effort.
    """

    def __init__(self, config: Path, url: str, log: Path) -> None:
        self.client = BrokerClient(url, timeout_s=20.0)
        self.samples: list[LinkSample] = []
        self.restarts = 0
        self._command = [sys.executable, "-m", "adon.service.serve", "--config", str(config)]
        self._log = log
        self._closing = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="broker-watch", daemon=True)

    def __enter__(self) -> Self:
        """Start it; :meth:`ready` waits until it answers."""
        self._process = self._start()
        return self

    def ready(self) -> None:
        """Wait until it answers, and watch it from then on. Raises AdonError with its last line."""
        self._process.wait(self._answers, _READY_S)
        self._watcher.start()

    def __exit__(self, *_: object) -> None:
        """Stop watching, stop the broker."""
        self._closing.set()
        if self._watcher.is_alive():
            self._watcher.join()
        self._process.stop(_STOP_S)

    @property
    def warnings(self) -> list[str]:
        """What went wrong with the broker itself, as text."""
        times = "once" if self.restarts == 1 else f"{self.restarts} times"
        return [f"the broker died and was started again {times}"] if self.restarts else []

    def _start(self) -> Daemon:
        return Daemon(self._command, self._log, name="the broker")

    def _answers(self) -> bool:
        try:
            self.client.health()
        except BrokerError:
            return False
        return True

    def _watch(self) -> None:
        while not self._closing.wait(_SAMPLE_EVERY_S):
            if not self._process.running():
                self._process.stop()
                self.restarts += 1
                self._process = self._start()
            # Away for a moment: the next sample will tell.
            with contextlib.suppress(BrokerError):
                self.samples.extend(samples_of(self.client.counters()))
        # Here, since the kernel kills a broker that this thread started when this thread ends.
        self._process.stop(_STOP_S)


@contextlib.contextmanager
def watching(config: Path, folder: Path) -> Iterator[None]:
    """A watcher of ``folder`` that ends with this block, and with this process at the latest: one
    that the hooks start by themselves would outlive a demo that is killed.

    ``config`` is the hooks' configuration. Raises AdonError if another one runs.
    """
    lock = registry.hold(folder)
    if lock is None:
        raise AdonError(f"{folder}: found a watcher, expected that of an earlier run to have ended")
    try:
        process = Daemon(
            [*registry.command(WATCHER, config, lock), "--stay"],
            folder.with_name("watcher.log"),
            pass_fds=(lock,),
        )
    finally:
        os.close(lock)
    try:
        yield
    finally:
        registry.end(folder)
        process.stop(0.0)


def samples_of(answer: dict[str, Any]) -> list[LinkSample]:
    """The switch counters in the broker's answer."""
    return [LinkSample(c["a"], c["b"], c["bytes"], c["at"]) for c in answer["counters"]]
