"""How switches are joined: a frame out of every port, and where it comes in (IEEE 802.1AB).

A rule that sends such frames to the controller is on the switches for these seconds only, and ends
there by itself if nobody takes it off. It has a cookie of its own, so it is no rule of a circuit.
Each search puts a number of its own into its frames: others' frames, and late ones, do not count.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from network_provisioner.controllers.openflow import wire
from network_provisioner.topology.discovery import Discovered, End, Port

ETH_TYPE = 0x88CC
SECONDS = 2.0  # how long frames are waited for; the rule lives five times as long
_TO = bytes.fromhex("0180c200000e")  # to the neighbour, and no farther
_FROM = bytes.fromhex("020000ad0e00")
_COOKIE = 0xAD1D << 48
_OURS = b"\x00\xad\x0e\x01"  # organisation and subtype of our number
_CHASSIS, _PORT, _TTL, _OWN, _END = 1, 2, 3, 127, 0
_LOCAL = b"\x07"  # subtype of names that mean something to their giver only


class LooksAround(Protocol):
    """As much of a backend as a search needs. Every method may raise ControllerError."""

    def connected(self) -> set[int]:
        """The switches that can be asked."""
        ...

    def describe_ports(self, dpids: set[int]) -> Mapping[int, Sequence[Any]]:
        """The descriptions of all ports, by switch."""
        ...

    def emit(self, messages: Mapping[int, Sequence[Any]], what: str) -> None:
        """Send messages and wait until every switch has taken them."""
        ...

    def listening(self, heard: Callable[[int, Any], None]) -> AbstractContextManager[None]:
        """Have frames that come to the controller given to ``heard``, with the datapath id."""
        ...


def discover(backend: LooksAround, seconds: float = SECONDS) -> Discovered:
    """Look around. Raises ControllerError."""
    number = os.urandom(6)
    cookie = _COOKIE | int.from_bytes(number, "big")
    dpids = backend.connected()
    ports = {d: dict(map(_port, found)) for d, found in backend.describe_ports(dpids).items()}
    links: set[tuple[End, End]] = set()
    over = threading.Event()

    def heard(dpid: int, message: Any) -> None:
        sender = read_frame(bytes(message.data), number)
        if sender is not None and sender[0] in ports:
            first, second = sorted((sender, (dpid, message.match["in_port"])))
            links.add((first, second))

    with backend.listening(heard):
        try:
            rule = wire.punt(ETH_TYPE, cookie, round(5 * seconds))
            backend.emit({dpid: [rule] for dpid in dpids}, "the rule to find links by")
            frames = {
                dpid: [wire.packet_out(n, frame(dpid, n, number)) for n, p in own.items() if p.up]
                for dpid, own in ports.items()
            }
            backend.emit(frames, "the frames to find links by")
            over.wait(seconds)  # nobody says that no more will come
        finally:
            backend.emit({d: [wire.delete_by_cookie(cookie, 2**64 - 1)] for d in dpids}, "its end")
    return Discovered(ports, frozenset(links))


def frame(dpid: int, port: int, number: bytes) -> bytes:
    """A frame that says where it was sent out."""
    return b"".join((
        _TO, _FROM, struct.pack("!H", ETH_TYPE),
        _tlv(_CHASSIS, _LOCAL + f"{dpid:016x}".encode()),
        _tlv(_PORT, _LOCAL + str(port).encode()),
        _tlv(_TTL, struct.pack("!H", 120)),
        _tlv(_OWN, _OURS + number),
        _tlv(_END, b""),
    ))  # fmt: skip


def read_frame(data: bytes, number: bytes) -> End | None:
    """Where a frame of this search was sent out; None for any other."""
    if data[12:14] != struct.pack("!H", ETH_TYPE):
        return None
    values = dict(_tlvs(data[14:]))
    chassis, port = values.get(_CHASSIS, b""), values.get(_PORT, b"")
    if values.get(_OWN) != _OURS + number or chassis[:1] != _LOCAL or port[:1] != _LOCAL:
        return None
    try:
        return int(chassis[1:], 16), int(port[1:])
    except ValueError:
        return None


def _tlv(kind: int, value: bytes) -> bytes:
    return struct.pack("!H", kind << 9 | len(value)) + value


def _tlvs(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 2 <= len(data):
        (head,) = struct.unpack_from("!H", data, at)
        kind, length = head >> 9, head & 0x1FF
        if kind == _END:
            return
        yield kind, data[at + 2 : at + 2 + length]
        at += 2 + length


def _port(found: Any) -> tuple[int, Port]:
    name = bytes(found.name).split(b"\0")[0].decode("ascii", "replace")
    down = found.config & wire.OFP.OFPPC_PORT_DOWN or found.state & wire.OFP.OFPPS_LINK_DOWN
    return found.port_no, Port(name, not down, 1000.0 * found.curr_speed)
