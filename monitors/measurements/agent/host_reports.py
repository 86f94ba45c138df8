"""What an agent reports of its host beside its tasks: the connections of transfer servers as they
open, what its disks do, each second that they do something, and what its TCP connections send.

A transfer server gives each client a process. What that process has open beside the client's own
connection carries files, and by it the switches know the transfer's packets: see
:mod:`network_provisioner.state.connections`.

Linux counts for how long each connection had data to send, and for how long of that the receiver's
window or the sender's buffer held it up: ``busy``, ``rwnd_limited`` and ``sndbuf_limited`` of
``ss`` (iproute2). Any user may read it.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Protocol

import psutil

from monitors.measurements.agent.broker_link import BrokerLink
from monitors.measurements.agent.settings import AgentSettings
from monitors.measurements.probes.disks import MOST_SECONDS, PERIOD_S, DiskReader, DiskReport
from network_provisioner.base.clock import since_boot
from network_provisioner.base.errors import AdonError, printable
from network_provisioner.base.fields import plain_address
from network_provisioner.state.connections import KEPT_S, MOST_SOCKETS

_log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0

Post = Callable[[Mapping[str, Any]], None]
"""Sends a report to the broker. Raises AdonError."""

_AGAIN_S = 10.0  # what has not changed is said again: the broker shall know that somebody looks
_ESTABLISHED = "01"  # in /proc/net/tcp

_BPS, _WAIT = 1e6, 0.1  # less than both is nothing to be told at once

SS = ("ss", "--no-header", "--oneline", "--numeric", "--tcp", "--info", "state", "established")
_COUNT = re.compile(r"\s(bytes_acked|busy|rwnd_limited|sndbuf_limited|notsent):(\d+)")
_PACED = re.compile(r"\spacing_rate [\d.]+[KMG]?bps/([\d.]+)([KMG]?)bps")
_TIMES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9}

Ends = tuple[str, int, str, int]
"""A connection: local address and port, remote address and port."""


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
    ports = {f"{port:04X}" for port in servers}
    rows = (line.split() for line in table.splitlines()[1:])
    return any(row[3] == _ESTABLISHED and row[1].rpartition(":")[2] in ports for row in rows)


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
        self._reported: list[dict[str, Any]] | None = None
        self._looks = 0

    def observe(self, post: Post) -> None:
        """See :class:`Reporter`."""
        self._looks += 1
        before, self._reported = self._reported, None
        connections = _open(self._servers)
        if connections != before or self._looks * self.every_s >= _AGAIN_S:
            post({"connections": connections})
            self._looks = 0
        self._reported = connections


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


@dataclass(frozen=True, slots=True)
class SocketCounters:
    """Of a connection since it began: bytes that arrived, and milliseconds ``busy``, held up by the
    receiver's ``window`` and by the sender's ``buffer``; bytes that wait to be sent; and the rate
    that its program allows (b/s), 0 for any."""

    acked: int = 0
    busy: int = 0
    window: int = 0
    buffer: int = 0
    waiting: int = 0
    paced_bps: float = 0.0


def parse_ss(text: str) -> dict[Ends, SocketCounters]:
    """The connections to other hosts, from the output of ss. Raises ValueError."""
    return dict(_rows(text))


def _rows(text: str) -> Iterator[tuple[Ends, SocketCounters]]:
    for line in text.splitlines():
        words = line.split(maxsplit=4)
        if len(words) < 4:
            raise ValueError(f"ss prints {line[:100]!r}, expected queues, addresses and counters")
        (local, local_port), (remote, remote_port) = _end(words[2]), _end(words[3])
        if ip_address(remote).is_loopback or remote == local:
            continue
        counts = {name: int(count) for name, count in _COUNT.findall(line)}
        paced = _PACED.search(line)
        yield (
            (local, local_port, remote, remote_port),
            SocketCounters(
                counts.get("bytes_acked", 0),
                counts.get("busy", 0),
                counts.get("rwnd_limited", 0),
                counts.get("sndbuf_limited", 0),
                counts.get("notsent", 0),
                float(paced[1]) * _TIMES[paced[2]] if paced else 0.0,
            ),
        )


def _end(word: str) -> tuple[str, int]:
    """Address and port of ``10.0.0.1:22``, ``10.0.0.1%eth0:22`` or ``[::ffff:10.0.0.1]:22``."""
    host, _, port = word.rpartition(":")
    return plain_address(host.strip("[]").partition("%")[0]), int(port)


def read_sockets() -> dict[Ends, SocketCounters]:
    """The connections of this host. Raises AdonError, OSError, ValueError."""
    try:
        done = subprocess.run(SS, check=False, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except FileNotFoundError:
        raise AdonError("found no program 'ss', expected that of iproute2") from None
    except subprocess.TimeoutExpired:
        raise AdonError(f"ss did not end within {_TIMEOUT_S:g} s") from None
    if done.returncode:
        raise AdonError(f"ss failed: {done.stderr.strip()[:200]}")
    return parse_ss(done.stdout)


@dataclass(eq=False)
class SocketReporter:
    """Reports each second what the connections sent that lately sent anything, the busiest where
    there are too many; nothing at all every few seconds, so that the broker knows that somebody
    looks."""

    read: Callable[[], Mapping[Ends, SocketCounters]] = read_sockets
    clock: Callable[[], float] = time.monotonic
    every_s: float = 1.0
    _before: Mapping[Ends, SocketCounters] | None = None
    _at: float = 0.0
    _sent_at: dict[Ends, float] = field(default_factory=dict)
    _posted_at: float = 0.0

    def observe(self, post: Post) -> None:
        """See :class:`Reporter`. What the broker did not take is gone."""
        at, after = self.clock(), self.read()
        before, since = self._before, self._at
        self._before, self._at = after, at
        if before is None or at <= since:
            return
        zero = SocketCounters()
        for ends, now in after.items():
            old = before.get(ends, zero)
            if now.waiting or (now.acked, now.busy) != (old.acked, old.busy):
                self._sent_at[ends] = at
        self._sent_at = {
            ends: sent
            for ends, sent in self._sent_at.items()
            if ends in after and at - sent < KEPT_S
        }
        periods = [
            (ends, _period(after[ends], before.get(ends, zero), at - since))
            for ends in self._sent_at
        ]
        if periods or at - self._posted_at >= KEPT_S / 3:
            self._posted_at = at
            periods.sort(key=lambda period: -period[1][1])
            post({"sockets": [[*ends, *did] for ends, did in periods[:MOST_SOCKETS]]})


def _period(now: SocketCounters, old: SocketCounters, seconds: float) -> tuple[float | bool, ...]:
    """What one connection did between two looks, as the broker takes it; one whose counters went
    back is another one with the same ports."""
    if now.acked < old.acked or now.busy < old.busy:
        old = SocketCounters()

    def share(after: int, before: int) -> float:
        return min(1.0, max(0, after - before) / 1000 / seconds)

    return (
        seconds,
        now.acked - old.acked,
        share(now.busy, old.busy),
        share(now.window, old.window),
        share(now.buffer, old.buffer),
        now.waiting > 0,
        now.paced_bps,
    )
