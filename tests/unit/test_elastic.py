"""Elastic shares: within capacity to the bit, fair, and what linear programmes find as well."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from network_provisioner.state.elastic import MaxMinShares, RateDemand
from network_provisioner.topology.graph import Hop

HOPS: list[Hop] = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]
AB, BC = HOPS[:2]
MBPS = 1_000_000
ROUNDING = 100  # bits per second: of so few demands, each of which loses less than one


def share(capacity: Mapping[Hop, float], demands: Sequence[RateDemand]) -> dict[str, float]:
    """All at once."""
    sharing = MaxMinShares(capacity)
    sharing.update(demands)
    return sharing.rates()


def demand(
    name: str, hops: tuple[Hop, ...], low: float, high: float, priority: int = 0
) -> RateDemand:
    return RateDemand(name, hops, low, high, priority)


def test_who_cannot_take_its_share_leaves_it_to_the_others() -> None:
    demands = [
        demand("long", (AB, BC), 0, 1000),
        demand("short", (AB,), 0, 1000),
        demand("small", (BC,), 0, 5),
    ]
    assert share({AB: 100, BC: 20}, demands) == {"long": 15, "short": 85, "small": 5}


def test_a_higher_priority_pushes_a_lower_one_to_its_minimum_and_no_further() -> None:
    high, low = demand("high", (AB,), 10, 1000, 9), demand("low", (AB,), 20, 1000, 5)
    assert share({AB: 100}, [low, high]) == {"high": 80, "low": 20}
    modest = demand("high", (AB,), 10, 30, 9)
    assert share({AB: 100}, [low, modest]) == {"high": 30, "low": 70}


def test_without_links_and_without_limits() -> None:
    assert share({}, []) == {}
    assert share({}, [demand("x", (), 1, 7)]) == {"x": 7}
    huge = share({AB: math.inf}, [demand("x", (AB,), 1, math.inf)])
    assert huge["x"] >= 1e18


rates = st.integers(0, 50).map(lambda n: n * MBPS)
hops_of = st.sets(st.sampled_from(HOPS), min_size=1).map(lambda hops: tuple(sorted(hops)))
wishes = st.lists(
    st.tuples(hops_of, rates, rates | st.just(10**12), st.integers(0, 2)), min_size=1, max_size=9
)
spares = st.tuples(*(st.integers(0, 200).map(lambda n: n * MBPS) for _ in HOPS))


def build(requests: list[Any], spare: tuple[int, ...]) -> tuple[dict[Hop, float], list[RateDemand]]:
    """Links that carry the minima and something more."""
    demands = [
        RateDemand(f"d{i}", hops, low, low + more, priority)
        for i, (hops, low, more, priority) in enumerate(requests)
    ]
    capacity = {
        hop: bps + sum(d.min_bps for d in demands if hop in d.hops)
        for hop, bps in zip(HOPS, spare, strict=True)
    }
    return capacity, demands


@given(wishes, spares)
def test_invariants(requests: list[Any], spare: tuple[int, ...]) -> None:
    capacity, demands = build(requests, spare)
    shares = share(capacity, demands)
    for d in demands:
        assert d.min_bps <= shares[d.id] <= d.max_bps and shares[d.id] == int(shares[d.id])
    load = {hop: sum(shares[d.id] for d in demands if hop in d.hops) for hop in HOPS}
    assert all(load[hop] <= capacity[hop] for hop in HOPS)
    above = {d.id: shares[d.id] - d.min_bps for d in demands}
    for d in demands:  # nobody can have more without one of its tier that has no more, or a higher
        if shares[d.id] == d.max_bps:
            continue
        assert any(
            capacity[hop] - load[hop] < ROUNDING
            and all(
                other.priority > d.priority
                or above[other.id]
                <= (above[d.id] if other.priority == d.priority else 0) + ROUNDING
                for other in demands
                if hop in other.hops
            )
            for hop in d.hops
        )


changes = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.booleans(), hops_of, rates, st.integers(0, 2)),
    max_size=40,
)


@given(changes, st.booleans())
def test_step_by_step_is_the_same_as_at_once(todo: list[Any], asked_often: bool) -> None:
    capacity = dict.fromkeys(HOPS, 200 * MBPS)
    sharing, held = MaxMinShares(capacity), {}
    for name, gone, hops, more, priority in todo:
        if gone:
            held.pop(name, None)
            sharing.update([], [name])
        else:
            held[name] = RateDemand(name, hops, 20 * MBPS, 20 * MBPS + more, priority)
            sharing.update([held[name]])
        if asked_often:
            assert sharing.rates() == share(capacity, list(held.values()))
    assert sharing.rates() == share(capacity, list(held.values()))
