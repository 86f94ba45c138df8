"""Queues that are kept while transits come and go are those that would be made anew."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_transit import changed
from policy_world import L2, L3, LISTING_1, NOW, TOPOLOGY, live

from network_provisioner.base.model import Transit, TransitPart
from network_provisioner.policies.policy import Policy
from network_provisioner.policies.queues import LinkQueues, governing, reserved_rates
from network_provisioner.policies.schema import policy_change
from network_provisioner.policies.strategies import sure_bps
from network_provisioner.state.circuits import hops

PATHS = (L2, L3, L2[::-1], ("mu", "s1", "local"), ("local", "s1", "s2", "iplant"))
steps = st.lists(
    st.tuples(
        st.sampled_from("abcdef"),  # a transit
        st.sampled_from(("come", "go", "move", "change", "split")),
        st.sampled_from(PATHS),
        st.sampled_from(("cms", "ligo", "atlas")),
        st.integers(1, 20),  # Mb/s
    ),
    max_size=25,
)
kinds = st.sampled_from(
    (
        {"strategy": "7-3"},
        {"strategy": "10-3", "specs": ["*", "ligo"]},
        {"strategy": "computed", "links": [["s1", "s2"], ["mu", "s1"]]},
    )
)


def policy(**changes: object) -> Policy:
    return policy_change(LISTING_1 | changes, {}, NOW).policy


def unused(_: Policy) -> tuple[float, float]:
    return 0.0, 0.0


@given(steps, kinds)
def test_as_if_made_anew(
    steps: list[tuple[str, str, tuple[str, ...], str, int]], kind: dict[str, object]
) -> None:
    by_hop = governing([policy(**kind)], TOPOLOGY)
    kept = LinkQueues(TOPOLOGY)
    there: dict[str, Transit] = {}
    for name, what, path, project, mbps in steps:
        if what == "come" or name not in there:
            there[name] = live(name, path, project=project, requested_bps=mbps * 1e6)
        elif what == "go":
            del there[name]
        elif what == "move":
            there[name].grant.path = list(path)
        elif what == "change":
            there[name] = changed(there[name], requested_bps=mbps * 1e6)
        else:
            there[name].grant.parts = [
                TransitPart(list(p), "l2", mbps * 10**6, 0.0, 0.0) for p in (path, L2)
            ]
        transits = list(there.values())
        queues = kept.queues(by_hop, transits, unused, NOW, everywhere=False)
        assert queues == LinkQueues(TOPOLOGY).queues(by_hop, transits, unused, NOW, everywhere=True)
        for hop in {q.hop for q in queues}:
            here = [q for q in queues if q.hop == hop]
            minima = sum(bps for t in transits for h, bps in reserved_rates(t) if h == hop)
            capacity = TOPOLOGY.link(*hop).capacity_bps
            if minima <= capacity:
                assert sum(sure_bps(q, here) for q in here) <= capacity + 1


def test_another_policy_is_another_layout() -> None:
    kept, transit = LinkQueues(TOPOLOGY), live("a", project="cms")
    first = governing([policy()], TOPOLOGY)
    assert len(kept.queues(first, [transit], unused, NOW, everywhere=False)) == 2
    second = governing([policy(specs=["atlas", "ligo"])], TOPOLOGY)
    assert kept.queues(second, [transit], unused, NOW, everywhere=False) == []


def test_the_queues_of_a_policy_end_with_it_where_another_goes_on() -> None:
    kept = LinkQueues(TOPOLOGY)
    there = [live("a", ("local", "s1", "s2", "iplant"), project="cms"),
             live("b", ("mu", "s1", "local"), project="cms")]  # fmt: skip
    ends, stays = policy(links=[["s1", "s2"]]), policy(name="stays", links=[["mu", "s1"]])
    both = kept.queues(governing([ends, stays], TOPOLOGY), there, unused, NOW, everywhere=False)
    assert {queue.hop for queue in both} == {("mu", "s1"), ("s1", "s2")}
    left = kept.queues(governing([stays], TOPOLOGY), there, unused, NOW, everywhere=False)
    assert left == [queue for queue in both if queue.hop == ("mu", "s1")]


def test_parts_that_share_a_link_add_up() -> None:
    transit = live("a")
    transit.grant.parts = [
        TransitPart(list(L2), "l2", 5_000_000, 5e6, 5e6),
        TransitPart(list(L3), "l3", 2_000_000, 2e6, 2e6),
    ]
    assert dict(reserved_rates(transit)) == {
        **dict.fromkeys(pairwise(L2), 5e6),
        **dict.fromkeys(pairwise(L3), 2e6),
        ("mu", "s1"): pytest.approx(7e6),
        ("s2", "tacc"): pytest.approx(7e6),
    }
    assert hops(transit) == list(dict(reserved_rates(transit)))
