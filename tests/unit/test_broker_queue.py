"""Who waits for a path, in what order, and leases that end by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from broker_rig import BIG, Rig, code_of, fill, refusing
from made_transit import made_transit

from network_provisioner.base.model import Transit, TransitState
from network_provisioner.selection.limits import BrokerLimits
from network_provisioner.selection.path_selector import PathSelector
from network_provisioner.state.active_transits import ActiveTransits
from network_provisioner.state.waitlist import Waitlist
from tests.storm import Storm

# -- the queue -------------------------------------------------------------------------------


def test_what_does_not_fit_waits_says_why_and_starts_by_itself(rig: Rig) -> None:
    fill(rig)
    got = rig.ask("q", "local", "tacc", size_bytes=BIG)
    assert (got.state, got.grant.path, got.grant.lease_until) == (TransitState.QUEUED, [], 0)
    assert "L2 local-s1-s2-tacc: 0 b/s free, 5 Mb/s needed (s1>s2, held by l2, l2b)" in got.reason
    assert "earliest start 1970-01-12T13:47:30Z" in got.reason  # when the lease of l2b ends
    rig.clock.now += 3
    rig.broker.release("l2b")
    started = rig.broker.get("q")
    assert (started.state, started.grant.layer) == (TransitState.INSTALLED, "l2")
    assert started.grant.installed_at == rig.clock.now == started.request.requested_at + 3
    assert started.grant.lease_until > rig.clock.now + 60


def test_users_take_turns() -> None:
    waits = Waitlist(60.0)

    def enter(name: str, user: str, at: float = 0.0, priority: int = 0) -> Transit:
        transit = made_transit(
            name, "mu", "tacc", TransitState.QUEUED, user=user, requested_at=at, priority=priority
        )
        waits.enter(transit)
        return transit

    def order(now: float) -> list[str]:
        return [transit.id for transit in waits.in_order(now)]

    everything = [enter(f"ada{n}", "ada") for n in range(4)]
    bob = enter("bob0", "bob", 1.0)
    assert order(2.0) == ["ada0", "bob0", "ada1", "ada2", "ada3"]
    waits.leave(everything[0])
    waits.leave(bob)
    enter("bob1", "bob", 3.0)
    enter("eve", "eve", 4.0, priority=1)
    assert order(5.0) == ["eve", "ada1", "bob1", "ada2", "ada3"]
    assert order(60.5) == ["ada1", "eve", "ada2", "ada3", "bob1"], "waiting counts as priority"


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
    rig = Rig(tmp_path / "s", templates=kinds, limits=BrokerLimits(pin_pairs=False))
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


def test_who_waits_long_is_served_before_those_of_higher_priority() -> None:
    """One step of priority for each minute, which begins with the start that was asked for."""
    waitlist = Waitlist(60.0)
    for name, asked_at, start, priority in (
        ("high", 1000, 0, 2), ("low", 900, 0, 1), ("old", 700, 0, 0), ("ahead", 0, 970, 1),
    ):  # fmt: skip
        times = {"requested_at": asked_at, "start": start, "priority": priority}
        waitlist.enter(made_transit(name, "mu", "tacc", TransitState.QUEUED, **times))

    def order(now: float) -> list[str]:
        return [transit.id for transit in waitlist.in_order(now)]

    assert order(700) == ["high", "low", "ahead", "old"]
    assert order(1000) == ["old", "high", "low", "ahead"]  # 5, 2, 2, 1
    assert order(1020) == ["old", "low", "high", "ahead"]  # 5, 3, 2, 1


def test_who_waits_long_makes_others_move(tmp_path: Path) -> None:
    """Only on the wide path there is room for it, where one of the same priority could leave."""
    patient = {"qspec": {"min_throughput": "10 Mb/s"}, "patience": "1 h"}
    limits = BrokerLimits(pin_pairs=False)
    rig = Rig(tmp_path / "s", templates={"default": patient}, limits=limits)
    rig.ask("a", "mu", "tacc", min_bps=15e6, max_bps=15e6, lease_s=3000)
    rig.ask("b", "mu", "local", min_bps=10e6, lease_s=3000)
    assert rig.ask("c", "mu", "tacc", min_bps=170e6).state is TransitState.QUEUED
    rig.let_pass(50)
    assert rig.broker.get("c").state is TransitState.QUEUED
    rig.let_pass(20)
    assert rig.broker.get("c").state is TransitState.INSTALLED
    assert (rig.broker.get("a").grant.moves, rig.broker.get("b").grant.moves) == (1, 0)


def test_those_behind_in_the_queue_do_not_take_what_it_waits_for(rig: Rig) -> None:
    rig.ask("l2", "mu", "tacc", template="soykb", min_bps=150e6)
    waits = rig.ask("big", "local", "tacc", min_bps=165e6)
    assert waits.state is TransitState.QUEUED
    small = rig.ask("small", "mu", "iplant", min_bps=20e6, lease_s=1000)  # 30 are free on L2
    assert small.state is TransitState.QUEUED
    assert "big waits for it first" in small.reason
    other = rig.ask("other", "local", "iplant", min_bps=16e6, max_bps=16e6, lease_s=1000)
    assert other.grant.layer == "l3"  # where big does not fit, and so does not wait
    urgent = rig.ask("urgent", "mu", "iplant", template="soykb")  # of higher priority
    assert urgent.grant.layer == "l2"
    rig.broker.release("l2")
    rig.broker.release("urgent")
    assert rig.broker.get("big").state is TransitState.INSTALLED
    assert rig.broker.get("small").state is TransitState.QUEUED
    beside = rig.ask("beside", "mu", "iplant", min_bps=15e6, lease_s=1000)
    assert beside.grant.layer == "l2"  # as there will be room for small


HOUR = {
    "qspec": {"min_throughput": 25e6},
    "rspec": {"max_throughput": 1e9},
    "patience": "1 h",
}


@pytest.fixture
def early(tmp_path: Path) -> Rig:
    """20 of 180 Mb/s are held for 100 s, and one that needs 165 Mb/s waits for them."""
    limits = BrokerLimits(pin_pairs=False)
    rig = Rig(tmp_path / "s", templates={"t": HOUR}, limits=limits)
    rig.ask("held", "mu", "tacc", template="t", min_bps=20e6, lease_s=100)
    waits = rig.ask("waits", "local", "tacc", template="t", min_bps=165e6, lease_s=3600)
    assert waits.state is TransitState.QUEUED and waits.grant.earliest == rig.clock.now + 100
    rig.clock.now += 1
    return rig


def test_what_ends_before_who_waits_can_start_begins_now(early: Rig) -> None:
    start = early.clock.now
    for name in ("a", "b", "c"):
        got = early.ask(name, "mu", "iplant", template="t", lease_s=30)
        assert (got.state, got.grant.lease_until) == (TransitState.INSTALLED, start + 30)
    long = early.ask("long", "mu", "iplant", template="t", lease_s=100)
    assert long.state is TransitState.QUEUED and "waits waits for it first" in long.reason
    early.let_pass(99)
    waits = early.broker.get("waits")
    assert (waits.state, waits.grant.installed_at) == (TransitState.INSTALLED, start + 99)


def test_what_overruns_keeps_its_path_until_who_waits_can_start(early: Rig) -> None:
    start = early.clock.now
    size = round(25e6 / 8 * 20)  # 20 s and what is added to them; its lease would be 120 s
    got = early.ask("a", "mu", "iplant", template="t", size_bytes=size)
    assert (
        got.grant.expected_end == pytest.approx(start + 23) and got.grant.lease_until == start + 99
    )
    assert code_of(early.broker.renew, "a", 200) == "conflict"
    early.let_pass(60)  # nobody could use its room
    assert early.broker.get("a").state is TransitState.INSTALLED
    early.broker.release("held")
    waits, over = early.broker.get("waits"), early.broker.get("a")
    assert (waits.state, waits.grant.installed_at) == (TransitState.INSTALLED, start + 60)
    assert (over.state, over.grant.path, over.grant.released_at) == (
        TransitState.BEST_EFFORT,
        [],
        start + 60,
    )
    assert "started ahead of waits, and did not end by 1970-01-12T13:47:04Z" in over.reason
    assert early.broker.release("a", size, 70.0, "success").usage.goodput_bps > 0


@pytest.mark.parametrize("gone", [False, True])
def test_what_began_before_another_goes_on_only_where_that_one_has_gone(
    early: Rig, gone: bool
) -> None:
    start, size = early.clock.now, round(25e6 / 8 * 20)
    early.ask("a", "mu", "iplant", template="t", size_bytes=size)
    if gone:
        early.broker.release("waits")
    early.let_pass(99)
    transit = early.broker.get("a")
    if gone:
        assert (transit.state, transit.grant.lease_until) == (TransitState.INSTALLED, start + 120)
        early.let_pass(21)
        assert early.broker.get("a").state is TransitState.EXPIRED  # as any whose lease is over
    else:
        assert transit.state is TransitState.BEST_EFFORT
        assert early.broker.get("waits").grant.installed_at == start + 99


def test_the_first_that_waits_is_reckoned_with_when_it_is_likely_to_start(tmp_path: Path) -> None:
    limits = BrokerLimits(pin_pairs=False)
    rig = Rig(tmp_path / "s", templates={"t": HOUR}, limits=limits)
    size = round(25e6 / 8 * 20)  # done in 23 s, though it may stay for 120
    rig.ask("held", "mu", "tacc", template="t", size_bytes=size)
    rig.clock.now += 1
    waits = rig.ask("waits", "local", "tacc", template="t", min_bps=165e6, lease_s=3600)
    assert waits.grant.earliest == rig.clock.now + 119
    rig.clock.now += 1
    long = rig.ask("long", "mu", "iplant", template="t", lease_s=30)
    assert long.state is TransitState.QUEUED and "waits waits for it first" in long.reason
    brief = rig.ask("brief", "mu", "iplant", template="t", lease_s=21)
    assert brief.state is TransitState.INSTALLED
    rig.let_pass(21)
    rig.broker.release("held")
    assert rig.broker.get("waits").state is TransitState.INSTALLED


def test_who_is_expected_to_be_done_is_not_ended_for_who_could_start_by_now(early: Rig) -> None:
    early.ask("a", "mu", "iplant", template="t", lease_s=30)
    early.let_pass(10)
    early.broker.release("held")
    assert early.broker.get("waits").state is TransitState.QUEUED
    early.let_pass(20)
    assert early.broker.get("waits").state is TransitState.INSTALLED


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
    ended = rig.broker.release("q", outcome="gave_up")
    assert (ended.state, ended.grant.installed_at) == (TransitState.RELEASED, 0)
    assert ended.reason.endswith("the transfer ended with 'gave_up'")
    assert rig.recorder.transits == []
    later = rig.broker.release("q", 1000, 8.0)
    assert (later.usage.goodput_bps, later.grant.released_at) == (1000, ended.grant.released_at)
    assert rig.recorder.transits == [later]


def test_who_has_no_patience_goes_best_effort_at_once(tmp_path: Path) -> None:
    hasty = {
        "qspec": {"min_throughput": 100e6},
        "rspec": {"max_throughput": 1e9},
        "patience": 0,
    }
    rig = Rig(tmp_path / "s", templates={"hasty": hasty})
    rig.ask("a", "mu", "tacc", template="hasty")
    assert rig.ask("b", "local", "tacc", template="hasty").state is TransitState.BEST_EFFORT


def test_where_many_wait_few_are_decided_about_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path / "s", limits=BrokerLimits(pin_pairs=False))
    pairs = [("mu", "tacc"), ("mu", "iplant"), ("local", "tacc"), ("local", "iplant")]
    for number, (src, dst) in enumerate(pairs):
        rig.ask(f"holds{number}", src, dst, min_bps=45e6)
    for number in range(100):
        rig.ask(str(number), *pairs[number % 4], min_bps=40e6)
    assert rig.broker.health()["queued"] == 100
    decided: list[str] = []
    find = PathSelector.find

    def counted(self: PathSelector, transit: Transit, *args: Any, **more: Any) -> object:
        decided.append(transit.id)
        return find(self, transit, *args, **more)

    monkeypatch.setattr(PathSelector, "find", counted)
    rig.let_pass(1)
    assert decided == []
    rig.broker.release("holds0")
    assert rig.broker.get("0").state is TransitState.INSTALLED
    assert len(decided) < 5


# -- leases ----------------------------------------------------------------------------------


def test_a_lease_ends_by_itself_and_a_late_report_still_counts(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", lease_s=30)
    rig.controller.bytes["a"] = 77
    rig.let_pass(29)
    seen = rig.broker.get("a")
    assert (seen.state, seen.grant.active_at) == (TransitState.ACTIVE, rig.clock.now)
    rig.let_pass(1)
    gone = rig.broker.get("a")
    assert (gone.state, gone.grant.released_at) == (TransitState.EXPIRED, rig.clock.now)
    assert gone.usage.switch_bytes == 77
    assert rig.reserved() == {} and rig.controller.circuits == {}
    late = rig.broker.release("a", 1000, 8.0)
    assert (late.state, late.usage.goodput_bps) == (TransitState.EXPIRED, 1000)
    assert late.grant.released_at == gone.grant.released_at
    assert rig.broker.release("a", 2000, 8.0).usage.bytes == 1000
    assert rig.recorder.transits == [late]


def test_leases_are_bounded_and_renewals_only_lengthen(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s", limits=BrokerLimits(max_lease_s=100, unsized_lease_s=50))
    start = rig.clock.now
    assert rig.ask("a", "mu", "tacc").grant.lease_until == start + 50
    assert rig.ask("b", "mu", "tacc", lease_s=1e9).grant.lease_until == start + 100
    assert rig.ask("c", "mu", "tacc", size_bytes=10**12).grant.lease_until == start + 100
    rig.clock.now += 40
    assert rig.broker.renew("a", 5).grant.lease_until == start + 50
    assert rig.broker.renew("a", 70).grant.lease_until == start + 110
    assert rig.controller.circuits["a"].lease_until == start + 110
    rig.let_pass(60)
    states = {t.id: str(t.state) for t in rig.broker.list()}
    assert states == {"a": "installed", "b": "expired", "c": "expired"}
    rig.let_pass(10)
    assert rig.broker.renew("a", 60).state is TransitState.EXPIRED
    assert rig.reserved() == {}
    rig.ask("d", "mu", "tacc")
    assert rig.broker.renew("d", 1e9).grant.lease_until == rig.clock.now + 100


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


# -- many at once ----------------------------------------------------------------------------


def test_a_storm_fills_the_link_and_delays_nobody(tmp_path: Path) -> None:
    storm = Storm(tmp_path / "s", 40, warm_s=10.0, measured_s=30.0, most_bytes=10**9).run()
    assert storm.reserved > 0.9
    assert storm.waits and storm.late == []


def test_who_is_placed_anew_began_before_nobody() -> None:
    active = ActiveTransits()
    transit = made_transit("a", "mu", "tacc", TransitState.HELD, lease_until=99.0, expected_end=5.0)
    active.enter(transit)
    assert active.overrun(10.0) == [transit]
    transit.grant.expected_end = 0.0
    active.enter(transit)
    assert active.overrun(10.0) == []
