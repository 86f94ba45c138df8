"""What was reserved in advance is moved to other times, and begun by who it was reserved for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from broker_rig import BIG, L2, MBPS, Rig, code_of, demo_network, refusing

from network_provisioner.base.model import Transit, TransitRequest, TransitState
from network_provisioner.stores.store import StoreError
from network_provisioner.topology.graph import Topology

T0 = 1_000_000.0


def reserve(rig: Rig, name: str, start: float, end: float, **more: Any) -> Transit:
    given = {"src": "mu", "dst": "tacc", "min_bps": 100e6, **more}
    return rig.broker.request(TransitRequest(name, start=T0 + start, end=T0 + end, **given))


def claim(rig: Rig, name: str, **more: Any) -> Transit:
    given = {"src": "mu", "dst": "tacc", "min_bps": 100e6, **more}
    request = TransitRequest(name, **given)
    (answer,) = rig.broker.ask([request])
    if answer.error is not None:
        raise answer.error
    return rig.broker.get(name)


def free_at(rig: Rig, at: float) -> int:
    return rig.broker._ledger.residual(("s1", "s2"), T0 + at, T0 + at + 1)


def window(transit: Transit) -> tuple[float, float]:
    return transit.request.start - T0, transit.request.end - T0


# -- shift -----------------------------------------------------------------------------------------


def test_what_is_held_moves_to_other_times(rig: Rig) -> None:
    reserve(rig, "a", 60, 120)
    moved = rig.broker.shift("a", T0 + 90, T0 + 200, 77)
    assert (moved.state, window(moved), moved.grant.lease_until) == (
        TransitState.HELD,
        (90, 200),
        T0 + 200,
    )
    assert moved.request.size_bytes == 77 and rig.broker.get("a") == moved
    assert [free_at(rig, at) for at in (60, 90, 199, 200)] == [180e6, 80e6, 80e6, 180e6]
    rig.let_pass(89)
    assert rig.controller.circuits == {}
    rig.let_pass(1)
    assert rig.controller.circuits["a"].min_bps == 180e6
    rig.let_pass(110)
    assert rig.broker.get("a").state is TransitState.EXPIRED and rig.reserved() == {}


def test_it_may_overlap_its_own_old_time(rig: Rig) -> None:
    reserve(rig, "a", 60, 120)
    reserve(rig, "b", 120, 180)
    assert window(rig.broker.shift("a", T0 + 50, T0 + 119)) == (50, 119)
    assert window(rig.broker.shift("b", T0 + 119, T0 + 181)) == (119, 181)


def test_it_moves_as_a_whole_or_stays(rig: Rig) -> None:
    reserve(rig, "a", 60, 120)
    reserve(rig, "b", 120, 180, src="local", dst="iplant")
    before = rig.broker.get("a")
    assert code_of(rig.broker.shift, "a", T0 + 90, T0 + 150) == "conflict"
    assert rig.broker.get("a") == before
    assert [free_at(rig, at) for at in (60, 119, 120, 179, 180)] == [80e6] * 4 + [180e6]
    assert rig.broker.shift("a", T0 + 180, T0 + 240).grant.path == L2


def test_a_store_that_is_full_changes_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    before = reserve(rig, "a", 60, 120)

    def full(_: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(rig.store, "put_many", full)
    assert code_of(rig.broker.shift, "a", T0 + 200, T0 + 300) == "store_unavailable"
    monkeypatch.undo()
    assert rig.broker.get("a") == before
    assert [free_at(rig, at) for at in (60, 200)] == [80e6, 180e6]


def test_who_waits_gets_the_time_that_is_given_up(rig: Rig) -> None:
    reserve(rig, "a", 60, 120)
    waits = reserve(rig, "b", 60, 120, src="local", dst="iplant")
    assert waits.state is TransitState.QUEUED
    rig.broker.shift("a", T0 + 120, T0 + 180)
    assert rig.broker.get("b").state is TransitState.HELD


def test_one_that_waits_waits_for_its_new_times(rig: Rig) -> None:
    reserve(rig, "a", 60, 120)
    reserve(rig, "b", 60, 120, src="local", dst="iplant")
    still = rig.broker.shift("b", T0 + 100, T0 + 160)
    assert (still.state, window(still)) == (TransitState.QUEUED, (100, 160))
    there = rig.broker.shift("b", T0 + 120, T0 + 160)
    assert (there.state, window(there)) == (TransitState.HELD, (120, 160))


def test_one_that_is_installed_and_unused_is_put_off(rig: Rig) -> None:
    reserve(rig, "a", 10, 120)
    rig.let_pass(10)
    rig.let_pass(10)
    assert rig.controller.applied[-1] == ["a"]
    off = rig.broker.shift("a", T0 + 60, T0 + 170)
    assert (off.state, off.grant.installed_at) == (TransitState.HELD, 0)
    assert rig.controller.circuits == {} and rig.reserved() == {}
    assert off.usage.byte_seconds == 10 * 180e6 / 8
    rig.let_pass(40)
    assert rig.broker.get("a").state is TransitState.INSTALLED


def test_one_that_carries_bytes_only_ends_at_another_time(rig: Rig) -> None:
    reserve(rig, "a", 10, 120)
    rig.let_pass(20)
    rig.controller.bytes["a"] = 1
    assert code_of(rig.broker.shift, "a", T0 + 60, T0 + 170) == "conflict"
    later = rig.broker.shift("a", T0 + 10, T0 + 170)
    assert (later.state, later.grant.lease_until) == (TransitState.INSTALLED, T0 + 170)
    assert rig.controller.circuits["a"].lease_until == T0 + 170
    sooner = rig.broker.shift("a", T0 + 10, T0 + 30)
    assert sooner.grant.lease_until == T0 + 30 and free_at(rig, 30) == 180e6
    rig.let_pass(10)
    assert rig.broker.get("a").state is TransitState.EXPIRED


def test_a_door_without_a_rate_only_closes_at_another_time(tmp_path: Path) -> None:
    open_to = demo_network()
    nodes = [replace(n, dmz=n.name == "tacc") for n in open_to.nodes.values()]
    rig = Rig(tmp_path / "dmz.sqlite", Topology(nodes, open_to.links))
    door = rig.ask("a", "mu", "tacc", size_bytes=1000, end=T0 + 30)
    assert (door.state, rig.reserved()) == (TransitState.INSTALLED, {})
    assert code_of(rig.broker.shift, "a", T0 + 10, T0 + 40) == "conflict"
    assert rig.broker.shift("a", T0, T0 + 40).grant.lease_until == T0 + 40


def test_switches_that_refuse_a_longer_time_leave_it_as_it_was(rig: Rig) -> None:
    reserve(rig, "a", 10, 120)
    rig.let_pass(20)
    rig.controller.bytes["a"] = 1
    rig.controller.broken = refusing()
    assert code_of(rig.broker.shift, "a", T0 + 10, T0 + 170) == "controller_unavailable"
    assert rig.broker.get("a").grant.lease_until == T0 + 120 and free_at(rig, 121) == 180e6


@pytest.mark.parametrize(
    ("start", "end", "code"),
    [
        (-60, 60, "bad_time"),
        (60, 60, "bad_time"),
        (60, 30, "bad_time"),
        (60, float("inf"), "bad_time"),
        (float("nan"), 60, "bad_time"),
        (60, 100_000, "bad_time"),
        (1e10, 1e10 + 1, "bad_time"),
    ],
)
def test_times_that_cannot_be_kept(rig: Rig, start: float, end: float, code: str) -> None:
    before = reserve(rig, "a", 60, 120)
    assert code_of(rig.broker.shift, "a", T0 + start, T0 + end) == code
    assert rig.broker.get("a") == before


def test_what_is_over_or_unknown_does_not_move(rig: Rig) -> None:
    reserve(rig, "a", 60, 120)
    rig.broker.release("a")
    assert code_of(rig.broker.shift, "a", T0 + 60, T0 + 120) == "conflict"
    assert code_of(rig.broker.shift, "b", T0 + 60, T0 + 120) == "unknown_transit"


def test_a_start_that_has_come_is_now(rig: Rig) -> None:
    reserve(rig, "a", 60, 120)
    assert rig.broker.shift("a", T0 - 1, T0 + 60).state is TransitState.INSTALLED
    assert rig.controller.applied[-1] == ["a"]


@pytest.mark.parametrize("late_s", [-1.0, 0.0, 5.0])
def test_what_its_transfer_has_begun_meanwhile_is_not_moved(rig: Rig, late_s: float) -> None:
    """A caller that keeps reservations in step with a workflow may learn that after its request."""
    reserve(rig, "a", 600, 720)
    begun = claim(rig, "a")
    assert code_of(rig.broker.shift, "a", T0 + late_s, T0 + 20) == "conflict"
    assert rig.broker.get("a") == begun
    assert rig.controller.circuits["a"].lease_until == begun.grant.lease_until


# -- claim -----------------------------------------------------------------------------------------


def test_a_claim_begins_at_once_and_is_an_ordinary_transit_then(rig: Rig) -> None:
    reserve(rig, "a", 600, 720, size_bytes=BIG)
    rig.let_pass(100)
    begun = claim(rig, "a", size_bytes=BIG)
    assert (begun.state, begun.request.start, begun.request.end) == (TransitState.INSTALLED, 0, 0)
    assert begun.grant.lease_until == T0 + 100 + 3 * 80 + 60
    assert begun.request.requested_at == begun.grant.installed_at == T0 + 100
    assert free_at(rig, 600) == 180e6  # its own time is free again
    assert claim(rig, "a", size_bytes=BIG) == begun
    assert rig.ask("a", "mu", "tacc", min_bps=100e6) == begun


def test_one_that_has_begun_gets_as_much_time_as_is_free(rig: Rig) -> None:
    reserve(rig, "a", 10, 120, size_bytes=BIG)
    reserve(rig, "b", 200, 300, src="local", dst="iplant")
    rig.let_pass(100)
    late = claim(rig, "a", size_bytes=BIG)
    assert (late.state, late.request.end, late.grant.lease_until) == (
        TransitState.INSTALLED,
        0,
        T0 + 200,
    )
    assert rig.controller.circuits["a"].lease_until == T0 + 200


def test_one_that_begins_sooner_has_at_least_as_long_as_it_had(rig: Rig) -> None:
    reserve(rig, "b", 200, 300, src="local", dst="iplant")
    reserve(rig, "a", 400, 500, size_bytes=BIG)
    begun = claim(rig, "a", size_bytes=BIG)
    assert (begun.state, begun.grant.lease_until) == (TransitState.INSTALLED, T0 + 200)


def test_one_for_which_there_is_no_room_yet_begins_as_soon_as_there_is(rig: Rig) -> None:
    reserve(rig, "b", 10, 300, src="local", dst="iplant")
    reserve(rig, "a", 400, 500)
    rig.let_pass(5)
    sooner = claim(rig, "a", size_bytes=BIG)
    assert (sooner.state, sooner.request.start, sooner.request.end) == (
        TransitState.HELD,
        T0 + 300,
        0,
    )
    assert sooner.grant.lease_until == T0 + 300 + 3 * 80 + 60
    assert sooner.request.requested_at == T0 + 5
    assert claim(rig, "a", size_bytes=BIG) == sooner
    rig.broker.release("b")
    assert claim(rig, "a", size_bytes=BIG).state is TransitState.INSTALLED


def test_one_that_waited_is_asked_for_anew(rig: Rig) -> None:
    reserve(rig, "b", 60, 120, src="local", dst="iplant")
    assert reserve(rig, "a", 60, 120, lease_s=50).state is TransitState.QUEUED
    begun = claim(rig, "a", lease_s=50)
    assert (begun.state, begun.grant.lease_until) == (TransitState.INSTALLED, T0 + 50)
    assert rig.controller.applied[-1] == ["a"]


def test_one_that_cannot_begin_is_as_it_was_also_in_the_store(rig: Rig) -> None:
    def is_away(_: object) -> None:
        raise StoreError("state file s: database or disk is full")

    reserve(rig, "b", 60, 120, src="local", dst="iplant")
    reserve(rig, "a", 60, 120)
    waits = rig.broker._active.all["a"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rig.store, "put_many", is_away)
        waits.reason = "waits for today's reason"
        rig.broker._repository.save([waits])
        assert code_of(claim, rig, "a") == "store_unavailable"
    rig.broker._repository.retry()
    assert rig.store.get("a") == waits and waits.state is TransitState.QUEUED


def test_a_claim_never_costs_what_was_reserved(rig: Rig) -> None:
    rig.ask("b", "local", "iplant", min_bps=100e6, lease_s=60)
    reserve(rig, "a", 60, 120)
    reserve(rig, "c", 150, 200, src="local", dst="iplant")
    held = claim(rig, "a", size_bytes=BIG)
    assert (held.state, held.request.start, held.request.end) == (TransitState.HELD, T0 + 60, 0)
    assert held.grant.lease_until == T0 + 150
    rig.let_pass(60)
    assert rig.broker.renew("a", 85).grant.lease_until == T0 + 150
    assert rig.broker.get("a").state is TransitState.INSTALLED


@pytest.mark.parametrize(
    "other", [{"min_bps": 90e6}, {"dst": "iplant"}, {"workflow": "w"}, {"start": T0 + 5}]
)
def test_another_request_is_no_claim(rig: Rig, other: dict[str, Any]) -> None:
    before = reserve(rig, "a", 60, 120)
    assert code_of(claim, rig, "a", **other) == "conflict"
    assert rig.broker.get("a") == before


def test_switches_that_are_away_start_it_when_they_are_back(rig: Rig) -> None:
    reserve(rig, "a", 60, 120)
    rig.controller.broken = refusing()
    assert claim(rig, "a").state is TransitState.HELD
    rig.controller.broken = None
    rig.let_pass(30)
    rig.let_pass(30)
    assert rig.broker.get("a").state is TransitState.INSTALLED
    assert rig.reserved()["s1>s2"] == 100 * MBPS


def test_switches_that_refuse_a_longer_time_leave_it_begun_until_its_end(rig: Rig) -> None:
    reserve(rig, "a", 10, 40)
    rig.let_pass(20)
    rig.controller.broken = refusing()
    begun = claim(rig, "a")
    assert (begun.state, begun.grant.lease_until) == (TransitState.INSTALLED, T0 + 40)
    assert begun.request.end == 0  # it is its job's now: nobody moves it any more
    rig.controller.broken = None
    assert rig.broker.renew("a", 85).grant.lease_until == T0 + 105
