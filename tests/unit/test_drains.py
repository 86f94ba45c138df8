"""Drains: links and switches leave service at a time, and nobody on them notices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from broker_rig import L2, Rig, demo_network, refusing
from test_broker_ways import port

from network_provisioner.api.metrics import Metrics
from network_provisioner.base.controller import SwitchStatus
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import TransitState
from network_provisioner.stores.store import StoreError
from network_provisioner.topology.drains import LEAD_S, Drain

L3 = ["mu", "s1", "r1", "s2", "tacc"]
HOUR = 3600.0


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "s", demo_network(l3="100 Mb/s"), matches=True)


def drain(rig: Rig, element: str = "s1-s2", at: float = 0.0, until: float = 0.0) -> dict[str, Any]:
    now = rig.clock.now
    return rig.broker.drain(Drain(element, at and now + at, until and now + until, "optics", "op"))


def test_transits_leave_a_minute_before_and_nothing_new_comes(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", min_bps=50e6, lease_s=10 * HOUR)
    planned = drain(rig, "s2-s1", at=HOUR, until=2 * HOUR)  # a link may be spelt both ways
    assert (planned["element"], planned["active"], planned["on"]) == ("s1-s2", False, ["a"])
    rig.let_pass(HOUR - LEAD_S - 1)
    assert rig.broker.get("a").grant.path == L2
    rig.let_pass(1)
    moved = rig.broker.get("a")
    assert (moved.grant.path, moved.grant.moves) == (L3, 1)
    assert "s1-s2 is out of service from" in moved.reason and "optics" in moved.reason
    (active,) = rig.broker.drains()
    assert (active["active"], active["on"]) == (True, [])
    new = rig.ask("b", "mu", "tacc", min_bps=10e6, flows=port(2))
    assert new.grant.path == L3
    rig.let_pass(HOUR + LEAD_S)
    assert rig.broker.drains() == []
    assert rig.ask("c", "mu", "tacc", min_bps=10e6, flows=port(3)).grant.path == L2


def test_a_drain_of_now_is_obeyed_at_once_and_health_stays_ok(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", min_bps=50e6)
    assert drain(rig)["on"] == []
    assert rig.broker.get("a").grant.path == L3
    rig.controller.fail("s1", "s2")  # the cable is pulled
    rig.let_pass(1)
    health = rig.broker.health()
    assert (health["status"], health["links_failed"]) == ("ok", [])
    rig.broker.cancel_drain("s1-s2")
    assert rig.broker.health()["links_failed"][0]["link"] == "s1-s2"


def test_a_link_that_failed_is_not_offered_while_another_is_drained(rig: Rig) -> None:
    rig.controller.fail("s1", "s2")
    rig.let_pass(1)
    drain(rig, "s2-tacc", at=HOUR)
    assert rig.ask("a", "mu", "tacc", min_bps=10e6).grant.path == L3


def test_no_alarm_is_of_what_is_drained(rig: Rig) -> None:
    rig.controller.statuses = [
        SwitchStatus(name, f"switch {name}", False, rig.clock.now, "is not connected", {})
        for name in ("s1", "s2")
    ]
    rig.controller.fail("s1", "r1")
    drain(rig, "s1")
    rig.let_pass(1)
    links = rig.broker.describe_topology()["links"]
    assert {k["drained"] for k in links if "s1" in (k["a"], k["b"])} == {True}
    assert {k["drained"] for k in links if "s1" not in (k["a"], k["b"])} == {False}
    text = Metrics(rig.broker).text().decode()
    assert 'adon_switch_up{switch="s1"} NaN' in text and 'adon_switch_up{switch="s2"} 0' in text
    assert 'switch="s1"} NaN' in text.partition("# TYPE adon_controller_up")[2]
    assert 'adon_link_up{dst="r1",src="s1"} NaN' in text
    # A switch that is away may go on forwarding.
    assert 'adon_link_up{dst="s2",src="tacc"} NaN' in text
    rig.broker.cancel_drain("s1")
    text = Metrics(rig.broker).text().decode()
    assert 'adon_link_up{dst="r1",src="s1"} 0' in text


def test_a_drained_switch_may_be_switched_off(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", min_bps=50e6)
    drain(rig, "r1")
    away = SwitchStatus("r1", "switch r1", False, rig.clock.now, "is not connected", {})
    rig.controller.statuses = [away]
    rig.let_pass(1)
    assert rig.broker.health()["status"] == "ok" and rig.broker.get("a").grant.path == L2
    messages: list[str] = []
    rig.broker.link_listeners.append(lambda news: messages.append(str(news)))
    rig.broker.cancel_drain("r1")
    assert messages == ["r1 is in service again after 1 s", "switch r1 is not connected"]


def test_who_finds_no_room_waits_and_comes_back(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", min_bps=60e6, flows=port(1))
    rig.ask("b", "mu", "tacc", min_bps=60e6, flows=port(2))
    drain(rig, until=HOUR)
    paths = [rig.broker.get(name).grant.path for name in "ab"]
    assert sorted(paths) == [[], L3]
    rig.let_pass(10)
    rig.broker.cancel_drain("s1-s2")
    assert sorted(rig.broker.get(name).grant.path for name in "ab") == sorted([L2, L3])


def test_reservations_in_advance_move_or_are_warned_of(rig: Rig) -> None:
    def reserve(name: str, start: float, n: int) -> list[str]:
        now = rig.clock.now
        times = {"start": now + start, "end": now + start + HOUR}
        return rig.ask(name, "mu", "tacc", min_bps=60e6, flows=port(n), **times).grant.path

    assert reserve("first", 5 * HOUR, 1) == reserve("second", 5 * HOUR, 2) == L2
    assert reserve("before", 2 * HOUR, 3) == reserve("after", 9 * HOUR, 4) == L2
    messages: list[str] = []
    rig.broker.link_listeners.append(lambda news: messages.append(str(news)))
    answer = drain(rig, at=4 * HOUR, until=8 * HOUR)
    paths = {name: rig.broker.get(name).grant.path for name in ("first", "second")}
    assert sorted(paths.values()) == sorted([L2, L3])
    (stuck,) = (name for name, path in paths.items() if path == L2)
    assert answer["reserved"] == [stuck]
    assert "no other path has room" in rig.broker.get(stuck).grant.warnings[-1]
    assert [words for words in messages if words.startswith(f"reservation {stuck} loses its path")]
    assert {tuple(rig.broker.get(name).grant.path) for name in ("before", "after")} == {tuple(L2)}
    # What is asked for afterwards keeps clear of it.
    now = rig.clock.now
    later = {"start": now + 6 * HOUR, "end": now + 7 * HOUR}
    assert rig.ask("late", "mu", "tacc", min_bps=30e6, flows=port(5), **later).grant.path == L3


def test_a_restart_remembers(rig: Rig) -> None:
    drain(rig, at=HOUR)
    rig.broker.stop()
    again = Rig(rig.file, rig.topology, clock=rig.clock, matches=True)
    again.ask("a", "mu", "tacc", min_bps=50e6, lease_s=2 * HOUR)
    again.let_pass(HOUR)
    assert again.broker.get("a").grant.path == L3
    assert again.broker.drains()[0]["user"] == "op"


def test_bad_input_changes_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokerError, match=r"unknown link or switch 's1-s3'.*did you mean 's1-s2'"):
        drain(rig, "s1-s3")
    with pytest.raises(BrokerError, match="expected an end after its start"):
        drain(rig, at=2 * HOUR, until=HOUR)
    with pytest.raises(BrokerError, match="s1-s2 is in service"):
        rig.broker.cancel_drain("s1-s2")

    def full(*_: Any, **__: Any) -> int:
        raise StoreError("the disk is full")

    monkeypatch.setattr(rig.store, "put_document", full)
    with pytest.raises(BrokerError, match="the disk is full"):
        drain(rig)
    assert rig.broker.drains() == []


def test_a_switch_that_refuses_the_move_is_asked_again(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", min_bps=50e6)
    rig.controller.broken = refusing()
    drain(rig)
    rig.controller.broken = None
    rig.let_pass(60)
    assert rig.broker.get("a").grant.path == L3
    assert rig.broker.get("a").state is TransitState.INSTALLED
