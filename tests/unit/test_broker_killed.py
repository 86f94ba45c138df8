"""kill -9 of the broker at each of its steps leaves nothing doubled and nothing leaked."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import killed_broker
from broker_rig import Rig

from network_provisioner.model import TransitState
from network_provisioner.stores.sqlite import SqliteStore


def test_kill_9_at_every_step_changes_nothing_in_the_end(tmp_path: Path) -> None:
    whole, steps = tmp_path / "whole", Counter[str]()
    whole.mkdir()

    def count(step: str) -> None:
        steps[step] += 1

    expected = killed_broker.live(whole, partial(SqliteStore, whole / "state.sqlite"), count)
    states = {name: found["state"] for name, found in expected["transits"].items()}
    assert states == {
        "short": "expired",
        "later": "expired",
        "moves": "installed",
        "first": "released",
        "split": "released",
        "waits": "installed",
        "back": "released",
        "one": "expired",
        "two": "expired",
    }
    assert expected["transits"]["moves"]["moves"] == 1
    assert {name for name, *_ in expected["switches"]} == {"moves", "waits"}
    total = sum(steps.values())
    assert total > 60 and len(steps) >= 7, steps

    for number in range(1, total + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        open_store = partial(SqliteStore, folder / "state.sqlite")
        done = killed_broker.die_at(number, folder, open_store)
        assert killed_broker.live(folder, open_store, done=done) == expected, (number, done)


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
