"""Frames that find out what is there: LLDP (IEEE 802.1AB), UDP, and ARP (RFC 826) for IPv4. Pure.

A frame that says where it was sent out carries the number of its search: others' frames, and late
ones, do not count.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from ipaddress import IPv4Address, ip_address

from network_provisioner.controllers.segments import Segment, eth_type
from network_provisioner.topology.discovery import End

LLDP, ARP = 0x88CC, 0x0806
ARP_REQUEST, _ARP_REPLY = 1, 2
# What a probe through routers carries: a number, the switch's datapath id, and its port.
_PROBE = struct.Struct("!6sQI")
_U16 = struct.Struct("!H")
_NEIGHBOR = bytes.fromhex("0180c200000e")  # the nearest bridge (IEEE 802.1Q), and no farther
_FROM = bytes.fromhex("020000ad0e00")
_OURS = b"\x00\xad\x0e\x01"  # organisation and subtype of our number
_CHASSIS, _PORT, _TTL, _OWN, _END = 1, 2, 3, 127, 0
_LOCAL = b"\x07"  # subtype of names that mean something to their giver only
_ARP_PACKET = struct.Struct("!6s6sHHHBBH6s4s6s4s")
_ETHERNET, _IPV4 = 1, 0x0800
_UDP, _HOPS = 17, 64
_EVERYBODY = b"\xff" * 6


def lldp(dpid: int, port: int, number: bytes) -> bytes:
    """A frame that says where it was sent out, to the neighbor there."""
    return b"".join((
        _NEIGHBOR, _FROM, _U16.pack(LLDP),
        _tlv(_CHASSIS, _LOCAL + f"{dpid:016x}".encode()),
        _tlv(_PORT, _LOCAL + str(port).encode()),
        _tlv(_TTL, _U16.pack(120)),
        _tlv(_OWN, _OURS + number),
        _tlv(_END, b""),
    ))  # fmt: skip


def probe(dpid: int, port: int, number: bytes) -> bytes:
    """The payload of a UDP packet that says where it was sent out."""
    return _PROBE.pack(number, dpid, port)


def udp_frames(segment: Segment, src_port: int, dst_port: int, payload: bytes) -> list[bytes]:
    """UDP packets to send out of the segment's first port, as frames."""
    to = bytes.fromhex(segment.router_mac.replace(":", "")) or _NEIGHBOR
    frames = []
    for pair in segment.ends:
        src, dst = map(ip_address, pair)
        length = 8 + len(payload)
        udp = struct.pack("!HHHH", src_port, dst_port, length, 0) + payload
        if src.version == 4:
            head = struct.pack("!5H", 0x4500, 20 + length, 0, 0x4000, _HOPS << 8 | _UDP)
            ip = head + b"\0\0" + src.packed + dst.packed
            ip = ip[:10] + _checksum(ip) + ip[12:]
        else:
            ip = struct.pack("!IHBB", 6 << 28, length, _UDP, _HOPS) + src.packed + dst.packed
            pseudo = src.packed + dst.packed + struct.pack("!II", length, _UDP)
            udp = udp[:6] + _checksum(pseudo + udp) + udp[8:]
        kind = _U16.pack(eth_type(pair[0]))
        frames.append(to + _FROM + kind + ip + udp)
    return frames


def sender(frame: bytes, number: bytes) -> End | None:
    """Where a frame of :func:`lldp`, or of UDP with a :func:`probe`, was sent out under a number;
    None for any other."""
    if len(frame) >= _PROBE.size:
        own, dpid, port = _PROBE.unpack(frame[-_PROBE.size :])
        if own == number:
            return dpid, port
    if frame[12:14] != _U16.pack(LLDP):
        return None
    values = dict(_tlvs(frame[14:]))
    chassis, name = values.get(_CHASSIS, b""), values.get(_PORT, b"")
    if values.get(_OWN) != _OURS + number or chassis[:1] != _LOCAL or name[:1] != _LOCAL:
        return None
    try:
        return int(chassis[1:], 16), int(name[1:])
    except ValueError:
        return None


def arp_request(asker: bytes, address: str) -> bytes:
    """A frame that asks who has an IPv4 address, and tells nobody ours."""
    target = IPv4Address(address).packed
    return _arp(ARP_REQUEST, _EVERYBODY, asker, bytes(4), bytes(6), target)


def arp_reply(request: bytes, mac: bytes) -> bytes:
    """The answer to a request that :func:`read_arp_request` knows: ``mac`` has the address."""
    _, who, *_, source, _, target = _ARP_PACKET.unpack_from(request)
    return _arp(_ARP_REPLY, who, mac, target, who, source)


def read_arp_reply(frame: bytes, receiver: bytes) -> tuple[str, str] | None:
    """IPv4 and MAC address of who answers ``receiver``; None for any other frame."""
    if len(frame) < _ARP_PACKET.size:
        return None
    to, _, kind, *_, operation, mac, address, _, _ = _ARP_PACKET.unpack_from(frame)
    if (to, kind, operation) != (receiver, ARP, _ARP_REPLY):
        return None
    return str(IPv4Address(address)), mac.hex(":")


def read_arp_request(frame: bytes) -> str:
    """The IPv4 address that is asked for; "" for any other frame."""
    if len(frame) < _ARP_PACKET.size:
        return ""
    _, _, kind, *_, operation, _, _, _, target = _ARP_PACKET.unpack_from(frame)
    return str(IPv4Address(target)) if (kind, operation) == (ARP, ARP_REQUEST) else ""


def _arp(
    operation: int, to: bytes, mac: bytes, address: bytes, owner: bytes, target: bytes
) -> bytes:
    return _ARP_PACKET.pack(
        to, mac, ARP, _ETHERNET, _IPV4, 6, 4, operation, mac, address, owner, target
    )


def _tlv(kind: int, value: bytes) -> bytes:
    return _U16.pack(kind << 9 | len(value)) + value


def _tlvs(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 2 <= len(data):
        (head,) = _U16.unpack_from(data, at)
        kind, length = head >> 9, head & 0x1FF
        if kind == _END:
            return
        yield kind, data[at + 2 : at + 2 + length]
        at += 2 + length


def _checksum(data: bytes) -> bytes:
    """RFC 1071."""
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return _U16.pack(~total & 0xFFFF or 0xFFFF)
