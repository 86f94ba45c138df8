"""Brokers that share a store which breaks in the middle of a change: what the one that leads
answered, the next one knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from broker_rig import MBPS, Clock, Rig, code_of, demo_network
from killed_broker import TEMPLATES
from request_sequences import MemoryStore, Rows

from network_provisioner.base.model import TransitState
from network_provisioner.stores.store import Store


class Brokers:
    """One that leads, and those that take over, each with a store of its own on the same rows."""

    def __init__(self, templates: Any = None) -> None:
        self.rows, self.clock, self.templates = Rows(), Clock(), templates
        self.leader = self.take_over()

    def take_over(self) -> Rig:
        """Another broker leads from here on."""
        self.store = MemoryStore(self.rows)
        self.leader = Rig(
            Path("unused"), demo_network(l3="150 Mb/s"), self.templates, clock=self.clock,
            store=cast(Store, self.store),
        )  # fmt: skip
        return self.leader


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"min_bps": 150 * MBPS},  # waits
        {"size_bytes": 1000},
        {"best_effort": "nobody knows its files"},
        {"src": "mu", "dst": "tacc", "min_bps": 100 * MBPS},  # another has the path of the two
    ],
)
def test_nothing_is_answered_that_the_store_has_not(
    brokers: Brokers, terms: dict[str, Any]
) -> None:
    leader = brokers.leader
    leader.ask("first", "mu", "tacc", min_bps=100 * MBPS)
    request = {"src": "local", "dst": "tacc", **terms}
    brokers.store.break_after(0, secretly=False)
    assert code_of(leader.ask, "t", **request) == "store_unavailable"
    assert "t" not in brokers.rows
    brokers.store.mend()
    transit = leader.ask("t", **request)
    assert brokers.take_over().ask("t", **request).state is transit.state


@pytest.mark.parametrize("secretly", [False, True])
def test_a_renewal_that_is_not_stored_is_refused_and_promises_nothing(
    brokers: Brokers, secretly: bool
) -> None:
    leader = brokers.leader
    before = leader.ask("t", "mu", "tacc", min_bps=150 * MBPS, lease_s=50)
    brokers.store.break_after(0, secretly)
    assert code_of(leader.broker.renew, "t", 1000) == "store_unavailable"
    assert leader.controller.circuits["t"].lease_until == before.grant.lease_until
    brokers.store.mend()
    start = brokers.clock.now + 60
    after = leader.ask("after", "mu", "tacc", min_bps=150 * MBPS, start=start, end=start + 100)
    until = leader.broker.get("t").grant.lease_until
    if secretly:  # it had taken effect, as was known before that was decided
        assert (until, after.state) == (brokers.clock.now + 1000, TransitState.QUEUED)
    else:
        assert (until, after.state) == (before.grant.lease_until, TransitState.HELD)
    assert leader.controller.circuits["t"].lease_until == until
    links = leader.broker.describe_topology(start)["links"]
    assert brokers.take_over().broker.describe_topology(start)["links"] == links


def test_a_grant_whose_write_was_in_doubt_is_given_to_who_asks_again(brokers: Brokers) -> None:
    leader = brokers.leader
    brokers.store.break_after(0, secretly=True)
    assert code_of(leader.ask, "t", "mu", "tacc") == "store_unavailable"
    assert leader.reserved() == {} and leader.controller.circuits == {}
    brokers.store.mend()
    assert leader.ask("t", "mu", "tacc").state is TransitState.INSTALLED
    assert list(leader.controller.circuits) == ["t"]


@pytest.mark.parametrize("secretly", [False, True])
def test_what_was_given_back_stays_so_where_the_store_was_broken(
    brokers: Brokers, secretly: bool
) -> None:
    leader, start = brokers.leader, brokers.clock.now + 10
    leader.ask("t", "mu", "tacc", start=start, end=start + 500)
    brokers.clock.now = start
    brokers.store.break_after(0, secretly)  # of what installs it, which comes before its end
    assert code_of(leader.broker.release, "t", 10, 1.0) == "store_unavailable"
    assert leader.broker.get("t").state is TransitState.RELEASED
    assert (brokers.rows["t"].state is TransitState.INSTALLED) is secretly
    brokers.store.mend()
    leader.broker.sweep()
    row = brokers.rows["t"]
    assert (row.state, row.usage.bytes) == (TransitState.RELEASED, 10)
    assert leader.reserved() == {} and leader.controller.circuits == {}
    assert brokers.take_over().reserved() == {}


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_what_moved_for_one_that_is_refused_moves_back_with_its_end(writes: int) -> None:
    brokers = Brokers(TEMPLATES)
    leader = brokers.leader
    moves = leader.ask("moves", "local", "iplant", template="low", min_bps=60 * MBPS)
    leader.controller.cursed = {"great"}
    brokers.store.break_after(writes, secretly=False)
    failed = leader.ask("great", "mu", "tacc", template="high", min_bps=140 * MBPS)
    assert failed.state is TransitState.FAILED
    following = brokers.take_over()  # whose switches take it, where it is still held
    great, there = brokers.rows["great"].state, brokers.rows["moves"].grant.path
    if writes == 1:
        assert great is TransitState.INSTALLED and "r1" in there
    else:
        assert (great, there) == (TransitState.FAILED, moves.grant.path)
    following.broker.sweep()
    assert (brokers.rows["great"].state, brokers.rows["moves"].grant.path) == (great, there)
    assert code_of(leader.broker.sweep) == "store_unavailable"
