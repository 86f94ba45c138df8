"""UDP and ICMP sockets whose arrivals bear the kernel's time: a busy Python reads them later."""

from __future__ import annotations

import socket
import struct
import time
from ipaddress import ip_address

from monitors.measurements.probes.probe import ProbeError

_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; struct timespec in the machine's own longs
_TIMESPEC = struct.Struct("@ll")
_MOST_BYTES = 65_535
_ANCILLARY_BYTES = 1024


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
