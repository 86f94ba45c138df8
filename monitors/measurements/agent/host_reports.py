"""What an agent reports of its host beside its tasks: the connections of transfer servers as they
open, and what its disks do, each second that they do something.

A transfer server gives each client a process. What that process has open beside the client's own
connection carries files, and by it the switches know the transfer's packets: see
:mod:`network_provisioner.state.connections`.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any, Protocol

import psutil

from monitors.measurements.agent.broker_link import BrokerLink
from monitors.measurements.agent.settings import AgentSettings
from monitors.measurements.disks.periods import MOST_SECONDS, PERIOD_S, DiskReport
from monitors.measurements.disks.reader import DiskReader
from network_provisioner.base.clock import since_boot
from network_provisioner.base.errors import AdonError, printable

_log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0

Post = Callable[[Mapping[str, Any]], None]
"""Sends a report to the broker. Raises AdonError."""

_AGAIN_S = 10.0  # what has not changed is said again: the broker shall know that somebody looks
_ESTABLISHED = "01"  # in /proc/net/tcp

_BPS, _WAIT = 1e6, 0.1  # less than both is nothing to be told at once


class Reporter(Protocol):
    """Looks each ``every_s`` seconds, and reports what there is to say."""

    every_s: float

    def observe(self, post: Post) -> None:
        """Raises AdonError, OSError, ValueError, psutil.Error, and goes on the next time."""


@contextmanager
def reporting(settings: AgentSettings, what: str, reporter: Reporter) -> Iterator[None]:
    """Have ``what`` reported meanwhile, in a thread and over a connection of its own. What goes
    wrong is said once."""
    over = threading.Event()
    link = BrokerLink(settings)

    def post(body: Mapping[str, Any]) -> None:
        link.ask(what, _TIMEOUT_S, body=json.dumps(body).encode())

    def run() -> None:
        trouble = ""
        while not over.wait(reporter.every_s):
            try:
                reporter.observe(post)
                trouble = ""
            except (AdonError, OSError, ValueError, psutil.Error) as error:
                if str(error) != trouble and not over.is_set():
                    trouble = str(error)
                    _log.warning("%s are not reported: %s", what, printable(trouble)[:1000])
                over.wait(1.0)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        link.close()
        thread.join()


def carrying(sockets: Iterable[Any], servers: Collection[int]) -> list[dict[str, Any]]:
    """The connections that carry files, of all TCP connections as psutil gives them. ``servers``:
    the ports at which transfer servers listen."""
    by_process: dict[int, list[Any]] = {}
    for connection in sockets:
        if connection.pid is not None and connection.status == psutil.CONN_ESTABLISHED:
            by_process.setdefault(connection.pid, []).append(connection)
    carries = []
    for connections in by_process.values():
        clients = {c.raddr.port for c in connections if c.laddr.port in servers}
        if len(clients) == 1:  # a server with one process for all cannot be told apart
            (client,) = clients
            carries += [
                {
                    "client_port": client,
                    "local": c.laddr.ip,
                    "local_port": c.laddr.port,
                    "remote": c.raddr.ip,
                    "remote_port": c.raddr.port,
                }
                for c in connections
                if c.laddr.port not in servers
            ]
    return sorted(carries, key=repr)


def has_clients(table: str, servers: Collection[int]) -> bool:
    """Whether anybody is connected to a server, by the text of ``/proc/net/tcp``: quick to tell,
    where looking at all processes is not."""
    wanted = {f"{port:04X}" for port in servers}
    rows = (line.split() for line in table.splitlines()[1:])
    return any(row[3] == _ESTABLISHED and row[1].rpartition(":")[2] in wanted for row in rows)


def _open(servers: Collection[int]) -> list[dict[str, Any]]:
    tables = (Path(f"/proc/net/{name}") for name in ("tcp", "tcp6"))
    if not any(has_clients(t.read_text(), servers) for t in tables if t.exists()):
        return []
    return carrying(psutil.net_connections("tcp"), servers)


class ConnectionReporter:
    """Reports what has changed."""

    every_s = 0.1

    def __init__(self, servers: Collection[int]) -> None:
        self._servers = servers
        self._said: list[dict[str, Any]] | None = None
        self._looks = 0

    def observe(self, post: Post) -> None:
        """See :class:`Reporter`."""
        self._looks += 1
        before, self._said = self._said, None
        connections = _open(self._servers)
        if connections != before or self._looks * self.every_s >= _AGAIN_S:
            post({"connections": connections})
            self._looks = 0
        self._said = connections


class DiskReporter:
    """Reports the seconds in which something moved or waited, and the others by ten."""

    every_s = 1.0

    def __init__(self, reader: DiskReader | None = None) -> None:
        self._reader = reader or DiskReader(since_boot)
        self._kept: DiskReport | None = None

    def observe(self, post: Post) -> None:
        """See :class:`Reporter`. What the broker did not take is sent again."""
        second, kept = self._reader.read(), self._kept
        if second is not None:
            joined = kept is not None and kept.source == second.source
            # While the broker is away for long, only the last seconds stay.
            kept = kept + second if kept and joined and len(kept.seconds) < MOST_SECONDS else second
        self._kept = kept
        full = kept is not None and len(kept.seconds) * self.every_s >= PERIOD_S
        if kept and (full or second is None or _does_something(second)):
            post(_body(kept))
            self._kept = None


def _does_something(second: DiskReport) -> bool:
    (sample,) = second.seconds
    moved = sum(p.read_bps + p.write_bps for p in second.processes)
    return max(moved, sample.read_bps + sample.write_bps) >= _BPS or sample.io_wait >= _WAIT


def _body(report: DiskReport) -> dict[str, object]:
    now = since_boot()
    return {
        "source": report.source,
        "seconds": [[now - s.at, s.read_bps, s.write_bps, s.io_wait] for s in report.seconds],
        "processes": [astuple(p) for p in report.processes],
    }
