"""What the TCP connections of this host sent since the last look, from ``ss`` (iproute2).

Linux counts for how long each connection had data to send, and for how long of that the receiver's
window or the sender's buffer held it up: ``busy``, ``rwnd_limited`` and ``sndbuf_limited`` of ss.
Any user may read it.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

from monitors.measurements.agent.host_reports import Post
from network_provisioner.base.errors import AdonError
from network_provisioner.base.fields import plain_address
from network_provisioner.state.connections import KEPT_S, MOST_SOCKETS

SS = ("ss", "--no-header", "--oneline", "--numeric", "--tcp", "--info", "state", "established")
_TIMEOUT_S = 5.0
_COUNT = re.compile(r"\s(bytes_acked|busy|rwnd_limited|sndbuf_limited|notsent):(\d+)")
_PACED = re.compile(r"\spacing_rate [\d.]+[KMG]?bps/([\d.]+)([KMG]?)bps")
_TIMES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9}

Ends = tuple[str, int, str, int]
"""A connection: local address and port, remote address and port."""


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
        """See :class:`~.host_reports.Reporter`. What the broker did not take is gone."""
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
