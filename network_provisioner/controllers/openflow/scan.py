"""What is there before anything is configured: every switch that connects, how they are joined, and
at which port a host answers.

Hosts are asked by ARP (RFC 826) with the sender 0.0.0.0, as RFC 5227 has it for probes: nobody's
table of neighbours changes. The answers go to an Ethernet address of this search alone, so that the
rule which brings them here touches no other packet.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from types import TracebackType
from typing import Any, Self

from network_provisioner.base.fields import format_dpid
from network_provisioner.controllers.openflow import wire
from network_provisioner.controllers.openflow.connections import parse_listen
from network_provisioner.controllers.openflow.driver import OpenFlowSwitches
from network_provisioner.topology.discovery import Discovered, End

_ARP = 0x0806
_REQUEST, _REPLY = 1, 2
_PACKET = struct.Struct("!6s6sHHHBBH6s4s6s4s")
_ETHERNET, _IPV4 = 1, 0x0800
_EVERYBODY = b"\xff" * 6
_COOKIE = 0xAD1D << 48  # of a search, as that for links
_ANSWER_S = 1.0
_RULE_S = 10  # the rule ends by itself where nobody takes it off
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class HostPort:
    """Where a host answered, and its MAC address."""

    mac: str
    end: End


class _AllNames(dict[int, str]):
    """Every switch is expected."""

    def __contains__(self, dpid: object) -> bool:
        return True

    def __missing__(self, dpid: int) -> str:
        return format_dpid(dpid)


class Scan(OpenFlowSwitches):
    """Listens at ``HOST:PORT`` while it is entered. Raises InputError, and ControllerError where
    the address cannot be had."""

    def __init__(self, listen: str, reply_timeout_s: float = 5.0) -> None:
        super().__init__(parse_listen(listen), {}, reply_timeout_s)
        self._names = _AllNames()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def settle(self, until: float, quiet_s: float) -> set[int]:
        """The switches that are connected once none has come or gone for ``quiet_s``, or at the
        monotonic second ``until``."""
        seen, since = self.connected(), time.monotonic()
        while (now := time.monotonic()) < until and not (seen and now - since >= quiet_s):
            time.sleep(_LOOK_S)
            if (there := self.connected()) != seen:
                seen, since = there, time.monotonic()
        return seen

    def find_hosts(self, found: Discovered, addresses: Collection[str]) -> dict[str, HostPort]:
        """At which ports that lead to no other switch these IPv4 addresses answer; left out where
        none does, or several. Raises ControllerError."""
        joined = {end for ends in found.links for end in ends}
        edge = [
            (dpid, number)
            for dpid, ports in found.ports.items()
            for number, port in ports.items()
            if port.up and (dpid, number) not in joined
        ]
        sender = bytes([0x02]) + os.urandom(5)  # locally administered, of one host
        cookie = _COOKIE | int.from_bytes(sender, "big")
        answers: dict[str, set[HostPort]] = {address: set() for address in addresses}
        complete = threading.Event()

        def heard(dpid: int, message: Any) -> None:
            reply = read_reply(bytes(message.data), sender)
            if reply is not None and reply[0] in answers:
                answers[reply[0]].add(HostPort(reply[1], (dpid, message.match["in_port"])))
                if all(answers.values()):
                    complete.set()

        rule = wire.punt(_ARP, cookie, _RULE_S, eth_dst=_text(sender))
        dpids = {dpid for dpid, _ in edge}
        with self._lock:
            self._listeners.append(heard)
        try:
            self._tell({dpid: [(rule, "the rule to find hosts by")] for dpid in dpids})
            frames = [request(sender, address) for address in answers]
            batches: dict[int, list[Any]] = {dpid: [] for dpid in dpids}
            for dpid, number in edge:
                batches[dpid] += [
                    (wire.packet_out(number, frame), "a frame to find hosts by") for frame in frames
                ]
            self._tell(batches)
            complete.wait(_ANSWER_S)
        finally:
            with self._lock:
                self._listeners.remove(heard)
            end = wire.delete_by_cookie(cookie, 2**64 - 1)
            self._tell({dpid: [(end, "the end of that rule")] for dpid in dpids})
        return {address: next(iter(at)) for address, at in answers.items() if len(at) == 1}


def request(sender: bytes, address: str) -> bytes:
    """An Ethernet frame that asks who has an IPv4 address, and tells nobody ours."""
    target = IPv4Address(address).packed
    return _PACKET.pack(
        _EVERYBODY, sender, _ARP, _ETHERNET, _IPV4, 6, 4, _REQUEST,
        sender, bytes(4), bytes(6), target,
    )  # fmt: skip


def read_reply(frame: bytes, receiver: bytes) -> tuple[str, str] | None:
    """IPv4 and MAC address of who answers ``receiver``; None for any other frame."""
    if len(frame) < _PACKET.size:
        return None
    to, _, kind, *_, operation, mac, address, _, _ = _PACKET.unpack_from(frame)
    if (to, kind, operation) != (receiver, _ARP, _REPLY):
        return None
    return str(IPv4Address(address)), _text(mac)


def _text(mac: bytes) -> str:
    return mac.hex(":")


def joins(found: Discovered, hosts: Mapping[str, HostPort]) -> bool:
    """Whether links lead from each of the hosts to all others."""
    groups: list[set[int]] = [{dpid} for dpid in found.ports]
    for (a, _), (b, _) in found.links:
        touched = [group for group in groups if group & {a, b}]
        groups = [group for group in groups if group not in touched] + [set().union(*touched)]
    needed = {host.end[0] for host in hosts.values()}
    return any(needed <= group for group in groups)
