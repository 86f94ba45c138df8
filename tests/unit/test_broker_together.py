"""Requests in one question, where one moves another that the switches then refuse."""

from __future__ import annotations

from pathlib import Path

from broker_rig import MBPS, Rig, demo_network
from killed_broker import TEMPLATES

from network_provisioner.model import TransitRequest, TransitState


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
