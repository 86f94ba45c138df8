"""Frames that say where they were sent out (IEEE 802.1AB). Pure.

Each search puts a number of its own into its frames: others' frames, and late ones, do not count.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from network_provisioner.topology.discovery import End

ETH_TYPE = 0x88CC
_TO = bytes.fromhex("0180c200000e")  # to the neighbour, and no farther
_FROM = bytes.fromhex("020000ad0e00")
_OURS = b"\x00\xad\x0e\x01"  # organisation and subtype of our number
_CHASSIS, _PORT, _TTL, _OWN, _END = 1, 2, 3, 127, 0
_LOCAL = b"\x07"  # subtype of names that mean something to their giver only


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
