"""How links that fail are seen: ports, and probes that do not come through."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from controller_rig import PATH, FakeRig
from controller_worlds import two_switches
from os_ken.lib.packet.packet import Packet

from network_provisioner.base.controller import ControllerError, WatchesLinks
from network_provisioner.controllers import frames
from network_provisioner.controllers.link_watch import LinkWatch
from network_provisioner.controllers.routes import default_paths, default_route
from network_provisioner.controllers.segments import failed_hops, segments
from network_provisioner.controllers.switch_status import SwitchMonitor
from network_provisioner.topology.graph import Host, Link, Node, Topology

A, B = (1, 10), (2, 10)
L2 = {("s1", "s2"), ("s2", "s1")}
N = (1, 2, 3)


# -- pure ------------------------------------------------------------------------------------


def star(hosts: int = 1, version: int = 4) -> Topology:
    """Three sites on switches of their own, joined by one router."""
    nodes, links = [Node("r", "router", macs={f"s{n}": f"02:00:00:00:0b:{n:02x}" for n in N})], []
    for n in N:
        here = [f"10.{n}.0.{i}" if version == 4 else f"fd00:{n}::{i}" for i in range(1, hosts + 1)]
        others = tuple(Host(address, f"02:00:00:00:{n:02x}:99") for address in here[1:])
        mac = f"02:00:00:00:00:{n:02x}"
        nodes += [
            Node(f"h{n}", "site", address=here[0], mac=mac, others=others),
            Node(f"s{n}", "switch", dpid=n),
        ]
        links += [
            Link(f"h{n}", f"s{n}", 1e9, ports={f"s{n}": 1}),
            Link(f"s{n}", "r", 1e9, layer="l3", ports={f"s{n}": 2}),
        ]
    return Topology(nodes, links)


def test_segments_are_links_and_ways_through_routers() -> None:
    by_way = {segment.way: segment for segment in segments(two_switches())}
    direct, routed = by_way[A, B], by_way[(1, 11), (2, 11)]
    assert by_way.keys() == {(A, B), (B, A), ((1, 11), (2, 11)), ((2, 11), (1, 11))}
    assert not direct.is_routed and direct.hops == (("s1", "s2"),)
    assert routed.hops == (("s1", "r1"), ("r1", "s2"))
    assert routed.router_mac == "02:00:00:00:0b:01"
    assert {dst for _, dst in routed.hosts} == {"10.10.0.2"}


def test_of_many_switches_around_a_router_each_link_is_in_two_segments() -> None:
    covered = Counter(hop for segment in segments(star()) for hop in segment.hops)
    assert covered == {(f"s{n}", "r"): 2 for n in N} | {("r", f"s{n}"): 2 for n in N}


@pytest.mark.parametrize("version", [4, 6])
def test_a_probe_is_a_packet_that_routers_pass_on(version: int) -> None:
    segment = next(s for s in segments(star(2, version)) if s.way == ((1, 2), (2, 2)))
    assert len(segment.hosts) == 2  # one of them may be switched off
    for frame, (src, dst) in zip(
        frames.udp_frames(segment, 5, 6, b"payload"), segment.hosts, strict=True
    ):
        read = Packet(frame).protocols
        head, ip, udp = read[:3]
        assert (head.dst, ip.src, ip.dst) == ("02:00:00:00:0b:01", src, dst)
        assert (udp.src_port, udp.dst_port, read[3]) == (5, 6, b"payload")
        again = Packet()
        (ip if version == 4 else udp).csum = 0  # it reckons that anew
        for part in (head, ip, udp, b"payload"):
            again.add_protocol(part)
        again.serialize()
        end = 34 if version == 4 else len(frame)  # over IPv4, UDP's checksum may be 0
        assert frame[:end] == bytes(again.data)[:end]


def test_the_link_that_fails_is_the_one_that_nothing_else_comes_through() -> None:
    watched = segments(star())
    ways = {segment.way: segment.hops for segment in watched}
    dead = {way for way, hops in ways.items() if hops[0] == ("s1", "r") or hops[1] == ("r", "s1")}
    both = {("s1", "r"), ("r", "s1")}
    assert set(failed_hops(watched, dead, ways.keys() - dead)) == both
    assert len(failed_hops(watched, set(ways), [])) == 6
    # Where all others come through, a router passes on what is for others.
    (failed_way, *_) = dead
    assert len(failed_hops(watched, {failed_way}, ways.keys() - {failed_way})) == 4


def test_best_effort_goes_round_a_link_that_has_failed() -> None:
    topology = two_switches()
    ways = {p.nodes for p in default_paths(topology)}
    assert ("mu", "s1", "r1", "s2", "tacc") in ways
    failed = topology.link("s1", "r1").hops
    ways = {p.nodes for p in default_paths(topology, failed)}
    assert ("mu", "s1", "s2", "tacc") in ways
    everything = [hop for link in topology.links for hop in link.hops]
    assert len(default_paths(topology, everything)) == 6  # it may work again


def test_best_effort_takes_no_long_way_for_the_sake_of_a_layer() -> None:
    topology = two_switches()
    links = [replace(k, delay_s=0.1) if k.layer == "l3" else k for k in topology.links]
    ways = {p.nodes for p in default_paths(Topology(topology.nodes.values(), links))}
    assert ("mu", "s1", "s2", "tacc") in ways and ("mu", "s1", "r1", "s2", "tacc") not in ways


@pytest.mark.parametrize("layer", ["l2", "l3"])
def test_best_effort_goes_by_delay_and_rate_whatever_the_layer_is_called(layer: str) -> None:
    base = two_switches()
    site_links = [k for k in base.links if k.layer == "lan"]
    ports = [{"s1": n, "s2": n} for n in (31, 32, 33)]
    links = [
        Link("s1", "s2", 1e9, 0.1, layer="l3", ports=ports[0], name="long"),
        Link("s1", "s2", 1e9, 0.003, layer=layer, ports=ports[1], name="short"),
        Link("s1", "s2", 1e5, 0.002, layer="l3", ports=ports[2], name="thin"),
    ]
    nodes = [node for node in base.nodes.values() if node.kind != "router"]
    topology = Topology(nodes, [*site_links, *links])
    ways = {p.nodes for p in default_paths(topology)}
    assert ("mu", "s1", "short", "s2", "tacc") in ways
    path, why = default_route(topology, "mu", "tacc", topology.link("s1", "short").hops)
    assert path is not None and "long" in path.nodes and why.endswith("round what has failed")


def test_cables_that_were_swapped_fail_their_links_and_a_hub_fails_none() -> None:
    upper, lower = [
        Link("s1", "s2", 1e9, ports={"s1": n, "s2": n}, name=f"link{n}") for n in (21, 22)
    ]
    topology = Topology(
        [Node("s1", "switch", dpid=1), Node("s2", "switch", dpid=2)], [upper, lower]
    )
    heard: set[Any] = set()
    backend: Any = SimpleNamespace(
        watch_s=1e6,
        connected=lambda: {1, 2},
        blind=set,
        late=set,
        dead_ends=dict,
        heard=lambda: set(heard),
        check_ports=lambda _: None,
        probe=lambda _: None,
        lay_probe_rules_again=lambda _: set(),
        port_bytes=lambda dpids: {dpid: {} for dpid in dpids},
    )
    watch = LinkWatch(topology, backend)

    def failed(rounds: int, *pairs: tuple[int, int]) -> dict[tuple[str, str], str]:
        ways = [((1, a), (2, b)) for a, b in pairs]
        heard.clear()
        heard.update(ways, [(b, a) for a, b in ways])
        for _ in range(rounds):
            watch.observe()
        return watch.failed()

    swapped = failed(1, (21, 22), (22, 21))
    assert swapped.keys() == {*upper.hops, *lower.hops}
    assert swapped[upper.hops[0]] in (
        "port 21 of s1 leads to port 22 of s2, and the topology says port 21 of s2",
        "port 21 of s2 leads to port 22 of s1, and the topology says port 21 of s1",
    )
    assert failed(1, (21, 21), (22, 22), (21, 22)) == {}
    assert failed(1, (21, 22)) == {}  # in another round than the right one
    assert failed(5, (21, 22), (22, 22)).keys() == set(upper.hops)
    assert failed(2, (21, 21), (22, 22)) == {}


# -- with switches ---------------------------------------------------------------------------


@pytest.fixture
def rig() -> Iterator[FakeRig]:
    made = FakeRig()
    for port in (10, 11):
        made.s1.wires[port], made.s2.wires[port] = (made.s2, port), (made.s1, port)
    try:
        made.controller.start(60.0)
        made.openflow._switches.watch_s = 1e6  # no round is late
        yield made
    finally:
        made.close()


def look(rig: FakeRig, times: int = 1) -> set[tuple[str, str]]:
    """What has failed after so many rounds, as the thread makes them."""
    for _ in range(times):
        rig.openflow._links.observe()
        assert all(ticket.is_done(60.0) for ticket in rig.openflow._switches._probes.values())
    return set(rig.openflow.failed_links())


def heard(rig: FakeRig) -> bool:
    """Whether probes come through every way."""
    look(rig)
    return len(rig.openflow._links._missed) == 4


def test_a_port_that_goes_down_fails_its_link_and_one_that_was_down_before(rig: FakeRig) -> None:
    assert isinstance(rig.openflow, WatchesLinks)
    rig.s2.down.add(2)  # nobody was told
    rig.wait_for("look at ports", lambda: look(rig) == {("s2", "tacc"), ("tacc", "s2")})
    rig.s1.set_port(10, up=False)
    rig.wait_for("news", lambda: len(rig.openflow.failed_links()) == 4)
    assert rig.openflow.failed_links()["s1", "s2"] == "port 10 of s1 is down"
    rig.s1.set_port(10, up=True)
    rig.wait_for("its return", lambda: not L2 & look(rig))
    rig.s1.config[10] = 1 << 5  # OFPPC_NO_FWD
    rig.s1.set_port(10, up=True)
    rig.wait_for("news", lambda: len(rig.openflow.failed_links()) == 4)
    assert rig.openflow.failed_links()["s1", "s2"] == "port 10 of s1 is set to drop packets"


@pytest.mark.parametrize(
    ("speeds", "speed_bps"),
    [
        ((0, 0, 100_000_000, 0), 1e11),
        ((1 << 7, 0, 0, 0), 4e10),
        ((1 << 1, 0, 10_000, 0), 0.0),  # of a virtual machine
        ((0, 0, 0, 0), 0.0),
    ],
)
def test_a_port_has_the_speed_that_it_says(
    rig: FakeRig,
    speeds: tuple[int, int, int, int],
    speed_bps: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig.search_at_once(monkeypatch)
    rig.s1.speeds[1] = speeds
    assert rig.openflow.discover().ports[1][1].speed_bps == speed_bps


@pytest.mark.parametrize(
    ("speeds", "problem"),
    [
        ((0, 0, 100_000, 1_000_000), "has only 100 Mb/s at port 10, expected 200 Mb/s"),
        ((0, 1 << 6, 100_000, 0), "has only 100 Mb/s at port 10, expected 200 Mb/s"),
        ((1 << 6, 1 << 6, 0, 0), ""),  # only the features say 10 Gb/s
        ((0, 0, 100_000, 0), ""),  # of a virtual machine, or of several ports in one
        ((0, 0, 0, 0), ""),
    ],
)
def test_a_port_that_is_slower_than_it_could_be_is_named(
    rig: FakeRig, speeds: tuple[int, int, int, int], problem: str
) -> None:
    rig.s1.speeds[10] = speeds
    rig.s1.set_port(10, up=True)
    rig.wait_for("its speed", lambda: (1, 10) in rig.openflow._switches.speeds())
    rig.openflow._look_once()
    rig.openflow._look_once()
    assert [status.problem for status in rig.openflow.switches()] == [problem, ""]


def test_a_port_that_goes_down_just_after_it_was_asked_about_is_down(
    rig: FakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.wait_for("probes every way", lambda: heard(rig))
    switches, take_in = rig.openflow._switches, rig.openflow._switches._take_in_ports

    def late(*answer: Any) -> None:
        monkeypatch.setattr(switches, "_take_in_ports", take_in)
        rig.s1.set_port(10, up=False)
        rig.wait_for("news", lambda: rig.openflow.failed_links().keys() == L2)
        take_in(*answer)

    monkeypatch.setattr(switches, "_take_in_ports", late)
    switches._unasked.add(1)
    assert look(rig) == L2 == look(rig)
    rig.s1.set_port(10, up=True)
    rig.wait_for("its return", lambda: look(rig) == set())


def test_a_link_that_lets_no_frames_through_any_more(rig: FakeRig) -> None:
    rig.wait_for("probes every way", lambda: heard(rig))
    rig.s1.wires.pop(10)
    rig.wait_for("silence", lambda: look(rig) == L2)
    assert rig.openflow.failed_links()["s2", "s1"] == "nothing comes through from s1 to s2"
    rig.s1.wires[10] = (rig.s2, 10)
    rig.wait_for("its return", lambda: look(rig) == set())


def test_a_link_that_died_while_nobody_looked(rig: FakeRig) -> None:
    rig.s1.wires.pop(10)
    rig.wait_for(
        "probes every other way", lambda: not look(rig) and len(rig.openflow.known_ways()) == 3
    )
    rig.openflow._watch = True
    assert rig.openflow.unheard_links() == {("s1", "s2")}
    rig.openflow.expect_ways({(A, B), (A, (3, 1))}, {})  # of the last broker, and no more there
    assert rig.openflow.unheard_links() == set() == look(rig)
    rig.wait_for("silence", lambda: look(rig) == L2)
    assert rig.openflow.failed_links()["s1", "s2"] == "nothing comes through from s1 to s2"
    rig.s1.wires[10] = (rig.s2, 10)
    rig.wait_for("its return", lambda: look(rig) == set())
    rig.s1.wires.pop(10)
    rig.s1.hang_up()
    rig.wait_for("its return", lambda: rig.s1.connections > 1)
    rig.wait_for("silence after its return", lambda: silent(rig) == L2)


def test_a_link_that_was_dead_stays_so_until_it_is_heard_or_its_port_is_seen(rig: FakeRig) -> None:
    rig.openflow._watch = True
    rig.s1.wires.pop(10)
    before = {hop: "it was so" for hop in (*L2, ("mu", "s1"))}
    rig.openflow.expect_ways({(A, B)}, before)
    assert rig.openflow.failed_links() == before
    look(rig)
    assert rig.openflow.failed_links() == {("s1", "s2"): "it was so"}
    rig.s1.wires[10] = (rig.s2, 10)
    rig.wait_for("its return", lambda: look(rig) == set())


def test_a_switch_that_takes_no_rules_for_probes_is_no_link_failure(rig: FakeRig) -> None:
    rig.wait_for("probes every way", lambda: heard(rig))
    rig.s1.wires.pop(10)  # it would forward none without a rule
    rig.s2.wires.pop(10)
    rig.s2.refuse_adds = True
    rig.openflow._switches.lay_probe_rules_again([2])
    for _ in range(6):
        with pytest.raises(ControllerError, match="refused the rule to watch by"):
            look(rig)
    assert rig.openflow.failed_links() == {}
    assert rig.openflow._links.unheard() >= {*L2}
    rig.s2.refuse_adds = False
    rig.wait_for("silence", lambda: look(rig) == L2)


def test_a_host_that_forges_probes_changes_nothing(rig: FakeRig) -> None:
    rig.wait_for("probes every way", lambda: heard(rig))
    number = rig.openflow._switches._number
    rig.s1.wires.pop(10)
    rig.s2.wires[99] = (rig.s2, 10)

    def forged() -> set[tuple[str, str]]:
        for frame in (
            frames.lldp(*A, bytes(6)),
            frames.lldp(7, 1, number),
            frames.lldp(1, 99, number),
        ):
            packet = struct.pack("!IIH6xHHI8x", 0xFFFFFFFF, 0xFFFFFFFD, 16, 0, 16, 99) + frame
            rig.s2._forward(bytes(8) + packet, 0)
        return look(rig)

    rig.wait_for("silence all the same", lambda: forged() == L2)
    assert len(rig.openflow.known_ways()) == 4


def test_a_link_that_is_full_is_not_dead(rig: FakeRig) -> None:
    rig.wait_for("probes every way", lambda: heard(rig))
    rig.s1.wires.pop(10)
    sent = 0

    def full() -> bool:
        nonlocal sent
        sent += 10**9
        rig.s1.carried[10], rig.s2.carried[10] = (0, sent), (sent, 0)
        return look(rig) == set() and rig.openflow._links._missed[A, B] > 5

    rig.wait_for("probes that find no room", full)
    rig.openflow._links._carried.clear()
    rig.wait_for("a hole", lambda: look(rig) == L2)


def test_frames_of_hosts_do_not_reach_the_controller(rig: FakeRig) -> None:
    look(rig)
    laid = [e for e in rig.s1.table.values() if e.cookie == 0xAD1D << 48]
    ports = [e.match[4:12] for e in laid]
    assert sorted(ports) == [struct.pack("!HBBI", 0x8000, 0, 4, port) for port in (10, 11)]


def test_one_switch_without_a_port_does_not_end_the_watch(rig: FakeRig) -> None:
    rig.wait_for("probes every way", lambda: heard(rig))
    rig.s1._ports.remove(10)
    rig.openflow._switches._unasked.add(1)
    rig.s2.down.add(2)  # nobody was told
    rig.openflow._switches._unasked.add(2)
    assert look(rig) == {*L2, ("s2", "tacc"), ("tacc", "s2")}
    assert rig.openflow.failed_links()["s1", "s2"] == "port 10 of s1 is not there"


def test_a_switch_that_refuses_does_not_end_the_watch_of_others(rig: FakeRig) -> None:
    rig.wait_for("probes every way", lambda: heard(rig))
    rig.s1.refuse_adds = True
    rig.s2.down.add(2)  # nobody was told
    rig.openflow._switches._unasked |= {1, 2}
    with pytest.raises(ControllerError, match=r"s1 .*refused the rule to watch by"):
        look(rig)
    assert set(rig.openflow.failed_links()) == {("s2", "tacc"), ("tacc", "s2")}


def test_nobody_waits_for_a_switch_that_does_not_answer_nor_are_its_links_blamed(
    rig: FakeRig,
) -> None:
    rig.wait_for("probes every way", lambda: heard(rig))
    switches = rig.openflow._switches
    rig.s2.silent = True
    switches.watch_s = 0.01
    switches._unasked.add(2)
    for _ in range(20):
        rig.openflow._links.observe()
        rig.openflow._links._round_at = math.inf  # no round is late
    assert 2 in switches.late()
    assert rig.openflow.failed_links() == {}
    rig.s1.set_port(11, up=False)
    rig.wait_for("news", lambda: rig.openflow.failed_links().keys() == {("s1", "r1"), ("r1", "s1")})
    rig.s1.set_port(11, up=True)
    switches.watch_s = 1e6
    rig.s2.hang_up()
    rig.s2.silent = False
    rig.s1.wires.pop(10)
    rig.wait_for("silence, once it answers", lambda: silent(rig) == L2)


def silent(rig: FakeRig) -> set[tuple[str, str]]:
    """What has failed after a round in which a switch may be about to go."""
    with suppress(ControllerError):
        look(rig)
    return set(rig.openflow.failed_links())


def test_the_rule_to_watch_by_is_cleared_with_the_others(rig: FakeRig) -> None:
    look(rig)
    assert 0xAD1D << 48 in rig.cookies(rig.s1).values()
    rig.openflow._watch = True
    rig.controller.clear()
    assert rig.cookies(rig.s1) == {} == rig.cookies(rig.s2)
    rig.wait_for("news of that", lambda: rig.openflow._switches._unasked == {1, 2})
    rig.openflow._look_once()
    assert rig.cookies(rig.s1) == {} == rig.cookies(rig.s2)


def test_rules_that_are_deleted_fail_no_link(rig: FakeRig) -> None:
    rig.wait_for("probes every way", lambda: heard(rig))
    for quietly in (False, True):
        rig.s2.lose(quietly)
        for _ in range(8):
            assert look(rig) == set()


def test_links_are_unknown_while_a_table_evicts_the_rules_to_watch_by(rig: FakeRig) -> None:
    rig.wait_for("probes every way", lambda: heard(rig))
    rig.openflow._watch = True
    rig.openflow._switches._all_again_at = math.inf  # that round is far away
    # Open vSwitch tells OpenFlow 1.3 of no eviction.
    rig.s2.on_message = lambda _: rig.s2.lose(quietly=True)
    rig.s2.lose(quietly=True)
    for _ in range(20):
        assert look(rig) == set()
    assert rig.openflow.unheard_links() == {("s1", "s2"), ("s1", "r1"), ("r1", "s2")}
    rig.s2.on_message = lambda _: None
    rig.wait_for("their return", lambda: look(rig) == set() == rig.openflow.unheard_links())
    rig.s1.wires.pop(10)
    rig.wait_for("silence", lambda: look(rig) == L2)


def test_a_link_that_dies_while_a_table_evicts_has_failed_once_it_is_watched(rig: FakeRig) -> None:
    rig.wait_for("probes every way", lambda: heard(rig))
    rig.openflow._switches._all_again_at = math.inf
    rig.s2.on_message = lambda _: rig.s2.lose(quietly=True)
    rig.s1.wires.pop(10)
    for _ in range(10):
        assert look(rig) == set()
    rig.s2.on_message = lambda _: None
    rig.wait_for("silence", lambda: look(rig) == L2)


def test_ports_that_swapped_their_numbers_fail_their_links(rig: FakeRig) -> None:
    rig.s1.names = {10: "s1-b", 11: "s1-a"}
    rig.openflow._switches._unasked.add(1)
    look(rig)
    assert rig.openflow.failed_links()["s1", "s2"] == (
        "port 10 of s1 is s1-b, and the topology says s1-a, which is port 11"
    )
    rig.s1.set_port(10, up=True)  # says nothing of names
    rig.wait_for("news", lambda: 1 in rig.openflow._switches._unasked)
    assert ("s1", "s2") in rig.openflow.failed_links()
    rig.s1.names = {10: "s1-a", 11: "s1-b"}
    rig.openflow._switches._unasked.add(1)
    rig.wait_for("their return", lambda: look(rig) == set())


def test_probes_find_the_routed_links_that_let_nothing_through(rig: FakeRig) -> None:
    routed = {hop for link in ("s1", "s2") for hop in (("r1", link), (link, "r1"))}
    rig.wait_for("probes every way", lambda: heard(rig))
    rig.s1.wires.pop(11)
    rig.wait_for("silence", lambda: look(rig) == routed)
    assert rig.openflow.failed_links()["s1", "r1"] == "nothing comes through from s1 to s2"

    # Best effort leaves it with the next change, and comes back.
    rig.controller.apply([])
    assert PATH in {p.nodes for p in rig.openflow._reconciler._planner._default_paths}
    rig.s1.wires[11] = (rig.s2, 11)
    rig.wait_for("its return", lambda: look(rig) == set())


def test_a_routed_link_that_is_full_is_not_dead(rig: FakeRig) -> None:
    rig.wait_for("probes every way", lambda: heard(rig))
    rig.s1.wires.pop(11)
    sent = 0

    def full() -> bool:
        nonlocal sent
        sent += 10**9
        rig.s1.carried[11] = (0, sent)  # to others behind the router
        return look(rig) == set() and rig.openflow._links._missed[(1, 11), (2, 11)] > 5

    rig.wait_for("probes that find no room", full)
    rig.openflow._links._carried.clear()
    rig.wait_for("a hole", lambda: look(rig) != set())


def test_what_others_send_does_not_pass_for_a_probe(rig: FakeRig) -> None:
    rig.wait_for("probes every way", lambda: heard(rig))
    laid = [e.match for e in rig.s2.table.values() if e.cookie == 0xAD1D << 48]
    number = rig.openflow._switches._udp_port
    udp = [m for m in laid if struct.pack("!H", number) in m]
    assert len(laid) == 2 and len(udp) == 1
    assert struct.pack("!HBBI", 0x8000, 0, 4, 11) in udp[0]
    assert frames.sender(bytes(60), rig.openflow._switches._number) is None


class Watched:
    """One switch, at a time that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0
        self.monitor = SwitchMonitor(
            {1: ("s1", "switch s1")}, lambda: {1}, lambda: 0.0, monotonic=lambda: self.now
        )

    @property
    def problem(self) -> str:
        return self.monitor.statuses()[0].problem

    def fight(self, seconds: float) -> float:
        """Somebody undoes each repair at once, for so long; when the last repair was made."""
        until = self.now + seconds
        while self.now < until:
            self.monitor.repaired(1, {"rules": 1})
            self.now += max(1.0, self.monitor.pause_s(1))
        self.monitor.repaired(1, {"rules": 1})  # which lasts
        return self.now


def test_a_contested_switch_is_repaired_and_reported_well_soon_after_the_end() -> None:
    watched = Watched()
    begun = watched.now
    watched.fight(6.0)
    assert watched.now - begun <= 6.0 + 2.0
    assert "again and again: 5 repairs within 60 s" in watched.problem
    watched.now = begun + 6.0 + 5.0
    assert watched.problem == "" and watched.monitor.pause_s(1) == 0.0


def test_who_fights_for_long_is_answered_less_often_and_reported_all_the_time() -> None:
    watched = Watched()
    count = 0
    until = watched.now + 3600.0
    while watched.now < until:
        watched.monitor.repaired(1, {"rules": 1})
        count += 1
        watched.now += min(30.0, max(1.0, watched.monitor.pause_s(1)))
        assert (watched.problem != "") == (count >= 5)
    assert watched.monitor.pause_s(1) > 30.0 and count < 200


@pytest.mark.parametrize("gap_s", [0.1, 3.0, 10.0])
def test_a_few_repairs_are_no_fight(gap_s: float) -> None:
    watched = Watched()
    for _ in range(4):
        watched.monitor.repaired(1, {"rules": 1})
        watched.now += gap_s
    assert watched.problem == "" and not watched.monitor.is_contested(1)


def test_a_switch_that_connects_no_more_is_well_soon() -> None:
    watched = Watched()
    for _ in range(5):
        watched.now += 1.0
        watched.monitor.came(1)
    assert "connects again and again: 5 times" in watched.problem
    watched.now += 3.0
    assert watched.problem == ""
