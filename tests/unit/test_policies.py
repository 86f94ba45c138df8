"""Policies as they are written, checked and acted on: Listing 1 and Algorithm 1."""

from __future__ import annotations

import json
import math
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_transit import changed
from policy_world import L2, L3, LISTING_1, NOW, TOPOLOGY, live

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.instants import instant, iso
from network_provisioner.base.model import Transit, TransitPart
from network_provisioner.policies.policy import (
    TYPES,
    Policy,
    PolicyState,
    policy_from_record,
    policy_id,
)
from network_provisioner.policies.queues import LinkQueues, governing, reserved_rates
from network_provisioner.policies.schema import PolicyChange, policy_change
from network_provisioner.policies.strategies import Amount, sure_bps
from network_provisioner.state.circuits import hops

HOUR = 3600.0


def start(**changes: Any) -> Policy:
    body = {k: v for k, v in (LISTING_1 | changes).items() if v is not None}
    return policy_change(body, {}, NOW).policy


def refused(body: object, known: dict[str, Policy] | None = None) -> tuple[str, str]:
    with pytest.raises(BrokerError) as caught:
        policy_change(body, known or {}, NOW)
    return caught.value.code, str(caught.value)


class TestListing1:
    def test_as_in_the_paper(self) -> None:
        policy = start()
        assert (policy.type, policy.strategy, policy.specs) == ("project", "7-3", ("cms", "ligo"))
        assert (policy.start, policy.end) == (NOW, NOW + HOUR)
        assert policy.queues == (f"{policy.id}/1", f"{policy.id}/2")

    def test_what_may_be_left_out(self) -> None:
        policy = start(action=None, time=None)
        assert (policy.start, policy.end, policy.links) == (NOW, math.inf, ())
        assert policy.guaranteed() == (Amount(0.35), Amount(0.15))

    def test_times(self) -> None:
        assert start(time=[NOW + 60, None]).start == NOW + 60
        assert start(time=[None, NOW + 60]).end == NOW + 60
        assert start(time=["2026-11-21T16:00:00+01:00", None]).start == NOW + HOUR
        assert start(time=["2026-11-21T15:00:00", None]).start == NOW + HOUR  # no offset: UTC
        assert start(time=[NOW - 30, None]).start == NOW  # clocks differ

    def test_our_keys(self) -> None:
        policy = start(
            strategy="computed",
            links=[["s1", "s2"], ["s1", "s2"]],
            parts=[1, 4],
            guarantees=["50 Mb/s", "12.5 %"],
        )
        assert policy.links == (("s1", "s2"),)
        assert policy.parts == (1.0, 4.0)
        assert policy.guaranteed() == (Amount(bps=50e6), Amount(share=0.125))
        assert start(strategy="computed", parts=[1, 4]).guaranteed() == (Amount(0.1), Amount(0.4))


# One change to Listing 1, the code, and what the one line must contain.
BAD = [
    ({"colour": 1}, "bad_request", "unknown key 'colour', expected among name, type"),
    ({"strategie": "7-3"}, "bad_request", "did you mean 'strategy'?"),
    ({"name": None}, "bad_request", "has no 'name'"),
    ({"name": ""}, "bad_request", "name: found '', expected a name"),
    ({"name": "x" * 101}, "bad_request", "at most 100 characters"),
    ({"name": " x"}, "bad_request", "without spaces around"),
    ({"name": "a\nb"}, "bad_request", r"name: found 'a\\nb', expected a name"),
    ({"type": None}, "bad_request", "has no 'type'"),
    ({"type": "group"}, "bad_request", "type: found 'group', expected one of 'user', 'project'"),
    ({"type": ["user"]}, "bad_request", "type: found \\['user'\\]"),
    ({"strategy": "8-2"}, "bad_request", "strategy: found '8-2', expected one of"),
    (
        {"action": "pause"},
        "bad_request",
        "action: found 'pause', expected one of 'start', 'modify'",
    ),
    ({"specs": ["cms"]}, "bad_request", "expected two names"),
    ({"specs": ["cms", "cms"]}, "bad_request", "names 'cms' twice"),
    ({"specs": ["*", "*"]}, "bad_request", "names '\\*' twice"),
    ({"specs": ["cms", 3]}, "bad_request", "specs.1: found 3, expected a name, in quotes"),
    ({"specs": "cms"}, "bad_request", "specs: found 'cms'"),
    ({"time": "now"}, "bad_request", "expected \\[start, end\\]"),
    ({"time": ["tomorrow", None]}, "bad_request", "found 'tomorrow', expected ISO 8601"),
    ({"time": [True, None]}, "bad_request", "found True, expected ISO 8601"),
    ({"time": [None, NOW * 1000]}, "bad_request", "expected ISO 8601"),  # milliseconds
    ({"time": [None, -1]}, "bad_request", "expected ISO 8601"),
    ({"time": [NOW - 61, None]}, "bad_time", "start .* is past, expected one after now, 2026-11"),
    ({"time": [None, NOW]}, "bad_time", "its end .* is past"),
    ({"time": ["2026-11-21T15:00:00Z", "2026-11-21T14:30:00Z"]}, "bad_time", "not after its start"),
    ({"links": "s1-s2"}, "bad_request", "expected a list"),
    ({"links": [["s1"]]}, "bad_request", "expected pairs of neighbours"),
    ({"links": []}, "bad_request", "expected 1 or more"),
    ({"parts": [1, 2]}, "bad_request", "expected none with the strategy '7-3'"),
    ({"guarantees": [1, 2]}, "bad_request", "expected none with the strategy '7-3'"),
    ({"strategy": "computed", "parts": [1, 0]}, "bad_request", "expected 1e-06 or more"),
    ({"strategy": "computed", "parts": [1, True]}, "bad_request", "found True, expected a number"),
    ({"strategy": "computed", "guarantees": ["60 %", "50 %"]}, "bad_request", "above 100 %"),
    ({"strategy": "computed", "guarantees": ["101 %", 0]}, "bad_request", "at most 100 %"),
    ({"strategy": "computed", "guarantees": ["5 MB/s", 0]}, "bad_request", "bits per second"),
    ({"strategy": "computed", "guarantees": [-1, 0]}, "bad_request", "not negative"),
]


@pytest.mark.parametrize(("change", "code", "pattern"), BAD, ids=[str(b[0]) for b in BAD])
def test_bad_input_is_one_line(change: dict[str, Any], code: str, pattern: str) -> None:
    body = {k: v for k, v in (LISTING_1 | change).items() if v is not None}
    refusal_code, line = refused(body)
    assert refusal_code == code
    assert "\n" not in line
    assert re.search(pattern, line)


@pytest.mark.parametrize("body", [None, 3, "start", [LISTING_1], {}])
def test_what_is_no_policy_at_all(body: object) -> None:
    assert refused(body)[0] == "bad_request"


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
almost = st.fixed_dictionaries({}, optional={key: json_values for key in (*LISTING_1, "links")})


@settings(max_examples=60)
@given(almost, st.sampled_from(sorted(LISTING_1)), json_values)
def test_any_json_is_a_policy_or_one_line(body: dict[str, Any], key: str, value: Any) -> None:
    for written in (body, LISTING_1 | {key: value}, LISTING_1 | body):
        try:
            policy = policy_change(written, {}, NOW).policy
        except BrokerError as error:
            assert error.code in ("bad_request", "bad_time", "unknown_policy")
            assert "\n" not in str(error)
        else:
            assert policy.start >= NOW
            assert policy.end > policy.start


class TestAlgorithm1:
    """Lines 1 to 8: an id for each policy, added or replaced; stop and modify beside it."""

    def known(self, **changes: Any) -> dict[str, Policy]:
        policy = start(**changes)
        return {policy.id: policy}

    def test_the_id_comes_from_the_name(self) -> None:
        assert start().id == start(strategy="10-3").id == policy_id("cms first")
        assert policy_id("cms first").startswith("cms-first-")
        assert policy_id("CMS first") != policy_id("cms first")
        assert policy_id("Größe/../x").isascii()
        assert "/" not in policy_id("Größe/../x")
        assert policy_id("\ud800").startswith("policy-")

    def test_start_again_replaces(self) -> None:
        known = self.known()
        change = policy_change(LISTING_1 | {"strategy": "10-3"}, known, NOW)
        assert change.policy.id in known
        assert change.before is known[change.policy.id]
        assert change.policy.strategy == "10-3"

    def test_modify_changes_what_is_given(self) -> None:
        known = self.known()
        (before,) = known.values()
        body = {"name": "cms first", "action": "modify", "strategy": "10-3"}
        after = policy_change(body, known, NOW + 60).policy
        assert (after.id, after.specs, after.start, after.end) == (
            before.id, before.specs, before.start, before.end,
        )  # fmt: skip
        assert (after.strategy, after.changed_at) == ("10-3", NOW + 60)

    def test_modify_of_the_time_keeps_the_start_that_was(self) -> None:
        known = self.known()
        for begin in (NOW, None, iso(NOW)):
            body = {"name": "cms first", "action": "modify", "time": [begin, NOW + 2 * HOUR]}
            after = policy_change(body, known, NOW + 600).policy
            assert (after.start, after.end) == (NOW, NOW + 2 * HOUR)

    def test_another_strategy_takes_other_rates(self) -> None:
        known = self.known(strategy="computed", parts=[1, 1], guarantees=["50 %", "50 %"])
        body = {"name": "cms first", "action": "modify", "strategy": "7-3"}
        after = policy_change(body, known, NOW).policy
        assert (after.parts, after.guarantees) == ((7.0, 3.0), None)

    def test_stop_ends_it_once(self) -> None:
        known = self.known()
        body = {"name": "cms first", "action": "stop"}
        stopped = policy_change(body, known, NOW + 5).policy
        assert stopped.state(NOW + 5) is PolicyState.STOPPED
        assert policy_change(body, {stopped.id: stopped}, NOW + 9) == PolicyChange(stopped, stopped)

    @pytest.mark.parametrize("action", ["modify", "stop"])
    def test_what_is_not_there(self, action: str) -> None:
        code, line = refused({"name": "nobody", "action": action})
        assert code == "unknown_policy"
        assert "'nobody' is unknown" in line

    def test_modify_of_what_has_ended(self) -> None:
        known = self.known(time=[None, NOW + 1])
        body = {"name": "cms first", "action": "modify", "strategy": "10-3"}
        with pytest.raises(BrokerError, match="is expired, expected one that has not ended"):
            policy_change(body, known, NOW + 2)

    def test_start_of_what_has_ended(self) -> None:
        known = self.known(time=[None, NOW + 1])
        again = policy_change(LISTING_1 | {"time": None}, known, NOW + HOUR).policy
        assert again.state(NOW + HOUR) is PolicyState.RUNNING


def test_states() -> None:
    policy = start(time=[NOW + 60, NOW + 120])
    at = {t: policy.state(NOW + t) for t in (0, 59, 60, 119, 120)}
    assert list(at.values()) == ["scheduled", "scheduled", "running", "running", "expired"]


class TestQueueOf:
    def test_by_type(self) -> None:
        for kind in TYPES:
            policy = start(type=kind)
            assert policy.queue_of(live("a", **{kind: "cms"})) == policy.queues[0]
            assert policy.queue_of(live("a", **{kind: "ligo"})) == policy.queues[1]
            assert policy.queue_of(live("a", **{kind: "atlas"})) == ""
            assert policy.queue_of(live("a")) == ""

    def test_everybody_else(self) -> None:
        first = start(specs=["*", "ligo"])
        assert first.queue_of(live("a", project="cms")) == first.queues[0]
        assert first.queue_of(live("a")) == first.queues[0]
        assert first.queue_of(live("a", project="ligo")) == first.queues[1]
        second = start(specs=["cms", "*"])
        assert second.queue_of(live("a", project="atlas")) == second.queues[1]


@given(
    st.sampled_from(TYPES),
    st.sampled_from(["7-3", "10-3", "computed"]),
    st.sampled_from([None, NOW + 5, "2026-11-21T14:30:00Z"]),
    st.sampled_from([None, NOW + 9000]),
    st.sampled_from([None, [["s1", "s2"]]]),
)
def test_a_record_is_what_was_written(
    kind: str, strategy: str, begin: object, end: object, links: object
) -> None:
    more = {"parts": [2, 3], "guarantees": ["1 Mb/s", "9 %"]} if strategy == "computed" else {}
    policy = start(type=kind, strategy=strategy, time=[begin, end], links=links, **more)
    assert policy_from_record(json.loads(json.dumps(policy.as_dict()))) == policy


def test_instants() -> None:
    assert instant("2026-11-21T14:00:00Z", "x") == instant(NOW, "x") == NOW
    assert iso(NOW) == "2026-11-21T14:00:00Z"
    for bad in ("0000-01-01", "9999-12-31T23:59:59", "2026-13-01", "", float("nan"), None, {}):
        with pytest.raises(Exception, match="expected ISO 8601"):
            instant(bad, "x")


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
