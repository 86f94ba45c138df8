"""Sockets of an agent: transparent ones towards the end hosts, tuned ones towards other agents."""

from __future__ import annotations

import math
import socket
import struct
from contextlib import suppress

from network_provisioner.base.units import bytes_of
from network_provisioner.relay.sessions import Address, Session
from network_provisioner.relay.streams import reset_at_close

# linux/in.h, asm-generic/socket.h
_IP_TRANSPARENT = 19
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_MAX_PACING_RATE = 32, 33, 47
STREAM_MARK = 4601  # whose routes say how much may be under way at once
_BACKLOG = 1024
_KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
_GONE_MS = 30_000  # for the other side to confirm what was sent
_PROBING, _PAYLOAD = 1.25, 0.95  # bbr looks for more than it has; the rest are headers


def transparent() -> socket.socket:
    """One that may have any host's address. Raises PermissionError without CAP_NET_ADMIN."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        sock.setsockopt(socket.SOL_IP, _IP_TRANSPARENT, 1)
    except OSError:
        sock.close()
        raise
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return sock


def listening(sock: socket.socket, address: Address) -> socket.socket:
    """The same, ready to accept. Raises OSError."""
    try:
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def towards_host(sock: socket.socket) -> None:
    """Sets up a connection with an end host: as it were the other end host's own."""
    reset_at_close(sock)
    _keep_alive(sock)


def for_streams(session: Session) -> socket.socket:
    """One towards another agent, or one that accepts such."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    size = max(1, session.buffer_bytes // session.streams)
    for force, usual in (
        (_SO_SNDBUFFORCE, socket.SO_SNDBUF),
        (_SO_RCVBUFFORCE, socket.SO_RCVBUF),
    ):
        try:
            sock.setsockopt(socket.SOL_SOCKET, force, size)
        except PermissionError:  # as large as the system allows
            sock.setsockopt(socket.SOL_SOCKET, usual, size)
    with suppress(OSError):  # a kernel without it: its own choice
        name = session.congestion.encode()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)
    with suppress(PermissionError):  # then it begins as slowly as any
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, STREAM_MARK)
    reset_at_close(sock)
    return sock


def tune_stream(sock: socket.socket, session: Session) -> None:
    """Sets up a connected stream, or gives it another rate."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _GONE_MS)
    _keep_alive(sock)
    share = _PROBING if session.congestion.startswith("bbr") else _PAYLOAD
    rate = bytes_of(session.rate_bps * share) / session.streams
    whole = (1 << 64) - 1 if math.isinf(rate) else max(1, int(rate))
    sock.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, struct.pack("Q", whole))


def _keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
