"""Running transits that move to better paths when room is given back, where a template says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_rig import L2, Rig, demo_network, refusing
from test_broker_ways import port

from network_provisioner.base.controller import ControllerError
from network_provisioner.base.model import Transit, TransitState
from network_provisioner.selection.transit import Metric
from network_provisioner.transits import rerouting

L3 = ["mu", "s1", "r1", "s2", "tacc"]
RATES = {"qspec": {"min_throughput": "10 Mb/s"}, "rspec": {"max_throughput": "150 Mb/s"}}
TEMPLATES = {
    "mover": {**RATES, "better_path": "move"},
    "stayer": RATES,
    "big": {"qspec": {"min_throughput": "175 Mb/s"}, "rspec": {"max_throughput": "175 Mb/s"}},
}


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rates = {"throughput": Metric(20e6, "measured", 1.0)}  # of layer 3, which takes no promise
    made = Rig(
        tmp_path / "s",
        demo_network(),
        TEMPLATES,
        metrics_of=lambda path, _: rates if path.layer == "l3" else {},
        matches=True,
    )
    made.ask("big", "mu", "tacc", template="big", flows=port(1))
    return made


def on_l3(rig: Rig, name: str, template: str, number: int) -> Transit:
    got = rig.ask(name, "mu", "tacc", template=template, flows=port(number))
    assert got.grant.path == L3
    return got


def test_nobody_stays_on_a_poor_path_because_the_better_one_was_full(rig: Rig) -> None:
    on_l3(rig, "a", "mover", 2)
    rig.controller.bytes["a"] = 9
    rig.let_pass(1)
    assert rig.broker.get("a").grant.path == L3
    rig.broker.release("big")
    before = len(rig.controller.applied)
    rig.let_pass(1)
    moved = rig.broker.get("a")
    assert (moved.state, moved.grant.path, moved.grant.moves) == (TransitState.ACTIVE, L2, 1)
    assert "; moved to mu-s1-s2-tacc: it scores " in moved.reason
    assert rig.controller.circuits["a"].path == tuple(L2)
    assert rig.controller.applied[before:] == [["a"]]  # one change: it is never without a path
    assert rig.reserved() == {"mu>s1": 10e6, "s1>s2": 10e6, "s2>tacc": 10e6}
    rig.let_pass(1)
    assert rig.broker.get("a").grant.moves == 1


def test_who_has_all_that_it_may_have_stays(tmp_path: Path) -> None:
    all_of_it = {"throughput": Metric(18e6, "measured", 1.0)}  # of layer 3, which takes no promise
    rig = Rig(
        tmp_path / "s",
        demo_network(),
        TEMPLATES,
        matches=True,
        metrics_of=lambda path, _: all_of_it if path.layer == "l3" else {},
    )
    rig.ask("big", "mu", "tacc", template="big", flows=port(1))
    got = rig.ask("a", "mu", "tacc", template="mover", flows=port(2), max_bps=18e6)
    assert (got.grant.path, got.grant.granted_bps) == (L3, 18e6)
    rig.broker.release("big")
    rig.let_pass(1)
    assert rig.broker.get("a").grant.path == L3


def test_a_template_that_does_not_say_so_stays(rig: Rig) -> None:
    on_l3(rig, "a", "stayer", 2)
    rig.broker.release("big")
    rig.let_pass(1)
    assert rig.broker.get("a").grant.path == L3


def test_who_waits_is_served_first(rig: Rig) -> None:
    on_l3(rig, "a", "mover", 2)
    waits = rig.ask("waits", "local", "iplant", template="big")
    assert waits.state is TransitState.QUEUED
    rig.broker.release("big")
    rig.let_pass(1)
    assert rig.broker.get("waits").state is TransitState.INSTALLED
    assert rig.broker.get("a").grant.path == L3
    rig.broker.release("waits")
    rig.let_pass(1)
    assert rig.broker.get("a").grant.path == L2


def test_who_waits_has_what_a_move_leaves_at_the_next_sweep(tmp_path: Path) -> None:
    """``beyond`` has a path over the router alone."""
    network = demo_network(
        nodes=[{"name": "beyond", "kind": "site"}],
        links=[{"a": "beyond", "b": "r1", "layer": "l3", "capacity": "1 Gb/s"}],
    )
    rig = Rig(tmp_path / "s", network, TEMPLATES, matches=True)
    rig.ask("big", "mu", "tacc", template="big", flows=port(1))
    on_l3(rig, "a", "mover", 2)
    waits = rig.ask("waits", "beyond", "tacc", template="stayer")
    assert waits.state is TransitState.QUEUED
    rig.broker.release("big")
    rig.let_pass(1)
    assert rig.broker.get("a").grant.path == L2
    rig.let_pass(1)
    assert rig.broker.get("waits").state is TransitState.INSTALLED


def test_who_shares_its_packets_stays(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s", demo_network(l3="60 Mb/s"), TEMPLATES)
    rig.ask("big", "local", "iplant", template="big")
    for name in "ab":
        assert rig.ask(name, "mu", "tacc", template="mover").grant.path == L3
    rig.broker.release("big")
    rig.let_pass(1)
    assert [rig.broker.get(name).grant.path for name in "ab"] == [L3, L3]
    rig.broker.release("b")
    rig.let_pass(1)
    assert rig.broker.get("a").grant.path == L2


def test_switches_that_refuse_leave_it_where_it_was(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_l3(rig, "a", "mover", 2)
    rig.broker.release("big")
    check = rig.controller.check

    def no_l2(circuits: list) -> None:  # type: ignore[type-arg]
        check(circuits)
        if any(c.path == tuple(L2) for c in circuits):
            raise ControllerError("switch 2 has a full table")

    with monkeypatch.context() as patch:
        patch.setattr(rig.controller, "check", no_l2)
        rig.let_pass(1)
        was = rig.broker.get("a")
        assert (was.grant.path, was.grant.moves) == (L3, 0)
        assert rig.controller.circuits["a"].path == tuple(L3)
        assert rig.reserved()["s1>r1"] == 10e6 and "s1>s2" not in rig.reserved()
        assert rig.broker.health()["status"] == "ok"
    rig.controller.broken = refusing()
    rig.ask("other", "mu", "tacc", template="stayer", flows=port(3))
    rig.controller.broken = None
    rig.broker.release("other")
    rig.let_pass(10)
    assert rig.controller.circuits["a"].path == tuple(rig.broker.get("a").grant.path)


def test_a_link_that_works_again_is_room(rig: Rig) -> None:
    rig.broker.release("big")
    rig.ask("a", "mu", "tacc", template="mover", flows=port(2))
    rig.controller.fail("s1", "s2")
    rig.let_pass(1)
    assert rig.broker.get("a").grant.path == L3
    rig.controller.failed = {}
    rig.let_pass(1)
    assert rig.broker.get("a").grant.path == L2


def test_one_sweep_asks_for_a_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path / "s", demo_network(l3="60 Mb/s"), TEMPLATES, matches=True)
    rig.ask("big", "mu", "tacc", template="big", flows=port(1))
    movers = [on_l3(rig, f"mover-{number}", "mover", number).id for number in (2, 3)]
    rig.broker.release("big")
    monkeypatch.setattr(rerouting, "ASKED_AT_ONCE", 1)
    for moves in ([1, 0], [1, 1]):
        rig.let_pass(1)
        assert [rig.broker.get(name).grant.moves for name in movers] == moves
