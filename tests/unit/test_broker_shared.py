"""Brokers that share a store which breaks in the middle of a turn: what one of them answered, the
others know."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from broker_rig import MBPS, Clock, Rig, code_of, demo_network
from killed_broker import TEMPLATES
from request_sequences import MemoryStore, Rows

from network_provisioner.base.model import TransitState
from network_provisioner.stores.store import Store


class Two:
    """Brokers ``a`` and ``b``, each with a store of its own on the same rows."""

    def __init__(self, templates: Any = None) -> None:
        self.rows, self.clock = Rows(), Clock()
        self.stores = [MemoryStore(self.rows) for _ in range(2)]
        self.a, self.b = (
            Rig(
                Path("unused"), demo_network(l3="150 Mb/s"), templates, clock=self.clock,
                store=cast(Store, store),
            )
            for store in self.stores
        )  # fmt: skip
        self.breaks = self.stores[0]  # that of a

    def sweep(self) -> None:
        """Until each has heard of all."""
        for rig in (self.a, self.b) * 2:
            rig.broker.sweep()


@pytest.fixture
def two() -> Two:
    return Two()


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
def test_nothing_is_answered_that_the_store_has_not(two: Two, terms: dict[str, Any]) -> None:
    two.a.ask("first", "mu", "tacc", min_bps=100 * MBPS)
    request = {"src": "local", "dst": "tacc", **terms}
    two.breaks.break_after(0, secretly=False)
    assert code_of(two.a.ask, "t", **request) == "store_unavailable"
    assert code_of(two.b.broker.release, "t") == "unknown_transit"
    two.breaks.mend()
    asked = two.a.ask("t", **request)
    assert two.b.ask("t", **request).state is asked.state
    two.b.broker.release("t")


@pytest.mark.parametrize("secretly", [False, True])
def test_a_renewal_that_is_not_stored_is_refused_and_promises_nothing(
    two: Two, secretly: bool
) -> None:
    before = two.a.ask("t", "mu", "tacc", min_bps=150 * MBPS, lease_s=50)
    two.breaks.break_after(0, secretly)
    assert code_of(two.a.broker.renew, "t", 1000) == "store_unavailable"
    assert two.a.controller.circuits["t"].lease_until == before.grant.lease_until
    two.breaks.mend()
    start = two.clock.now + 60
    after = two.b.ask("after", "mu", "tacc", min_bps=150 * MBPS, start=start, end=start + 100)
    two.sweep()
    until = two.b.broker.get("t").grant.lease_until
    if secretly:  # it had taken effect, as b knew before it decided
        assert (until, after.state) == (two.clock.now + 1000, TransitState.QUEUED)
    else:
        assert (until, after.state) == (before.grant.lease_until, TransitState.HELD)
    assert two.a.controller.circuits["t"].lease_until == until
    assert (
        two.a.broker.describe_topology(start)["links"]
        == (two.b.broker.describe_topology(start)["links"])
    )


def test_what_was_given_back_stays_so_whatever_others_did_with_it(two: Two) -> None:
    two.a.ask("t", "mu", "tacc", lease_s=500)
    two.breaks.break_after(0, secretly=False)
    assert code_of(two.a.broker.release, "t", 10, 1.0) == "store_unavailable"
    assert two.a.broker.get("t").state is TransitState.RELEASED
    two.b.broker.renew("t", 1000)
    two.breaks.mend()
    two.sweep()
    ended = two.b.broker.get("t")
    assert (ended.state, ended.usage.bytes) == (TransitState.RELEASED, 10)
    assert two.a.reserved() == two.b.reserved() == {}
    assert two.a.controller.circuits == two.b.controller.circuits == {}


def test_what_was_given_back_stays_so_where_the_write_before_it_was_in_doubt(two: Two) -> None:
    start = two.clock.now + 10
    two.a.ask("t", "mu", "tacc", start=start, end=start + 500)
    two.clock.now = start
    two.breaks.break_after(0, secretly=True)  # the turn installs it, which is stored, and ends it
    assert code_of(two.a.broker.release, "t") == "store_unavailable"
    assert two.a.broker.get("t").state is TransitState.RELEASED
    assert two.rows["t"].state is TransitState.INSTALLED
    two.breaks.mend()
    two.sweep()
    assert two.b.broker.get("t").state is TransitState.RELEASED
    assert two.a.reserved() == two.b.reserved() == {}


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_what_moved_for_one_that_is_refused_moves_back_with_its_end(writes: int) -> None:
    two = Two(TEMPLATES)
    moves = two.a.ask("moves", "local", "iplant", template="low", min_bps=60 * MBPS)
    two.b.broker.sweep()
    two.a.controller.cursed = {"great"}
    two.breaks.break_after(writes, secretly=False)
    failed = two.a.ask("great", "mu", "tacc", template="high", min_bps=140 * MBPS)
    assert failed.state is TransitState.FAILED
    two.b.broker.sweep()  # whose switches take it, where it is still held
    great, there = two.rows["great"].state, two.rows["moves"].grant.path
    if writes == 1:
        assert great is TransitState.INSTALLED and "r1" in there
    else:
        assert (great, there) == (TransitState.FAILED, moves.grant.path)
    two.a.controller.cursed = set()
    two.breaks.mend()
    two.sweep()
    assert (two.rows["great"].state, two.rows["moves"].grant.path) == (great, there)
    assert two.a.reserved() == two.b.reserved()
    assert two.a.controller.circuits == two.b.controller.circuits
