"""Flows that are told apart, several paths, doors of a Science DMZ, and queues of policies."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from broker_rig import L2, Rig, code_of, demo_network, refusing

from network_provisioner.base.controller import Circuit, Queue
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import Transit, TransitState
from network_provisioner.stores.store import StoreError
from network_provisioner.topology.graph import Node, Topology


def port(number: int, last: int | None = None) -> tuple[Flow, ...]:
    return (Flow(dst_ports=(number, last or number)),)


# -- flows -----------------------------------------------------------------------------------


@pytest.fixture
def telling(tmp_path: Path) -> Rig:
    """Switches that tell flows apart."""
    return Rig(tmp_path / "s", matches=True)


def test_flows_of_one_pair_take_paths_of_their_own(telling: Rig) -> None:
    telling.ask("a", "mu", "tacc", min_bps=170e6, flows=port(5000))
    other = telling.ask("b", "mu", "tacc", min_bps=15e6, flows=port(6000))
    assert other.grant.layer == "l3"
    assert telling.controller.circuits["b"].flows == port(6000)
    assert telling.controller.circuits["a"].path == tuple(L2)
    # What names no flow is apart from both.
    rest = telling.ask("rest", "mu", "tacc", min_bps=9e6)
    assert (rest.grant.layer, rest.request.flows) == ("l2", ())


def test_the_same_flows_share_their_path(telling: Rig) -> None:
    telling.ask("a", "mu", "tacc", min_bps=170e6, flows=port(5000))
    assert telling.ask("b", "mu", "tacc", min_bps=15e6, flows=port(5000)).state is (
        TransitState.BEST_EFFORT
    )


def test_flows_that_overlap_in_part_are_a_conflict(telling: Rig) -> None:
    telling.ask("a", "mu", "tacc", flows=port(5000, 5010))
    assert code_of(telling.ask, "b", "mu", "tacc", flows=port(5010, 5020)) == "conflict"
    assert telling.ask("c", "tacc", "mu", flows=port(5010, 5020)).state is TransitState.INSTALLED
    telling.broker.release("a")
    assert telling.ask("b", "mu", "tacc", flows=port(5010, 5020)).grant.path == L2


def test_where_switches_match_addresses_alone_flows_are_not_looked_at(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s")
    rig.ask("a", "mu", "tacc", min_bps=170e6, flows=port(5000))
    assert rig.controller.circuits["a"].flows == ()
    assert rig.ask("b", "mu", "tacc", min_bps=15e6, flows=port(6000)).state is (
        TransitState.BEST_EFFORT
    )


# -- several paths ---------------------------------------------------------------------------

WIDE = {
    "wide": {
        "qspec": {"min_throughput": "50 Mb/s"},
        "rspec": {"max_throughput": "1 Gb/s"},
        "paths": 2,
    }
}


@pytest.fixture
def wide(tmp_path: Path) -> Rig:
    network = demo_network(l3="150 Mb/s")
    return Rig(tmp_path / "s", network, WIDE, multipath=True, matches=True)


def test_one_request_over_two_paths(wide: Rig) -> None:
    got = wide.ask("a", "mu", "tacc", template="wide", min_bps=250e6)
    assert (got.state, got.grant.granted_bps) == (TransitState.INSTALLED, 315e6)
    assert [part.layer for part in got.grant.parts] == ["l2", "l3"]
    assert [part.granted_bps for part in got.grant.parts] == [180e6, 135e6]
    assert sum(part.min_bps for part in got.grant.parts) == 250e6
    circuit = wide.controller.circuits["a"]
    assert [part.path for part in circuit.parts] == [tuple(p.path) for p in got.grant.parts]
    assert circuit.min_bps == sum(part.min_bps for part in circuit.parts) == 315e6
    assert wide.reserved()["mu>s1"] == 250e6

    # Another one's share comes off the path it is on.
    wide.ask("b", "local", "iplant", max_bps=30e6)
    again = wide.broker.get("a")
    assert again.grant.granted_bps == sum(part.granted_bps for part in again.grant.parts) < 315e6
    new = Rig(wide.file, wide.topology, WIDE, clock=wide.clock, multipath=True, matches=True)
    assert new.broker.get("a") == again
    assert new.controller.circuits["a"] == wide.controller.circuits["a"]
    new.broker.release("a")
    new.broker.release("b")
    assert new.reserved() == {}


def test_nobody_joins_one_that_is_on_two_paths(wide: Rig) -> None:
    wide.ask("a", "mu", "tacc", template="wide", min_bps=250e6)
    other = wide.ask("b", "mu", "tacc")
    assert other.state is TransitState.BEST_EFFORT
    assert "other transits of its packets are on" in other.reason


def test_a_network_of_single_paths_refuses_what_only_two_could_carry(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s", demo_network(l3="150 Mb/s"), WIDE)
    assert code_of(rig.ask, "a", "mu", "tacc", template="wide", min_bps=250e6) == "impossible_rate"


# -- doors -----------------------------------------------------------------------------------


def guarded() -> Topology:
    """The demo's network with tacc in a Science DMZ."""
    open_ = demo_network()
    nodes = [
        Node(n.name, n.kind, n.address, n.mac, n.dpid, n.macs, dmz=n.name == "tacc")
        for n in open_.nodes.values()
    ]
    return Topology(nodes, open_.links)


@pytest.fixture
def dmz(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "s", guarded())


def test_a_small_transfer_into_a_dmz_gets_a_door_and_no_rate(dmz: Rig) -> None:
    got = dmz.ask("a", "mu", "tacc", size_bytes=1000, lease_s=30)
    assert (got.state, got.request.min_bps, got.grant.granted_bps) == (TransitState.INSTALLED, 0, 0)
    assert got.reason.startswith("open, without a rate of its own: 1 kB is below")
    assert dmz.controller.circuits["a"].min_bps == 0 and dmz.reserved() == {}
    assert dmz.ask("b", "mu", "iplant", size_bytes=1000).state is TransitState.BEST_EFFORT
    assert dmz.ask("c", "tacc", "tacc").state is TransitState.BEST_EFFORT
    assert dmz.broker.renew("a", 50).grant.lease_until == dmz.clock.now + 50
    new = Rig(dmz.file, guarded(), clock=dmz.clock)
    assert list(new.controller.circuits) == ["a"]
    new.let_pass(50)
    assert new.broker.get("a").state is TransitState.EXPIRED
    assert new.controller.circuits == {}


def test_who_waited_in_vain_gets_a_door(dmz: Rig) -> None:
    dmz.ask("full", "local", "tacc", template="soykb", min_bps=150e6)
    dmz.ask("rest", "local", "iplant", min_bps=16e6, max_bps=18e6)
    dmz.ask("waits", "mu", "tacc", min_bps=100e6)
    assert dmz.broker.get("waits").state is TransitState.QUEUED
    assert "waits" not in dmz.controller.circuits
    dmz.let_pass(20)
    door = dmz.broker.get("waits")
    assert (door.state, door.grant.granted_bps) == (TransitState.INSTALLED, 0)
    assert dmz.controller.circuits["waits"].min_bps == 0


def test_a_door_goes_where_its_pair_goes(dmz: Rig) -> None:
    dmz.ask("a", "mu", "tacc", template="soykb", min_bps=150e6)
    got = dmz.ask("b", "mu", "tacc", min_bps=100e6)
    assert (got.state, got.grant.path, got.grant.granted_bps) == (TransitState.INSTALLED, L2, 0)


def test_patience_that_ends_while_the_store_is_full_costs_the_door_alone(
    dmz: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    dmz.ask("full", "local", "tacc", template="soykb", min_bps=150e6)
    dmz.ask("waits", "mu", "tacc", min_bps=100e6)

    def full(transits: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(dmz.store, "put_many", full)
        dmz.let_pass(20)
        assert dmz.broker.get("waits").state is TransitState.BEST_EFFORT
    dmz.let_pass(1)
    assert dmz.broker.health()["status"] == "ok"


def test_who_waits_where_a_door_is_may_go_elsewhere_when_it_closes(tmp_path: Path) -> None:
    patient = {"qspec": {"min_throughput": "10 Mb/s"}, "patience": "1 d"}
    dmz = Rig(tmp_path / "s", guarded(), {"patient": patient})
    dmz.ask("full", "local", "iplant", min_bps=150e6, template="soykb")
    dmz.ask("rest", "mu", "iplant", min_bps=25e6, max_bps=25e6)
    dmz.ask("other", "local", "tacc", min_bps=15e6, max_bps=15e6)
    assert dmz.ask("waits", "mu", "tacc", template="patient").state is TransitState.QUEUED
    assert dmz.ask("door", "mu", "tacc", size_bytes=1000).grant.path == L2
    dmz.broker.release("other")
    assert dmz.broker.get("waits").state is TransitState.QUEUED  # its packets are the door's
    dmz.broker.release("door")
    assert dmz.broker.get("waits").grant.layer == "l3"


def test_a_door_that_the_switches_refuse(dmz: Rig) -> None:
    dmz.controller.broken = refusing()
    assert dmz.ask("a", "mu", "tacc", size_bytes=1000).state is TransitState.FAILED


# -- policies --------------------------------------------------------------------------------


class Halves:
    """Those of project "x" share three tenths of L2, with all others in the rest."""

    def __init__(self) -> None:
        self.over: list[Transit] = []

    def queue_of(self, transit: Transit, now: float) -> str:
        return "small" if transit.request.project == "x" else "large"

    def queues(self, live: Sequence[Transit], now: float) -> list[Queue]:
        hop = ("s1", "s2")
        return [Queue("small", hop, 54e6, 54e6), Queue("large", hop, 126e6, 126e6)]

    def bound(self, *_: object) -> None:
        return None

    def next_change(self, now: float) -> float | None:
        return None

    def ended(self, transit: Transit) -> None:
        self.over.append(transit)


@pytest.fixture
def halves() -> Halves:
    return Halves()


@pytest.fixture
def ruled(tmp_path: Path, halves: Halves) -> Rig:
    return Rig(tmp_path / "s", policies=halves)


def granted(rig: Rig) -> dict[str, float]:
    return {i: round(c.min_bps / 1e6, 3) for i, c in rig.controller.circuits.items()}


def test_a_guarantee_is_kept_where_its_queue_is_too_small(ruled: Rig) -> None:
    ruled.ask("a", "mu", "tacc", project="x", min_bps=100e6)
    ruled.ask("b", "local", "iplant", project="x")
    assert granted(ruled) == {"a": 100, "b": 5}


def test_policies_hear_of_every_end_and_of_late_reports(ruled: Rig, halves: Halves) -> None:
    ruled.ask("a", "mu", "tacc", lease_s=10)
    ruled.ask("b", "local", "iplant")
    ruled.broker.release("b", 1000, 1.0, "success")
    ruled.let_pass(10)
    assert [t.id for t in halves.over] == ["b", "a"]
    ruled.broker.release("a", 1000, 1.0)
    ruled.broker.release("a", 1000, 1.0)
    assert [(t.id, t.usage.bytes) for t in halves.over] == [("b", 1000), ("a", 0), ("a", 1000)]
    assert ruled.broker.get("a").usage.byte_seconds == 126e6 / 8 * 10


def test_what_ended_is_accounted_for_once_while_another_has_its_turn(
    ruled: Rig, halves: Halves, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes, may_write = Event(), Event()
    note = halves.ended

    def slow_to_write(transit: Transit) -> None:
        if not halves.over:
            writes.set()
            assert may_write.wait(60)
        note(transit)

    monkeypatch.setattr(halves, "ended", slow_to_write)
    for name in ("a", "b"):
        ruled.ask(name, "mu", "tacc")
    on_switches, has_turn, may_end = ruled.controller.apply, Event(), Event()

    def slow(circuits: Sequence[Circuit], queues: Sequence[Queue]) -> None:
        if not circuits:  # b is being taken off
            has_turn.set()
            assert may_end.wait(60)
        on_switches(circuits, queues)

    monkeypatch.setattr(ruled.controller, "apply", slow)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(ruled.broker.release, "a")
        assert writes.wait(60)
        second = threads.submit(ruled.broker.release, "b")
        assert has_turn.wait(60)  # nobody waits for who keeps the accounts
        may_write.set()
        assert first.result(60).state is TransitState.RELEASED  # nor that one for the turn
        assert [t.id for t in halves.over] == ["a", "b"] and not second.done()
        may_end.set()
        assert second.result(60).state is TransitState.RELEASED
    ruled.broker.sweep()
    assert [t.id for t in halves.over] == ["a", "b"]
