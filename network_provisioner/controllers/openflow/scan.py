"""What is there before anything is configured: every switch that connects, how they are joined and
how far apart they are, at which port a host answers, and where routers lead.

Hosts are asked by ARP (RFC 826) with the sender 0.0.0.0, as RFC 5227 has it for probes: nobody's
table of neighbours changes. The answers go to an Ethernet address of this search alone, so that the
rule which brings them here touches no other packet.

A delay is the time from here to one switch, over the link, and from the other switch back here,
less half of what a frame takes from here to either switch and back.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Self

from network_provisioner.base.fields import format_dpid
from network_provisioner.controllers import frames
from network_provisioner.controllers.openflow import wire
from network_provisioner.controllers.openflow.connections import parse_listen
from network_provisioner.controllers.openflow.driver import TRIES, OpenFlowSwitches
from network_provisioner.controllers.segments import Segment
from network_provisioner.topology.discovery import Discovered, End

_IPV4, _UDP = 0x0800, 17
_ANSWER_S = 1.0
_LOOK_S = 0.1
_ROUNDS = 3  # of measuring a delay: the least counts
_HERE = 0  # as a port: the frame comes back at once
Ends = tuple[End, End]


@dataclass(frozen=True, slots=True)
class HostPort:
    """Where a host answered, and its MAC address."""

    mac: str
    end: End


@dataclass(frozen=True, slots=True)
class Passage:
    """Through routers from a port of one switch to a port of another: these, with the routers' MAC
    address at each, and the one-way delay in seconds."""

    macs: Mapping[End, str]
    delay_s: float


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

    def __exit__(self, *_: object) -> None:
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

    def find_ports(
        self, discovered: Discovered, addresses: Collection[str]
    ) -> dict[str, set[HostPort]]:
        """All ports, of those that lead to no other switch, where these IPv4 addresses answer.
        Raises ControllerError."""
        sender = bytes([0x02]) + os.urandom(5)  # locally administered, of one host
        answers: dict[str, set[HostPort]] = {address: set() for address in addresses}
        complete = threading.Event()

        def heard(dpid: int, message: Any) -> None:
            reply = frames.read_arp_reply(bytes(message.data), sender)
            if reply is not None and reply[0] in answers:
                answers[reply[0]].add(HostPort(reply[1], (dpid, message.match["in_port"])))
                if all(answers.values()):
                    complete.set()

        edge = edge_ports(discovered)
        batches: dict[int, list[Any]] = {dpid: [] for dpid, _ in edge}
        requests = [frames.arp_request(sender, address) for address in answers]
        for dpid, number in edge:
            batches[dpid] += [
                (wire.packet_out(number, frame), "a frame to find hosts by") for frame in requests
            ]
        with self._punting(batches, heard, [(frames.ARP, {"eth_dst": sender.hex(":")})]):
            for _ in range(TRIES):
                self._tell(batches)
                if complete.wait(_ANSWER_S / TRIES):
                    break
        return answers

    def find_delays(
        self,
        discovered: Discovered,
        hosts: Mapping[str, HostPort],
        routers: Collection[str] = (),
    ) -> tuple[dict[Ends, float], list[Passage]]:
        """One-way seconds over each link between switches, by its ends, and the passages through
        ``routers``, IPv4 addresses of theirs, that lead from a host's switch to another host's.
        Raises ControllerError."""
        number = os.urandom(6)
        arrivals: dict[Ends, tuple[float, str]] = {}
        gates = self._gates(discovered, hosts, routers)

        def heard(dpid: int, message: Any) -> None:
            now, data = time.monotonic(), bytes(message.data)
            here = (dpid, message.match["in_port"])
            sender = frames.sender(data, number)
            if sender is not None:
                here = sender if sender[1] == _HERE else here
                arrivals[sender, here] = now, data[6:12].hex(":")
            elif (host := hosts.get(frames.read_arp_request(data))) and host.end != here:
                # A router asks where to send a probe on to, and its switch does not pass that on.
                answer = frames.arp_reply(data, bytes.fromhex(host.mac.replace(":", "")))
                self._submit(dpid, [(wire.packet_out(here[1], answer), "an answer")])

        port = 49152 + int.from_bytes(number[:2], "big") % (1 << 14)
        sent: dict[int, list[tuple[End, bytes]]] = defaultdict(list)
        for dpid in discovered.ports:
            sent[dpid].append(((dpid, _HERE), frames.lldp(dpid, _HERE, number)))
        for end in sorted(end for ends in discovered.links for end in ends):
            sent[end[0]].append((end, frames.lldp(*end, number)))
        for (dpid, gate), mac in gates.items():
            near = [address for address, host in hosts.items() if host.end[0] == dpid]
            far = [address for address, host in hosts.items() if host.end[0] != dpid]
            for pair in [(a, b) for a in near[:1] for b in far]:
                segment = Segment(((dpid, gate), (0, 0)), (), 0.0, 0.0, mac, (pair,))
                payload = frames.probe(dpid, gate, number)
                sent[dpid] += [
                    ((dpid, gate), f) for f in frames.udp_frames(segment, port, port, payload)
                ]
        matches: list[tuple[int, dict[str, Any]]] = [(frames.LLDP, {})]
        if gates:
            matches.append((_IPV4, {"ip_proto": _UDP, "udp_src": port, "udp_dst": port}))
            matches.append((frames.ARP, {"arp_op": frames.ARP_REQUEST}))
        least: dict[Ends, float] = {}
        macs: dict[End, str] = dict(gates)
        with self._punting(discovered.ports, heard, matches):
            for wave in zip_longest(*sent.values()):
                batch = [frame for frame in wave if frame is not None]
                for count in range(_ROUNDS):
                    for way, (seconds, mac) in self._times(batch, arrivals):
                        least[way] = min(seconds, least.get(way, seconds))
                        macs.setdefault(way[1], mac)
                    if count:  # what is lost twice leads nowhere
                        batch = [(end, f) for end, f in batch if any(end == a for a, _ in least)]
        found_s, edge = delays(least), set(edge_ports(discovered))
        passages = [
            Passage({end: macs[end] for end in ends}, delay_s)
            for ends, delay_s in sorted(found_s.items())
            if edge.issuperset(ends) and ends[0][0] != ends[1][0]
        ]
        return {ends: found_s[ends] for ends in discovered.links & found_s.keys()}, passages

    def _gates(
        self, discovered: Discovered, hosts: Mapping[str, HostPort], routers: Collection[str]
    ) -> dict[End, str]:
        """The MAC addresses of routers at switches' ports."""
        taken = {host.mac for host in hosts.values()}
        answers = self.find_ports(discovered, routers) if routers else {}
        gates = {place.end: place.mac for places in answers.values() for place in places}
        return {end: mac for end, mac in sorted(gates.items()) if mac not in taken}

    def _times(
        self, wave: Sequence[tuple[End, bytes]], arrivals: dict[Ends, tuple[float, str]]
    ) -> Iterator[tuple[Ends, tuple[float, str]]]:
        """Seconds from now to each arrival of these frames, and who sent it there."""
        arrivals.clear()
        began, tickets = {}, {}
        for end, frame in wave:
            out = wire.OFP.OFPP_CONTROLLER if end[1] == _HERE else end[1]
            message = wire.packet_out(out, frame), "a frame to measure a delay by"
            began[end] = time.monotonic()
            tickets[end[0]] = self._submit(end[0], [message])
        self._answers(tickets)
        until = time.monotonic() + _ANSWER_S
        while time.monotonic() < until and {a for a, _ in list(arrivals)} < began.keys():
            time.sleep(_LOOK_S / 20)
        for way, (at, mac) in list(arrivals.items()):
            if at > began.get(way[0], at):
                yield way, (at - began[way[0]], mac)


def edge_ports(discovered: Discovered) -> list[End]:
    """The ports that are up and lead to no other switch."""
    joined = {end for ends in discovered.links for end in ends}
    return [
        (dpid, number)
        for dpid, ports in discovered.ports.items()
        for number, port in ports.items()
        if port.up and (dpid, number) not in joined
    ]


def delays(times: Mapping[Ends, float]) -> dict[Ends, float]:
    """One-way delays between ports of two switches, the lower end first, from the seconds that
    frames took each way, and from each switch back here."""
    each: dict[Ends, list[float]] = {}
    for (a, b), seconds in times.items():
        there = [times.get(((dpid, _HERE), (dpid, _HERE))) for dpid in (a[0], b[0])]
        if a != b and None not in there:
            less = sum(filter(None, there)) / 2
            each.setdefault((min(a, b), max(a, b)), []).append(seconds - less)
    return {ends: max(0.0, sum(both) / len(both)) for ends, both in each.items()}


def joins(discovered: Discovered, hosts: Mapping[str, HostPort]) -> bool:
    """Whether links lead from each of the hosts to all others."""
    groups: list[set[int]] = [{dpid} for dpid in discovered.ports]
    for (a, _), (b, _) in discovered.links:
        touched = [group for group in groups if group & {a, b}]
        groups = [group for group in groups if group not in touched] + [set().union(*touched)]
    needed = {host.end[0] for host in hosts.values()}
    return any(needed <= group for group in groups)
