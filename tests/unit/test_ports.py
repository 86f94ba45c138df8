"""Transfers told apart by ports that nobody named: given to their tools, or seen in use."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from broker_rig import Rig, demo_network
from made_transit import made_transit
from waiting import until

from examples.testbed.ports import free_port
from monitors.measurements.agent import host_reports
from monitors.measurements.agent.host_reports import ConnectionReporter, carrying, has_clients
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import ON_SWITCHES, Transit, TransitRequest, TransitState
from network_provisioner.state.connections import Connection, flows_of_ports
from network_provisioner.state.pairs import BLOCK, PortBlocks
from network_provisioner.topology.graph import Topology
from network_provisioner.transits.lifecycle import COUNTED_S, UNMET


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Switches that tell flows apart."""
    return Rig(tmp_path / "s", matches=True)


def transit(name: str, src: str = "mu", dst: str = "tacc", **more: Any) -> Transit:
    return made_transit(name, src, dst, TransitState.QUEUED, **more)


def test_blocks_are_given_in_turns_and_to_one_at_a_time() -> None:
    blocks = PortBlocks(1000, 1000 + 4 * BLOCK)
    given = []
    for name in "abcd":
        candidate = transit(name, job=name)
        candidate.grant.ports = blocks.choose(candidate)
        blocks.enter(candidate)
        given.append(candidate)
    assert [t.grant.ports for t in given] == [[1024, 1279], [1280, 1535], [1536, 1791], []]
    blocks.leave(given[0])
    again = transit("e", job="e")
    again.grant.ports = blocks.choose(again)
    blocks.enter(again)
    assert again.grant.ports == [1024, 1279]
    assert blocks.choose(transit("f", "tacc", "local", job="f")) == [1280, 1535]
    blocks.leave(again)
    assert blocks.holder("tacc", "mu", 1300) == "b" and blocks.holder("tacc", "mu", 1100) is None


def test_all_pairs_of_a_job_use_the_same_ports(rig: Rig) -> None:
    requests = [
        TransitRequest(f"t-{src}", src, "tacc", min_bps=1e6, ports_at="dst", job="stage_in")
        for src in ("mu", "local")
    ]
    first, second = (answer.transit for answer in rig.broker.ask(requests))
    assert first is not None and second is not None
    assert first.grant.ports == second.grant.ports and first.request.flows == second.request.flows
    assert first.request.flows == (Flow("tcp", dst_ports=tuple(first.grant.ports)),)
    alone = rig.ask("t", "mu", "tacc", min_bps=1e6, ports_at="dst", job="another")
    assert alone.grant.ports != first.grant.ports


def test_what_a_client_moves_itself_has_a_path_of_its_own(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", min_bps=170e6, ports_at="src", job="a")
    other = rig.ask("b", "mu", "tacc", min_bps=15e6, ports_at="src", job="b")
    assert other.grant.layer == "l3"
    waits = rig.ask("c", "mu", "tacc", min_bps=170e6, ports_at="src", job="c")
    assert waits.state is TransitState.QUEUED
    rig.broker.release("a")
    assert rig.broker.get("c").state is TransitState.INSTALLED
    assert rig.controller.circuits["c"].flows == (Flow(src_ports=tuple(waits.grant.ports)),)


def test_what_is_reserved_in_advance_gets_its_ports_when_it_begins(rig: Rig) -> None:
    ahead = {"start": rig.clock.now + 60, "end": rig.clock.now + 600, "ports_at": "src"}
    requests = [
        TransitRequest(f"t-{n}", "mu", "tacc", min_bps=bps, job=f"j{n}", **ahead)
        for n, bps in enumerate((170e6, 15e6))
    ]
    booked = [answer.transit for answer in rig.broker.ask(requests)]
    assert [(t and t.grant.layer, t and t.grant.ports) for t in booked] == [("l2", []), ("l3", [])]
    rig.clock.now += 70
    rig.broker.sweep()
    assert not rig.controller.circuits  # nobody knows their packets yet
    claims = [replace(r, start=None, end=None) for r in requests]
    begun = [answer.transit for answer in rig.broker.ask(claims)]
    assert [t and t.grant.layer for t in begun] == ["l2", "l3"] and all(
        t and t.grant.ports for t in begun
    )
    assert set(rig.controller.circuits) == {"t-0", "t-1"}


@pytest.mark.parametrize("known", [False, True])
def test_two_servers_are_told_apart_where_somebody_sees_their_connections(
    rig: Rig, known: bool
) -> None:
    if known:
        rig.broker.report_connections("tacc", "tacc", [])
    first = rig.ask("a", "mu", "tacc", min_bps=170e6, ports_at="client", job="a")
    other = rig.ask("b", "mu", "tacc", min_bps=15e6, ports_at="client", job="b")
    if not known:
        assert first.grant.ports == [] and other.state is TransitState.BEST_EFFORT
        return
    assert other.grant.layer == "l3"
    assert not rig.controller.circuits  # nobody knows their packets yet
    nodes = demo_network().nodes
    ends = nodes["tacc"].address, nodes["mu"].address
    opened = [
        Connection(other.grant.ports[0] + 3, (ends[0], 50_000), (ends[1], 40_000 + n))
        for n in range(4)
    ]
    stray = Connection(other.grant.ports[1] + 999, (ends[0], 50_001), (ends[1], 40_100))
    rig.broker.report_connections("tacc", "tacc", [*opened, stray])
    assert set(rig.controller.circuits) == {"b"}
    assert rig.controller.circuits["b"].flows == (Flow(dst_ports=(50_000, 50_000)),)
    rig.broker.report_connections("tacc", "tacc", [])  # between two files
    assert set(rig.controller.circuits) == {"b"}
    rig.clock.now += 60
    late = rig.ask("c", "mu", "tacc", min_bps=1e6, ports_at="client", job="c")
    assert late.grant.ports == []


def test_what_is_told_apart_as_it_opens_has_a_path_of_its_own_before(rig: Rig) -> None:
    first = rig.ask("a", "mu", "tacc", min_bps=170e6, ports_at="seen", job="a")
    other = rig.ask("b", "mu", "tacc", min_bps=15e6, ports_at="seen", job="b")
    assert (first.grant.layer, other.grant.layer, other.grant.ports) == ("l2", "l3", [])
    assert not rig.controller.circuits  # nobody knows their packets yet
    rig.clock.now += 2 * COUNTED_S
    for name, port in (("a", 40_000), ("b", 40_001)):
        rig.broker.report_flows(name, [Flow(dst_ports=(port, port))])
        # Its switches may count late.
        assert rig.broker.report_progress(name, 10**6).state is TransitState.INSTALLED
    assert rig.controller.circuits["b"].flows == (Flow(dst_ports=(40_001, 40_001)),)
    rig.broker.report_flows("a", [])
    assert rig.controller.circuits["a"].flows == ()
    with pytest.raises(BrokerError, match="another way"):
        rig.broker.report_flows("b", [])
    assert rig.controller.circuits["b"].flows == (Flow(dst_ports=(40_001, 40_001)),)


def test_where_a_transit_opens_the_way_it_does_not_wait_for_connections(tmp_path: Path) -> None:
    network = demo_network()
    nodes = [replace(node, dmz=node.name == "tacc") for node in network.nodes.values()]
    rig = Rig(tmp_path / "s", Topology(nodes, network.links), matches=True)
    rig.broker.report_connections("mu", "mu", [])
    for name in ("seen", "client"):
        assert rig.ask(name, "mu", "tacc", min_bps=1e6, ports_at=name).request.ports_at == ""
        assert rig.controller.circuits[name].flows == ()
    assert rig.ask("b", "mu", "iplant", min_bps=1e6, ports_at="seen").request.ports_at == "seen"


@pytest.mark.parametrize("counted", [0, 900, None])
def test_room_of_rules_that_met_no_packet_is_given_back_while_bytes_move(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, counted: int | None
) -> None:
    rig.ask("a", "mu", "tacc", min_bps=150e6, ports_at="src", job="a")
    rig.controller.bytes["a"] = counted or 0
    if counted is None:  # the switch is away, or does not count
        monkeypatch.setattr(rig.controller, "is_uncounted", lambda name: True, raising=False)
    waits = rig.ask("b", "local", "iplant", template="soykb", min_bps=150e6)
    assert rig.broker.report_progress("a", 10**6).state is TransitState.INSTALLED
    rig.clock.now += COUNTED_S  # switches may count late
    got = rig.broker.report_progress("a", 10**6)
    if counted != 0:
        assert got.state in ON_SWITCHES and waits.state is TransitState.QUEUED
        assert UNMET not in rig.broker.release("a", 1000, 8.0, "success").reason
        return
    assert (got.state, UNMET in got.reason) == (TransitState.BEST_EFFORT, True)
    assert rig.broker.get("b").state is TransitState.INSTALLED
    done = rig.broker.release("a", 10**7, 8.0, "success")
    assert (done.usage.bytes, done.grant.path) == (10**7, [])


def test_rules_that_met_no_packet_are_told(rig: Rig) -> None:
    for name, counted in (("met", 900), ("missed", 0)):
        rig.ask(name, "mu", "tacc", min_bps=1e6, ports_at="src", job=name)
        rig.controller.bytes[name] = counted
        ended = rig.broker.release(name, 1000, 1.0, "success")
        assert ("no packet" in ended.reason) is (not counted)


def test_as_few_flows_as_can_be() -> None:
    assert flows_of_ports([(1, 9), (2, 9)]) == [Flow(dst_ports=(9, 9))]
    assert flows_of_ports([(7, 1), (7, 2)]) == [Flow(src_ports=(7, 7))]


class End(NamedTuple):
    ip: str
    port: int


def test_a_servers_connections_are_its_clients() -> None:
    def tcp(pid: int | None, local: int, remote: int, status: str = "ESTABLISHED") -> Any:
        ends = {"laddr": End("10.0.0.1", local), "raddr": End("10.0.0.2", remote)}
        return SimpleNamespace(pid=pid, status=status, **ends)

    connections = [
        tcp(1, 2811, 20_001), tcp(1, 50_000, 41_000), tcp(1, 50_000, 41_001),
        tcp(2, 2811, 20_300), tcp(2, 2811, 20_301), tcp(2, 50_001, 41_002),
        tcp(3, 80, 20_400), tcp(None, 2811, 20_401), tcp(1, 50_000, 41_003, "TIME_WAIT"),
    ]  # fmt: skip
    assert [(c["client_port"], c["remote_port"]) for c in carrying(connections, {2811})] == [
        (20_001, 41_000),
        (20_001, 41_001),
    ]


TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:0AFB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
   1: 0100007F:0AFC 0100007F:4E21 01 00000000:00000000 00:00000000 00000000     0        0 2
"""


def test_who_is_connected_is_seen_in_the_kernels_table() -> None:
    assert has_clients(TABLE, {2812}) and not has_clients(TABLE, {2811})


def test_an_agent_reports_what_has_changed_and_what_was_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    carries: list[Any] = []
    monkeypatch.setattr(host_reports, "_open", lambda servers: list(carries))
    posted: list[Any] = []
    reporter = ConnectionReporter({2811})
    for _ in range(10):
        reporter.observe(posted.append)
    carries.append({"client_port": 20_001})

    def away(_: object) -> None:
        raise BrokerError("the broker is away", "unreachable")

    with pytest.raises(BrokerError):
        reporter.observe(away)
    for _ in range(10):
        reporter.observe(posted.append)
    assert posted == [{"connections": []}, {"connections": carries}]


def test_an_agent_sees_the_connections_of_this_machine() -> None:
    # No port that the kernel may give to a process that binds another address.
    port = free_port()
    with (
        socket.create_server(("127.0.0.1", port)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0],
    ):
        ends = (port, client.getsockname()[1])

        def seen() -> bool:
            # The kernel's table is no snapshot: while others open and close, a row may be missed.
            posted: list[Any] = []
            ConnectionReporter({port}).observe(posted.append)
            (body,) = posted
            return any((c["remote_port"], c["client_port"]) == ends for c in body["connections"])

        until(seen, "the connection to be seen")


def test_an_agent_speaks_for_its_own_site(rig: Rig) -> None:
    rig.broker.report_connections("tacc", "tacc", [])
    given = rig.ask("a", "mu", "tacc", min_bps=1e6, ports_at="client", job="a")
    nodes = demo_network().nodes
    ends = (nodes["tacc"].address, 50_000), (nodes["mu"].address, 40_000)
    rig.broker.report_connections("local", "local", [Connection(given.grant.ports[0], *ends)])
    assert not rig.controller.circuits
    own = rig.ask("b", "mu", "local", min_bps=1e6, ports_at="client", job="b")
    assert own.grant.ports  # since local reports, too: but not of tacc's connections
    rig.broker.report_connections("local", "local", [Connection(own.grant.ports[0], *ends)])
    assert not rig.controller.circuits


def test_what_an_agent_reported_long_ago_is_over(rig: Rig) -> None:
    rig.broker.report_connections("tacc/a", "tacc", [])
    given = rig.ask("a", "mu", "tacc", min_bps=1e6, ports_at="client", job="a")
    nodes = demo_network().nodes
    for agent, port in (("tacc/a", 50_000), ("tacc/b", 50_007)):
        ends = (nodes["tacc"].address, port), (nodes["mu"].address, 40_000)
        rig.broker.report_connections(agent, "tacc", [Connection(given.grant.ports[0], *ends)])
        assert rig.controller.circuits["a"].flows == (Flow(dst_ports=(port, port)),)
        rig.clock.now += 60


def test_what_goes_without_a_path_uses_no_ports_that_others_may_be_given(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", min_bps=170e6, ports_at="src", job="a")
    waits = rig.ask("b", "mu", "tacc", min_bps=170e6, ports_at="src", job="b")
    assert waits.state is TransitState.QUEUED and waits.grant.ports
    rig.let_pass(1000)
    late = rig.broker.get("b")
    assert (late.state, late.grant.ports, late.request.flows) == (TransitState.BEST_EFFORT, [], ())


def test_flows_that_the_switches_refuse_are_those_of_one_transit(rig: Rig) -> None:
    rig.broker.report_connections("tacc", "tacc", [])
    nodes, opened = demo_network().nodes, []
    for number, name in enumerate("ab"):
        got = rig.ask(name, "mu", "tacc", min_bps=1e6, ports_at="client", job=name)
        ends = (nodes["tacc"].address, 50_000 + number), (nodes["mu"].address, 40_000)
        opened.append(Connection(got.grant.ports[0], *ends))
    rig.controller.cursed = {"a"}
    rig.broker.report_connections("tacc", "tacc", opened)
    assert set(rig.controller.circuits) == {"b"} and rig.broker.health()["status"] == "ok"


def test_nobody_keeps_others_from_a_path_by_naming_all_ports(rig: Rig) -> None:
    rig.ask("wide", "mu", "tacc", min_bps=1e6, user="eve", flows=(Flow(dst_ports=(1, 65_535)),))
    got = rig.ask("a", "mu", "tacc", min_bps=1e6, ports_at="dst", job="a", user="ada")
    assert (got.state, got.grant.ports, got.request.flows) == (TransitState.INSTALLED, [], ())
