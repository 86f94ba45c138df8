"""The broker's promises about paths: who gets which, who none, and what is shown of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from broker_rig import BIG, L2, MBPS, Clock, Rig, code_of, demo_network, fill

from network_provisioner.base.model import TransitRequest, TransitState
from network_provisioner.controllers.simulated import SimulatedController
from network_provisioner.selection.limits import BrokerLimits
from network_provisioner.selection.transit import Metric
from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.graph import Path as NetworkPath

SLOW = {"throughput": Metric(4e6, "measured")}


# -- a path ----------------------------------------------------------------------------------


def test_a_transfer_gets_the_better_path_and_gives_it_back(rig: Rig) -> None:
    got = rig.ask("a", "mu", "tacc", size_bytes=BIG, template="soykb", workflow="w", job="j")
    assert (got.state, got.grant.path, got.grant.layer) == (TransitState.INSTALLED, L2, "l2")
    # The QSpec is reserved; alone on 180 Mb/s it is given all that the RSpec allows.
    assert (got.request.min_bps, got.grant.granted_bps, got.request.max_bps) == (25e6, 150e6, 150e6)
    assert got.grant.installed_at == got.request.requested_at == rig.clock.now
    assert got.grant.lease_until == pytest.approx(rig.clock.now + 3 * 8e9 / 25e6 + 60)
    assert "L2 mu-s1-s2-tacc has the highest score" in got.reason
    assert [c["layer"] for c in got.grant.candidates] == ["l2", "l3"]
    circuit = rig.controller.circuits["a"]
    assert (circuit.path, circuit.min_bps, circuit.max_bps) == (tuple(L2), 150e6, 150e6)
    assert rig.reserved() == {"mu>s1": 25e6, "s1>s2": 25e6, "s2>tacc": 25e6}

    rig.controller.bytes["a"] = 1_050_000_000
    rig.clock.now += 100
    ended = rig.broker.release("a", BIG, 80.0, "success")
    assert (ended.state, ended.grant.released_at) == (TransitState.RELEASED, rig.clock.now)
    assert (ended.usage.bytes, ended.usage.seconds, ended.usage.goodput_bps) == (BIG, 80.0, 100e6)
    assert ended.usage.switch_bytes == 1_050_000_000
    assert rig.reserved() == {} and rig.controller.circuits == {}
    assert rig.recorder.transits == [ended] == [rig.broker.get("a")]


def test_asking_or_releasing_twice_is_the_same_as_once(rig: Rig) -> None:
    first = rig.ask("a", "mu", "tacc")
    rig.clock.now += 5
    assert rig.broker.submit(TransitRequest("a", "mu", "tacc")) == (first, False)
    assert rig.controller.applied == [[], ["a"]]
    ended = rig.broker.release("a", 80, 2.0)
    rig.clock.now += 5
    assert rig.broker.release("a", 99, 9.0, "other") == ended
    assert rig.ask("a", "mu", "tacc") == ended
    assert len(rig.recorder.transits) == 1


@pytest.mark.parametrize(
    "terms",
    [
        {"dst": "iplant"},
        {"min_bps": 6e6},
        {"lease_s": 5.0},
        {"template": "soykb"},
        {"start": 1_000_100.0},
        {"user": "ada"},
    ],
)
def test_an_id_belongs_to_one_request(rig: Rig, terms: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"src": "mu", "dst": "tacc", "min_bps": 5e6}
    first = rig.ask("a", **fields, size_bytes=BIG)
    assert rig.ask("a", **fields, size_bytes=None) == first  # a size is an estimate
    assert code_of(rig.ask, "a", **fields | terms) == "conflict"
    assert rig.broker.get("a") == first


def test_what_is_handed_out_is_a_copy(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc").grant.path.clear()
    assert rig.broker.get("a").grant.path == L2


def granted(rig: Rig) -> dict[str, float]:
    """Mb/s of every transit now, as people and switches are told."""
    rates = {i: c.min_bps / MBPS for i, c in rig.controller.circuits.items()}
    assert rates == {i: rig.broker.get(i).grant.granted_bps / MBPS for i in rates}
    return rates


def test_what_is_left_is_shared_fairly_and_anew_as_others_come_and_go(rig: Rig) -> None:
    pairs = [("mu", "tacc"), ("mu", "iplant"), ("local", "tacc"), ("local", "iplant")]
    expected = [[150], [90, 90], [60, 60, 60], [45, 45, 45, 45]]
    for number, (src, dst) in enumerate(pairs):
        rig.ask(str(number), src, dst, template="soykb")
        assert list(granted(rig).values()) == expected[number]
    # The default template has a lower priority: it takes what they leave above its minimum.
    small = rig.ask("small", "local", "iplant", max_bps=12e6)
    assert (small.grant.granted_bps, small.request.min_bps) == (5e6, 5e6)
    rig.broker.release("0")
    assert granted(rig) == pytest.approx({"1": 175 / 3, "2": 175 / 3, "3": 175 / 3, "small": 5})
    rig.let_pass(1000)
    assert rig.controller.circuits == {}


def test_one_that_needs_all_of_it_leaves_the_others_their_minimum(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc")
    assert granted(rig) == {"a": 180}
    rig.ask("b", "local", "iplant", min_bps=172e6)
    assert granted(rig) == {"a": 6.5, "b": 173.5}
    assert rig.ask("c", "mu", "iplant", min_bps=9e6).grant.layer == "l3"


def test_a_priority_is_at_most_the_templates_and_has_what_is_left_first(rig: Rig) -> None:
    rig.ask("low", "mu", "tacc", template="soykb", priority=1)
    high = rig.ask("high", "local", "iplant", template="soykb", priority=99)
    assert (high.request.priority, rig.broker.get("low").request.priority) == (5, 1)
    assert granted(rig) == {"low": 30, "high": 150}


def test_transits_of_a_pair_share_its_path_in_both_directions(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", template="soykb", min_bps=150e6)
    full = rig.ask("b", "mu", "tacc", min_bps=14e6, max_bps=18e6)
    assert full.grant.path == L2  # although L3 would have had room for as much
    third = rig.ask("c", "mu", "tacc", min_bps=17e6)
    assert (third.state, third.grant.granted_bps) == (TransitState.BEST_EFFORT, 0)
    assert "shares, without a rate of its own" in third.reason
    assert "s1>s2, held by a, b" in third.reason
    back = rig.ask("d", "tacc", "mu")
    assert back.grant.path == L2[::-1]
    # The next pair is free to choose.
    assert rig.ask("e", "local", "iplant", min_bps=17e6).grant.layer == "l3"


def test_a_pair_is_free_again_when_its_last_transit_has_ended(rig: Rig) -> None:
    rig.ask("x", "local", "tacc", template="soykb", min_bps=150e6)
    assert rig.ask("a", "mu", "tacc", max_bps=15e6, min_bps=15e6).grant.layer == "l2"
    rig.broker.release("a")
    rig.ask("y", "local", "iplant", min_bps=30e6, max_bps=30e6)
    assert rig.ask("b", "mu", "tacc", min_bps=15e6).grant.layer == "l3"


def test_pairs_may_use_several_paths_where_the_network_can_tell_flows_apart(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path / "s", limits=BrokerLimits(pin_pairs=False))
    rig.ask("a", "mu", "tacc", template="soykb", min_bps=150e6)
    rig.ask("b", "mu", "tacc", min_bps=15e6, max_bps=15e6)
    assert rig.ask("c", "mu", "tacc", min_bps=16e6).grant.layer == "l3"


def test_measured_throughput_moves_the_choice(tmp_path: Path) -> None:
    rates = {"l2": 6e6, "l3": 17e6}
    rig = Rig(
        tmp_path / "s",
        metrics_of=lambda p, _: {"throughput": Metric(rates[p.layer], "measured", 5.0)},
    )
    got = rig.ask("a", "mu", "tacc")
    assert got.grant.layer == "l3"
    scores = {c["layer"]: c["scores"]["throughput"] for c in got.grant.candidates}
    assert (scores["l2"]["source"], scores["l2"]["age_s"]) == ("measured", 5.0)
    assert scores["l3"]["value"] == 17e6


def test_a_path_that_is_measured_to_be_bad_is_left(tmp_path: Path) -> None:
    bad: dict[str, Metric] = {}
    careful = {
        "careful": {
            "qspec": {"min_throughput": "5 Mb/s", "max_delay": "200 ms", "max_loss": 0.01},
            "rspec": {"max_throughput": "10 Mb/s"},
            "weights": {"throughput": 1, "delay": 1, "loss": 1},
        }
    }
    rig = Rig(
        tmp_path / "s", templates=careful, metrics_of=lambda p, _: bad if p.layer == "l2" else {}
    )
    unknown = rig.ask("a", "mu", "tacc", template="careful")
    assert unknown.grant.layer == "l2"
    scores = unknown.grant.candidates[0]["scores"]
    assert [scores[name]["score"] for name in ("delay", "loss")] == [1, 1]  # a topology is no news
    rig.broker.release("a")
    for name, value in (("delay", 3.0), ("loss", 0.5)):
        bad |= {name: Metric(value, "measured", 10.0)}
        moved = rig.ask(f"b{name}", "mu", "tacc", template="careful")
        assert moved.grant.layer == "l3"
        assert f"{name} {value:g} (measured)" in moved.reason
        rig.broker.release(moved.id)
        bad.clear()
    bad["delay"] = Metric(3.0, "measured", 901.0)
    assert rig.ask("c", "mu", "tacc", template="careful").grant.layer == "l2"


def test_an_archive_that_fails_costs_its_opinion_only(tmp_path: Path) -> None:
    def broken(path: object) -> dict[str, Metric]:
        raise OSError("disk gone")

    rig = Rig(tmp_path / "s", metrics_of=broken)
    assert rig.ask("a", "mu", "tacc").state is TransitState.INSTALLED


def test_a_network_without_guarantees_trusts_measurements(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s", metrics_of=lambda *_: SLOW, bandwidth="none")
    got = rig.ask("a", "mu", "tacc")
    assert got.state is TransitState.BEST_EFFORT
    assert "4 Mb/s measured" in got.reason


def test_on_the_simulated_network(tmp_path: Path) -> None:
    clock = Clock()
    simulated = SimulatedController(demo_network(), clock)
    measured: list[NetworkPath] = []

    def slow(path: NetworkPath, _: str) -> dict[str, Metric]:
        measured.append(path)
        return SLOW

    rig = Rig(tmp_path / "s", clock=clock, controller=simulated, metrics_of=slow)
    got = rig.ask("a", "mu", "tacc", template="soykb", lease_s=60)
    assert (got.state, got.grant.layer, got.grant.granted_bps) == (
        TransitState.INSTALLED,
        "l2",
        150e6,
    )
    back = rig.ask("b", "tacc", "mu")
    assert back.grant.path == got.grant.path[::-1]
    assert rig.ask("c", "local", "iplant").state is TransitState.INSTALLED
    assert simulated.installed() == ["a", "b", "c"]
    assert not measured  # there is nothing that a measurement could have measured
    ended = rig.broker.release("a", 5000, 1.0)
    assert ended.usage.switch_bytes == 5000
    sent = {(c["a"], c["b"]): c["bytes"] for c in rig.broker.on_switches()["counters"]}
    assert sent["s1", "s2"] == 5000 and sent["s2", "s1"] == 0
    rig.broker.release("b")
    rig.let_pass(10_000)
    assert simulated.installed() == [] and rig.reserved() == {}


# -- no path ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("src", "dst", "more", "words"),
    [
        ("mu", "mu", {}, "both ends are mu"),
        (
            "mu",
            "tacc",
            {"size_bytes": 1000},
            "1 kB is below 2.25 MB, from where on a circuit pays off",
        ),
        ("mu", "tacc", {"size_bytes": 0}, "0 B is below"),
    ],
)
def test_what_needs_no_circuit_gets_none(
    rig: Rig, src: str, dst: str, more: dict[str, Any], words: str
) -> None:
    got = rig.ask("a", src, dst, **more)
    assert got.state is TransitState.BEST_EFFORT
    assert words in got.reason
    assert rig.reserved() == {} and rig.controller.applied == [[]]
    ended = rig.broker.release("a", 1000, 0.5)
    assert (ended.state, ended.usage.goodput_bps) == (TransitState.BEST_EFFORT, 16_000)
    assert ended.grant.released_at == rig.clock.now
    assert rig.recorder.transits == [ended]


def test_what_progress_tells_on_the_simulated_network_is_kept(tmp_path: Path) -> None:
    clock = Clock()
    rig = Rig(tmp_path / "s", clock=clock, controller=SimulatedController(demo_network(), clock))
    rig.ask("a", "mu", "tacc")
    for moved in (0, 10**6, 10**7):
        transit = rig.broker.report_progress("a", moved)
        assert rig.broker.get("a").as_dict() == transit.as_dict()  # as it is kept
    assert transit.state is TransitState.ACTIVE


def test_sites_that_are_not_joined_and_templates_no_path_can_meet(tmp_path: Path) -> None:
    nodes = [{"name": n, "kind": "site"} for n in ("a", "b", "c")]
    links = [{"a": "a", "b": "b", "capacity": "1 Mb/s"}]
    rig = Rig(tmp_path / "s", topology_from_dict({"nodes": nodes, "links": links}))
    apart = rig.ask("x", "a", "c")
    assert (apart.state, apart.reason) == (TransitState.BEST_EFFORT, "no path joins a and c")
    weak = rig.ask("y", "a", "b", template="soykb")
    assert weak.state is TransitState.BEST_EFFORT
    assert "900 kb/s free, 25 Mb/s needed (a>b, which carries no more)" in weak.reason


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (TransitRequest("a", "mars", "tacc"), "unknown_site"),
        (TransitRequest("a", "mu", "s1"), "unknown_site"),
        (TransitRequest("a", "mars", "mars"), "unknown_site"),
        (TransitRequest("a", "mu", "tacc", template="none"), "unknown_template"),
        (TransitRequest("a", "mu", "tacc", min_bps=181e6), "impossible_rate"),
        (TransitRequest("a", "mu", "tacc", min_bps=2e6, max_bps=1e6), "impossible_rate"),
        (TransitRequest("a", "mu", "tacc", min_bps=2e9), "impossible_rate"),
        (TransitRequest("a", "mu", "tacc", min_bps=0), "impossible_rate"),
        (TransitRequest("a", "mu", "tacc", max_bps=-1), "impossible_rate"),
        (TransitRequest("a", "mu", "tacc", min_bps=float("nan")), "impossible_rate"),
        (TransitRequest("a", "mu", "tacc", max_bps=float("inf")), "impossible_rate"),
        (TransitRequest("", "mu", "tacc"), "bad_request"),
        (TransitRequest("a b", "mu", "tacc"), "bad_request"),
        (TransitRequest("a" * 201, "mu", "tacc"), "bad_request"),
        (TransitRequest("a\n", "mu", "tacc"), "bad_request"),
        (TransitRequest("a", "mu", "tacc", workflow="\x00"), "bad_request"),
        (TransitRequest("a", "mu", "tacc", job="\ud800"), "bad_request"),
    ],
)
def test_bad_requests_have_stable_codes_and_change_nothing(
    rig: Rig, request_: TransitRequest, code: str
) -> None:
    assert code_of(rig.broker.request, request_) == code
    assert rig.broker.list() == [] and rig.reserved() == {}


def test_the_topology_shows_who_holds_what(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", template="soykb")
    links = {(d["a"], d["b"]): d for d in rig.broker.describe_topology()["links"]}
    there, back = links["s1", "s2"]["load"]
    assert (there["reserved_bps"], there["reservable_bps"], there["transits"]) == (
        25_000_000, 180_000_000, ["a"],
    )  # fmt: skip
    assert back["reserved_bps"] == 0


def test_health_counts(rig: Rig) -> None:
    fill(rig)
    rig.ask("q", "local", "tacc")
    health = rig.broker.health()
    assert (health["status"], health["live"], health["queued"]) == ("ok", 3, 1)
    assert health["controller"]["name"] == "fake"
