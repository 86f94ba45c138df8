"""Where the story can be told: on the testbed's real network, or in a simulated one."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

from examples.soykb.fig18.story import DST, SRC, Transfer
from examples.soykb.scenario import LAYOUT
from examples.testbed import netns, traffic
from network_provisioner.base.controller import Controller
from network_provisioner.base.units import bytes_of


class SimulatedWorld:
    """Transfers move what they are granted, and time passes at once."""

    def __init__(self, granted_bps: Callable[[str], float]) -> None:
        self._granted_bps = granted_bps
        self._now = 0.0
        self._moved: dict[str, float] = {}

    def elapsed(self) -> float:
        """See World."""
        return self._now

    def wait(self, seconds: float) -> None:
        """See World."""
        for name in self._moved:
            self._moved[name] += bytes_of(self._granted_bps(name) * seconds)
        self._now += seconds

    def start(self, transfer: Transfer) -> None:
        """See World."""
        self._moved[transfer.name] = 0.0

    def finished(self, transfer: Transfer) -> bool:
        """See World."""
        if self._moved[transfer.name] < transfer.size_bytes:
            return False
        del self._moved[transfer.name]
        return True

    def moved(self, transfer: Transfer) -> int:
        """See World."""
        return round(self._moved[transfer.name])


class RealWorld:
    """TCP streams between two namespaces, across real switches. Use it as a context manager."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._began = time.monotonic()
        self._sinks: dict[str, subprocess.Popen[str]] = {}
        self._senders: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> RealWorld:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self._senders.values(), *self._sinks.values()):
            process.kill()
            process.communicate()

    def elapsed(self) -> float:
        """See World."""
        return time.monotonic() - self._began

    def wait(self, seconds: float) -> None:
        """See World."""
        time.sleep(seconds)

    def start(self, transfer: Transfer) -> None:
        """See World."""
        address = LAYOUT.host(DST).address
        sink = _run(DST, "sink", address, transfer.port)
        self._sinks[transfer.name] = sink
        assert sink.stdout is not None
        if sink.stdout.readline() != "ready\n":
            raise RuntimeError(f"the receiver of {transfer.name} did not start")
        arguments = (address, transfer.port, "--bytes", transfer.size_bytes)
        self._senders[transfer.name] = _run(SRC, "send", *arguments)

    def finished(self, transfer: Transfer) -> bool:
        """See World. Raises RuntimeError for a transfer that failed."""
        code = self._senders[transfer.name].poll()
        if code:
            raise RuntimeError(f"the sender of {transfer.name} ended with exit code {code}")
        return code == 0

    def moved(self, transfer: Transfer) -> int:
        """See World: what the first switch has forwarded."""
        return self._controller.circuit_bytes(transfer.name)


def _run(site: str, *words: object) -> subprocess.Popen[str]:
    argv = [*netns.execute(LAYOUT.host(site).netns), sys.executable, traffic.__file__]
    return subprocess.Popen([*argv, *map(str, words)], stdout=subprocess.PIPE, text=True)
