"""Transits in advance: held until their start, there at their start, gone at their end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from broker_rig import L2, MBPS, Rig, code_of, refusing

from network_provisioner.base.model import TransitState
from network_provisioner.selection.limits import BrokerLimits

T0 = 1_000_000.0


def states(rig: Rig) -> dict[str, str]:
    return {t.id: str(t.state) for t in rig.broker.list()}


def test_a_transit_in_advance_is_held_installed_and_ended_by_the_clock(rig: Rig) -> None:
    got = rig.ask("a", "mu", "tacc", min_bps=100e6, start=T0 + 60, end=T0 + 120)
    assert (got.state, got.grant.path, got.grant.installed_at) == (TransitState.HELD, L2, 0)
    assert (got.request.start, got.request.end, got.grant.lease_until) == (
        T0 + 60,
        T0 + 120,
        T0 + 120,
    )
    assert rig.controller.circuits == {} and rig.reserved() == {}
    rig.let_pass(59)
    assert states(rig) == {"a": "held"}
    rig.let_pass(1)
    assert states(rig) == {"a": "installed"}
    assert rig.broker.get("a").grant.installed_at == T0 + 60
    assert rig.controller.circuits["a"].min_bps == 180e6
    assert rig.reserved()["s1>s2"] == 100e6
    rig.controller.bytes["a"] = 1
    rig.let_pass(30)
    assert states(rig) == {"a": "active"}
    rig.let_pass(30)
    assert states(rig) == {"a": "expired"}
    assert rig.broker.get("a").reason.endswith("its end has passed")
    assert rig.controller.circuits == {} and rig.reserved() == {}


def test_any_call_notices_that_a_start_has_come(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", start=T0 + 60)
    rig.clock.now += 60
    rig.ask("b", "local", "iplant")
    assert states(rig) == {"a": "installed", "b": "installed"}


def test_time_is_booked_before_and_after_as_it_is_free(rig: Rig) -> None:
    rig.ask("noon", "mu", "tacc", min_bps=150e6, start=T0 + 600, end=T0 + 1200)
    before = rig.ask("before", "local", "iplant", min_bps=150e6, end=T0 + 600)
    assert (before.state, before.grant.lease_until) == (TransitState.INSTALLED, T0 + 600)
    after = rig.ask("after", "local", "iplant", min_bps=150e6, start=T0 + 1200, end=T0 + 1800)
    assert after.state is TransitState.HELD
    within = rig.ask("within", "mu", "iplant", min_bps=50e6, start=T0 + 700, lease_s=60)
    assert within.state is TransitState.QUEUED
    assert within.grant.earliest == T0 + 1800
    assert {"link": "s1>s2", "free_bps": 30_000_000, "holders": ["noon"]} in within.grant.blocking
    rig.broker.release("noon")
    assert states(rig)["within"] == "held"
    assert rig.broker.get("within").grant.lease_until == T0 + 760


def test_the_rest_is_shared_anew_at_every_start_and_end(rig: Rig) -> None:
    def granted() -> dict[str, float]:
        return {i: c.min_bps / MBPS for i, c in rig.controller.circuits.items()}

    rig.ask("a", "mu", "tacc", lease_s=1000)
    rig.ask("b", "local", "iplant", start=T0 + 10, end=T0 + 20)
    assert granted() == {"a": 180}
    rig.let_pass(10)
    assert granted() == {"a": 90, "b": 90}
    rig.let_pass(10)
    assert granted() == {"a": 180}


def test_a_lease_ends_before_the_end_unless_it_is_renewed_up_to_it(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", min_bps=100e6, end=T0 + 100, lease_s=30)
    assert rig.broker.get("a").grant.lease_until == T0 + 30
    # What it asked for is kept for it, so that it can be renewed.
    other = rig.ask("b", "local", "iplant", min_bps=100e6, start=T0 + 50, end=T0 + 60)
    assert other.state is TransitState.QUEUED
    assert rig.broker.renew("a", 50).grant.lease_until == T0 + 50
    assert rig.broker.renew("a", 500).grant.lease_until == T0 + 100
    rig.let_pass(100)
    assert states(rig)["a"] == "expired"


def test_a_lease_that_has_yet_to_begin_is_renewed_from_its_start(rig: Rig) -> None:
    ahead = rig.ask("a", "mu", "tacc", min_bps=100e6, start=T0 + 50, lease_s=30)
    assert ahead.grant.lease_until == T0 + 80
    assert rig.broker.renew("a", 40).grant.lease_until == T0 + 90


def test_a_lease_is_not_renewed_into_time_that_others_booked(rig: Rig) -> None:
    before = rig.ask("a", "mu", "tacc", min_bps=100e6, lease_s=50)
    rig.ask("b", "local", "iplant", min_bps=100e6, start=T0 + 60, end=T0 + 70)
    assert rig.broker.renew("a", 60).grant.lease_until == T0 + 60
    assert code_of(rig.broker.renew, "a", 61) == "conflict"
    assert rig.broker.get("a").grant.lease_until == before.grant.lease_until + 10


@pytest.mark.parametrize(
    "times",
    [
        {"start": T0 - 60},
        {"end": T0},
        {"end": T0 - 1},
        {"start": T0 + 60, "end": T0 + 60},
        {"start": T0 + 60, "end": T0 + 30},
        {"start": float("nan")},
        {"end": float("inf")},
        {"start": 1e300},
        {"start": T0 + 400 * 86_400},
        {"start": T0 + 10, "end": T0 + 100_000},  # longer than any lease
    ],
)
def test_times_that_cannot_be_kept(rig: Rig, times: dict[str, float]) -> None:
    assert code_of(rig.ask, "a", "mu", "tacc", **times) == "bad_time"
    assert rig.broker.list() == [] and rig.reserved() == {}


def test_the_same_request_may_come_again_when_its_time_is_past(rig: Rig) -> None:
    fields: dict[str, Any] = {"src": "mu", "dst": "tacc", "start": T0 + 5, "end": T0 + 10}
    rig.ask("a", **fields)
    rig.let_pass(100)
    assert rig.ask("a", **fields).state is TransitState.EXPIRED


def test_who_is_held_may_give_up(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", start=T0 + 60)
    assert rig.broker.release("a").state is TransitState.RELEASED
    rig.let_pass(60)
    assert rig.controller.circuits == {} and rig.reserved() == {}


def test_patience_begins_with_the_start_that_was_asked_for(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", min_bps=150e6, end=T0 + 1000)
    rig.ask("b", "local", "iplant", min_bps=100e6, start=T0 + 100, lease_s=10)
    rig.let_pass(119)
    assert states(rig)["b"] == "queued"
    rig.let_pass(1)
    assert states(rig)["b"] == "best_effort"


def test_switches_that_are_down_at_the_start_do_not_cost_the_reservation(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", min_bps=150e6, start=T0 + 60, end=T0 + 120)
    rig.controller.broken = refusing()
    rig.let_pass(60)
    assert states(rig) == {"a": "held"}
    assert rig.ask("b", "local", "iplant", min_bps=100e6).state is TransitState.QUEUED
    rig.controller.broken = None
    rig.let_pass(10)
    assert states(rig) == {"a": "installed", "b": "queued"}


def test_one_that_the_switches_never_take_does_not_hold_up_the_others(rig: Rig) -> None:
    for name, (src, dst) in {"a": ("mu", "tacc"), "b": ("local", "iplant")}.items():
        rig.ask(name, src, dst, start=T0 + 60)
    rig.controller.cursed = {"a"}
    rig.let_pass(60)
    assert states(rig) == {"a": "failed", "b": "installed"}
    assert rig.broker.health()["status"] == "ok"


def test_what_is_held_survives_a_restart(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", min_bps=150e6, start=T0 + 60, end=T0 + 120)
    new = Rig(rig.file, clock=rig.clock)
    assert new.ask("b", "local", "iplant", min_bps=100e6).state is TransitState.QUEUED
    new.let_pass(60)
    assert states(new)["a"] == "installed"


def test_waiting_raises_the_rank_so_that_nobody_starves(tmp_path: Path) -> None:
    kind = {"qspec": {"min_throughput": 100e6}, "rspec": {"max_throughput": 100e6}}
    kinds = {f"p{n}": {**kind, "priority": n, "patience": "10 h"} for n in (0, 3)}
    limits = BrokerLimits(pin_pairs=False, aging_s=100)
    rig = Rig(tmp_path / "s", templates=kinds, limits=limits)
    rig.ask("0", "mu", "tacc", template="p3")
    rig.ask("low", "mu", "tacc", template="p0")
    # Always somebody of higher priority, who asks just before the other one ends.
    for number in range(1, 20):
        rig.clock.now += 50
        rig.ask(str(number), "mu", "tacc", template="p3")
        rig.broker.release(str(number - 1))
        if rig.broker.get("low").state is TransitState.INSTALLED:
            break
    else:
        pytest.fail("it never came to its turn")
    assert 300 <= rig.clock.now - T0 <= 400  # three steps of priority
