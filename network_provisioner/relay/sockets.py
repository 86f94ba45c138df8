"""Sockets of an agent: transparent ones towards the end hosts, tuned ones towards other agents.
The kernel hands it connections to other hosts that pass a network device (TPROXY).
"""

from __future__ import annotations

import math
import re
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from network_provisioner.base.errors import MissingError
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
MARK = 4600  # of packets that are ours; so are the table of their routes, and the place of its rule
_NFT = "adon_relay"
_WRITE = """table ip {table}
delete table ip {table}
table ip {table} {{
  # The last rule is for when nobody listens: a host that still has a connection, for a reset came
  # to it out of order, is told again, and new ones are refused.
  chain prerouting {{
    type filter hook prerouting priority mangle; policy accept;
    iifname "{device}" ip daddr {address} accept
    iifname "{device}" meta l4proto tcp socket transparent 1 meta mark set {mark} accept
    iifname "{device}" meta l4proto tcp tproxy to :{port} meta mark set {mark} accept
    iifname "{device}" meta l4proto tcp reject with tcp reset
  }}
}}
"""


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


@contextmanager
def tproxy(address: str, port: int) -> Iterator[None]:
    """While this lasts, TCP to other hosts that comes in where ``address`` is arrives at ``port``.
    What one that was killed left behind is used on.

    Raises MissingError: no such address, no right to do so, no nft, or a kernel without TPROXY.
    """
    device = _device_of(address)
    names = {"table": _NFT, "device": device, "address": address, "port": port, "mark": MARK}
    try:
        _do(["nft", "-f", "-"], _WRITE.format(**names))
        for mark in (MARK, STREAM_MARK):
            rule = ["pref", str(mark), "fwmark", str(mark), "lookup", str(mark)]
            if not _do(["ip", "rule", "show", *rule[:2]]):
                _do(["ip", "rule", "add", *rule])
        _do(["ip", "route", "replace", "local", "0.0.0.0/0", "dev", "lo", "table", str(MARK)])
        # By slashes: the name of a VLAN has a dot.
        _do(["sysctl", "-qw", f"net/ipv4/conf/{device}/rp_filter=2"])
        yield
    finally:
        _take_away()


def begin_with(peer: str, segments: int) -> None:
    """Have streams to an agent begin with so many segments under way: their rate is reserved, and
    they are paced, so there is nothing to feel for. Raises MissingError."""
    way = _do(["ip", "-4", "-o", "route", "get", peer]).split(" uid ")[0].split()
    words = ["ip", "route", "replace", *way, "initcwnd", str(segments), "table", str(STREAM_MARK)]
    _do(words)


def _device_of(address: str) -> str:
    shown = _do(["ip", "-4", "-o", "address", "show"])
    for line in shown.splitlines():
        match = re.match(r"\d+: (\S+) +inet ([0-9.]+)/", line)
        if match and match[2] == address:
            return match[1]
    raise MissingError(f"{address} is no address of this host, expected its own in the data plane")


def _take_away() -> None:
    commands = [["nft", "delete", "table", "ip", _NFT]]
    for mark in (MARK, STREAM_MARK):
        commands.append(["ip", "rule", "del", "pref", str(mark)])
        commands.append(["ip", "route", "flush", "table", str(mark)])
    for words in commands:
        with suppress(MissingError):
            _do(words)


def _do(words: Sequence[str], text: str = "") -> str:
    try:
        done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        raise MissingError(
            f"{words[0]} cannot be run: {error.strerror}; is it installed?"
        ) from None
    if done.returncode:
        why = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0]
        raise MissingError(f"TPROXY cannot be set up: {words[0]}: {why}")
    return done.stdout
