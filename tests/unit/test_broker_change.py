"""Minimum and ceiling of a transit, changed while it runs: all or nothing, and without a gap."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_rig import Rig, code_of, refusing
from controller_worlds import two_switches

from network_provisioner.base.controller import Circuit
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import RateChange, TransitState
from network_provisioner.controllers.plan import Planner
from network_provisioner.controllers.shaping import htb
from network_provisioner.selection.limits import BrokerLimits


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "state.sqlite", limits=BrokerLimits(pin_pairs=False))


def test_the_newest_changes_are_kept(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", template="soykb")
    for number in range(1, 21):
        changes = rig.broker.change("a", number * 1e6).grant.changes
    assert [change.min_bps for change in changes] == [n * 1e6 for n in range(5, 21)]


def test_both_rates_change_at_once_in_ledger_switches_and_store(rig: Rig) -> None:
    before = rig.ask("a", "mu", "tacc", template="soykb")
    rig.clock.now += 5
    count = len(rig.controller.applied)
    transit = rig.broker.change("a", 100e6, 120e6)
    assert (transit.state, transit.grant.path) == (TransitState.INSTALLED, before.grant.path)
    assert (transit.request.min_bps, transit.request.max_bps, transit.grant.granted_bps) == (
        100e6,
        120e6,
        120e6,
    )
    assert rig.reserved()["s1>s2"] == 100e6
    circuit = rig.controller.circuits["a"]
    assert (circuit.min_bps, circuit.max_bps) == (120e6, 120e6)
    # One word to the switches, and at no time did they not carry it.
    assert rig.controller.applied[count:] == [["a"]]
    assert transit.grant.changes == [RateChange(rig.clock.now, 100e6, 120e6, 25e6, 150e6)]
    assert rig.broker.change("a", 100e6) == transit == rig.broker.get("a")  # nothing to change
    assert rig.broker.change("a", min_bps=10e6).grant.granted_bps == 120e6
    assert rig.reserved()["s1>s2"] == 10e6
    # Asked again as at first, it is still the same transit.
    assert rig.ask("a", "mu", "tacc", template="soykb").request.min_bps == 10e6


def test_what_has_no_room_changes_nothing_and_says_who_holds_it(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", template="soykb", min_bps=80e6)
    before = rig.ask("b", "local", "tacc", template="soykb", min_bps=50e6)
    with pytest.raises(BrokerError, match="s1>s2 has 100 Mb/s free, 110 Mb/s asked") as refused:
        rig.broker.change("b", min_bps=110e6)
    assert refused.value.code == "conflict"
    assert rig.broker.get("b") == before and rig.reserved()["s1>s2"] == 130e6
    assert code_of(rig.broker.change, "b", 60e6, 55e6) == "impossible_rate"
    assert code_of(rig.broker.change, "b", 151e6) == "impossible_rate"  # above the template's
    assert code_of(rig.broker.change, "who", 1e6) == "unknown_transit"
    rig.broker.release("b")
    assert code_of(rig.broker.change, "b", 60e6) == "conflict"


def test_switches_and_stores_that_refuse_leave_it_as_it_was(rig: Rig) -> None:
    before = rig.ask("a", "mu", "tacc", template="soykb")
    rig.controller.broken = refusing()
    assert code_of(rig.broker.change, "a", 100e6) == "controller_unavailable"
    assert rig.broker.get("a") == before and rig.reserved()["s1>s2"] == 25e6
    rig.controller.broken = None
    rig.let_pass(6)
    assert rig.controller.circuits["a"].min_bps == before.grant.granted_bps
    assert rig.broker.change("a", 100e6).request.min_bps == 100e6


def test_what_is_given_up_serves_who_waits_and_nobody_takes_it_from_them(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", template="soykb", min_bps=150e6, lease_s=100)
    rig.clock.now += 1
    rig.ask("b", "mu", "iplant", min_bps=30e6, max_bps=30e6, lease_s=100)
    rig.clock.now += 1
    waits = rig.ask("waits", "local", "tacc", min_bps=70e6)
    assert waits.state is TransitState.QUEUED
    assert rig.broker.change("waits", 60e6).state is TransitState.QUEUED
    assert rig.broker.change("a", 120e6).request.min_bps == 120e6
    assert rig.broker.get("waits").state is TransitState.QUEUED
    rig.clock.now += 1
    rig.broker.change("b", 1e6, 30e6)
    assert rig.broker.get("waits").state is TransitState.QUEUED  # 59 of 60
    rig.broker.change("a", 100e6)
    assert rig.broker.get("waits").state is TransitState.INSTALLED
    assert rig.reserved()["s1>s2"] == 161e6


def test_what_is_reserved_for_later_changes_in_its_own_time(rig: Rig) -> None:
    rig.ask("now", "mu", "tacc", template="soykb", min_bps=150e6, lease_s=50)
    start = rig.clock.now + 100
    rig.ask("later", "local", "tacc", template="soykb", start=start, end=start + 100)
    assert rig.broker.change("later", 140e6).state is TransitState.HELD
    rig.let_pass(100)
    assert rig.reserved()["s1>s2"] == 140e6 and rig.controller.circuits["later"].min_bps > 139e6


@pytest.mark.parametrize("keep", ["dscp-htb", "queue", "meter"])
def test_switches_keep_rules_and_numbers_and_devices_their_classes(keep: str) -> None:
    planner = Planner(two_switches(), keep)
    path = ("mu", "s1", "r1", "s2", "tacc")
    old = planner.plan([Circuit("a", path, 5e6, 15e6, 2e9)], 1e9)
    new = planner.plan([Circuit("a", path, 10e6, 12e6, 2e9)], 1e9)
    assert old.shapes != new.shapes or keep == "meter"
    assert old.rules == new.rules and old.routes == new.routes
    assert {e.key for e in old.entries} == {e.key for e in new.entries}
    for was, shape in zip(old.shapes, new.shapes, strict=True):
        lines = [*htb.grow(was, shape), *htb.shrink(was, shape)]
        assert all(line.startswith("class replace ") for line in lines), lines
