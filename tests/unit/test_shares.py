"""Rates while transits come and go: within every link at once, and fair at the latest soon."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from broker_rig import MBPS, Rig, demo_network
from hypothesis import given
from hypothesis import strategies as st
from made_transit import made_transit
from test_elastic import share

from network_provisioner.base.controller import Queue
from network_provisioner.base.model import Transit, TransitState
from network_provisioner.selection.limits import BrokerLimits
from network_provisioner.state import circuits
from network_provisioner.transits import desired_state
from network_provisioner.transits.desired_state import Shares

NETWORK = demo_network(l3="150 Mb/s")
PATHS = [path for src in ("mu", "local") for path in NETWORK.candidate_paths(src, "tacc")]
CAPACITY = {
    hop: link.capacity_bps for link in NETWORK.links for hop in ((link.a, link.b), (link.b, link.a))
}
QUEUES = (Queue("q", ("s1", "s2"), 10 * MBPS, 50 * MBPS),)


@st.composite
def arrivals(draw: st.DrawFn) -> list[Transit]:
    """Transits whose minima fit together."""
    left, transits = dict(CAPACITY), []
    for number in range(draw(st.integers(1, 12))):
        path = draw(st.sampled_from(PATHS))
        most = min(left[hop] for hop in path.hops)
        low = draw(st.integers(0, int(most) // 3))
        for hop in path.hops:
            left[hop] -= low
        transit = made_transit(
            str(number), path.nodes[0], path.nodes[-1], TransitState.INSTALLED,
            path=list(path.nodes), requested_bps=low, granted_bps=low,
            max_bps=low + draw(st.integers(1, 300)) * MBPS, priority=draw(st.integers(0, 2)),
            queue=draw(st.sampled_from(["", "q"])), lease_until=1e9,
        )  # fmt: skip
        transits.append(transit)
    return transits


def check(transits: list[Transit]) -> None:
    load: dict[tuple[str, str], float] = {}
    for transit in transits:
        if transit.request.min_bps:
            assert transit.request.min_bps <= transit.grant.granted_bps <= transit.request.max_bps
        else:
            assert transit.grant.granted_bps == 0
        for hop in pairwise(transit.grant.path):
            load[hop] = load.get(hop, 0) + transit.grant.granted_bps
    assert all(bps <= CAPACITY[hop] for hop, bps in load.items())


@given(arrivals(), st.data(), st.booleans())
def test_never_too_much_and_fair_in_the_end(
    transits: list[Transit], data: st.DataObject, queues: bool
) -> None:
    kept = Shares(NETWORK, CAPACITY)
    if queues:
        kept.limit(QUEUES)
    there: list[Transit] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(desired_state, "EAGER", 0)
        for transit in transits:
            kept.put(transit)
            there.append(transit)
            if data.draw(st.booleans()):
                kept.settle(0.0, everything=False)
                check(there)
            if data.draw(st.integers(0, 3)) == 0:
                gone = there.pop(data.draw(st.integers(0, len(there) - 1)))
                kept.drop(gone.id)
        kept.settle(0.0, everything=True)
    check(there)
    assert not kept.behind
    if not queues:
        demands = [d for t in there for d in circuits.demands(t, circuits.ways(t, NETWORK), {})]
        assert {t.id: t.grant.granted_bps for t in there if t.request.min_bps} == share(
            CAPACITY, demands
        )
    else:
        queued = [
            t for t in there if t.grant.queue == "q" and ("s1", "s2") in pairwise(t.grant.path)
        ]
        least = sum(t.request.min_bps for t in queued)
        assert sum(t.grant.granted_bps for t in queued) <= max(least, QUEUES[0].ceil_bps)
    kept.limit(())
    kept.settle(0.0, everything=True)
    check(there)


def test_where_many_are_live_all_is_shared_anew_by_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desired_state, "EAGER", 1)
    rig = Rig(tmp_path / "s", limits=BrokerLimits(pin_pairs=False))
    for name in ("a", "b", "c"):
        rig.ask(name, "mu", "tacc")

    def granted() -> dict[str, float]:
        return {i: c.min_bps / MBPS for i, c in rig.controller.circuits.items()}

    first = granted()
    assert sum(first.values()) == 180 and first["c"] == 5  # its minimum, at once
    rig.let_pass(1)
    assert granted() == {"a": 60, "b": 60, "c": 60}
    rig.broker.release("a")
    assert granted() == {"b": 60, "c": 60}
    rig.let_pass(1)
    assert granted() == {"b": 90, "c": 90}


def test_what_is_served_out_of_a_queue_is_taken_from_it_on_that_link_alone() -> None:
    kept = Shares(NETWORK, CAPACITY)
    queues = [
        (
            Queue("p/1", hop, 100 * MBPS, 200 * MBPS),
            Queue("p/2", hop, 30 * MBPS, 60 * MBPS, prio=1, parent="p/1"),
        )
        for hop in (("s1", "s2"), ("s2", "tacc"))
    ]
    kept.limit([queue for both in queues for queue in both])
    transit = made_transit(
        "a", "mu", "tacc", TransitState.INSTALLED, path=["mu", "s1", "s2", "tacc"], queue="p/1",
        requested_bps=MBPS, granted_bps=MBPS, max_bps=300 * MBPS, lease_until=1e9,
    )  # fmt: skip
    kept.put(transit)
    kept.settle(0.0, everything=True)
    assert transit.grant.granted_bps == 70 * MBPS
