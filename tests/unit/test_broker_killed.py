"""kill -9 of the broker at its steps leaves nothing doubled and nothing leaked."""

from __future__ import annotations

from functools import partial
from itertools import count
from pathlib import Path

import pytest
from broker_rig import Rig
from killed_broker import dies_at_every

from network_provisioner.base.model import TransitState
from network_provisioner.stores.sqlite import SqliteStore


@pytest.mark.parametrize("stride", [13, pytest.param(1, marks=pytest.mark.long)])
def test_kill_9_changes_nothing_in_the_end(tmp_path: Path, stride: int) -> None:
    numbers = count()
    dies_at_every(
        stride, tmp_path, lambda: partial(SqliteStore, tmp_path / f"{next(numbers)}.sqlite")
    )


def test_a_held_transit_whose_lease_ended_meanwhile_expires(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s")
    rig.ask("a", "mu", "tacc", lease_s=20)
    kept = rig.store.get("a")
    assert kept is not None
    kept.state = TransitState.HELD
    rig.store.put(kept)
    rig.clock.now += 20
    new = Rig(tmp_path / "s", clock=rig.clock)
    assert new.broker.get("a").state is TransitState.EXPIRED
    assert new.controller.circuits == {}
