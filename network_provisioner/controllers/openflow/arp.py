"""ARP frames (RFC 826) for Ethernet and IPv4. Pure."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address

ETH_TYPE = 0x0806
REQUEST, REPLY = 1, 2
_PACKET = struct.Struct("!6s6sHHHBBH6s4s6s4s")
_ETHERNET, _IPV4 = 1, 0x0800
_EVERYBODY = b"\xff" * 6


def request(sender: bytes, address: str) -> bytes:
    """A frame that asks who has an IPv4 address, and tells nobody ours."""
    return _frame(REQUEST, _EVERYBODY, sender, bytes(4), bytes(6), IPv4Address(address).packed)


def reply(request: bytes, mac: bytes) -> bytes:
    """The answer to a request that :func:`read_request` knows: ``mac`` has the address."""
    _, who, *_, source, _, target = _PACKET.unpack_from(request)
    return _frame(REPLY, who, mac, target, who, source)


def read_reply(frame: bytes, receiver: bytes) -> tuple[str, str] | None:
    """IPv4 and MAC address of who answers ``receiver``; None for any other frame."""
    if len(frame) < _PACKET.size:
        return None
    to, _, kind, *_, operation, mac, address, _, _ = _PACKET.unpack_from(frame)
    if (to, kind, operation) != (receiver, ETH_TYPE, REPLY):
        return None
    return str(IPv4Address(address)), mac.hex(":")


def read_request(frame: bytes) -> str:
    """The IPv4 address that is asked for; "" for any other frame."""
    if len(frame) < _PACKET.size:
        return ""
    _, _, kind, *_, operation, _, _, _, target = _PACKET.unpack_from(frame)
    return str(IPv4Address(target)) if (kind, operation) == (ETH_TYPE, REQUEST) else ""


def _frame(
    operation: int, to: bytes, mac: bytes, address: bytes, of: bytes, target: bytes
) -> bytes:
    return _PACKET.pack(
        to, mac, ETH_TYPE, _ETHERNET, _IPV4, 6, 4, operation, mac, address, of, target
    )
