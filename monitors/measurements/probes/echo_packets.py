"""The packets of our own echo, as bytes. Pure.

    magic 4 | tag 8 | kind 1 | zero 3 | number 4 | seen 4 | sent 8 | there 8 | returned 8 | error 8

in network order, filled up with zeros. ``tag`` begins the HMAC-SHA256 of everything after it, with
what both ends know as its key: who does not know it can neither answer nor ask. ``error`` is how
far the answering machine's clock may be off, in nanoseconds, all ones where it is not known.
"""

from __future__ import annotations

import hmac
import math
import socket
import struct
import time
from dataclasses import dataclass
from ipaddress import ip_address

from monitors.measurements.probes.probe import ProbeError

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
