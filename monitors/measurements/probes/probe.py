"""What every probe is given, and what it gives."""

from __future__ import annotations

import math
import os
import select
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from monitors.base.measurement import UNITS
from network_provisioner.base.errors import AdonError

Role = Literal["alone", "client", "server"]
"""``client`` begins, towards the ``server`` at the other end; ``alone`` needs nobody."""


class ProbeError(AdonError):
    """Nothing could be measured; says why."""


class Halt:
    """Set once, for ever. Anything may wait for it, beside other files."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def __del__(self) -> None:
        os.close(self._fd)

    def set(self) -> None:
        """Stop."""
        if not self._event.is_set():
            self._event.set()
            os.eventfd_write(self._fd, 1)

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._event.is_set()

    def check(self) -> None:
        """Raises ProbeError where it was set."""
        if self.is_set():
            raise ProbeError("the agent was stopped")

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait; whether it was set."""
        return self._event.wait(timeout_s)

    def ready(self, files: dict[int, int], until: float) -> list[tuple[int, int]]:
        """The files (with the events of ``poll`` that are waited for) on which something happened,
        nothing at ``until`` (monotonic seconds) or when it was set."""
        if self.is_set():
            return []
        waiting = select.poll()
        for number, events in files.items():
            waiting.register(number, events)
        waiting.register(self._fd, select.POLLIN)
        left_ms = max(0.0, until - time.monotonic()) * 1e3
        return [(n, e) for n, e in waiting.poll(left_ms) if n != self._fd]


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """What is to be measured. ``end`` is monotonic seconds (:func:`time.monotonic`): by then all is
    over. ``peer`` is an IP address, ``options`` are those of the tool, all of them and checked;
    ``bind`` is the address of ours to be used ("": as the system chooses); ``most_bps`` bounds
    whatever loads the network; ``secret`` is what both ends know each other by."""

    tool: str
    role: Role
    end: float
    peer: str = ""
    port: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    bind: str = ""
    most_bps: float = math.inf
    secret: bytes = b""
    halt: Halt = field(default_factory=Halt)

    @property
    def left_s(self) -> float:
        """Seconds left."""
        return self.end - time.monotonic()

    def go_on(self) -> bool:
        """Whether there is time left, and nobody said stop."""
        return self.left_s > 0 and not self.halt.is_set()

    def pause(self, seconds: float) -> bool:
        """Wait so long, but not beyond the end; whether to go on."""
        self.halt.wait(max(0.0, min(seconds, self.left_s)))
        return self.go_on()


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of one metric, with what else is worth knowing."""

    metric: str
    value: float
    unit: str
    details: Mapping[str, Any] = field(default_factory=dict)


def reading(metric: str, value: float, **details: Any) -> Reading:
    """In the metric's own unit."""
    return Reading(metric, value, UNITS.get(metric, "1"), details)
