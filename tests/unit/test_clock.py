"""A wall clock that is set while leases run."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random
from typing import cast

import pytest
from broker_rig import L2, Rig
from hypothesis import given
from hypothesis import strategies as st
from made_transit import made_transit
from request_sequences import RESERVABLE, TEMPLATES, MemoryStore, OneSequence, Sequences

from network_provisioner.base.clock import (
    GLITCH_S,
    JUMP_S,
    LASTS_S,
    SteadyClock,
    move_times,
    since_boot,
)
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import LIVE, Transit, TransitState
from network_provisioner.broker import Broker
from network_provisioner.selection.limits import BrokerLimits
from network_provisioner.stores.store import ClockError, Store

HOUR = 3600.0
T0 = 1_000_000.0


class Times:
    """A wall clock that can be set, and one that cannot."""

    def __init__(self) -> None:
        self.steady = 500.0
        self.offset = T0 - 500.0
        self.clock = SteadyClock(lambda: self.steady + self.offset, lambda: self.steady)


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def rig(tmp_path: Path, times: Times) -> Rig:
    made = Rig(tmp_path / "state.sqlite", clock=times.clock)  # type: ignore[arg-type]
    return made


def test_time_passes_as_on_the_wall_where_nobody_sets_it(times: Times) -> None:
    times.steady += 7
    assert times.clock() == T0 + 7
    assert times.clock.catch_up() == 0.0


@given(st.floats(-1e9, 1e9).filter(lambda jump: abs(jump) >= GLITCH_S), st.floats(0, 1e6))
def test_a_jump_is_followed_once_and_only_when_asked(jump_s: float, later_s: float) -> None:
    times = Times()
    times.offset += jump_s
    times.steady += later_s
    assert times.clock() == pytest.approx(T0 + later_s)
    assert times.clock.catch_up() == pytest.approx(jump_s)
    assert times.clock() == pytest.approx(T0 + later_s + jump_s)
    assert times.clock.catch_up() == 0.0


@given(st.lists(st.floats(-0.4, 0.4)))
def test_small_steps_are_followed_when_they_add_up_and_last(steps: list[float]) -> None:
    times = Times()
    for step in steps:
        times.offset += step
        times.clock.catch_up()
        times.steady += LASTS_S
        times.clock.catch_up()
        assert abs(times.clock() - (times.steady + times.offset)) < JUMP_S


@given(
    st.floats(-GLITCH_S, GLITCH_S).filter(lambda step: JUMP_S + 0.1 < abs(step) < GLITCH_S - 0.1),
    st.floats(0, LASTS_S - 1),
)
def test_a_step_of_seconds_that_is_taken_back_is_not_followed(step_s: float, for_s: float) -> None:
    times = Times()
    for _ in range(3):
        times.offset += step_s
        assert times.clock.catch_up() == 0.0
        times.steady += for_s
        assert times.clock.catch_up() == 0.0
        times.offset -= step_s
        assert times.clock.catch_up() == 0.0
        assert times.clock() == pytest.approx(times.steady + times.offset)


def test_who_takes_the_time_anew_says_so_once(times: Times) -> None:
    times.offset += 5
    times.clock.renew()
    assert times.clock() == T0 + 5
    assert times.clock.catch_up() == 5.0
    assert times.clock.catch_up() == 0.0


def test_who_does_not_follow_keeps_its_time(times: Times, caplog: pytest.LogCaptureFixture) -> None:
    own = SteadyClock(lambda: times.steady + times.offset, lambda: times.steady, follows=False)
    times.offset += HOUR
    with caplog.at_level(logging.WARNING):
        assert [own.catch_up(), own.catch_up(), own()] == [0.0, 0.0, T0]
    assert [r.getMessage() for r in caplog.records] == [
        "the wall clock was set by +3600.0 s: this process keeps its own time"
    ]


def test_being_stopped_between_two_looks_is_no_jump() -> None:
    now, naps = [0.0], [0.0, 0.0, 60.0, 0.0]

    def wall() -> float:
        now[0] += naps.pop(0) if naps else 0.0
        return now[0] + T0

    clock = SteadyClock(wall, lambda: now[0])
    wall()
    assert clock.catch_up() == 0.0
    assert clock() == T0 + now[0]


def test_the_machine_has_a_clock_that_counts_on() -> None:
    assert 0 < since_boot() <= since_boot()
    assert SteadyClock().catch_up() == 0.0


_AT = st.one_of(st.just(0.0), st.floats(T0 - 1e5, T0))


@given(st.sampled_from(sorted(LIVE)), _AT, _AT, st.floats(T0 - 1e5, T0 + 1e5), st.floats(-2e5, 2e5))
def test_a_lease_that_runs_keeps_its_length(
    state: TransitState, requested_at: float, since: float, until: float, by_s: float
) -> None:
    original = made_transit(
        "a", "mu", "tacc", state, requested_at=requested_at, start=since, installed_at=since,
        metered_at=since, lease_until=until,
    )  # fmt: skip
    transit = original.copy()
    move_times(transit, by_s, T0)
    assert transit.grant.lease_until - (T0 + by_s) == pytest.approx(until - T0)
    before, after = original.as_dict(), transit.as_dict()
    for name in ("requested_at", "start", "installed_at", "metered_at"):
        at = before[name]
        assert after[name] == pytest.approx(at + by_s if at else 0.0)


@given(st.floats(T0 + 1, T0 + 1e5), st.floats(1, 1e5), st.floats(-2e5, 2e5))
def test_a_time_in_advance_is_the_wall_clocks(start: float, length: float, by_s: float) -> None:
    ahead = made_transit(
        "a", "mu", "tacc", TransitState.HELD, requested_at=T0 - 5, start=start, end=start + length,
        lease_until=start + length,
    )  # fmt: skip
    move_times(ahead, by_s, T0)
    assert (ahead.request.start, ahead.request.end, ahead.grant.lease_until) == (
        start,
        start + length,
        start + length,
    )
    assert ahead.request.requested_at == pytest.approx(T0 - 5 + by_s)


# -- a broker whose clock is set --------------------------------------------------------------


@pytest.mark.parametrize("by_s", [HOUR, -HOUR, 1e9, -T0 + 100])
def test_transits_that_run_go_on(
    rig: Rig, times: Times, by_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    rig.ask("a", "mu", "tacc", min_bps=150e6, lease_s=100)
    rig.ask("b", "local", "iplant", min_bps=100e6)
    assert rig.broker.get("b").state is TransitState.QUEUED
    times.steady += 10
    times.offset += by_s
    rig.broker.sweep()
    assert f"the wall clock was set by {by_s:+.1f} s" in caplog.text
    transit = rig.broker.get("a")
    assert (transit.state, transit.grant.path) == (TransitState.INSTALLED, L2)
    assert transit.grant.lease_until == pytest.approx(T0 + by_s + 100)
    assert transit.grant.installed_at == pytest.approx(T0 + by_s)
    assert rig.controller.circuits["a"].lease_until == transit.grant.lease_until
    assert rig.broker.get("b").state is TransitState.QUEUED
    times.steady += 9.5  # patience is 20 s
    rig.broker.sweep()
    assert rig.broker.get("b").state is TransitState.QUEUED
    times.steady += 1
    rig.broker.sweep()
    assert rig.broker.get("b").state is TransitState.BEST_EFFORT
    times.steady += 79
    rig.broker.sweep()
    assert rig.broker.get("a").state is TransitState.INSTALLED
    times.steady += 1
    rig.broker.sweep()
    ended = rig.broker.get("a")
    assert ended.state is TransitState.EXPIRED
    assert ended.usage.byte_seconds == pytest.approx(180e6 / 8 * 100)
    assert rig.reserved() == {} and rig.controller.circuits == {}


def test_what_was_set_is_stored(rig: Rig, times: Times) -> None:
    rig.ask("a", "mu", "tacc", lease_s=100)
    times.offset += HOUR
    rig.broker.sweep()
    assert rig.store.get("a").grant.lease_until == T0 + HOUR + 100  # type: ignore[union-attr]


def test_a_request_comes_before_the_sweep(rig: Rig, times: Times) -> None:
    rig.ask("a", "mu", "tacc", min_bps=150e6, lease_s=100)
    times.offset -= HOUR
    assert rig.ask("b", "local", "iplant", min_bps=100e6).state is TransitState.QUEUED
    rig.broker.release("a")
    assert rig.broker.get("b").state is TransitState.INSTALLED
    assert rig.broker.get("b").grant.lease_until <= times.clock() + HOUR


def test_a_start_in_advance_follows_the_wall(rig: Rig, times: Times) -> None:
    rig.ask("a", "mu", "tacc", start=T0 + 600, end=T0 + 900)
    rig.ask("b", "local", "iplant", start=T0 + 1200, end=T0 + 1500)
    times.offset += 700
    rig.broker.sweep()
    assert rig.broker.get("a").state is TransitState.INSTALLED
    assert rig.broker.get("b").state is TransitState.HELD
    times.offset += 300
    rig.broker.sweep()
    ended = rig.broker.get("a")
    assert (ended.state, ended.reason[-20:]) == (TransitState.EXPIRED, "; its end has passed")
    times.offset -= 1000  # so it is not there twice
    times.steady += 1
    rig.broker.sweep()
    assert rig.broker.get("a").state is TransitState.EXPIRED
    times.offset += HOUR
    rig.broker.sweep()
    assert rig.broker.get("b").state is TransitState.EXPIRED
    assert rig.reserved() == {}


@pytest.mark.parametrize("by_s", [20, -20])
def test_one_in_advance_survives_a_glitch(rig: Rig, times: Times, by_s: float) -> None:
    rig.ask("a", "mu", "tacc", start=T0 + 10, end=T0 + 25)
    rig.ask("runs", "local", "iplant", lease_s=15)
    for after_s, state in ((0, TransitState.HELD), (11, TransitState.INSTALLED)):
        times.steady += after_s
        times.offset += by_s
        rig.broker.sweep()
        assert rig.broker.get("a").state is state
        assert rig.broker.get("runs").state is TransitState.INSTALLED
        times.offset -= by_s
        rig.broker.sweep()
        assert rig.broker.get("a").state is state
    assert rig.broker.get("runs").grant.lease_until == T0 + 15


def test_no_path_is_decided_by_a_clock_that_others_do_not_have(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "this machine's clock is 3.0 s ahead of the database's"

    def refused() -> None:
        raise ClockError(words)

    with monkeypatch.context() as wrong:
        wrong.setattr(rig.store, "check_leads", refused)
        with pytest.raises(BrokerError, match=words) as error:
            rig.ask("a", "mu", "tacc")
        assert error.value.code == "store_unavailable"
        health = rig.broker.health()
        assert (health["status"], health["problem"]) == ("degraded", words)
    assert rig.ask("a", "mu", "tacc").state is TransitState.INSTALLED
    assert rig.broker.health()["status"] == "ok"


def test_one_in_advance_that_finds_its_time_taken_waits(rig: Rig, times: Times) -> None:
    rig.ask("runs", "mu", "tacc", min_bps=150e6, lease_s=500)
    rig.ask("ahead", "local", "iplant", min_bps=150e6, start=T0 + 600, end=T0 + 900)
    times.offset += 300  # now there are 300 s until then, and "runs" has 500 s left
    rig.broker.sweep()
    assert rig.broker.get("runs").grant.lease_until == T0 + 800
    ahead = rig.broker.get("ahead")
    assert ahead.state is TransitState.QUEUED
    assert "held by runs" in ahead.reason or "free" in ahead.reason
    rig.broker.release("runs")
    assert rig.broker.get("ahead").state is TransitState.HELD


def test_switches_that_were_away_are_asked_again_in_time(rig: Rig, times: Times) -> None:
    rig.ask("a", "mu", "tacc", lease_s=1000)
    rig.controller.broken = OSError("away")
    rig.ask("b", "mu", "tacc", lease_s=1000)
    times.offset -= HOUR
    rig.broker.sweep()
    rig.controller.broken = None
    times.steady += 6
    rig.broker.sweep()
    assert rig.broker.health()["status"] == "ok"
    assert "a" in rig.controller.circuits


# -- whatever is asked while it is set ---------------------------------------------------------

SEQUENCES = 150
JUMPS_S = (3600.0, -3600.0, 90.0, -90.0, 61.0, -61.0, 400_000.0, -400_000.0)


class SetClock(OneSequence):
    """As its base, and the clock is set: that must not be an instant in any transit's life."""

    set_by_s = 0.0
    doubtful = False  # who has a database keeps its own time

    def new_broker(self) -> Broker:
        store = MemoryStore(self.rows)
        clock = SteadyClock(self.clock, lambda: self.clock.now - self.set_by_s)
        limits = BrokerLimits(reservable=RESERVABLE, aging_s=30.0)
        broker = Broker(
            self.topology, TEMPLATES, self.controller, cast(Store, store), None, None, clock, limits
        )
        self.stores.append(store)
        broker.start()
        return broker

    def step(self) -> None:
        """Something happens, or the clock is set."""
        if self.rng.random() > 0.08:
            super().step()
            return
        before = {i: t.copy() for i, t in self.broker._active.all.items()}
        now = self.clock.now
        by_s = self.rng.choice(JUMPS_S)
        if now + by_s < 0:  # there was no wall clock before 1970
            return
        self.clock.now += by_s
        self.set_by_s += by_s
        self.broker.sweep()
        after = self.broker._active.all
        for name, was in before.items():
            if was.state in LIVE and was.request.start <= now and not was.request.end:
                left_s = after[name].grant.lease_until - self.clock.now
                assert left_s == pytest.approx(was.grant.lease_until - now, abs=1e-6), (was, by_s)
                moved = (
                    after[name].grant.moves > was.grant.moves
                )  # to a better path that was given back
                assert moved or after[name].grant.path == was.grant.path
            elif was.state in LIVE and name in after and after[name].state is TransitState.QUEUED:
                del self.accepted[name]  # others have its time now: it waits like a new one

    def kept(self, transit: Transit, accepted: Transit, now: float) -> None:
        """What has ended did so at another time of another clock."""
        if transit.state is not TransitState.EXPIRED:
            super().kept(transit, accepted, now)

    def release(self, name: str) -> None:
        try:
            super().release(name)
        except BrokerError as error:
            assert error.code in ("unknown_transit", "store_unavailable"), error.code


def test_nothing_is_oversubscribed_and_no_lease_changes(caplog: pytest.LogCaptureFixture) -> None:
    world = Sequences()
    caplog.set_level(logging.ERROR)  # switches that refuse are part of it
    for seed in range(SEQUENCES):
        rng = Random(seed)
        sequence = SetClock(world, rng, 1)
        try:
            for _ in range(rng.randint(2, 25)):
                sequence.step()
                sequence.judge()
            sequence.end()
        except BaseException as error:
            error.add_note(f"sequence {seed}")
            raise
