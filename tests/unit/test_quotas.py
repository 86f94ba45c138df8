"""Quotas of users and projects: counted, told in one line, and kept while rates change."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_rig import Rig, code_of

from network_provisioner.base.model import TransitRequest, TransitState
from network_provisioner.selection.limits import BrokerLimits, Quota

QUOTAS = {
    "user": {"ada": Quota(live=2, advance=1), "*": Quota(live=100, rate_bps=60e6)},
    "project": {"soykb": Quota(rate_bps=70e6)},
}


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    limits = BrokerLimits(pin_pairs=False, quotas=QUOTAS)
    return Rig(tmp_path / "state.sqlite", limits=limits)


def test_so_many_live_and_so_many_in_advance(rig: Rig) -> None:
    for name in "ab":
        assert rig.ask(name, "mu", "tacc", user="ada").state is TransitState.INSTALLED
    third = rig.ask("c", "mu", "tacc", user="ada")
    assert (third.state, third.reason) == (
        TransitState.BEST_EFFORT,
        "the quota of user 'ada' is reached: found 2 transits that hold a path or wait for one, "
        "expected at most 2",
    )
    later = {"start": rig.clock.now + 100, "end": rig.clock.now + 200}
    assert rig.ask("x", "mu", "tacc", user="ada", **later).state is TransitState.HELD
    second = rig.ask("y", "mu", "tacc", user="ada", **later)
    assert "found 1 transits in advance, expected at most 1" in second.reason
    rig.broker.release("a")
    assert rig.ask("d", "mu", "tacc", user="ada").state is TransitState.INSTALLED
    assert rig.ask("e", "mu", "tacc", user="bob").state is TransitState.INSTALLED


def test_so_many_bits_per_second_at_any_time(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", user="bob", min_bps=40e6, lease_s=50)
    over = rig.ask("b", "mu", "tacc", user="bob", min_bps=21e6)
    assert over.state is TransitState.BEST_EFFORT
    assert over.reason.endswith(
        "'bob' is reached: found 40 Mb/s promised and 21 Mb/s asked for, expected at most 60 Mb/s"
    )
    assert rig.ask("c", "mu", "tacc", user="bob", min_bps=20e6).request.min_bps == 20e6
    assert code_of(rig.broker.change, "c", 21e6) == "conflict"
    assert rig.broker.change("c", 19e6).request.min_bps == 19e6
    later = rig.ask("d", "mu", "tacc", user="bob", min_bps=21e6, start=rig.clock.now + 50)
    assert later.state is TransitState.HELD  # the first has ended by then


def test_projects_have_quotas_of_their_own(rig: Rig) -> None:
    for user in ("bob", "eve"):
        got = rig.ask(user, "mu", "tacc", user=user, project="soykb", min_bps=35e6)
        assert got.state is TransitState.INSTALLED
    assert "project 'soykb'" in rig.ask("c", "mu", "tacc", user="kim", project="soykb").reason
    assert rig.ask("d", "mu", "tacc", user="kim").state is TransitState.INSTALLED


def test_what_comes_after_another_is_not_promised_with_it(rig: Rig) -> None:
    now = rig.clock.now
    for name, start in (("a", now + 10), ("b", now + 60)):
        booking = {"start": start, "end": start + 50, "min_bps": 40e6}
        assert rig.ask(name, "mu", "tacc", user="bob", **booking).state is TransitState.HELD
    both = {"start": now + 10, "end": now + 110, "min_bps": 20e6}
    assert rig.ask("c", "mu", "tacc", user="bob", **both).state is TransitState.HELD


def test_moving_a_reservation_is_no_way_around_a_quota(rig: Rig) -> None:
    now = rig.clock.now
    for name, start in (("a", now + 10), ("b", now + 60)):
        rig.ask(name, "mu", "tacc", user="bob", start=start, end=start + 50, min_bps=40e6)
    assert code_of(rig.broker.shift, "b", now + 10, now + 60) == "conflict"
    rig.let_pass(20)
    rig.broker.ask([TransitRequest("b", "mu", "tacc", user="bob", min_bps=40e6)])  # at its start
    assert rig.broker.get("b").state is TransitState.HELD
