"""Measurement tasks are there whichever broker leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from coordinator_rig import ANYBODY, ECHO, TASKS, CoordinatorRig

from monitors.measurements.run_store import SharedTasks
from network_provisioner.base.errors import BrokerError
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.stores.store import StoreError

MINE = {**ECHO, "every": "20 s"}


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Callable[[str], CoordinatorRig]]:
    """Coordinators with files of their own, and a store together."""
    with ExitStack() as stack:
        store = SqliteStore(tmp_path / "shared.sqlite")
        stack.callback(store.close)

        def started(name: str, shared: bool = True) -> CoordinatorRig:
            made = CoordinatorRig(tmp_path / name, shared=SharedTasks(store) if shared else None)
            stack.callback(made.close)
            made.coordinator.take_over()
            return made

        yield started


def added(rig: CoordinatorRig) -> set[str]:
    return {task["name"] for task in rig.coordinator.tasks()} - TASKS.keys()


def test_who_leads_next_has_what_was_added_and_not_what_was_removed(
    brokers: Callable[[str], CoordinatorRig],
) -> None:
    first, second = brokers("first"), brokers("second")
    first.coordinator.put_task("mine", MINE, ANYBODY)
    second.coordinator.take_over()
    assert added(second) == {"mine"}
    second.all_present()
    assert any(run["task"] == "mine" for run in second.ask("mu"))
    second.coordinator.delete_task("mine", ANYBODY)
    first.coordinator.take_over()
    assert added(first) == set()
    second.coordinator.put_task("mine", {**MINE, "every": "30 s"}, ANYBODY)
    first.coordinator.take_over()
    assert first.coordinator.task("mine")["every_s"] == 30


def test_tasks_of_a_broker_that_was_alone_are_kept(tmp_path: Path) -> None:
    alone = CoordinatorRig(tmp_path)
    alone.coordinator.put_task("mine", MINE, ANYBODY)
    store = SqliteStore(tmp_path / "shared.sqlite")
    again = alone.restarted(shared=SharedTasks(store))
    again.coordinator.take_over()
    assert added(again) == {"mine"} and SharedTasks(store).read() is not None
    again.close()
    store.close()


def test_a_store_that_refuses_leaves_all_as_it_was(
    brokers: Callable[[str], CoordinatorRig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = brokers("first")

    def refuse(*_: object) -> None:
        raise StoreError("the database is away")

    monkeypatch.setattr(SharedTasks, "write", refuse)
    with pytest.raises(StoreError, match="is away"):
        rig.coordinator.put_task("mine", MINE, ANYBODY)
    assert added(rig) == set()
    with pytest.raises(BrokerError, match="no measurement task"):
        rig.coordinator.task("mine")
