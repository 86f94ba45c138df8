"""The broker's promises: paths, queue, leases, idempotence, and what happens when others fail."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from broker_rig import MBPS, Clock, Rig, demo_network, refusing

from network_provisioner.admission import Limits
from network_provisioner.controllers.base import ControllerError
from network_provisioner.controllers.simulated import SimulatedController
from network_provisioner.errors import BrokerError, InputError
from network_provisioner.model import LIVE, TransitRequest, TransitState
from network_provisioner.store import StoreError
from network_provisioner.topology import Path as NetworkPath
from network_provisioner.topology import topology_from_dict

BIG = 10**9
L2 = ["mu", "s1", "s2", "tacc"]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "state.sqlite")


def code_of(call: Any, *args: Any, **named: Any) -> str:
    with pytest.raises(BrokerError) as caught:
        call(*args, **named)
    return caught.value.code


# -- a path ----------------------------------------------------------------------------------


def test_a_transfer_gets_the_better_path_and_gives_it_back(rig: Rig) -> None:
    got = rig.ask("a", "mu", "tacc", size_bytes=BIG, template="soykb", workflow="w", job="j")
    assert (got.state, got.path, got.layer) == (TransitState.INSTALLED, L2, "l2")
    # Half of the 180 Mb/s that may be reserved of 200 is guaranteed, the RSpec is the ceiling.
    assert (got.requested_bps, got.granted_bps, got.max_bps) == (25e6, 90e6, 150e6)
    assert got.installed_at == got.requested_at == rig.clock.now
    assert got.lease_until == pytest.approx(rig.clock.now + 3 * 8e9 / 90e6 + 60)
    assert "L2 mu-s1-s2-tacc has the highest score" in got.reason
    assert [c["layer"] for c in got.candidates] == ["l2", "l3"]
    circuit = rig.controller.circuits["a"]
    assert (circuit.path, circuit.min_bps, circuit.max_bps) == (tuple(L2), 90e6, 150e6)
    assert rig.reserved() == {"mu>s1": 90e6, "s1>s2": 90e6, "s2>tacc": 90e6}

    rig.controller.bytes["a"] = 1_050_000_000
    rig.clock.now += 100
    ended = rig.broker.release("a", BIG, 80.0, "success")
    assert (ended.state, ended.released_at) == (TransitState.RELEASED, rig.clock.now)
    assert (ended.bytes, ended.seconds, ended.goodput_bps) == (BIG, 80.0, 100e6)
    assert ended.switch_bytes == 1_050_000_000
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


def test_an_id_belongs_to_one_pair_of_sites(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc")
    assert code_of(rig.ask, "a", "mu", "iplant") == "bad_request"


def test_what_is_handed_out_is_a_copy(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc").path.clear()
    assert rig.broker.get("a").path == L2


def test_the_guarantees_of_many_shrink_to_the_minimum_and_never_below(rig: Rig) -> None:
    pairs = [("mu", "tacc"), ("mu", "iplant"), ("local", "tacc"), ("local", "iplant")]
    found = [rig.ask(f"{s}-{d}", s, d, template="soykb") for s, d in pairs]
    assert [t.granted_bps / MBPS for t in found] == [90, 45, 25, 0]
    assert found[3].state is TransitState.QUEUED  # 20 Mb/s are left, 25 needed
    small = rig.ask("small", "local", "iplant", max_bps=1e6)
    assert (small.granted_bps, small.layer) == (1e6, "l3")  # others wait for L2 before it


def test_a_template_may_let_one_transfer_take_everything(tmp_path: Path) -> None:
    greedy = {"qspec": {"min_throughput": 1e6}, "rspec": {"max_throughput": 1e9}, "share": 1}
    rig = Rig(tmp_path / "s", templates={"greedy": greedy})
    assert rig.ask("a", "mu", "tacc", template="greedy").granted_bps == 180e6


def test_transits_of_a_pair_share_its_path_in_both_directions(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", template="soykb", min_bps=150e6)
    full = rig.ask("b", "mu", "tacc", min_bps=10e6, max_bps=18e6)
    assert full.path == L2  # although L3 would have had room for as much
    third = rig.ask("c", "mu", "tacc", min_bps=18e6)
    assert third.state is TransitState.BEST_EFFORT
    assert "shares, without a rate of its own" in third.reason
    assert "s1>s2, held by a, b" in third.reason
    back = rig.ask("d", "tacc", "mu")
    assert back.path == L2[::-1]
    # The next pair is free to choose.
    assert rig.ask("e", "local", "iplant", min_bps=18e6).layer == "l3"


def test_a_pair_is_free_again_when_its_last_transit_has_ended(rig: Rig) -> None:
    rig.ask("x", "local", "tacc", template="soykb", min_bps=150e6)
    assert rig.ask("a", "mu", "tacc", max_bps=15e6, min_bps=15e6).layer == "l2"
    rig.broker.release("a")
    rig.ask("y", "local", "iplant", min_bps=30e6, max_bps=30e6)
    assert rig.ask("b", "mu", "tacc", min_bps=15e6).layer == "l3"


def test_pairs_may_use_several_paths_where_the_network_can_tell_flows_apart(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path / "s", limits=Limits(pin_pairs=False))
    rig.ask("a", "mu", "tacc", template="soykb", min_bps=150e6)
    rig.ask("b", "mu", "tacc", min_bps=15e6, max_bps=15e6)
    assert rig.ask("c", "mu", "tacc", min_bps=18e6).layer == "l3"


def test_measured_throughput_moves_the_choice(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s", throughput_of=lambda p: (6e6, 5.0) if p.layer == "l2" else None)
    got = rig.ask("a", "mu", "tacc")
    assert got.layer == "l3"
    scores = {c["layer"]: c["scores"]["throughput"] for c in got.candidates}
    assert (scores["l2"]["source"], scores["l2"]["age_s"]) == ("measured", 5.0)
    assert scores["l3"]["source"] == "reservations"


def test_an_archive_that_fails_costs_its_opinion_only(tmp_path: Path) -> None:
    def broken(path: object) -> None:
        raise OSError("disk gone")

    rig = Rig(tmp_path / "s", throughput_of=broken)  # type: ignore[arg-type]
    assert rig.ask("a", "mu", "tacc").state is TransitState.INSTALLED


def test_a_network_without_guarantees_trusts_measurements(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s", throughput_of=lambda _: (4e6, 0.0), bandwidth="none")
    got = rig.ask("a", "mu", "tacc")
    assert got.state is TransitState.BEST_EFFORT
    assert "4 Mb/s measured" in got.reason


def test_on_the_simulated_network(tmp_path: Path) -> None:
    clock = Clock()
    simulated = SimulatedController(demo_network(), clock)
    measured: list[NetworkPath] = []

    def slow(path: NetworkPath) -> tuple[float, float]:
        measured.append(path)
        return 1e6, 0.0

    rig = Rig(tmp_path / "s", clock=clock, controller=simulated, throughput_of=slow)
    got = rig.ask("a", "mu", "tacc", template="soykb", lease_s=60)
    assert (got.state, got.layer, got.granted_bps) == (TransitState.INSTALLED, "l2", 90e6)
    back = rig.ask("b", "tacc", "mu")
    assert back.path == got.path[::-1]
    assert rig.ask("c", "local", "iplant").state is TransitState.INSTALLED
    assert simulated.installed() == ["a", "b", "c"]
    assert not measured  # there is nothing that a measurement could have measured
    ended = rig.broker.release("a", 5000, 1.0)
    assert ended.switch_bytes == 5000
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
        ("mu", "tacc", {"size_bytes": 1000}, "1 kB is below 262 kB"),
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
    assert (ended.state, ended.goodput_bps) == (TransitState.BEST_EFFORT, 16_000)
    assert ended.released_at == rig.clock.now
    assert rig.recorder.transits == [ended]


def test_sites_that_are_not_joined_and_templates_no_path_can_meet(tmp_path: Path) -> None:
    nodes = [{"name": n, "kind": "site"} for n in ("a", "b", "c")]
    links = [{"a": "a", "b": "b", "capacity": "1 Mb/s"}]
    rig = Rig(tmp_path / "s", topology_from_dict({"nodes": nodes, "links": links}))
    apart = rig.ask("x", "a", "c")
    assert (apart.state, apart.reason) == (TransitState.BEST_EFFORT, "no path joins a and c")
    weak = rig.ask("y", "a", "b")
    assert weak.state is TransitState.BEST_EFFORT
    assert "900 kb/s free, 5 Mb/s needed (a>b, which carries no more)" in weak.reason


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
        (TransitRequest("a", "mu", "tacc", size_bytes=-1), "bad_request"),
        (TransitRequest("a", "mu", "tacc", lease_s=0), "bad_request"),
        (TransitRequest("a", "mu", "tacc", lease_s=float("nan")), "bad_request"),
        (TransitRequest("a", "mu", "tacc", workflow="\x00"), "bad_request"),
        (TransitRequest("a", "mu", "tacc", job="\ud800"), "bad_request"),
    ],
)
def test_bad_requests_have_stable_codes_and_change_nothing(
    rig: Rig, request_: TransitRequest, code: str
) -> None:
    assert code_of(rig.broker.request, request_) == code
    assert rig.broker.list() == [] and rig.reserved() == {}


def test_unknown_transits_and_impossible_reports(rig: Rig) -> None:
    assert code_of(rig.broker.get, "x") == "unknown_transit"
    assert code_of(rig.broker.release, "x") == "unknown_transit"
    assert code_of(rig.broker.renew, "x", 5) == "unknown_transit"
    rig.ask("a", "mu", "tacc")
    assert code_of(rig.broker.release, "a", -1, 1.0) == "bad_request"
    assert code_of(rig.broker.release, "a", 1, float("nan")) == "bad_request"
    assert code_of(rig.broker.renew, "a", -1) == "bad_request"


# -- the queue -------------------------------------------------------------------------------


def fill(rig: Rig) -> None:
    """Two transits that leave nothing useful on L2 nor on L3."""
    rig.ask("l2", "mu", "tacc", template="soykb", min_bps=150e6, lease_s=100)
    rig.ask("l2b", "mu", "iplant", min_bps=30e6, max_bps=30e6, lease_s=50)
    rig.ask("l3", "local", "iplant", min_bps=18e6, max_bps=18e6, lease_s=200)
    assert rig.reserved()["s1>s2"] == 180e6 and rig.reserved()["s1>r1"] == 18e6


def test_what_does_not_fit_waits_says_why_and_starts_by_itself(rig: Rig) -> None:
    fill(rig)
    got = rig.ask("q", "local", "tacc", size_bytes=BIG)
    assert (got.state, got.path, got.lease_until) == (TransitState.QUEUED, [], 0)
    assert "L2 local-s1-s2-tacc: 0 b/s free, 5 Mb/s needed (s1>s2, held by l2, l2b)" in got.reason
    assert "earliest start 1970-01-12T13:47:30Z" in got.reason  # when the lease of l2b ends
    rig.clock.now += 3
    rig.broker.release("l2b")
    started = rig.broker.get("q")
    assert (started.state, started.layer) == (TransitState.INSTALLED, "l2")
    assert started.installed_at == rig.clock.now == started.requested_at + 3
    assert started.lease_until > rig.clock.now + 60


def test_a_lease_that_ends_serves_the_queue_too(rig: Rig) -> None:
    fill(rig)
    rig.clock.now += 40
    rig.ask("q", "local", "tacc")
    rig.let_pass(10)
    assert rig.broker.get("l2b").state is TransitState.EXPIRED
    assert rig.broker.get("q").state is TransitState.INSTALLED


def test_the_highest_priority_is_served_first_then_the_oldest(tmp_path: Path) -> None:
    # All the same but for priority, and only one fits at a time.
    kind = {"qspec": {"min_throughput": 100e6}, "rspec": {"max_throughput": 100e6}}
    kinds = {f"p{n}": {**kind, "priority": n, "patience": "1 h"} for n in range(3)}
    rig = Rig(tmp_path / "s", templates=kinds, limits=Limits(pin_pairs=False))
    rig.ask("first", "mu", "tacc", template="p0")
    order = [("a", "p0"), ("b", "p1"), ("c", "p2"), ("d", "p1"), ("e", "p2")]
    for name, template in order:
        rig.clock.now += 1
        assert rig.ask(name, "mu", "tacc", template=template).state is TransitState.QUEUED
    served = ["first"]
    while rig.controller.circuits:
        (running,) = rig.controller.circuits
        rig.broker.release(running)
        served += list(rig.controller.circuits)
    assert served == ["first", "c", "e", "b", "d", "a"]


def test_those_behind_in_the_queue_do_not_take_what_it_waits_for(rig: Rig) -> None:
    rig.ask("l2", "mu", "tacc", template="soykb", min_bps=150e6)
    waits = rig.ask("big", "local", "tacc", min_bps=100e6)
    assert waits.state is TransitState.QUEUED
    small = rig.ask("small", "mu", "iplant", min_bps=20e6)  # 30 Mb/s are free on L2
    assert small.state is TransitState.QUEUED
    assert "big waits for it first" in small.reason
    other = rig.ask("other", "local", "iplant", min_bps=10e6, max_bps=15e6)
    assert other.layer == "l3"  # where big does not fit, and so does not wait
    urgent = rig.ask("urgent", "mu", "iplant", template="soykb")  # of higher priority
    assert urgent.layer == "l2"
    rig.broker.release("l2")
    assert rig.broker.get("big").state is TransitState.INSTALLED
    assert rig.broker.get("small").state is TransitState.INSTALLED


def test_patience_ends_in_best_effort(rig: Rig) -> None:
    fill(rig)
    rig.ask("q", "local", "tacc")
    rig.let_pass(19.9)
    assert rig.broker.get("q").state is TransitState.QUEUED
    rig.let_pass(0.2)
    ended = rig.broker.get("q")
    assert ended.state is TransitState.BEST_EFFORT
    assert ended.reason.startswith("waited 20 s: ")
    rig.broker.release("l2")
    assert rig.broker.get("q").state is TransitState.BEST_EFFORT


def test_who_waits_may_give_up_and_report_later(rig: Rig) -> None:
    fill(rig)
    rig.ask("q", "local", "tacc")
    left = rig.broker.release("q", outcome="gave_up")
    assert (left.state, left.installed_at) == (TransitState.RELEASED, 0)
    assert left.reason.endswith("the transfer ended with 'gave_up'")
    assert rig.recorder.transits == []
    told = rig.broker.release("q", 1000, 8.0)
    assert (told.goodput_bps, told.released_at) == (1000, left.released_at)
    assert rig.recorder.transits == [told]


def test_who_has_no_patience_goes_best_effort_at_once(tmp_path: Path) -> None:
    hasty = {
        "qspec": {"min_throughput": 100e6},
        "rspec": {"max_throughput": 1e9},
        "patience": 0,
    }
    rig = Rig(tmp_path / "s", templates={"hasty": hasty})
    rig.ask("a", "mu", "tacc", template="hasty")
    assert rig.ask("b", "local", "tacc", template="hasty").state is TransitState.BEST_EFFORT


# -- leases ----------------------------------------------------------------------------------


def test_a_lease_ends_by_itself_and_a_late_report_still_counts(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", lease_s=30)
    rig.controller.bytes["a"] = 77
    rig.let_pass(29)
    assert rig.broker.get("a").state is TransitState.INSTALLED
    rig.let_pass(1)
    gone = rig.broker.get("a")
    assert (gone.state, gone.released_at) == (TransitState.EXPIRED, rig.clock.now)
    assert gone.switch_bytes == 77
    assert rig.reserved() == {} and rig.controller.circuits == {}
    late = rig.broker.release("a", 1000, 8.0)
    assert (late.state, late.goodput_bps) == (TransitState.EXPIRED, 1000)
    assert late.released_at == gone.released_at
    assert rig.broker.release("a", 2000, 8.0).bytes == 1000
    assert rig.recorder.transits == [late]


def test_leases_are_bounded_and_renewals_only_lengthen(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s", limits=Limits(max_lease_s=100, unsized_lease_s=50))
    start = rig.clock.now
    assert rig.ask("a", "mu", "tacc").lease_until == start + 50
    assert rig.ask("b", "mu", "tacc", lease_s=1e9).lease_until == start + 100
    assert rig.ask("c", "mu", "tacc", size_bytes=10**12).lease_until == start + 100
    rig.clock.now += 40
    assert rig.broker.renew("a", 5).lease_until == start + 50
    assert rig.broker.renew("a", 70).lease_until == start + 110
    assert rig.controller.circuits["a"].lease_until == start + 110
    rig.let_pass(60)
    states = {t.id: str(t.state) for t in rig.broker.list()}
    assert states == {"a": "installed", "b": "expired", "c": "expired"}
    rig.let_pass(10)
    assert rig.broker.renew("a", 60).state is TransitState.EXPIRED
    assert rig.reserved() == {}


def test_a_renewal_that_the_switches_do_not_take_changes_nothing(rig: Rig) -> None:
    before = rig.ask("a", "mu", "tacc", lease_s=50)
    rig.controller.broken = refusing()
    assert code_of(rig.broker.renew, "a", 500) == "controller_unavailable"
    assert rig.broker.get("a") == before
    rig.controller.broken = None
    rig.let_pass(50)
    assert rig.broker.get("a").state is TransitState.EXPIRED


def test_a_clock_that_is_set_back_frees_nothing_twice(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", template="soykb", min_bps=150e6, lease_s=100)
    rig.clock.now -= 5000
    assert rig.ask("b", "mu", "iplant", min_bps=100e6).state is TransitState.QUEUED


# -- others fail -----------------------------------------------------------------------------


@pytest.mark.parametrize("error", [refusing(), InputError("two paths"), KeyError("a bug")])
def test_switches_that_refuse_fail_the_transit_and_free_everything(
    rig: Rig, error: Exception
) -> None:
    keeps = rig.ask("keeps", "mu", "iplant")
    rig.controller.broken = error
    got = rig.ask("a", "mu", "tacc")
    assert (got.state, got.path, got.granted_bps) == (TransitState.FAILED, [], 0)
    assert got.reason.startswith("the switches refused: ")
    assert rig.reserved()["s1>s2"] == keeps.granted_bps
    assert rig.broker.health()["status"] == "degraded"
    assert rig.broker.release("a", 10, 1.0).state is TransitState.FAILED


def test_a_release_that_the_switches_miss_is_made_good_later(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc")
    rig.controller.broken = refusing()
    ended = rig.broker.release("a", 10, 1.0)
    assert (ended.state, ended.switch_bytes) == (TransitState.RELEASED, 0)
    assert rig.reserved() == {} and list(rig.controller.circuits) == ["a"]
    rig.controller.broken = None
    rig.let_pass(10)
    assert rig.controller.circuits == {}
    assert rig.broker.health()["status"] == "ok"


def test_a_recorder_that_fails_fails_nothing(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc")
    rig.recorder.broken = OSError("disk full")
    assert rig.broker.release("a", 10, 1.0).state is TransitState.RELEASED


def test_a_store_that_is_full_refuses_new_paths_and_forgets_no_release(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.ask("a", "mu", "tacc")

    def full(transit: object) -> None:
        raise StoreError("state file s: database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "put", full)
        assert code_of(rig.ask, "b", "mu", "iplant") == "store_unavailable"
        assert rig.broker.release("a", 10, 1.0).state is TransitState.RELEASED
        assert rig.broker.get("a").state is TransitState.RELEASED
        assert rig.broker.health()["status"] == "degraded"
    assert rig.reserved() == {} and rig.controller.circuits == {}
    rig.broker.sweep()
    assert rig.store.get("a") == rig.broker.get("a")
    assert rig.broker.health()["status"] == "ok"


# -- restart ---------------------------------------------------------------------------------


def again(rig: Rig, **changes: Any) -> Rig:
    """Another broker on the same state, as after kill -9 of the first."""
    return Rig(rig.file, clock=rig.clock, **changes)


def test_a_restart_brings_store_ledger_and_switches_together(rig: Rig) -> None:
    rig.ask("lives", "mu", "tacc", lease_s=100)
    rig.ask("dies", "mu", "iplant", lease_s=10)
    rig.ask("done", "local", "iplant")
    rig.broker.release("done")
    rig.clock.now += 50
    new = again(rig)
    assert list(new.controller.circuits) == ["lives"]
    assert new.reserved() == {"s1>s2": 90e6, "s2>tacc": 90e6, "mu>s1": 90e6}
    states = {t.id: str(t.state) for t in new.broker.list()}
    assert states == {"lives": "installed", "dies": "expired", "done": "released"}
    assert new.broker.get("lives").installed_at == rig.clock.now - 50
    new.let_pass(50)
    assert new.broker.get("lives").state is TransitState.EXPIRED
    assert new.reserved() == {}


def test_who_waited_goes_on_waiting_after_a_restart(rig: Rig) -> None:
    fill(rig)
    rig.ask("q", "local", "tacc", lease_s=33)
    rig.clock.now += 5
    new = again(rig)
    assert new.broker.get("q").state is TransitState.QUEUED
    new.broker.release("l2b")
    started = new.broker.get("q")
    assert (started.state, started.lease_until) == (TransitState.INSTALLED, rig.clock.now + 33)


def test_what_no_longer_fits_the_configuration_fails(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", template="soykb", min_bps=150e6)
    new = again(rig, topology=demo_network(l2="100 Mb/s"))
    gone = new.broker.get("a")
    assert gone.state is TransitState.FAILED
    assert "after a restart: s1>s2 has 90 Mb/s free, 150 Mb/s asked" in gone.reason
    assert new.controller.circuits == {} and new.reserved() == {}


def test_who_waited_for_a_template_that_is_gone(tmp_path: Path) -> None:
    big = {"qspec": {"min_throughput": 100e6}, "rspec": {"max_throughput": 1e9}}
    rig = Rig(tmp_path / "s", templates={"big": big})
    rig.ask("a", "mu", "tacc", template="big")
    rig.ask("b", "local", "tacc", template="big")
    new = again(rig)
    assert new.broker.get("b").reason == "template 'big' is gone"


def test_switches_that_are_not_there_stop_the_start(rig: Rig, tmp_path: Path) -> None:
    rig.controller.broken = refusing("switch 1 is not connected")
    with pytest.raises(ControllerError, match="switch 1 is not connected"):
        rig.broker.start()


def test_stop_takes_the_rules_off_and_keeps_the_transits(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc")
    rig.broker.stop()
    assert rig.controller.circuits == {}
    assert again(rig).broker.get("a").state is TransitState.INSTALLED


# -- many at once ----------------------------------------------------------------------------


def test_sixteen_clients_at_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s", limits=Limits(pin_pairs=False))
    pairs = [("mu", "tacc"), ("mu", "iplant"), ("local", "tacc"), ("local", "iplant")]
    together = threading.Barrier(16)

    def client(number: int) -> list[str]:
        together.wait()
        states = []
        for turn in range(8):
            src, dst = pairs[(number + turn) % 4]
            name = f"{number}.{turn}"
            states.append(str(rig.ask(name, src, dst, template="soykb").state))
            # Two clients ask for the same id, and both get the same transit.
            assert rig.ask(f"shared.{turn}", "mu", "tacc").id == f"shared.{turn}"
            rig.broker.release(name, 10**6, 1.0)
            rig.broker.release(f"shared.{turn}", 10**6, 1.0)
        return states

    with ThreadPoolExecutor(16) as pool:
        states = [s for found in pool.map(client, range(16)) for s in found]
    assert set(states) <= {"installed", "queued"}
    assert "installed" in states
    # The controller checked every set of circuits on the way.
    found = rig.broker.list()
    assert len(found) == 16 * 8 + 8
    assert not [t for t in found if t.state in LIVE or t.state is TransitState.QUEUED]
    assert rig.reserved() == {} and rig.controller.circuits == {}
    assert len({t.id for t in rig.recorder.transits}) == len(rig.recorder.transits) == len(found)


def test_the_topology_shows_who_holds_what(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", template="soykb")
    links = {(d["a"], d["b"]): d for d in rig.broker.describe_topology()["links"]}
    there, back = links["s1", "s2"]["load"]
    assert (there["reserved_bps"], there["reservable_bps"], there["transits"]) == (
        90_000_000, 180_000_000, ["a"],
    )  # fmt: skip
    assert back["reserved_bps"] == 0


def test_health_counts(rig: Rig) -> None:
    fill(rig)
    rig.ask("q", "local", "tacc")
    found = rig.broker.health()
    assert (found["status"], found["live"], found["queued"]) == ("ok", 3, 1)
    assert found["controller"]["name"] == "fake"


def test_a_request_survives_its_dictionary(rig: Rig) -> None:
    got = rig.ask("a", "mu", "tacc", lease_s=5)
    assert type(got).from_dict(got.as_dict()) == got
    assert asdict(got)["lease_s"] == 5
