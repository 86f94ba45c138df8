"""TCP between two sites that goes through relays at both ends, and all that does not."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from controller_worlds import MBPS, Pipeline, topologies, two_switches
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from policy_world import LISTING_1
from policy_world import NOW as LISTED_AT

from network_provisioner.base.controller import Circuit, ControllerError, Part, Redirect
from network_provisioner.base.errors import InputError
from network_provisioner.base.flows import Flow
from network_provisioner.controllers.plan import SwitchPlan, make_plan
from network_provisioner.controllers.rules import (
    REDIRECT_PRIORITY,
    TRANSIT_OWNER,
    Changes,
    FlowRule,
)
from network_provisioner.controllers.simulated import SimulatedController
from network_provisioner.policies.queues import governed_by
from network_provisioner.policies.schema import policy_change
from network_provisioner.topology.graph import Host, Link, Node, Topology

NOW = 1000.0
FEW = settings(max_examples=30, deadline=None)
DIRECT = ("mu", "s1", "s2", "tacc")
L3 = ("mu", "s1", "r1", "s2", "tacc")
BETWEEN = ("ra", "s1", "s2", "rb")
ROUTED = ("ra", "s1", "r1", "s2", "rb")
WEB = (Flow("tcp", None, (5001, 5001)),)
GRID = (Flow("tcp", None, (50000, 51000)),)
DTN = ("10.10.0.1", "10.10.0.2")


def with_relays(topology: Topology, *places: tuple[str, str]) -> Topology:
    """With a relay of each name at each switch."""
    nodes, links = list(topology.nodes.values()), list(topology.links)
    for number, (name, switch) in enumerate(places or (("ra", "s1"), ("rb", "s2")), 70):
        mac = f"02:00:00:00:01:{number:02d}"
        nodes.append(Node(name, "relay", address=f"10.10.1.{number}", mac=mac))
        links.append(Link(name, switch, 10 * MBPS, ports={switch: number}))
    return Topology(nodes, links)


def changed(topology: Topology, name: str, **changes: Any) -> Topology:
    """With another node of that name."""
    nodes = [replace(n, **changes) if n.name == name else n for n in topology.nodes.values()]
    return Topology(nodes, topology.links)


def redirects_of(rules: Iterable[FlowRule]) -> list[FlowRule]:
    return [rule for rule in rules if rule.priority % 10 == REDIRECT_PRIORITY]


def circuit(name: str, path: tuple[str, ...] = DIRECT, **more: Any) -> Circuit:
    return replace(Circuit(name, path, MBPS, 10 * MBPS, NOW + 60), **more)


def relayed(
    name: str = "r",
    *,
    path: tuple[str, ...] = BETWEEN,
    flows: tuple[Flow, ...] = (),
    hosts: tuple[str, ...] = (),
    sites: tuple[str, str] = ("mu", "tacc"),
    port: int = 27001,
    **more: Any,
) -> Circuit:
    streams = (Flow("tcp", None, (port, port)), Flow("tcp", (port, port), None))
    redirect = Redirect(*sites, flows, hosts)
    return circuit(name, path, flows=streams, redirect=redirect, **more)


def network(plan: SwitchPlan, topology: Topology) -> Pipeline:
    return Pipeline(topology, [*plan.routes, *plan.rules], plan.entries)


def is_relayed(
    world: Pipeline, client: str, server: str, ports: tuple[int, int], *relays: str
) -> bool:
    """Whether a connection goes through the relays near client and server, all four ways of its
    packets; it fails where only some do."""
    nodes = world.topology.nodes
    near, far = relays
    there = (nodes[client].address, nodes[server].address)
    ways = [
        (client, near, there, ports),
        (near, client, there[::-1], ports[::-1]),
        (far, server, there, ports),
        (server, far, there[::-1], ports[::-1]),
    ]
    outcomes = []
    for src, dst, hosts, used in ways:
        try:
            packet = world.send(src, dst, protocol="tcp", hosts=hosts, ports=used, dscp=9)
        except LookupError:
            outcomes.append(False)
        else:
            assert len(packet.nodes) == 3 and packet.eth_dst == nodes[dst].mac
            outcomes.append(True)
    # Where a circuit is direct, what a relay would say still comes to the host that it is for.
    assert outcomes[0] == outcomes[3], outcomes
    assert all(outcomes) or not outcomes[0]
    return outcomes[0]


def direct_path(world: Pipeline, *ends: str, ports: tuple[int, int]) -> tuple[str, ...]:
    """That of a connection's packets, both ways."""
    there = world.send(*ends, protocol="tcp", ports=ports).nodes
    assert world.send(*ends[::-1], protocol="tcp", ports=ports[::-1]).nodes == there[::-1]
    return there


def test_a_connection_goes_through_both_relays_and_the_circuit_between() -> None:
    topology = with_relays(two_switches())
    plan = make_plan(topology, [relayed()], NOW)
    world = network(plan, topology)
    assert is_relayed(world, "mu", "tacc", (7, 80), "ra", "rb")
    assert is_relayed(world, "tacc", "mu", (80, 7), "rb", "ra")
    (data,) = (group for group in plan.groups if group.data)
    mark = data.branches[0].mark
    for ports in ((5, 27001), (27001, 5)):  # whichever opened a stream
        there = world.send("ra", "rb", protocol="tcp", ports=ports)
        back = world.send("rb", "ra", protocol="tcp", ports=ports[::-1])
        assert (there.nodes, back.nodes) == (BETWEEN, BETWEEN[::-1])
        assert there.marks[-2:] == (mark, 0) and mark
    shape = next(shape for shape in plan.shapes if shape.device == "s1-a")
    assert [c.rate_bps for c in shape.classes] == [MBPS]
    with pytest.raises(LookupError):
        world.send("ra", "rb", protocol="tcp", ports=(5, 27002))


def test_nothing_else_goes_to_a_relay() -> None:
    topology = with_relays(two_switches())
    world = network(make_plan(topology, [relayed(flows=WEB)], NOW), topology)
    plain = network(make_plan(topology, [], NOW), topology)
    assert is_relayed(world, "mu", "tacc", (7, 5001), "ra", "rb")
    for src, dst in (("mu", "tacc"), ("local", "tacc"), ("mu", "local")):
        for protocol, ports in (("udp", (7, 5001)), ("icmp", (0, 0)), ("tcp", (7, 5002))):
            sent = world.send(src, dst, protocol=protocol, ports=ports)
            assert sent == plain.send(src, dst, protocol=protocol, ports=ports)
    assert not is_relayed(world, "mu", "local", (7, 5001), "ra", "ra")


@pytest.mark.parametrize("flows", [(), WEB])
def test_what_comes_from_a_site_is_marked_into_no_class(flows: tuple[Flow, ...]) -> None:
    topology = with_relays(two_switches())
    world = network(make_plan(topology, [relayed(flows=flows)], NOW), topology)
    sent = {"protocol": "tcp", "ports": (7, 5001), "dscp": 9, "hosts": DTN}
    assert world.send("mu", "ra", **sent).marks == (9, 0)


@pytest.mark.parametrize(
    ("redirect", "direct", "other_too"),
    [
        ({}, {"flows": WEB}, True),
        ({"flows": GRID}, {}, True),
        ({"flows": GRID}, {"flows": WEB}, True),
        ({}, {"hosts": DTN}, False),
        ({}, {"hosts": DTN, "flows": WEB}, True),
        ({"flows": GRID}, {"hosts": DTN, "flows": GRID + WEB}, False),
        ({"flows": GRID, "hosts": DTN}, {"hosts": DTN, "flows": WEB}, True),
        ({"flows": GRID, "hosts": DTN}, {"flows": (Flow("tcp", None, (1, 60000)),)}, True),
    ],
)
def test_direct_circuits_of_the_same_sites_are_left_alone(
    redirect: dict[str, Any], direct: dict[str, Any], other_too: bool
) -> None:
    """``other_too``: port 50500 between the two data transfer nodes is relayed beside port 5001."""
    topology = with_relays(two_switches())
    more = (Host("10.10.2.1", "02:00:00:00:02:01"),)
    topology = changed(topology, "mu", others=more)
    circuits = [relayed(**redirect), circuit("d", L3, **direct)]
    world = network(make_plan(topology, circuits, NOW), topology)
    assert direct_path(world, "mu", "tacc", ports=(7, 5001)) == L3
    assert not is_relayed(world, "mu", "tacc", (7, 5001), "ra", "rb")
    assert is_relayed(world, "mu", "tacc", (7, 50500), "ra", "rb") == other_too
    if "hosts" not in redirect:  # the site's other host
        sent = {"protocol": "tcp", "ports": (7, 50500), "hosts": (more[0].address, DTN[1])}
        assert world.send("mu", "ra", **sent).nodes == ("mu", "s1", "ra")


def test_both_directions_of_a_connection_go_the_same_way() -> None:
    """Answers of a relayed one may look like data of a direct one."""
    topology = with_relays(two_switches())
    back = circuit("back", L3[::-1], flows=GRID)
    world = network(make_plan(topology, [relayed(flows=GRID), back], NOW), topology)
    assert is_relayed(world, "mu", "tacc", (50001, 50002), "ra", "rb")
    assert is_relayed(world, "mu", "tacc", (7, 50002), "ra", "rb")
    assert direct_path(world, "tacc", "mu", ports=(7, 50002)) == L3[::-1]


def test_circuits_that_relay_the_same_packets_share_their_redirects() -> None:
    topology = with_relays(two_switches(), ("ra", "s1"), ("rb", "s2"), ("rc", "s2"))
    other = {"sites": ("tacc", "mu"), "path": ROUTED[::-1], "port": 27002}
    both = [relayed(), relayed("back", **other, lease_until=NOW + 90)]
    plan = make_plan(topology, both, NOW)
    redirects = redirects_of(plan.rules)
    assert len(redirects) == 4 and all(rule.in_port for rule in redirects)
    assert {rule.expires_at for rule in redirects} == {NOW + 90}
    assert is_relayed(network(plan, topology), "mu", "tacc", (7, 80), "ra", "rb")
    for name in ("r", "back"):
        group = plan.carrier(name)
        assert group is not None and set(redirects) < set(plan.rules_of(group))
    with pytest.raises(InputError, match=r"10\.10\.0\.1 to 10\.10\.0\.2 to different relays"):
        make_plan(topology, [relayed(), relayed("b", path=("ra", "s1", "s2", "rc"), port=9)], NOW)


def test_redirects_are_laid_before_what_is_counted() -> None:
    plan = make_plan(with_relays(two_switches()), [relayed()], NOW)
    group = plan.carrier("r")
    assert group is not None
    assert {(rule.src, rule.dst) for rule in plan.rules_of(group) if rule.hop == 0} == {
        ("10.10.1.70", "10.10.1.71")
    }
    assert {rule.owner for rule in plan.rules} == {TRANSIT_OWNER}
    first, second = Changes(add=plan.rules).stages()
    assert len(redirects_of(first.add)) == 4
    assert not redirects_of(second.add)


def test_a_split_circuit_between_relays() -> None:
    parts = (Part(BETWEEN, 3 * MBPS, 6 * MBPS), Part(ROUTED, MBPS, 2 * MBPS))
    topology = with_relays(two_switches())
    relayed_circuit = relayed(min_bps=4 * MBPS, max_bps=8 * MBPS, parts=parts)
    plan = make_plan(topology, [relayed_circuit], NOW)
    world = network(plan, topology)
    assert is_relayed(world, "mu", "tacc", (7, 80), "ra", "rb")
    streams = {
        world.send("ra", "rb", protocol="tcp", ports=(5, 27001), deal=deal).nodes for deal in (0, 1)
    }
    assert streams == {BETWEEN, ROUTED}
    assert len(redirects_of(plan.rules)) == 4


@pytest.mark.parametrize("flows", [(), WEB])
def test_a_science_dmz_is_entered_by_the_relays_alone(flows: tuple[Flow, ...]) -> None:
    topology = changed(with_relays(two_switches()), "tacc", dmz=True)
    plan = make_plan(topology, [relayed(flows=flows)], NOW)
    world = network(plan, topology)
    assert is_relayed(world, "mu", "tacc", (7, 5001), "ra", "rb")
    assert world.send("mu", "tacc", protocol="arp").nodes == DIRECT
    assert world.send("tacc", "mu", protocol="arp").nodes == DIRECT[::-1]
    for src, dst, protocol in (
        ("mu", "tacc", "icmp"),
        ("local", "tacc", "tcp"),
        ("local", "tacc", "arp"),
    ):
        with pytest.raises(LookupError, match="no rule at"):
            world.send(src, dst, protocol=protocol, ports=(7, 5001))
    with pytest.raises(LookupError, match="no rule at"):  # in a relay's name
        hosts = ("10.10.1.70", "10.10.1.71")
        world.send("local", "rb", protocol="tcp", ports=(5, 27001), hosts=hosts)
    assert all(rule.in_port for rule in plan.rules if rule.hop == 0)
    assert not make_plan(topology, [], NOW).rules


@FEW
@given(st.data())
def test_any_two_sites_of_any_network(data: st.DataObject) -> None:
    plain = data.draw(topologies())
    src, dst = data.draw(st.permutations(plain.sites))[:2]
    nodes = data.draw(st.sampled_from(plain.candidate_paths(src, dst))).nodes
    assume(nodes[1] != nodes[-2])
    topology = with_relays(plain, ("ra", nodes[1]), ("rb", nodes[-2]))
    flows = data.draw(st.sampled_from([(), WEB, GRID]))
    path = ("ra", *nodes[1:-1], "rb")
    keep = data.draw(st.sampled_from(["dscp-htb", "queue", "meter", "none"]))
    relayed_circuit = relayed(path=path, sites=(src, dst), flows=flows, max_bps=math.inf)
    plan = make_plan(topology, [relayed_circuit], NOW, keep=keep)
    world = network(plan, topology)
    routes = network(make_plan(plain, [], NOW, keep=keep), plain)
    for port in (5001, 50500):
        wanted = not flows or flows[0].dst_ports[0] <= port <= flows[0].dst_ports[1]  # type: ignore[index]
        assert is_relayed(world, src, dst, (7, port), "ra", "rb") == wanted
        if not wanted:
            for ends in ((src, dst), (dst, src)):  # best effort may come back another way
                ports = (7, port) if ends == (src, dst) else (port, 7)
                there = world.send(*ends, protocol="tcp", ports=ports)
                assert there.nodes == routes.send(*ends).nodes
    assert world.send("ra", "rb", protocol="tcp", ports=(5, 27001)).nodes == path
    assert world.send("rb", "ra", protocol="tcp", ports=(27001, 5)).nodes == path[::-1]
    for a, b in ((a, b) for a in plain.sites for b in plain.sites if a != b):
        assert world.send(a, b).nodes == routes.send(a, b).nodes


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (relayed(path=("ra", "s1", "s2", "tacc")), "'r' joins ra and tacc, expected two sites or"),
        (circuit("c", ("mu", "s1", "ra")), "joins mu and ra"),
        (relayed(path=("ra", "s1", "rc"), sites=("mu", "local")), "relays at one switch, 's1'"),
        (relayed(hosts=("10.10.0.1", "10.9.9.9")), r"10\.9\.9\.9 is no address of the site 'tacc'"),
        (relayed(flows=(Flow("tcp", (1, 40000), (1, 40000)),)), r"need \d+ rules on each switch"),
    ],
)
def test_what_cannot_be_relayed_is_refused(wrong: Circuit, message: str) -> None:
    topology = with_relays(two_switches(), ("ra", "s1"), ("rb", "s2"), ("rc", "s1"))
    with pytest.raises(InputError, match=message):
        make_plan(topology, [wrong], NOW)


def test_hosts_that_are_answered_have_macs() -> None:
    with pytest.raises(InputError, match=r"host 10\.10\.0\.2 has no mac, expected one"):
        make_plan(changed(with_relays(two_switches()), "tacc", mac=""), [relayed()], NOW)


def test_nothing_is_reserved_on_a_relays_link() -> None:
    """Which carries 10 Mb/s here, and the overlay 200."""
    topology = with_relays(two_switches())
    some = [relayed(f"r{n}", port=n, min_bps=9 * MBPS, flows=f) for n, f in ((1, WEB), (2, GRID))]
    assert len(make_plan(topology, some, NOW).groups) == 4
    controller = SimulatedController(topology, lambda: NOW)
    controller.start(1.0)
    controller.apply(some)
    assert controller.installed() == ["r1", "r2"]
    too_much = relayed("r3", port=3, min_bps=190 * MBPS, max_bps=190 * MBPS)
    with pytest.raises(InputError, match="link s1-s2 carries 200 Mb/s"):
        make_plan(topology, [*some, too_much], NOW)
    with pytest.raises(ControllerError, match="link s1-s2 carries 200 Mb/s"):
        controller.apply([*some, too_much])


def test_policies_leave_a_relays_link_alone() -> None:
    topology = with_relays(two_switches())
    policy = policy_change(LISTING_1, {}, LISTED_AT).policy
    governed = {end for hop in governed_by(policy, topology) for end in hop}
    assert governed == {"s1", "s2", "r1"}
