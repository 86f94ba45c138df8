"""Round trip, loss, jitter and one-way delay between two agents: UDP packets with time stamps.

The client says hello until the server answers, sends its stream evenly, and asks at the end how
many came. So loss is known for one direction, which ``ping`` cannot tell.

Packets as bytes:

    magic 4 | tag 8 | kind 1 | zero 3 | number 4 | seen 4 | sent 8 | there 8 | returned 8 | error 8

in network order, filled up with zeros. ``tag`` begins the HMAC-SHA256 of everything after it, with
what both ends know as its key: who does not know it can neither answer nor ask. ``error`` is how
far the answering machine's clock may be off, in nanoseconds, all ones where it is not known.
"""

from __future__ import annotations

import hmac
import math
import select
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import ip_address

from monitors.measurements.probes import delays
from monitors.measurements.probes.delays import Trip
from monitors.measurements.probes.probe import ProbeError, ProbeRequest, Reading

_HELLO_S = 0.2  # between two hellos, while nobody knows how far it is
_AFTER_END_S = 2.5  # the server answers once more, where its answer was lost
_QUESTIONS = 5  # about the end: that all are lost is rare, also where a fifth is
_MOST = 0.6  # of the time for waiting, at most
_AT_ONCE = 256  # packets, before the time is looked at: others may send without end
HELLO, STREAM, END = 1, 2, 3
"""Are you there; one of the stream; that were all, how many did you see."""
ANSWER = 0x80
"""Added to the kind of an answer."""

_MAGIC = b"ADE1"
_TAG_BYTES = 8
_FIELDS = struct.Struct("!B3xIIQQQQ")
LEAST_BYTES = len(_MAGIC) + _TAG_BYTES + _FIELDS.size
_UNKNOWN = 2**64 - 1
_NS = 1e9
_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; struct timespec in the machine's own longs
_TIMESPEC = struct.Struct("@ll")
_MOST_BYTES = 65_535
_ANCILLARY_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Packet:
    """``number`` in the stream; ``seen`` how many of the stream have come there; times are Unix
    nanoseconds; ``error_s`` is infinite where it is not known."""

    kind: int
    number: int
    sent: int
    seen: int = 0
    there: int = 0
    returned: int = 0
    error_s: float = math.inf


def packed(packet: Packet, secret: bytes, length: int = 0) -> bytes:
    """As bytes, ``length`` of them at least."""
    error_ns = packet.error_s * _NS
    body = _FIELDS.pack(
        packet.kind,
        packet.number,
        packet.seen,
        packet.sent,
        packet.there,
        packet.returned,
        int(error_ns) if error_ns < _UNKNOWN else _UNKNOWN,
    )
    body = body.ljust(length - len(_MAGIC) - _TAG_BYTES, b"\0")
    return _MAGIC + _tag(secret, body) + body


def unpacked(data: bytes, secret: bytes) -> Packet | None:
    """From bytes; None for what nobody made who knows ``secret``."""
    if len(data) < LEAST_BYTES or not data.startswith(_MAGIC):
        return None
    start = len(_MAGIC) + _TAG_BYTES
    body = data[start:]
    if not hmac.compare_digest(data[len(_MAGIC) : start], _tag(secret, body)):
        return None
    kind, number, seen, sent, there, returned, error_ns = _FIELDS.unpack_from(body)
    error_s = math.inf if error_ns == _UNKNOWN else error_ns / _NS
    return Packet(kind, number, sent, seen, there, returned, error_s)


def _tag(secret: bytes, body: bytes) -> bytes:
    return hmac.digest(secret, body, "sha256")[:_TAG_BYTES]


def family_of(peer: str) -> socket.AddressFamily:
    """IPv4 or IPv6. Raises ProbeError for what is no address."""
    try:
        version = ip_address(peer).version
    except ValueError:
        raise ProbeError(f"found {peer!r}, expected an IP address") from None
    return socket.AF_INET if version == 4 else socket.AF_INET6


def stamped(sock: socket.socket) -> socket.socket:
    """The socket, not blocking, and with the kernel's stamps."""
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    return sock


def udp(peer: str, bind: str = "", port: int = 0, *, connected: bool = True) -> socket.socket:
    """A stamped UDP socket of ours, to ``peer``:``port``, or listening on ``port`` where not
    ``connected``. Raises ProbeError."""
    family = family_of(peer)
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        stamped(sock)
        if bind or not connected:
            sock.bind((bind, 0 if connected else port))
        if connected:
            sock.connect((peer, port))
    except OSError as error:
        sock.close()
        what = f"to {peer}" if connected else f"on port {port}"
        raise ProbeError(f"no UDP {what}: {error.strerror or error}") from None
    return sock


def receive(sock: socket.socket) -> tuple[bytes, str, int, int] | None:
    """A datagram, the address and port it came from, and when (Unix nanoseconds); None where there
    is none now. Raises OSError for what the network says instead."""
    try:
        data, ancillary, _, sender = sock.recvmsg(_MOST_BYTES, _ANCILLARY_BYTES)
    except BlockingIOError:
        return None
    at = time.time_ns()
    for level, kind, value in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS) and len(value) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(value)
            at = seconds * 10**9 + nanoseconds
    host, port = (str(sender[0]), int(sender[1])) if sender else ("", 0)
    return data, host, port, at


@dataclass(frozen=True, slots=True)
class EchoTimeouts:
    """For late answers after the last packet, and between two questions how many came (seconds)."""

    late_s: float
    again_s: float

    @property
    def all_s(self) -> float:
        """What is kept of the time."""
        return self.late_s + _QUESTIONS * self.again_s


def timeouts_for(rtt_s: float) -> EchoTimeouts:
    """On a path of about this round trip. Pure."""
    return EchoTimeouts(min(2.0, max(0.2, 3 * rtt_s)), min(0.5, max(0.05, 1.5 * rtt_s)))


def packets_in(left_s: float, requested: int | None, interval_s: float, waits: EchoTimeouts) -> int:
    """How many packets there is time for, when the answers to the last are waited for. Pure."""
    left_s = max(0.0, left_s)
    room = math.floor((left_s - min(waits.all_s, _MOST * left_s)) / interval_s) + 1
    return room if requested is None else min(room, requested)


def server(order: ProbeRequest, error_s: float) -> list[Reading]:
    """Answer the peer, and nobody else, until its stream has ended. There are no findings here.

    ``error_s`` bounds how far this machine's clock is off. Raises ProbeError where nobody came.
    """
    seen: set[int] = set()
    came = ended = False
    stranger = ""
    with _listening(order) as sock:
        # After the end it answers for a while: the answer may be lost, and asked for again.
        until = order.end
        while time.monotonic() < until and not order.halt.is_set():
            if not order.halt.ready({sock.fileno(): select.POLLIN}, until):
                continue
            with suppress(OSError):  # what an earlier answer met
                for _ in range(_AT_ONCE):
                    arrived = receive(sock)
                    if arrived is None:
                        break
                    data, host, port, at = arrived
                    packet = unpacked(data, order.secret)
                    if packet is None or packet.kind & ANSWER:
                        continue
                    if not _same(host, order.peer):
                        stranger = f": the right key came from {host}, expected {order.peer}"
                        continue
                    came = True
                    if packet.kind == STREAM:
                        seen.add(packet.number)
                    if packet.kind == END and not ended:
                        ended, until = True, min(until, time.monotonic() + _AFTER_END_S)
                    answer = Packet(
                        packet.kind | ANSWER, packet.number, packet.sent, len(seen), at,
                        time.time_ns(), error_s,
                    )  # fmt: skip
                    sock.sendto(packed(answer, order.secret, len(data)), (host, port))
    order.halt.check()
    if not came:
        raise ProbeError(f"nobody came to port {order.port}{stranger}")
    return []


def _listening(order: ProbeRequest) -> socket.socket:
    while True:
        try:
            return udp(order.peer, order.bind, order.port, connected=False)
        except ProbeError:  # another run may have the port until its end
            if not order.pause(_HELLO_S):
                raise


def _same(host: str, peer: str) -> bool:
    return host.partition("%")[0].removeprefix("::ffff:") == peer.partition("%")[0]


@dataclass
class _Stream:
    """The client's side. ``left`` has when each packet left by the wall clock and by the steady one
    (nanoseconds), ``answered`` by kind how many the other end had seen when it answered last."""

    order: ProbeRequest
    sock: socket.socket
    left: dict[int, tuple[int, int]] = field(default_factory=dict)
    trips: dict[int, Trip] = field(default_factory=dict)
    answered: dict[int, int] = field(default_factory=dict)
    twice: int = 0
    rtt_s: float = 0.0
    error_s: float = math.inf
    refusal: str = "no answer"

    def ask(self, kind: int, again_s: float) -> bool:
        """Ask every ``again_s`` until there is an answer, or no time; whether there is."""
        while kind not in self.answered and self.order.go_on():
            self.send(kind)
            self.listen(min(self.order.end, time.monotonic() + again_s), kind)
        return kind in self.answered

    def send(self, kind: int, number: int = 0) -> None:
        """One packet."""
        steady, now = time.monotonic_ns(), time.time_ns()
        if kind == STREAM:
            self.left[number] = now, steady
        data = packed(Packet(kind, number, now), self.order.secret, self.order.options["length"])
        try:
            self.sock.send(data)
        except OSError as error:
            self.refusal = error.strerror or str(error)

    def listen(self, until: float, kind: int = 0) -> None:
        """Take what comes until then, or until an answer of this kind is there."""
        while kind not in self.answered and time.monotonic() < until:
            if not self.order.halt.ready({self.sock.fileno(): select.POLLIN}, until):
                self.order.halt.check()
                continue
            try:
                arrived = receive(self.sock)
            except OSError as error:
                self.refusal = error.strerror or str(error)
                continue
            if arrived is not None:
                self._take(arrived[0], arrived[3], time.monotonic_ns())

    def _take(self, data: bytes, at: int, steady: int) -> None:
        packet = unpacked(data, self.order.secret)
        if packet is None or not packet.kind & ANSWER:
            return
        kind = packet.kind & ~ANSWER
        self.answered[kind] = max(packet.seen, self.answered.get(kind, 0))
        self.error_s = packet.error_s
        if kind == HELLO:
            self.rtt_s = max(0.0, (at - packet.sent) / 1e9)
        if kind != STREAM or packet.number not in self.left:
            return
        if packet.number in self.trips:
            self.twice += 1
            return
        sent, began = self.left[packet.number]
        self.trips[packet.number] = Trip(
            packet.number, sent, at, steady - began, packet.there, packet.returned
        )


def client(order: ProbeRequest, error_s: float, most_error_s: float) -> list[Reading]:
    """Measure towards the peer's server. One-way delay is measured where both clocks together are
    off by at most ``most_error_s``; ``error_s`` is what this machine's may be off.

    Raises ProbeError where the other end never answers: then nobody knows whether the path is down
    or the agent away.
    """
    options = order.options
    unset = delays.UnsetClock()
    with udp(order.peer, order.bind, order.port) as sock:
        stream = _Stream(order, sock)
        if not stream.ask(HELLO, _HELLO_S):
            order.halt.check()
            raise ProbeError(f"{order.peer} port {order.port} does not answer: {stream.refusal}")
        waits = timeouts_for(stream.rtt_s)
        count = packets_in(order.left_s, options["count"], options["interval"], waits)
        begin = time.monotonic()
        for number in range(count):
            stream.listen(begin + number * options["interval"])
            stream.send(STREAM, number)
        if not stream.left:
            raise ProbeError("no time is left for a packet")
        if len(stream.trips) < len(stream.left):
            stream.listen(time.monotonic() + waits.late_s)
        stream.ask(END, waits.again_s)
    return findings(stream.trips, len(stream.left), stream.answered.get(END), stream.twice,
                    unset.holds(), error_s + stream.error_s, most_error_s)  # fmt: skip


def findings(
    trips: Mapping[int, Trip], sent: int, seen: int | None, twice: int, trusted: bool,
    clocks_error_s: float, most_error_s: float,
) -> list[Reading]:  # fmt: skip
    """What a stream of ``sent`` packets says of which ``seen`` came there, if that is known. Pure.

    ``trusted``: nobody set our clock meanwhile. Loss is that of one direction, where the other end
    could not say so that of both.
    """
    came = len(trips)
    one_way_known = seen is not None and seen >= came
    direction = "one way" if one_way_known else "there and back"
    arrived = seen if one_way_known and seen is not None else came
    all_of_them = [delays.loss(sent, arrived, direction=direction, answered=came, twice=twice)]
    if not trips:
        return all_of_them
    ordered = [trips[number] for number in sorted(trips)]
    why = ""
    if not trusted:
        why = "this machine's clock was set meanwhile"
    elif not clocks_error_s <= most_error_s:
        known = f"{clocks_error_s:.6f} s" if math.isfinite(clocks_error_s) else "an unknown time"
        why = f"both clocks together may be off by {known}, more than {most_error_s:g} s"
    rtt = delays.rtt(ordered, trusted)
    if why:
        rtt = replace(rtt, details={**rtt.details, "one_way": f"not measured: {why}"})
    all_of_them.append(rtt)
    if (jitter := delays.jitter(ordered) if trusted else None) is not None:
        all_of_them.append(jitter)
    if not why:
        all_of_them.append(delays.one_way(ordered, clocks_error_s))
    return all_of_them
