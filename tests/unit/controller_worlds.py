"""Networks, circuits and an interpreter of flow rules, for the controllers' tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from hypothesis import strategies as st

from network_provisioner.base.controller import Circuit
from network_provisioner.controllers.rules import (
    TRANSIT_OWNER,
    Changes,
    FlowRule,
    Masked,
    SelectGroup,
    TableEntry,
)
from network_provisioner.topology.graph import Link, Node, Topology

MBPS = 1e6


def two_switches() -> Topology:
    """Three sites on two switches: an overlay link of 200 Mb/s and a routed one of 20 Mb/s."""
    return Topology(
        [
            site("mu", 1),
            site("tacc", 2),
            site("local", 4),
            Node("s1", "switch", dpid=1),
            Node("s2", "switch", dpid=2),
            Node("r1", "router", macs={"s1": "02:00:00:00:0b:01", "s2": "02:00:00:00:0b:02"}),
        ],
        [
            Link("mu", "s1", 1000 * MBPS, ports={"s1": 1}),
            Link("local", "s1", 1000 * MBPS, ports={"s1": 4}),
            Link("tacc", "s2", 1000 * MBPS, ports={"s2": 2}),
            Link(
                "s1",
                "s2",
                200 * MBPS,
                0.0265,
                layer="l2",
                ports={"s1": 10, "s2": 10},
                devices={"s1": "s1-a", "s2": "s2-a"},
            ),
            Link(
                "s1",
                "r1",
                20 * MBPS,
                0.0265,
                layer="l3",
                ports={"s1": 11},
                devices={"s1": "s1-b"},
            ),
            Link("r1", "s2", 20 * MBPS, layer="l3", ports={"s2": 11}, devices={"s2": "s2-b"}),
        ],
    )


def site(name: str, number: int) -> Node:
    """A site with the addresses of its number."""
    return Node(name, "site", address=f"10.10.0.{number}", mac=f"02:00:00:00:00:{number:02x}")


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Up to four switches, joined straight and by routers, with up to four sites."""
    n_switches = draw(st.integers(1, 4))
    switches = [Node(f"s{i}", "switch", dpid=i + 1) for i in range(n_switches)]
    sites = [site(f"h{i}", i + 1) for i in range(draw(st.integers(2, 4)))]
    routers: list[Node] = []
    links: list[Link] = []
    next_port = dict.fromkeys((s.name for s in switches), 1)

    def join(a: str, b: str, layer: str) -> None:
        ports, devices = {}, {}
        for end in (a, b):
            if end in next_port:
                ports[end] = next_port[end]
                next_port[end] += 1
                if draw(st.booleans()):
                    devices[end] = f"{end}-p{ports[end]}"
        capacity = draw(st.sampled_from([20, 200, 1000])) * MBPS
        links.append(Link(a, b, capacity, 0.001, layer=layer, ports=ports, devices=devices))

    for host in sites:
        join(host.name, draw(st.sampled_from(switches)).name, "lan")
    for i in range(1, n_switches):
        for j in range(i):
            # The first link of every switch keeps the graph connected.
            if j == 0 or draw(st.booleans()):
                join(f"s{j}", f"s{i}", "l2")
            if draw(st.booleans()):
                name = f"r{len(routers)}"
                macs = {f"s{k}": f"02:00:00:00:{len(routers):02x}:{k:02x}" for k in (i, j)}
                routers.append(Node(name, "router", macs=macs))
                join(f"s{j}", name, "l3")
                join(name, f"s{i}", "l3")
    return Topology([*sites, *switches, *routers], links)


@st.composite
def circuit_sets(draw: st.DrawFn, topology: Topology) -> list[Circuit]:
    """Circuits that fit: one path for each pair of sites, little guaranteed rate."""
    circuits: list[Circuit] = []
    for src in topology.sites:
        for dst in topology.sites:
            paths = topology.candidate_paths(src, dst)
            if not paths or not draw(st.booleans()):
                continue
            path = draw(st.sampled_from(paths))
            for _ in range(draw(st.integers(1, 2))):
                rate = draw(st.integers(0, 500)) / 1000 * MBPS
                ceiling = rate + draw(st.integers(1, 100)) * MBPS
                lease = 1000.0 + draw(st.integers(1, 100_000))
                circuits.append(
                    Circuit(f"c{len(circuits)}", path.nodes, rate, ceiling, lease_until=lease)
                )
    return circuits


RULES_AT = 1_700_000_000.0
addresses = st.integers(1, 254).map(lambda n: f"10.10.0.{n}")
prefixes = st.tuples(addresses, st.integers(1, 31)).map(
    lambda it: str(ip_network("/".join(map(str, it)), strict=False))
)
addresses6 = st.integers(1, 2**32).map(lambda n: str(ip_address(0x20010DB8 << 96 | n)))
prefixes6 = st.tuples(addresses6, st.integers(1, 127)).map(
    lambda it: str(ip_network("/".join(map(str, it)), strict=False))
)
ports = st.none() | st.tuples(st.integers(1, 65535), st.integers(0, 8)).map(
    lambda p: (p[0] & (0xFFFF & ~((1 << p[1]) - 1)), 0xFFFF & ~((1 << p[1]) - 1))
)


six = addresses6 | prefixes6


@st.composite
def flow_rules(draw: st.DrawFn) -> FlowRule:
    """Any rule that a plan could make."""
    protocol = draw(st.sampled_from(["ip", "tcp", "udp", "arp"]))
    named = protocol in ("tcp", "udp")
    group = draw(st.sampled_from([0, TRANSIT_OWNER << 16 | 7]))
    version_4 = addresses | prefixes
    ends = version_4 if protocol == "arp" else draw(st.sampled_from([version_4, six]))
    return FlowRule(
        dpid=1,
        priority=draw(st.integers(1, 65535)),
        src=draw(ends),
        dst=draw(ends),
        out_port=0 if group else draw(st.integers(1, 1000)),
        cookie=draw(st.integers(0, 2**64 - 1)),
        dscp=None if group or protocol == "arp" else draw(st.none() | st.integers(0, 63)),
        eth_dst="" if group else draw(st.sampled_from(["", "02:00:00:00:00:02"])),
        expires_at=RULES_AT + draw(st.integers(1, 60_000)) if draw(st.booleans()) else float("inf"),
        protocol=protocol,
        src_port=draw(ports) if named else None,
        dst_port=draw(ports) if named else None,
        in_port=draw(st.integers(0, 100)),
        mark=None if protocol == "arp" else draw(st.none() | st.integers(1, 63)),
        group=group,
        queue=0 if group else draw(st.integers(0, 63)),
        meter=draw(st.sampled_from([0, TRANSIT_OWNER << 16 | 9])),
    )


@dataclass(frozen=True)
class Arrival:
    """How a packet came through: the nodes it saw, and the mark it had on each link."""

    nodes: tuple[str, ...]
    marks: tuple[int, ...]
    eth_dst: str


class WallClock:
    """What a rig knows of time where time really passes."""

    def now(self) -> float:
        return time.time()

    def wait_for(self, what: str, check: Callable[[], bool]) -> None:
        end = time.monotonic() + 240
        while not check():
            if time.monotonic() > end:
                raise TimeoutError(what)
            time.sleep(0.01)
            self.waited()

    def waited(self) -> None:
        """Once for each look that was in vain."""


class HastyClock(WallClock):
    """Time that stands still on a slow machine too, and passes while something is waited for, by a
    minute each time at most."""

    def __init__(self) -> None:
        self._began = time.time()
        self._ahead_s = 0.0
        self._most_s = 0.0

    def now(self) -> float:
        return self._began + self._ahead_s

    def wait_for(self, what: str, check: Callable[[], bool]) -> None:
        self._most_s = self._ahead_s + 60.0
        super().wait_for(what, check)

    def waited(self) -> None:
        self._ahead_s = min(self._ahead_s + 0.2, self._most_s)


class Pipeline:
    """Switches that do what rules and groups say, with OpenFlow's overwriting and strict deletion.

    Two rules of one priority that meet a packet and do different things are an error.
    """

    def __init__(
        self, topology: Topology, rules: Iterable[FlowRule] = (), entries: Iterable[TableEntry] = ()
    ) -> None:
        self.topology = topology
        self.entries = {entry.key: entry for entry in entries}
        self.rules = {rule.key: rule for rule in rules}
        self._ports = {
            (switch, port): link.other(switch)
            for link in topology.links
            for switch, port in (link.ports or {}).items()
        }

    def change(self, changes: Changes) -> None:
        """Do one step of changes."""
        self.entries.update(
            (entry.key, entry) for entry in (*changes.add_entries, *changes.change_entries)
        )
        self.rules.update((rule.key, rule) for rule in changes.add)
        for rule in changes.delete:
            self.rules.pop(rule.key, None)
        for entry in changes.delete_entries:
            self.entries.pop(entry.key, None)

    def send(
        self,
        src: str,
        dst: str,
        dscp: int = 0,
        *,
        protocol: str = "icmp",
        ports: tuple[int, int] = (0, 0),
        deal: int = 0,
        hosts: tuple[str, str] | None = None,
    ) -> Arrival:
        """Follow a packet; select groups deal it to bucket ``deal`` modulo their number. ``hosts``:
        the addresses of its ends, those of the data transfer nodes where they are not named.

        Raises LookupError where it is lost or caught in a loop.
        """
        source, target = self.topology.end(src), self.topology.end(dst)
        ends = hosts or (source.address, target.address)
        nodes, marks, eth_dst = [src], [dscp], "from the host"
        node = next(b if a == src else a for a, b in _ends(self.topology) if src in (a, b))
        while node != dst:
            if node in nodes:
                raise LookupError(f"a loop: {nodes} {node}")
            came_from = nodes[-1]
            nodes.append(node)
            here = self.topology.nodes[node]
            if here.kind == "router":
                # Routes by address, to the next switch on some candidate path.
                node = self._route(node, came_from, dst)
                host = target.host(ends[1])
                if host is None:
                    raise LookupError(f"{src}>{dst} came to {node}, which routes it elsewhere")
                eth_dst = host.mac
            elif here.kind == "switch":
                came_by = self._port_to(node, came_from)
                try:
                    rule = self._rule(here.dpid, ends, protocol, ports, dscp, came_by)
                except LookupError as error:
                    raise LookupError(f"{error} at {node} for {src}>{dst} after {nodes}") from None
                if rule.group:
                    group = self.entries[here.dpid, "group", rule.group]
                    assert isinstance(group, SelectGroup)
                    bucket = group.buckets[deal % len(group.buckets)]
                    dscp, eth_dst = bucket.mark, bucket.eth_dst or eth_dst
                    node = self._ports[node, bucket.out_port]
                else:
                    dscp = dscp if rule.dscp is None else rule.dscp
                    eth_dst = rule.eth_dst or eth_dst
                    node = self._ports[node, rule.out_port]
            else:
                raise LookupError(f"{src}>{dst} came to the {here.kind} {node}")
            marks.append(dscp)
        return Arrival((*nodes, dst), tuple(marks), eth_dst)

    def forge(
        self,
        switch: str,
        port: int,
        src: str,
        dst: str,
        dscp: int,
        protocol: str = "icmp",
        ports: tuple[int, int] = (0, 0),
    ) -> list[tuple[FlowRule, int]]:
        """The rules that a packet meets, and the mark it leaves with, which a host at a port of
        some switch sends in the name of a site: until it is lost, or no switch comes next."""
        ends = self.topology.end(src).address, self.topology.end(dst).address
        met: list[tuple[FlowRule, int]] = []
        while self.topology.nodes[switch].kind == "switch" and len(met) < len(self.topology.nodes):
            dpid = self.topology.nodes[switch].dpid
            try:
                rule = self._rule(dpid, ends, protocol, ports, dscp, port)
            except LookupError:
                break
            assert not rule.group
            dscp = dscp if rule.dscp is None else rule.dscp
            met.append((rule, dscp))
            before, switch = switch, self._ports[switch, rule.out_port]
            if self.topology.nodes[switch].kind == "switch":
                port = self._port_to(switch, before)
        return met

    def ports_of(self, switch: str) -> set[int]:
        """Those that the topology names."""
        return {port for name, port in self._ports if name == switch}

    def switch_of(self, rule: FlowRule) -> str:
        """Where it is."""
        return next(n.name for n in self.topology.nodes.values() if n.dpid == rule.dpid)

    def leaves_to(self, rule: FlowRule) -> str:
        """The neighbour that a rule sends to."""
        return self._ports[self.switch_of(rule), rule.out_port]

    def _rule(
        self,
        dpid: int,
        ends: tuple[str, str],
        protocol: str,
        ports: tuple[int, int],
        dscp: int,
        came_by: int,
    ) -> FlowRule:
        matching = [
            rule
            for rule in self.rules.values()
            if rule.dpid == dpid
            and _within(rule.src, ends[0])
            and _within(rule.dst, ends[1])
            and _meets(rule, protocol, ports, dscp, came_by)
        ]
        if not matching:
            raise LookupError("no rule")
        rule = max(matching, key=lambda r: r.priority)
        best = [r for r in matching if r.priority == rule.priority]
        if len({(r.out_port, r.group, r.dscp, r.cookie) for r in best}) > 1:
            raise LookupError(f"{len(best)} rules: {best}")
        return rule

    def _port_to(self, switch: str, neighbour: str) -> int:
        return next(p for (s, p), n in self._ports.items() if (s, n) == (switch, neighbour))

    def _route(self, router: str, came_from: str, dst: str) -> str:
        return next(
            b if a == router else a
            for a, b in _ends(self.topology)
            if router in (a, b) and came_from not in (a, b)
        )


def _within(addresses: str, address: str) -> bool:
    return bool(addresses) and ip_address(address) in ip_network(addresses)


def _meets(rule: FlowRule, protocol: str, ports: tuple[int, int], dscp: int, came_by: int) -> bool:
    def within(port: int, wanted: Masked | None) -> bool:
        return wanted is None or port & wanted[1] == wanted[0]

    return (
        (rule.protocol == protocol or (rule.protocol == "ip" and protocol != "arp"))
        and within(ports[0], rule.src_port)
        and within(ports[1], rule.dst_port)
        and rule.mark in (None, dscp)
        and rule.in_port in (0, came_by)
    )


def _ends(topology: Topology) -> list[tuple[str, str]]:
    return [(link.a, link.b) for link in topology.links]
