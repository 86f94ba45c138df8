"""The broker's promises when others fail: switches, recorder, disk, and the broker itself."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from broker_rig import FakeController, Rig, code_of, demo_network, fill, refusing
from killed_broker import dies_at_every

from network_provisioner.base.controller import ControllerError, SwitchStatus
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.model import TransitRequest, TransitState
from network_provisioner.broker import Broker
from network_provisioner.stores.sqlite import MEMORY, SqliteStore
from network_provisioner.stores.store import StoreError
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.topology.graph import Topology

# -- others fail -----------------------------------------------------------------------------


@pytest.mark.parametrize("error", [refusing(), InputError("two paths"), KeyError("a bug")])
def test_switches_that_refuse_fail_the_transit_and_free_everything(
    rig: Rig, error: Exception
) -> None:
    keeps = rig.ask("keeps", "mu", "iplant")
    rig.controller.broken = error
    got = rig.ask("a", "mu", "tacc")
    assert (got.state, got.grant.path, got.grant.granted_bps) == (TransitState.FAILED, [], 0)
    assert got.reason.startswith("the switches refused: ")
    assert rig.reserved()["s1>s2"] == keeps.request.min_bps
    assert rig.broker.get("keeps") == keeps  # also what it is given
    assert rig.broker.health()["status"] == "degraded"
    assert rig.broker.release("a", 10, 1.0).state is TransitState.FAILED


def test_a_release_that_the_switches_miss_is_made_good_later(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc")
    rig.controller.broken = refusing()
    ended = rig.broker.release("a", 10, 1.0)
    assert (ended.state, ended.usage.switch_bytes) == (TransitState.RELEASED, 0)
    assert rig.reserved() == {} and list(rig.controller.circuits) == ["a"]
    rig.controller.broken = None
    rig.let_pass(10)
    assert rig.controller.circuits == {}
    assert rig.broker.health()["status"] == "ok"


def test_a_recorder_that_fails_fails_nothing(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc")
    rig.recorder.broken = OSError("disk full")
    assert rig.broker.release("a", 10, 1.0).state is TransitState.RELEASED


def test_a_store_that_is_full_refuses_new_paths_and_forgets_no_release(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.ask("a", "mu", "tacc")

    def full(transits: object) -> None:
        raise StoreError("state file s: database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "put_many", full)
        assert code_of(rig.ask, "b", "mu", "iplant") == "store_unavailable"
        for _ in range(2):  # killed now, the next broker would not know of it
            assert code_of(rig.broker.release, "a", 10, 1.0) == "store_unavailable"
        assert rig.broker.get("a").state is TransitState.RELEASED
        assert rig.broker.health()["status"] == "degraded"
    assert rig.reserved() == {} and rig.controller.circuits == {}
    ended = rig.broker.release("a")  # asked again, it is written down
    assert rig.store.get("a") == ended and (ended.usage.bytes, ended.usage.seconds) == (10, 1.0)
    assert len(rig.recorder.transits) == 1
    assert rig.broker.health()["status"] == "ok"


def test_who_waits_goes_on_waiting_while_the_store_is_full(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(rig)
    assert rig.ask("q", "local", "tacc").state is TransitState.QUEUED

    def full(transits: object) -> None:
        raise StoreError("state file s: database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "put_many", full)
        assert code_of(rig.broker.release, "l2b") == "store_unavailable"  # there is room by now
        rig.let_pass(1)
        assert rig.broker.get("q").state is TransitState.QUEUED
    rig.let_pass(1)
    assert rig.broker.get("q").state is TransitState.INSTALLED


def test_a_store_that_is_full_is_noticed_though_nobody_writes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full() -> None:
        raise StoreError("state file s: database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "try_write", full)
        for _ in range(3):
            rig.let_pass(1)
            assert rig.broker.problem() == "the store cannot be written"
    rig.let_pass(1)
    assert rig.broker.health()["status"] == "ok"
    assert caplog.text.count("the store cannot be written") == 1


def test_a_release_is_answered_where_the_file_has_it_and_nowhere_else(rig: Rig) -> None:
    names = [f"t{number}" for number in range(10)]
    for name in names:
        rig.ask(name, "mu", "tacc", min_bps=1e6)
    rig.store._db.execute("PRAGMA max_page_count = 1")
    answered = set()
    for name in names:
        try:
            rig.broker.release(name, 10, 1.0, "x" * 1000)
            answered.add(name)
        except BrokerError as error:
            assert error.code == "store_unavailable" and "repeat the request" in str(error)
    with closing(sqlite3.connect(rig.file)) as db:  # as the next broker finds it after kill -9
        rows = db.execute("SELECT id FROM transits WHERE state = 'released'").fetchall()
    assert answered == {name for (name,) in rows} and len(answered) < len(names)
    assert rig.reserved() == {}


# -- restart ---------------------------------------------------------------------------------


def again(rig: Rig, **changes: Any) -> Rig:
    """Another broker on the same state, as after kill -9 of the first."""
    return Rig(rig.file, clock=rig.clock, **changes)


def test_a_restart_brings_store_ledger_and_switches_together(rig: Rig) -> None:
    rig.ask("lives", "mu", "tacc", lease_s=100)
    rig.ask("dies", "mu", "iplant", lease_s=10)
    rig.ask("done", "local", "iplant")
    rig.broker.release("done")
    rig.clock.now += 50
    new = again(rig)
    assert list(new.controller.circuits) == ["lives"]
    assert new.reserved() == {"s1>s2": 5e6, "s2>tacc": 5e6, "mu>s1": 5e6}
    states = {t.id: str(t.state) for t in new.broker.list()}
    assert states == {"lives": "installed", "dies": "expired", "done": "released"}
    assert new.broker.get("lives").grant.installed_at == rig.clock.now - 50
    new.let_pass(50)
    assert new.broker.get("lives").state is TransitState.EXPIRED
    assert new.reserved() == {}


def test_who_waited_goes_on_waiting_after_a_restart(rig: Rig) -> None:
    fill(rig)
    rig.ask("q", "local", "tacc", lease_s=33)
    rig.clock.now += 5
    new = again(rig)
    assert new.broker.get("q").state is TransitState.QUEUED
    new.broker.release("l2b")
    started = new.broker.get("q")
    assert (started.state, started.grant.lease_until) == (
        TransitState.INSTALLED,
        rig.clock.now + 33,
    )


def test_what_no_longer_fits_the_configuration_takes_another_path(rig: Rig) -> None:
    until = rig.ask("a", "mu", "tacc", template="soykb", min_bps=150e6).grant.lease_until
    for network, path in (
        (demo_network(l2="100 Mb/s", l3="200 Mb/s"), ["mu", "s1", "r1", "s2", "tacc"]),
        (demo_network(l2="200 Mb/s", l3="20 Mb/s"), ["mu", "s1", "s2", "tacc"]),
    ):
        rig = again(rig, topology=network)
        moved = rig.broker.get("a")
        assert (moved.state, moved.grant.path) == (TransitState.INSTALLED, path)
        assert moved.grant.granted_bps >= 150e6 and moved.grant.lease_until == until
        assert rig.controller.circuits["a"].path == tuple(path)


def test_what_can_fit_nowhere_any_more_goes_on_as_best_effort(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", template="soykb", min_bps=150e6)
    new = again(rig, topology=demo_network(l2="100 Mb/s"))
    assert new.broker.get("a").state is TransitState.BEST_EFFORT
    assert new.controller.circuits == {} and new.reserved() == {}


def test_a_site_that_is_no_more_takes_its_transits_with_it_and_no_others(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", min_bps=150e6, lease_s=100)
    rig.ask("q", "local", "tacc", min_bps=150e6)
    rig.ask("b", "mu", "local", min_bps=10e6)
    whole = demo_network()
    nodes = [node for node in whole.nodes.values() if node.name != "tacc"]
    links = [link for link in whole.whole_links if "tacc" not in (link.a, link.b)]
    new = again(rig, topology=Topology(nodes, links))
    states = {t.id: t.state for t in new.broker.list()}
    assert states == {
        "a": TransitState.FAILED,
        "q": TransitState.FAILED,
        "b": TransitState.INSTALLED,
    }
    assert "the topology no longer has one of its sites" in new.broker.get("q").reason


def test_who_waited_for_a_template_that_is_gone(tmp_path: Path) -> None:
    big = {"qspec": {"min_throughput": 100e6}, "rspec": {"max_throughput": 1e9}}
    rig = Rig(tmp_path / "s", templates={"big": big})
    rig.ask("a", "mu", "tacc", template="big")
    rig.ask("b", "local", "tacc", template="big")
    new = again(rig)
    assert new.broker.get("b").reason == "template 'big' is gone"


def test_switches_that_are_not_there_stop_the_start(rig: Rig, tmp_path: Path) -> None:
    rig.controller.broken = refusing("switch 1 is not connected")
    with pytest.raises(ControllerError, match="switch 1 is not connected"):
        rig.broker.start()


def test_who_does_not_lead_decides_nothing_and_goes_on_when_it_leads_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig.ask("a", "mu", "tacc", lease_s=100)

    def refused() -> Any:
        raise StoreError("database postgresql://db/adon: connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "check_leads", refused)
        rig.clock.now += 200
        for call in (rig.broker.sweep, partial(rig.broker.release, "a")):
            assert code_of(call) == "store_unavailable"
        assert code_of(rig.ask, "b", "mu", "tacc") == "store_unavailable"
        assert rig.broker.health()["problem"] == "the store is unavailable"
        assert list(rig.controller.circuits) == ["a"]
    assert [r.getMessage() for r in caplog.records if "decided" in r.getMessage()] == [
        "nothing can be decided: database postgresql://db/adon: connection refused"
    ]
    rig.broker.sweep()
    assert rig.broker.health()["status"] == "ok"
    assert rig.broker.get("a").state is TransitState.EXPIRED and rig.controller.circuits == {}


def test_stop_takes_the_rules_off_and_keeps_the_transits(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc")
    rig.broker.stop()
    assert rig.controller.circuits == {}
    assert again(rig).broker.get("a").state is TransitState.INSTALLED


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


class Slow(FakeController):
    """Waits for a switch."""

    def __init__(self) -> None:
        super().__init__(demo_network())
        self.statuses = [SwitchStatus("s2", "switch s2", False, 0.0, "is not connected", {})]
        self.waits, self.came = threading.Event(), threading.Event()
        self.laid = False  # whether best effort is

    def start(self, timeout_s: float) -> None:
        self.waits.set()
        self.came.wait()
        super().start(timeout_s)
        self.statuses = []
        self.laid = True


@pytest.fixture
def slow() -> Iterator[Slow]:
    made = Slow()
    yield made
    made.came.set()


@pytest.fixture
def broker(slow: Slow) -> Broker:
    templates = templates_from_dict(None)
    return Broker(demo_network(), templates, slow, SqliteStore(MEMORY))


def test_who_is_awaited_is_told_and_changes_wait(slow: Slow, broker: Broker) -> None:
    with ThreadPoolExecutor(2) as pool:
        start = pool.submit(broker.start)
        slow.waits.wait()
        assert broker.problem() == "the broker is starting; switch s2 is not connected"
        assert broker.health()["status"] == "degraded" and broker.list() == []
        assert code_of(broker.check_started) == "busy"
        future = pool.submit(broker.request, TransitRequest("a", "mu", "tacc"))
        assert not slow.circuits
        slow.came.set()
        assert future.result().state is TransitState.INSTALLED and slow.laid
        start.result()
    assert broker.health()["status"] == "ok"
    broker.check_started()


def test_a_start_that_fails_answers_who_waits(slow: Slow, broker: Broker) -> None:
    slow.broken = ControllerError("the port is in use")
    with ThreadPoolExecutor(2) as pool:
        start = pool.submit(broker.start)
        slow.waits.wait()
        future = pool.submit(broker.request, TransitRequest("a", "mu", "tacc"))
        slow.came.set()
        with pytest.raises(ControllerError, match="the port is in use"):
            start.result()
        with pytest.raises(BrokerError, match="could not start: the port is in use; try again"):
            future.result()
