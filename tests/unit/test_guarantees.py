"""Which links of a network take promises, and how paths over the others are judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from broker_rig import Rig
from network_world import demo_network

from network_provisioner.base.controller import Capabilities
from network_provisioner.base.model import TransitState
from network_provisioner.selection.path_selector import MetricsOf
from network_provisioner.selection.transit import Metric
from network_provisioner.state.ledger import Ledger
from network_provisioner.state.network_state import NetworkState
from network_provisioner.topology.graph import Path as NetworkPath
from network_provisioner.topology.graph import Topology

HTB = Capabilities("openflow", bandwidth="dscp-htb", real_packets=True)
L2, L3 = ("mu", "s1", "s2", "tacc"), ("mu", "s1", "r1", "s2", "tacc")
NO_RATES = "this network keeps no rates"


def network(devices: bool, guaranteed: Mapping[str, bool]) -> Topology:
    """The demonstration network, with no devices at layer 2 or with all; these links say so."""
    demo = demo_network()
    links = [
        replace(
            link,
            guaranteed=guaranteed.get(link.label),
            devices=link.devices if devices or link.layer != "l2" else None,
        )
        for link in demo.whole_links
    ]
    return Topology(demo.nodes.values(), links)


@pytest.mark.parametrize(
    ("can", "devices", "guaranteed", "nodes", "words"),
    [
        (HTB, True, {}, L2, ""),
        (HTB, True, {}, L3, "link s1-r1 is not guaranteed"),
        (HTB, True, {"s1-s2": False}, L2, "link s1-s2 is not guaranteed"),
        (HTB, True, {"s1-r1": True, "r1-s2": True}, L3, ""),
        (HTB, False, {}, L2, "link s1-s2 is not guaranteed"),
        (HTB, False, {"s1-s2": True}, L2, ""),
        (replace(HTB, bandwidth="meter"), False, {}, L2, ""),
        (replace(HTB, bandwidth="of its own"), False, {}, L2, ""),
        (replace(HTB, bandwidth="none"), True, {}, L2, NO_RATES),
        (Capabilities("simulated"), False, {}, L3, ""),
        (Capabilities("simulated"), False, {"s1-r1": False}, L3, "link s1-r1 is not guaranteed"),
    ],
)
def test_a_promise_needs_a_queue_of_ours_on_each_link(
    can: Capabilities,
    devices: bool,
    guaranteed: dict[str, bool],
    nodes: tuple[str, ...],
    words: str,
) -> None:
    topology = network(devices, guaranteed)
    state = NetworkState(topology, Ledger.of(topology), can=can)
    assert state.not_guaranteed(topology.path(nodes)) == words


def measured(**l3: Metric) -> MetricsOf:
    """What was measured of paths: this of the routed ones."""

    def metrics_of(path: NetworkPath, _: str) -> Mapping[str, Metric]:
        return l3 if path.layer == "l3" else {}

    return metrics_of


def test_t6_of_figure_18_by_measurement(tmp_path: Path) -> None:
    """Layer 3 has room, but was measured to carry less than SoyKB needs: it waits for layer 2."""
    rates = measured(throughput=Metric(11e6, "measured", 30.0))
    rig = Rig(tmp_path / "s", metrics_of=rates)
    rig.ask("t3", "local", "iplant", min_bps=175e6)
    t6 = rig.ask("t6", "mu", "tacc", min_bps=15e6)
    assert t6.state is TransitState.QUEUED
    words = "11 Mb/s measured 30 s ago, 15 Mb/s needed, and link s1-r1 is not guaranteed"
    assert words in {c["layer"]: c["rejected"] for c in t6.grant.candidates}["l3"]
    rig.broker.release("t3")
    assert rig.broker.get("t6").grant.layer == "l2"


@pytest.mark.parametrize(("loss", "state"), [(0.3, "queued"), (0.001, "installed")])
def test_nobody_is_moved_to_where_its_qspec_is_missed(
    tmp_path: Path, loss: float, state: str
) -> None:
    templates: dict[str, Any] = {
        "careful": {"qspec": {"min_throughput": 10e6, "max_loss": 0.01}},
        "large": {"qspec": {"min_throughput": 175e6}, "priority": 9},
    }
    lossy = measured(loss=Metric(loss, "measured", 30.0))
    rig = Rig(tmp_path / "s", templates=templates, metrics_of=lossy)
    assert rig.ask("low", "mu", "tacc", template="careful").grant.layer == "l2"
    assert str(rig.ask("high", "local", "iplant", template="large").state) == state
    assert rig.broker.get("low").grant.layer == ("l2" if loss > 0.01 else "l3")
