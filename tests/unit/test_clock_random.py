"""Random sequences of requests on a broker whose wall clock is set now and then."""

from __future__ import annotations

import logging
from random import Random
from typing import cast

import pytest
from request_sequences import (
    RESERVABLE,
    TEMPLATES,
    MemoryStore,
    OneSequence,
    Sequences,
)

from network_provisioner.base.clock import SteadyClock
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import LIVE, Transit
from network_provisioner.base.model import TransitState as State
from network_provisioner.broker import Broker
from network_provisioner.selection.admission import Limits
from network_provisioner.stores.store import Store

SEQUENCES = 150
JUMPS_S = (3600.0, -3600.0, 90.0, -90.0, 5.0, -5.0, 400_000.0, -400_000.0)


class SetClock(OneSequence):
    """As its base, and the clock is set: that must not be an instant in any transit's life."""

    set_by_s = 0.0
    doubtful = False  # who has a database keeps its own time

    def new_broker(self) -> Broker:
        store = MemoryStore(self.rows)
        clock = SteadyClock(self.clock, lambda: self.clock.now - self.set_by_s)
        limits = Limits(reservable=RESERVABLE, aging_s=30.0)
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
            if was.state in LIVE and was.start <= now and not was.end:
                left_s = after[name].lease_until - self.clock.now
                assert left_s == pytest.approx(was.lease_until - now, abs=1e-6), (was, by_s)
                assert after[name].path == was.path
            elif was.state in LIVE and name in after and after[name].state is State.QUEUED:
                del self.accepted[name]  # others have its time now: it waits like a new one

    def kept(self, transit: Transit, accepted: Transit, now: float) -> None:
        """What has ended did so at another time of another clock."""
        if transit.state is not State.EXPIRED:
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
        one = SetClock(world, rng, 1)
        try:
            for _ in range(rng.randint(2, 25)):
                one.step()
                one.judge()
            one.end()
        except BaseException as error:
            error.add_note(f"sequence {seed}")
            raise
