"""What is believed of a switch goes by its stamp, and costs no more than a look at that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, cast

import pytest
from controller_rig import FakeRig
from hypothesis import given
from hypothesis import strategies as st

from network_provisioner.base.flows import Flow
from network_provisioner.controllers.backend import SwitchBackend
from network_provisioner.controllers.rules import (
    OWNER_SHIFT,
    STAMP_OWNER,
    TRANSIT_OWNER,
    Changes,
    FlowRule,
    is_stamp,
    make_cookie,
)
from network_provisioner.controllers.switch_state import SwitchState


class Sent:
    """A backend that keeps the stamps that were sent to it."""

    def __init__(self) -> None:
        self.stamps: list[int] = []

    def send(self, batches: Mapping[int, Changes], now: float) -> None:
        for batch in batches.values():
            self.stamps += [rule.cookie for rule in batch.add if is_stamp(rule)]


def change(number: int) -> Changes:
    cookie = make_cookie(TRANSIT_OWNER, str(number))
    return Changes(add=(FlowRule(1, 200, "10.0.0.1", "10.0.0.2", 1, cookie),))


@given(st.integers(0, 2**30 - 1), st.integers(2, 60))
def test_changes_within_one_epoch_have_stamps_of_their_own(epoch: int, times: int) -> None:
    backend = Sent()
    beliefs = SwitchState(cast(SwitchBackend, cast(Any, backend)), lambda: 0.0)
    for number in range(times):
        beliefs.change(change(number), epoch)
    assert len(set(backend.stamps)) == times
    assert {stamp >> OWNER_SHIFT for stamp in backend.stamps} == {STAMP_OWNER}


@given(st.integers(0, 2**30 - 2))
def test_a_later_epoch_has_a_later_stamp(epoch: int) -> None:
    backend = Sent()
    first = SwitchState(cast(SwitchBackend, cast(Any, backend)), lambda: 0.0)
    second = SwitchState(cast(SwitchBackend, cast(Any, backend)), lambda: 0.0)
    for _ in range(5):
        first.change(change(1), epoch)
    second.change(change(2), epoch + 1)
    assert max(backend.stamps) == backend.stamps[-1]


@pytest.fixture
def rig() -> Iterator[FakeRig]:
    with closing(FakeRig()) as made:
        made.controller.start(60.0)
        yield made


def test_a_change_costs_the_same_however_many_circuits_live(rig: FakeRig) -> None:
    """What a switch is asked and told, and how many rules it has to list."""
    cost = {}
    for live in (10, 300):
        circuits = [
            replace(rig.circuit(f"c{i}", 0.001), flows=(Flow("tcp", None, (5000 + i, 5000 + i)),))
            for i in range(live)
        ]
        rig.controller.apply(circuits)
        heard: list[int] = []
        listed = rig.s1.listed
        rig.s1.on_message = heard.append
        rig.controller.apply([*circuits[1:], rig.circuit("new", 0.001)])
        rig.s1.on_message = lambda kind: None
        cost[live] = len(heard), rig.s1.listed - listed
    assert cost[10][1] == cost[300][1] == 1  # the stamp
    # Of those that share marks, a few move to the one that has become free.
    assert cost[10][0] <= 10 and cost[300][0] <= 30


def test_what_somebody_else_changed_is_seen_by_the_stamp(rig: FakeRig) -> None:
    circuit = rig.circuit()
    rig.controller.apply([circuit])
    for switch in (rig.s1, rig.s2):
        for key, entry in list(switch.table.items()):
            if entry.cookie >> 48 == 0xAD0E:
                del switch.table[key]
            elif entry.cookie >> 48 == 0xAD0C:
                switch.put(replace(entry, cookie=entry.cookie + (1 << 16)))
    assert rig.controller.installed() == []
    rig.controller.apply([circuit])
    assert rig.controller.installed() == ["a"]
