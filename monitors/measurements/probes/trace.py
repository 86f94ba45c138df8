"""The routers on the way to an address: UDP packets that live for one hop, two, three.

Needs no privileges: the kernel hands over what routers say about our packets (IP_RECVERR, ip(7)).
A few hops are asked at a time, because routers, and the end too, answer only so often.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from monitors.measurements.probes.echo import family_of, stamped
from monitors.measurements.probes.probe import ProbeError, ProbeRequest, Reading, reading

_PORT = 33434  # the first that traceroute uses; nobody listens there
_AT_A_TIME = 4
_PAYLOAD = b"adon trace".ljust(32, b"\0")
_ANCILLARY_BYTES = 1024
_ERROR = struct.Struct("@IBBBBII")  # struct sock_extended_err
_FROM_ICMP = 2  # SO_EE_ORIGIN_ICMP
_FROM_ICMP6 = 3
# Level, IP_RECVERR, IP_TTL; the type of "time exceeded"; type and code of "port unreachable".
_KINDS = {
    socket.AF_INET: (socket.IPPROTO_IP, 11, socket.IP_TTL, 11, (3, 3)),
    socket.AF_INET6: (socket.IPPROTO_IPV6, 25, socket.IPV6_UNICAST_HOPS, 3, (1, 4)),
}
_NS = 1e9


@dataclass(frozen=True, slots=True)
class HopAnswer:
    """What was said about a packet: by whom, after how long, and whether that ends the route:
    ``end`` is "" for a router on the way, ``reached``, or why it goes no further."""

    address: str
    rtt_s: float
    end: str = ""


def hop_end(family: int, origin: int, kind: int, code: int) -> str | None:
    """:attr:`HopAnswer.end` of what ICMP says; None for what is none of our business. Pure."""
    _, _, _, exceeded, unreachable = _KINDS[socket.AddressFamily(family)]
    if origin not in (_FROM_ICMP, _FROM_ICMP6):
        return None
    if kind == exceeded:
        return ""
    if (kind, code) == unreachable:
        return "reached"
    return f"unreachable, code {code}" if kind == unreachable[0] else None


def route_of(heard: Mapping[int, HopAnswer], probed: int) -> tuple[list[dict[str, Any]], str]:
    """All hops up to the end of the route, or the last that answered, and how it ends. Pure."""
    ends = [hop for hop, answer in heard.items() if answer.end]
    reached = [hop for hop in ends if heard[hop].end == "reached"]
    last = min(reached or ends or [max(heard, default=0)])
    route = [
        {"hop": hop, "address": heard[hop].address, "rtt_s": heard[hop].rtt_s}
        if hop in heard
        else {"hop": hop, "address": None}
        for hop in range(1, last + 1)
    ]
    end = heard[last].end if last else ""
    return route, end or f"no answer beyond hop {last} of {probed}"


def measure(order: ProbeRequest) -> list[Reading]:
    """Raises ProbeError where nobody on the way says anything."""
    most, attempts = order.options["most_hops"], order.options["attempts"]
    heard: dict[int, HopAnswer] = {}
    probed = 0
    while probed < most and order.go_on() and not any(answer.end for answer in heard.values()):
        window = range(probed + 1, min(probed + _AT_A_TIME, most) + 1)
        probed = window[-1]
        for _ in range(attempts):
            _ask(order, [hop for hop in window if hop not in heard], heard)
            if all(hop in heard for hop in window) or _ended_before(heard, window):
                break
    order.halt.check()
    if not heard:
        raise ProbeError(f"no hop on the way to {order.peer} answers")
    route, end = route_of(heard, probed)
    reached = end == "reached"
    return [reading("hops", len(route), route=route, reached=reached, end=end)]


def _ended_before(heard: Mapping[int, HopAnswer], window: Sequence[int]) -> bool:
    """Whether the route ends in the window, with all hops before the end known."""
    ends = [hop for hop, answer in heard.items() if answer.end]
    return bool(ends) and all(hop in heard for hop in window if hop < min(ends))


def _ask(order: ProbeRequest, hops: Sequence[int], heard: dict[int, HopAnswer]) -> None:
    """Send one packet for each hop and take what is said about them."""
    family = family_of(order.peer)
    waiting: dict[int, tuple[int, socket.socket, int]] = {}
    try:
        for hop in hops:
            sock = _sent(order, family, hop)
            waiting[sock.fileno()] = hop, sock, time.monotonic_ns()
        until = min(order.end, time.monotonic() + order.options["wait"])
        silent = dict.fromkeys(waiting, select.POLLERR | select.POLLIN)
        while silent and time.monotonic() < until and not order.halt.is_set():
            for number, _ in order.halt.ready(silent, until):
                hop, sock, began = waiting[number]
                answer = _hop_answer(sock, family, (time.monotonic_ns() - began) / _NS, order.peer)
                if answer is not None:
                    heard[hop] = answer
                    del silent[number]
            if _ended_before(heard, [*hops]):
                return
    finally:
        for _, sock, _ in waiting.values():
            sock.close()


def _sent(order: ProbeRequest, family: socket.AddressFamily, hop: int) -> socket.socket:
    level, receive_errors, lives, _, _ = _KINDS[family]
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        stamped(sock)
        sock.setsockopt(level, receive_errors, 1)
        sock.setsockopt(level, lives, hop)
        if order.bind:
            sock.bind((order.bind, 0))
        sock.connect((order.peer, _PORT + hop))
        sock.send(_PAYLOAD)
    except OSError as error:
        sock.close()
        raise ProbeError(f"cannot reach {order.peer}: {error.strerror or error}") from None
    return sock


def _hop_answer(sock: socket.socket, family: int, rtt_s: float, peer: str) -> HopAnswer | None:
    level, receive_errors, _, _, _ = _KINDS[socket.AddressFamily(family)]
    try:
        _, ancillary, _, _ = sock.recvmsg(2048, _ANCILLARY_BYTES, socket.MSG_ERRQUEUE)
    except OSError:
        return _end_answer(sock, rtt_s, peer)
    for cmsg_level, kind, value in ancillary:
        if (cmsg_level, kind) != (level, receive_errors) or len(value) < _ERROR.size:
            continue
        _, origin, icmp_type, code, _, _, _ = _ERROR.unpack_from(value)
        end = hop_end(family, origin, icmp_type, code)
        address = _offender(value[_ERROR.size :], family)
        if end is not None and address:
            return HopAnswer(address, rtt_s, end)
    return None


def _end_answer(sock: socket.socket, rtt_s: float, peer: str) -> HopAnswer | None:
    """Somebody does listen on that port: the end, too."""
    try:
        sock.recv(2048)
    except OSError:  # the error itself, which its queue has told already
        return None
    return HopAnswer(peer, rtt_s, "reached")


def _offender(address: bytes, family: int) -> str:
    """Who sent the ICMP message, from a struct sockaddr_in or sockaddr_in6."""
    start, size = (4, 4) if family == socket.AF_INET else (8, 16)
    raw = address[start : start + size]
    return socket.inet_ntop(family, raw) if len(raw) == size and any(raw) else ""
