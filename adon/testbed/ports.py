"""Ports of loopback for servers that are told their port before they start."""

from __future__ import annotations

import random
import socket
from pathlib import Path

from network_provisioner.errors import MissingError

LOOPBACK = "127.0.0.1"
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000
_TRIES = 200


def free_ports(count: int, lowest_ephemeral: int | None = None) -> list[int]:
    """``count`` different ports of loopback at which nobody listens now.

    They lie below those that the kernel itself gives to who connects or binds to port 0: else one
    of this machine's many connections might be given such a port before its server takes it, or
    while that is started again. ``lowest_ephemeral`` is where the kernel's begin, as it says itself
    when None. Raises MissingError where none is free.
    """
    top = _lowest_ephemeral() if lowest_ephemeral is None else lowest_ephemeral
    if top - _LOWEST < count:
        return _any_ports(count)
    # Not in order: whoever else looks for ports at this moment should look elsewhere.
    places = random.sample(range(_LOWEST, top), min(top - _LOWEST, _TRIES + count))
    found: list[int] = []
    for port in places:
        if len(found) == count:
            break
        if _is_free(port):
            found.append(port)
    if len(found) < count:
        raise MissingError(f"{LOOPBACK}: found no free port among {len(places)}, expected {count}")
    return found


def free_port() -> int:
    """One of :func:`free_ports`."""
    return free_ports(1)[0]


def _lowest_ephemeral() -> int:
    try:
        return int(_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 0  # the kernel does not say: it may give any


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _any_ports(count: int) -> list[int]:
    """Where the kernel gives out all ports by itself: what it gives, all held at once."""
    socks = [socket.socket() for _ in range(count)]
    try:
        for sock in socks:
            sock.bind((LOOPBACK, 0))
        return [sock.getsockname()[1] for sock in socks]
    except OSError as error:
        raise MissingError(f"{LOOPBACK}: found no free port: {error.strerror}") from error
    finally:
        for sock in socks:
            sock.close()
