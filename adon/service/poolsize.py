"""How large the pool is over time, and how large it would have to be.

    pool_slots   jobs of one core that can run at once
    pool_busy    slots that are taken
    pool_demand  jobs that run or wait for a slot

each by site, and under the subject "" for the whole pool. Sampled every few seconds, recorded where
something is another than before, and once a minute where nothing is, so that a line on a plot has
no gaps that mean nothing.
"""

from __future__ import annotations

import logging
import os
import selectors
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from condor_plugins.pool.sitepool import SitePool, pool_from_json
from monitors.archive.outbox import Outbox
from monitors.base.background import Background
from monitors.base.measurement import Measurement
from network_provisioner.base.errors import AdonError

EVERY_S = 5.0
ASK = [sys.executable, "-P", "-m", "adon.service.poolasked"]
SAME_S = 60.0  # a value that stays is recorded again after so long
_ANSWER_S = 15.0  # a collector that drops packets lets the bindings wait much longer
_MOST_BYTES = 8 * 2**20  # of an answer: far more than thousands of sites need
_REST_S = 60.0  # between questions to a pool that does not answer
_log = logging.getLogger(__name__)

Size = Mapping[tuple[str, str], float]
"""Metric and subject to value."""


class SampledPool(Protocol):
    """Where the size comes from."""

    def ask(self) -> Mapping[str, SitePool]:
        """Every site now. Raises AdonError if there is no answer."""
        ...

    def close(self) -> None:
        """Stop asking, and release a waiting caller. Harmless where it never began."""
        ...


def size_of(sites: Mapping[str, SitePool]) -> dict[tuple[str, str], float]:
    """The three metrics of every site and of the whole pool; no demand where no schedd told."""
    sizes: dict[tuple[str, str], float] = {}
    for name, site in sites.items():
        busy = max(0, site.slots - site.idle_slots)
        values = {"pool_slots": float(site.slots), "pool_busy": float(busy)}
        if site.ahead is not None:
            values["pool_demand"] = busy + site.ahead
        for metric, value in values.items():
            sizes[metric, name] = value
    # Of a pool of which some sites are not known the sum is not known either.
    for metric in ("pool_slots", "pool_busy", "pool_demand"):
        parts = [sizes.get((metric, name)) for name in sites]
        if parts and None not in parts:
            sizes[metric, ""] = sum(part for part in parts if part is not None)
    return sizes


class PoolChanges:
    """Remembers what was recorded, and says what must be recorded now."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], tuple[float, float]] = {}

    def of(self, size: Size, now: float) -> list[Measurement]:
        """What is another than before or was recorded :data:`SAME_S` ago. A site that has left the
        pool has none of anything."""
        gone = {key: 0.0 for key, (value, _) in self._last.items() if key not in size and value}
        measurements = []
        for (metric, subject), value in {**gone, **size}.items():
            known = self._last.get((metric, subject))
            if known is not None and known[0] == value and now - known[1] < SAME_S:
                continue
            self._last[metric, subject] = (value, now)
            # Several brokers on one archive sample one pool: of one instant one sample is enough.
            key = f"{metric}:{subject}:{int(now // EVERY_S)}"
            measurements.append(Measurement(key, metric, subject, value, "1", now, "condor"))
        return measurements


class PoolSize:
    """Samples ``pool`` in a thread of its own and records its size."""

    def __init__(self, pool: SampledPool, outbox: Outbox, clock: Callable[[], float]) -> None:
        self._pool, self._outbox, self._clock = pool, outbox, clock
        self._changes = PoolChanges()
        self._thread = Background("adon-pool-size", self._run)
        self._stop = self._thread.stopping
        self._silent = False

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the end."""
        self._stop.set()
        self._pool.close()  # also ends an answer that is waited for
        self._thread.stop()

    def sample(self) -> bool:
        """Ask once and record; False without an answer."""
        try:
            size = size_of(self._pool.ask())
            self._outbox.record_many(self._changes.of(size, self._clock()))
        except AdonError as error:
            if not (self._silent or self._stop.is_set()):
                _log.warning("the size of the pool is not recorded: %s", error)
            self._silent = True
            return False
        if self._silent:
            _log.warning("the size of the pool is recorded again")
        self._silent = False
        return True

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                answered = self.sample()
            except Exception:  # a fault of ours must not end it for good
                _log.exception("the size of the pool is not recorded")
                answered = False
            self._stop.wait(EVERY_S if answered else _REST_S)


class ResidentPool:
    """The pool of CONDOR_CONFIG or of ``collector`` (``host:port``), asked by a process that stays.

    A process of its own, because the bindings read their configuration once and wait as long as
    they like; one that stays, because loading them takes a hundred times as long as asking.
    """

    def __init__(self, collector: str = "") -> None:
        self._collector = collector
        self._asking = threading.Lock()  # nothing is closed while it is read
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def ask(self) -> Mapping[str, SitePool]:
        """Every site now. Raises AdonError."""
        with self._asking:
            process = self._running()
            try:
                return pool_from_json(_asked(process).decode())
            except (OSError, ValueError, AdonError) as error:
                self._end()
                where = f"HTCondor at {self._collector}" if self._collector else "HTCondor"
                raise AdonError(f"{where} did not answer: {error}") from None

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()  # its reader sees the end
        with self._asking:
            self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise AdonError("the pool is no longer read")
            if self._process is None:
                self._process = subprocess.Popen(
                    [*ASK, *([self._collector] * bool(self._collector))],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    bufsize=0,
                )
            return self._process

    def _end(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def _asked(process: subprocess.Popen[bytes]) -> bytes:
    """One line for one line. Raises OSError, AdonError."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    line = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not selector.select(_ANSWER_S):
                raise AdonError(f"found nothing within {_ANSWER_S:g} s")
            more = os.read(process.stdout.fileno(), 65536)
            if not more or len(line) > _MOST_BYTES:
                raise AdonError("the process that asks has ended")
            line += more
    if line.startswith(b"!"):
        raise AdonError(line[1:].decode(errors="replace").strip())
    return bytes(line)
