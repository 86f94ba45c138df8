"""Round trip, loss, jitter and one-way delay between two agents: UDP packets with time stamps.

The client says hello until the server answers, sends its stream evenly, and asks at the end how
many came. So loss is known for one direction, which ``ping`` cannot tell.
"""

from __future__ import annotations

import math
import select
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from monitors.measurements.probes import delays
from monitors.measurements.probes.delays import Trip
from monitors.measurements.probes.echo_packets import (
    ANSWER,
    END,
    HELLO,
    STREAM,
    Packet,
    packed,
    receive,
    udp,
    unpacked,
)
from monitors.measurements.probes.probe import ProbeError, ProbeRequest, Reading

_HELLO_S = 0.2  # between two hellos, while nobody knows how far it is
_AFTER_END_S = 2.5  # the server answers once more, where its answer was lost
_QUESTIONS = 5  # about the end: that all are lost is rare, also where a fifth is
_MOST = 0.6  # of the time for waiting, at most
_AT_ONCE = 256  # packets, before the time is looked at: others may send without end


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
    if order.halt.is_set():
        raise ProbeError("the agent was stopped")
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
                if self.order.halt.is_set():
                    raise ProbeError("the agent was stopped")
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
            if order.halt.is_set():
                raise ProbeError("the agent was stopped")
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
