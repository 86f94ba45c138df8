"""Requests in one question, where one moves another that the switches then refuse."""

from __future__ import annotations

from pathlib import Path

from broker_rig import MBPS, Rig, demo_network
from killed_broker import TEMPLATES

from network_provisioner.base.model import TransitRequest, TransitState


def test_who_is_refused_needs_no_other_path(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "state", demo_network(l3="150 Mb/s"), TEMPLATES)
    rig.controller.cursed = {"small"}
    small = TransitRequest("small", "local", "iplant", template="low", min_bps=60 * MBPS)
    great = TransitRequest("great", "mu", "tacc", template="high", min_bps=140 * MBPS)
    answers = {a.transit.id: a.transit for a in rig.broker.ask([small, great]) if a.transit}
    assert answers["small"].state is TransitState.FAILED
    assert answers["great"].state is TransitState.INSTALLED
    assert answers["great"].path == ["mu", "s1", "s2", "tacc"]
    rig.broker.release("great")
    assert rig.reserved() == {}


def test_who_moved_another_is_not_undone_by_one_that_is_refused(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "state", demo_network(l3="150 Mb/s"), TEMPLATES)
    rig.ask("moves", "local", "iplant", template="low", min_bps=60 * MBPS)
    rig.controller.cursed = {"small"}
    great = TransitRequest("great", "mu", "tacc", template="high", min_bps=140 * MBPS)
    small = TransitRequest("small", "tacc", "iplant", template="low", min_bps=10 * MBPS)
    answers = {a.transit.id: a.transit for a in rig.broker.ask([great, small]) if a.transit}
    assert answers["great"].state is TransitState.INSTALLED
    assert answers["small"].state is TransitState.FAILED
    assert rig.broker.get("moves").path == ["local", "s1", "r1", "s2", "iplant"]
    for name in ("great", "moves"):
        rig.broker.release(name)
    assert rig.reserved() == {}
