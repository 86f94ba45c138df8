"""Broker, policies and accounts together, on a simulated network whose clock is set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from broker_rig import Clock, demo_network
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_world import LISTING_1, NOW

from network_provisioner.base.controller import Circuit, Queue
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import Transit, TransitRequest, TransitState
from network_provisioner.broker import Broker
from network_provisioner.controllers.simulated import SimulatedController
from network_provisioner.policies.accounting import usage
from network_provisioner.policies.registry import PolicyRegistry
from network_provisioner.policies.strategies import sure_bps
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.templates.data import templates_from_dict

WIDE = ("s1", "s2")
TEMPLATE: dict[str, Any] = {
    "t": {
        "qspec": {"min_throughput": "20 Mb/s"},
        "rspec": {"max_throughput": "200 Mb/s"},
        "patience": 0,
    }
}
TEMPLATE["waits"] = TEMPLATE["t"] | {"patience": "1 h"}


class Told(SimulatedController):
    """Remembers what it was told last."""

    circuits: dict[str, Circuit]
    queues: list[Queue]

    def apply(self, circuits: Sequence[Circuit], queues: Sequence[Queue] = ()) -> None:
        super().apply(circuits, queues)
        self.circuits = {c.id: c for c in circuits}
        self.queues = list(queues)


class Rig:
    def __init__(self, folder: Path) -> None:
        self.clock = Clock(NOW)
        self.file = folder / "state.sqlite"
        self.open()

    def open(self) -> None:
        topology = demo_network()
        self.store = SqliteStore(self.file)
        self.controller = Told(topology)
        self.policies = PolicyRegistry(topology, self.store, self.clock)
        self.broker = Broker(
            topology,
            templates_from_dict(TEMPLATE),
            self.controller,
            self.store,
            clock=self.clock,
            policies=self.policies,
        )
        self.broker.start()

    def ask(self, name: str, project: str, template: str = "t", **more: Any) -> Transit:
        port = 5000 + sum(map(ord, name))
        flows = (Flow(dst_ports=(port, port)),)
        request = TransitRequest(
            name,
            "mu",
            "tacc",
            template=template,
            project=project,
            lease_s=1e5,
            flows=flows,
            **more,
        )
        return self.broker.request(request)

    def post(self, **changes: Any) -> None:
        self.policies.post(LISTING_1 | {"time": [None, None]} | changes)
        self.broker.sweep()

    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self.broker.sweep()

    def rates(self) -> dict[str, float]:
        """What the queues of the wide link are sure of, by their last character."""
        here = [q for q in self.controller.queues if q.hop == WIDE]
        return {q.name[-1]: sure_bps(q, here) for q in here}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.broker.stop()


def test_a_policy_takes_hold_of_what_is_live(rig: Rig) -> None:
    rig.ask("a", "cms")
    rig.ask("b", "ligo")
    before = dict(rig.controller.circuits)
    rig.post()
    made = rig.policies.get("cms first")
    assert [rig.broker.get(i).grant.queue for i in "ab"] == made["queues"]
    assert [rig.controller.circuits[i].queue for i in "ab"] == made["queues"]
    assert rig.rates() == pytest.approx({"1": 140e6, "2": 60e6})
    assert rig.broker.get("b").grant.granted_bps <= 60e6
    rig.policies.delete(made["id"])
    rig.broker.sweep()
    assert rig.controller.circuits == before
    assert rig.controller.queues == []


def test_a_class_reserves_no_more_than_its_part(rig: Rig) -> None:
    rig.post()
    big = rig.ask("big", "ligo", min_bps=90e6)
    assert big.state is TransitState.BEST_EFFORT
    assert "s1>s2, where policy 'cms first' leaves its class 54 Mb/s to reserve" in big.reason
    assert rig.ask("a", "ligo", min_bps=40e6).state is TransitState.INSTALLED
    more = rig.ask("more", "ligo", template="waits", min_bps=20e6)
    assert more.state is TransitState.QUEUED and more.grant.earliest == 0
    (blocked,) = [b for b in more.grant.blocking if b["link"] == "s1>s2"]
    assert (blocked["free_bps"], blocked["holders"]) == (14e6, ["a"])
    # It is its own class that it waits for: the other, and who is in none, go on.
    assert rig.ask("c", "cms", min_bps=100e6).state is TransitState.INSTALLED
    assert rig.ask("d", "others", min_bps=20e6).state is TransitState.INSTALLED
    with pytest.raises(BrokerError, match="s1>s2 has 54 Mb/s free, 55 Mb/s asked: where policy"):
        rig.broker.change("a", min_bps=55e6)
    assert rig.broker.change("a", min_bps=34e6).request.min_bps == 34e6
    assert rig.broker.get("more").state is TransitState.INSTALLED


def test_what_is_reserved_for_later_is_bounded_by_the_policy_of_then(rig: Rig) -> None:
    rig.post(time=[NOW + 100, NOW + 200])
    ask: dict[str, Any] = {"min_bps": 90e6, "end": NOW + 150}
    assert rig.ask("now", "ligo", **ask).state is TransitState.INSTALLED
    later = rig.ask("later", "ligo", start=NOW + 110, **ask)
    assert later.state is TransitState.BEST_EFFORT and "'cms first'" in later.reason
    assert rig.ask("after", "ligo", min_bps=90e6, start=NOW + 210).state is TransitState.HELD


def test_it_ends_by_itself(rig: Rig) -> None:
    rig.ask("a", "cms")
    rig.post(time=[None, NOW + 30])
    rig.wait(29)
    assert rig.controller.queues
    rig.wait(1.5)
    assert rig.controller.queues == []
    assert rig.broker.get("a").grant.queue == ""


def test_it_begins_by_itself(rig: Rig) -> None:
    rig.post(time=[NOW + 30, None])
    rig.ask("a", "cms")
    assert rig.broker.get("a").grant.queue == ""
    rig.wait(30.5)
    assert rig.broker.get("a").grant.queue.endswith("/1")


def test_a_restart_goes_on(rig: Rig) -> None:
    rig.ask("a", "cms")
    rig.post()
    rig.store.close()
    rig.open()
    assert rig.broker.get("a").grant.queue.endswith("/1")
    assert rig.rates() == pytest.approx({"1": 140e6, "2": 60e6})


@pytest.mark.parametrize("strategy", ["7-3", "10-3", "computed"])
def test_grants_stay_within_what_queues_are_sure_of(rig: Rig, strategy: str) -> None:
    rig.post(strategy=strategy)
    for number in range(6):
        rig.ask(f"t{number}", ("cms", "ligo", "atlas")[number % 3])
        live = [t for t in rig.broker.list() if t.grant.path]
        for digit, rate in rig.rates().items():
            members = [
                t for t in live if t.grant.queue.endswith(f"/{digit}") and "r1" not in t.grant.path
            ]
            assert sum(t.grant.granted_bps for t in members) <= max(
                rate, sum(t.request.min_bps for t in members)
            ) + len(members)
            assert all(t.grant.granted_bps >= t.request.min_bps for t in members)


def test_who_used_more_gets_less(rig: Rig) -> None:
    rig.post(strategy="computed")
    rig.ask("a", "cms")
    rig.ask("b", "ligo")
    fair = rig.rates()["1"]
    rig.ask("old", "cms")
    rig.broker.release("old", 10**12, 60.0, "success")
    rig.wait(10)
    assert rig.rates()["1"] < fair


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcd"),
            st.sampled_from(("ask", "release", "release", "wait", "policy")),
            st.integers(1, 10**9),
            st.integers(1, 400),
        ),
        max_size=25,
    )
)
def test_accounts_are_exact_and_once_each(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int, int]]
) -> None:
    """What the accounts say is the integral of what `get` showed, step by step."""
    rig = Rig(tmp_path_factory.mktemp("accounts"))
    given_bytes: dict[str, float] = {}
    reported: dict[str, int] = {}
    try:
        for name, what, size, seconds in steps:
            if what == "ask":
                rig.ask(name, f"p-{name}")
            elif what == "release" and any(t.id == name for t in rig.broker.list()):
                rig.broker.release(name, size, 1.0, "success")
                reported.setdefault(name, size)
            elif what == "policy":
                rig.post(type="project", specs=[f"p-{name}", "*"])
            elif what == "wait":
                for transit in rig.broker.list():
                    if transit.state in ("installed", "active"):
                        more = transit.grant.granted_bps / 8 * seconds
                        given_bytes[transit.id] = given_bytes.get(transit.id, 0.0) + more
                rig.wait(seconds)
        for transit in rig.broker.list():
            rig.broker.release(transit.id)
        rows = {row.name: row for row in usage(rig.store.each(), "project")}
        for name, row in rows.items():
            assert (row.transits, row.bytes) == (1, reported.get(name[2:], 0))
            assert row.byte_seconds == pytest.approx(given_bytes.get(name[2:], 0.0), abs=1)
    finally:
        rig.broker.stop()
