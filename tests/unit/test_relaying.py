"""Which transits relays carry, what their agents are told, and how that ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from broker_rig import refusing
from made_transit import changed
from relay_world import TEMPLATES, RelayRig, relay_network

from network_provisioner.base.controller import Circuit, Redirect
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import Transit, TransitRelay, TransitRequest, TransitState
from network_provisioner.relay.sessions import Session
from network_provisioner.templates.advice import PathFigures
from network_provisioner.transits.relaying import DRAIN_S, PORTS

WEB = (Flow("tcp", None, (8080, 8080)),)


@pytest.fixture
def rig(tmp_path: Path) -> RelayRig:
    return RelayRig(tmp_path / "s.sqlite")


def ask(rig: RelayRig, name: str = "a", template: str = "always", **more: Any) -> Transit:
    return rig.ask(name, "mu", "tacc", template=template, **more)


def sessions_of(rig: RelayRig, relay: str) -> dict[str, Session]:
    return {session.id: session for session in rig.agents.assigned_sessions(relay)[1]}


def test_a_transit_is_carried_between_the_relays_at_its_ends(rig: RelayRig) -> None:
    transit = ask(rig, flows=WEB)
    relay = transit.relay
    assert (relay.src, relay.dst, relay.port) == ("ra", "rb", 27_001)
    assert (relay.streams, relay.congestion, relay.tls) == (1, "bbr", False)
    assert relay.why.startswith("template 'always' always asks for it; 1 stream, buffers by")
    assert transit.grant.path == ["mu", "s1", "s2", "tacc"]  # and what it reserves is as ever
    assert rig.reserved()["mu>s1"] == 50e6
    at = (27_001, 27_001)
    assert rig.controller.circuits["a"] == Circuit(
        "a", ("ra", "s1", "s2", "rb"), 150e6, 150e6, transit.grant.lease_until,
        (Flow("tcp", None, at), Flow("tcp", at, None)), redirect=Redirect("mu", "tacc", WEB),
    )  # fmt: skip


def test_both_agents_are_told_before_the_switches(rig: RelayRig) -> None:
    before, snapshots = rig.agents.assigned_sessions("ra")[0], []
    apply = rig.controller.apply
    rig.controller.apply = lambda *given: (snapshots.append(sessions_of(rig, "ra")), apply(*given))  # type: ignore[assignment,func-returns-value]
    ask(rig, flows=WEB)
    mu, tacc = (rig.topology.nodes[site].address for site in ("mu", "tacc"))
    here, there = sessions_of(rig, "ra")["a"], sessions_of(rig, "rb")["a"]
    assert snapshots[0] == {"a": here} and rig.agents.assigned_sessions("ra")[0] == before + 1
    assert (here.near, here.far, here.source_here, here.peer) == ((mu,), (tacc,), True, "rb")
    assert here.peer_address == rig.topology.nodes["rb"].address
    assert (here.rate_bps, here.flows, len(here.secret)) == (150e6, WEB, 32)
    assert there == replace(
        here, near=here.far, far=here.near, source_here=False, peer="ra",
        peer_address=rig.topology.nodes["ra"].address,
    )  # fmt: skip
    assert here.secret not in str(rig.broker.get("a").as_dict())
    rig.pass_polled(1)
    assert rig.agents.assigned_sessions("ra")[0] == before + 1  # nothing new


def test_no_log_has_the_secret_of_a_relayed_transit(
    rig: RelayRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    ask(rig, flows=WEB)
    secret = sessions_of(rig, "ra")["a"].secret
    rig.pass_polled(1)
    rig.broker.release("a")
    rig.pass_polled(1)
    assert len(secret) == 32 and caplog.messages and secret not in caplog.text


def test_templates_that_do_not_ask_for_it_are_left_alone(rig: RelayRig) -> None:
    assert ask(rig, template="plain").relay is None
    assert rig.controller.circuits["a"].redirect is None and sessions_of(rig, "ra") == {}


def test_a_relay_where_it_helps(tmp_path: Path) -> None:
    figures = PathFigures(1e9, 0.0, measured=True)
    rig = RelayRig(tmp_path / "s.sqlite", figures_of=lambda path, user: figures)
    assert ask(rig, template="auto").relay == TransitRelay(
        why="1 stream, buffers by the system would reach 100% directly, of 150 Mb/s times 0 ms "
        "are 0 B under way, of which one stream may have 2.1 MB"
    )
    figures = PathFigures(1e9, 0.3, measured=True)
    rig.broker.release("a")
    relay = ask(rig, "b", "auto").relay
    assert relay.buffer_bytes == 22_500_000 and "would reach 37% directly" in relay.why


def test_it_counts_with_how_the_transfer_is_tuned(tmp_path: Path) -> None:
    figures = PathFigures(1e9, 0.3, measured=True)
    rig = RelayRig(tmp_path / "s.sqlite", figures_of=lambda path, user: figures)
    request = TransitRequest("a", "mu", "tacc", template="auto")
    (answer,) = rig.broker.ask([request])
    streams = answer.service.streams
    assert streams > 1 and answer.transit is not None
    assert answer.transit.relay.why.startswith(f"{streams} streams")


@pytest.mark.parametrize(
    ("why", "world", "more"),
    [
        ("there is no relay at s2", {"topology": relay_network("ra")}, {}),
        ("relay 'ra' has 40 Mb/s left of 40 Mb/s, expected 50 Mb/s",
         {"topology": relay_network(capacity="40 Mb/s")}, {}),
        ("the switches are others' too, or do not tell packets apart by ports",
         {"matches": False}, {}),
        ("its flows are not all TCP", {}, {"flows": (Flow("udp", None, (1, 1)),)}),
        ("its connections are known only once they run", {}, {"ports_at": "seen"}),
        ("10.9.0.0/24 of mu: expected the address of one host, with its MAC address",
         {"topology": relay_network(mu={"hosts": [{"address": "10.9.0.0/24"}]})}, {}),
    ],
)  # fmt: skip
def test_why_a_transit_is_not_relayed(
    tmp_path: Path, why: str, world: dict[str, Any], more: dict[str, Any]
) -> None:
    rig = RelayRig(tmp_path / "s.sqlite", **world)
    transit = ask(rig, **more)
    assert transit.state is TransitState.INSTALLED and transit.relay == TransitRelay(why=why)
    assert all(circuit.redirect is None for circuit in rig.controller.circuits.values())


def test_sites_at_one_switch_need_none(rig: RelayRig) -> None:
    relay = rig.ask("a", "mu", "local", template="always").relay
    assert relay == TransitRelay(why="both sites are at s1")


def test_named_hosts_need_addresses_of_their_own_alone(tmp_path: Path) -> None:
    network = relay_network(mu={"hosts": [{"address": "10.9.0.0/24"}]})
    rig = RelayRig(tmp_path / "s.sqlite", network)
    mu, tacc = (network.nodes[site].address for site in ("mu", "tacc"))
    assert ask(rig, src_host=mu, dst_host=tacc).relayed
    assert sessions_of(rig, "rb")["a"].far == (mu,)


def test_whose_packets_are_not_its_own_is_carried_with_who_has_them(rig: RelayRig) -> None:
    ask(rig)
    assert ask(rig, "b").relay == TransitRelay(why="its packets are those of transit a too")


@pytest.mark.parametrize(
    ("why", "lose"),
    [
        ("the agent of relay 'ra' has been silent for 1.6 s", lambda rig: rig.poll("rb")),
        ("the connection to the agent of relay 'ra' broke",
         lambda rig: (rig.poll(), rig.agents.lost("ra"))),
        ("the agent of relay 'rb' is of version 7, expected 1",
         lambda rig: (rig.poll("ra"), rig.poll("rb", version=7))),
        ("relay 'ra': no TPROXY in this kernel",
         lambda rig: (rig.poll(), rig.poll("ra", unready="no TPROXY in this kernel"))),
    ],
)  # fmt: skip
def test_an_agent_that_is_lost_carries_nothing_more(
    rig: RelayRig, why: str, lose: Callable[[RelayRig], object]
) -> None:
    assert ask(rig).relayed and not rig.relaying.has_news()
    rig.clock.now += 1.6
    lose(rig)
    assert rig.relaying.has_news()
    rig.broker.sweep()
    assert rig.broker.get("a").relay == TransitRelay(why=f"relayed until {why}")
    assert rig.store.find(None, None, 1)[0].relay == TransitRelay(why=f"relayed until {why}")
    assert rig.controller.circuits["a"].path == ("mu", "s1", "s2", "tacc")
    assert sessions_of(rig, "ra") == sessions_of(rig, "rb") == {} and not rig.relaying.has_news()
    assert ask(rig, "b", flows=WEB).relay == TransitRelay(why=why)
    rig.poll()
    rig.broker.sweep()
    assert not rig.broker.get("a").relayed  # its connections run
    assert ask(rig, "c", flows=(Flow("tcp", None, (1, 1)),)).relayed


def test_no_agent_has_asked_yet(tmp_path: Path) -> None:
    rig = RelayRig(tmp_path / "s.sqlite", with_agents=False)
    assert ask(rig).relay == TransitRelay(why="no agent of relay 'ra' has connected yet")


def test_ports_and_room_are_shared_by_what_is_relayed(tmp_path: Path) -> None:
    rig = RelayRig(tmp_path / "s.sqlite", relay_network(capacity="120 Mb/s"))
    flows = [(Flow("tcp", None, (port, port)),) for port in (1, 2, 3)]
    a, b, c = (ask(rig, name, flows=its) for name, its in zip("abc", flows, strict=True))
    assert [t.relay.port for t in (a, b)] == [27_001, 27_002]
    assert c.relay.why == "relay 'ra' has 20 Mb/s left of 120 Mb/s, expected 50 Mb/s"
    rig.broker.release("a")
    rig.pass_polled(2)
    assert ask(rig, "d", flows=flows[0]).relay.port == 27_001


def test_what_drains_takes_no_room_of_a_relay(tmp_path: Path) -> None:
    rig = RelayRig(tmp_path / "s.sqlite", relay_network(capacity="80 Mb/s"))
    flows = [(Flow("tcp", None, (port, port)),) for port in (1, 2)]
    ask(rig, flows=flows[0])
    rig.poll(connections={"a": 1})
    rig.broker.release("a")
    assert set(rig.controller.circuits) == {"a drains"}
    assert ask(rig, "b", flows=flows[1]).relayed


def test_no_port_is_left(rig: RelayRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("network_provisioner.transits.relaying.PORTS", PORTS[:1])
    ask(rig, flows=WEB)
    why = ask(rig, "b", flows=(Flow("tcp", None, (1, 1)),)).relay.why
    assert why == "all ports of ra and rb are taken"


def test_what_relays_hold_arrives_after_the_end(rig: RelayRig) -> None:
    ask(rig)
    rig.poll(connections={"a": 1})
    rig.broker.release("a")
    circuit = rig.controller.circuits["a drains"]
    assert (circuit.min_bps, circuit.max_bps, circuit.redirect) == (
        0,
        150e6,
        Redirect("mu", "tacc"),
    )
    assert circuit.lease_until == rig.clock.now + DRAIN_S and rig.reserved() == {}
    assert set(rig.controller.circuits) == {"a drains"} and set(sessions_of(rig, "rb")) == {"a"}
    rig.pass_polled(5, connections={"a": 1})
    assert set(rig.controller.circuits) == {"a drains"}
    rig.poll("ra")
    rig.broker.sweep()
    assert set(rig.controller.circuits) == {"a drains"}  # rb has one still
    rig.poll()
    rig.broker.sweep()
    assert rig.controller.circuits == {} and sessions_of(rig, "ra") == {}


def test_an_agent_says_what_it_holds_before_it_is_believed_to_hold_nothing(rig: RelayRig) -> None:
    ask(rig)
    rig.broker.release("a")
    rig.pass_polled(1)
    assert set(rig.controller.circuits) == {"a drains"}
    rig.pass_polled(1)
    assert rig.controller.circuits == {}


def test_draining_ends(rig: RelayRig) -> None:
    ask(rig)
    rig.broker.release("a")
    rig.pass_polled(29, connections={"a": 1})
    assert set(rig.controller.circuits) == {"a drains"}
    rig.pass_polled(1, connections={"a": 1})
    assert rig.controller.circuits == {}


def test_an_agent_that_is_lost_drains_nothing(rig: RelayRig) -> None:
    ask(rig)
    rig.poll(connections={"a": 1})
    rig.broker.release("a")
    rig.agents.lost("rb")
    rig.broker.sweep()
    assert rig.controller.circuits == {} and sessions_of(rig, "ra") == {}


def test_who_came_to_anothers_session_keeps_it(rig: RelayRig) -> None:
    ask(rig)
    shares = ask(rig, "b", lease_s=100)
    rig.broker.release("a")
    rig.pass_polled(40, connections={"a": 1})
    assert rig.controller.circuits["a drains"].lease_until == shares.grant.lease_until
    rig.broker.release("b")
    rig.pass_polled(1, connections={"a": 1})
    assert "a drains" not in rig.controller.circuits


def test_a_new_connection_goes_to_who_lives(rig: RelayRig) -> None:
    ask(rig)
    rig.broker.release("a")
    assert ask(rig, "b").relay.port == 27_002
    assert [session.id for session in rig.agents.assigned_sessions("ra")[1]] == ["b", "a"]


def test_who_names_ports_goes_before_who_does_not(rig: RelayRig) -> None:
    ask(rig)
    assert ask(rig, "b", flows=WEB).relay.port == 27_002
    assert [session.id for session in rig.agents.assigned_sessions("rb")[1]] == ["b", "a"]


def test_the_same_packets_go_to_the_same_relays(tmp_path: Path) -> None:
    network = relay_network("ra", "ra2", "rb")
    rig = RelayRig(tmp_path / "s.sqlite", network)
    assert ask(rig).relay.src == "ra"
    rig.poll("ra2")
    rig.broker.release("a")
    rig.agents.lost("ra")
    why = "other relays hold packets of transit a"
    assert ask(rig, "b").relay == TransitRelay(why=why)
    assert ask(rig, "c", flows=WEB).relay.src == "ra2"  # which can be told apart


def test_other_packets_are_told(rig: RelayRig) -> None:
    ask(rig)
    rig.broker.report_flows("a", WEB)
    assert sessions_of(rig, "ra")["a"].flows == WEB
    rig.broker.report_flows("a", [Flow("udp", None, (1, 1))])
    assert rig.broker.get("a").relay == TransitRelay(why="relayed until its flows were not all TCP")
    assert sessions_of(rig, "ra") == {} and rig.controller.circuits["a"].redirect is None


def test_another_path_between_the_same_switches_is_as_good(rig: RelayRig) -> None:
    ask(rig, min_bps=10e6)
    rig.controller.fail("s1", "s2")
    rig.poll()
    rig.broker.sweep()
    assert rig.broker.get("a").relayed
    assert rig.controller.circuits["a"].path == ("ra", "s1", "r1", "s2", "rb")


def test_nothing_is_relayed_without_a_path(rig: RelayRig) -> None:
    ask(rig)
    rig.controller.fail("s1", "s2")
    rig.poll()
    rig.broker.sweep()
    transit = rig.broker.get("a")
    assert (transit.state, transit.relay) == (TransitState.QUEUED, None)
    assert rig.controller.circuits == {} and sessions_of(rig, "ra") == {}


def test_a_path_that_leads_elsewhere_is_direct(rig: RelayRig) -> None:
    transit = ask(rig)
    for path, why in (
        (["mu", "s1", "r1", "s2", "tacc"], None),
        (["mu", "s1", "r1", "s3", "tacc"], "relayed until its path led elsewhere"),
    ):
        moved = changed(transit, path=path)
        rig.relaying.check(moved)
        assert moved.relayed is (why is None)
        assert moved.relay == (transit.relay if why is None else TransitRelay(why=why))


def test_all_parts_of_a_transit_are_relayed(tmp_path: Path) -> None:
    rates = {"qspec": {"min_throughput": "185 Mb/s"}, "rspec": {"max_throughput": "190 Mb/s"}}
    split = {"split": {**rates, "relay": "always", "paths": 2}}
    network = relay_network(capacity="1 Gb/s")
    rig = RelayRig(tmp_path / "s.sqlite", network, templates=split, multipath=True)
    assert ask(rig, template="split").relayed
    ways = [("ra", "s1", "s2", "rb"), ("ra", "s1", "r1", "s2", "rb")]
    assert [part.path for part in rig.controller.circuits["a"].parts] == ways
    rig.broker.release("a")
    assert [part.min_bps for part in rig.controller.circuits["a drains"].parts] == [0, 0]


def test_other_rates_and_leases_are_told(rig: RelayRig) -> None:
    ask(rig)
    rig.broker.change("a", max_bps=100e6)
    rig.broker.renew("a", 5000)
    session = sessions_of(rig, "rb")["a"]
    assert (session.rate_bps, session.until) == (100e6, rig.clock.now + 5000)


def test_a_broker_that_starts_again_keeps_what_is_relayed(rig: RelayRig) -> None:
    before, secret = ask(rig), sessions_of(rig, "ra")["a"].secret
    again = RelayRig(rig.file, rig.topology, clock=rig.clock, with_agents=False)
    again.let_pass(2)
    assert again.broker.get("a").relay == before.relay  # agents may not have found it yet
    again.poll()
    again.broker.renew("a", 3000)
    session = sessions_of(again, "ra")["a"]
    assert session.port == before.relay.port and session.secret != secret
    assert again.controller.circuits["a"].redirect == Redirect("mu", "tacc")
    again.let_pass(2)
    assert again.broker.get("a").relay.why.startswith("relayed until the agent of relay 'ra'")


def test_what_runs_is_not_relayed_when_its_template_asks_for_it(rig: RelayRig) -> None:
    """Its connections are open: under them nothing is redirected."""
    ask(rig, template="plain")
    again = RelayRig(rig.file, clock=rig.clock, templates={"plain": TEMPLATES["always"]})
    assert again.broker.renew("a", 3000).relay is None
    assert ask(again, "b", template="plain").relay is not None


def test_it_goes_directly_where_the_switches_refuse(rig: RelayRig) -> None:
    rig.controller.no_redirects = True
    transit = ask(rig)
    assert transit.state is TransitState.INSTALLED
    assert transit.relay == TransitRelay(why="the switches refused: no eth_dst here")
    assert sessions_of(rig, "ra") == {} and rig.controller.circuits["a"].redirect is None
    rig.controller.cursed.add("b")
    assert ask(rig, "b", flows=WEB).state is TransitState.FAILED


def test_switches_that_do_not_answer_change_nothing_of_it(rig: RelayRig) -> None:
    before = ask(rig, "a", start=rig.clock.now + 10, end=rig.clock.now + 100)
    assert before.relay is None
    rig.controller.broken = refusing()
    rig.pass_polled(11)
    assert rig.broker.get("a").state is TransitState.HELD
    rig.controller.broken = None
    rig.pass_polled(10)
    assert rig.broker.get("a").state is TransitState.INSTALLED and sessions_of(rig, "rb")
