"""Ports of loopback for servers that are told their port before they start."""

from __future__ import annotations

import os
import random
import socket
from collections import deque
from pathlib import Path

from network_provisioner.base.errors import MissingError

LOOPBACK = "127.0.0.1"
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000
_TRIES = 200
_MOST_HELD = 100
_held: deque[int] = deque()  # descriptors
# Never seeded: two processes with the same seed would look at the same ports in the same order.
_dice = random.SystemRandom()


def free_ports(count: int, lowest_ephemeral: int | None = None) -> list[int]:
    """``count`` different ports of loopback at which nobody listens now.

    They lie below those that the kernel itself gives to who connects or binds to port 0: else one
    of this machine's many connections might be given such a port before its server takes it, or
    while that is started again. Nor are they given to another process that asks here, for as long
    as this one runs and does not ask for a hundred more. ``lowest_ephemeral`` is where the kernel's
    begin, as it says itself when None. Raises MissingError if none is free.
    """
    top = _lowest_ephemeral() if lowest_ephemeral is None else lowest_ephemeral
    if top - _LOWEST < count:
        return _any_ports(count)
    # Not in order: whoever else looks for ports at this moment should look elsewhere.
    places = _dice.sample(range(_LOWEST, top), min(top - _LOWEST, _TRIES + count))
    ports: list[int] = []
    for port in places:
        if len(ports) == count:
            break
        if _is_free(port):
            ports.append(port)
    if len(ports) < count:
        raise MissingError(f"{LOOPBACK}: found no free port among {len(places)}, expected {count}")
    return ports


def free_port() -> int:
    """One of :func:`free_ports`."""
    return free_ports(1)[0]


def _lowest_ephemeral() -> int:
    try:
        return int(_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 0  # the kernel does not say: it may give any


def _is_free(port: int) -> bool:
    """Whether nobody listens at ``port`` and nobody else was given it; now it is this process's."""
    # A name that the kernel gives to one process per network and takes back when it ends.
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0adon-port-{port}")
        with socket.socket() as sock:
            sock.bind((LOOPBACK, port))
    except OSError:
        mark.close()
        return False
    _held.append(mark.detach())
    if len(_held) > _MOST_HELD:
        os.close(_held.popleft())
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
