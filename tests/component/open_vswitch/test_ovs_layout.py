"""A testbed of another shape on real switches: three of them, two routers, traffic of others."""

from __future__ import annotations

from pathlib import Path

import pytest
from network_world import LINE
from ovs_rig import controlled

from adon.machine import packages
from examples.testbed.network import Network
from network_provisioner.topology.data import topology_from_dict

pytestmark = [pytest.mark.component, pytest.mark.root]


def test_others_send_over_the_routed_network(tmp_path: Path) -> None:
    programs = packages.ensure("openvswitch", progress=print) / "wrap"
    with (
        Network(LINE, programs, tmp_path) as network,
        controlled(network, topology_from_dict(LINE.topology())) as rig,
    ):

        def sent() -> int:
            """Bytes on their way out of the other end, whichever router they came by."""
            return rig.sent()["s3", "them"]

        rig.wait_for("traffic of others", lambda: sent() > 500_000)
        assert rig.sent()["s1", "they"] > 0  # what acknowledges it
        routed, overlay = (
            sum(hop["bytes"] for hop in network.link(name)["directions"])
            for name in ("other", "overlay")
        )
        shared = sum(hop["bytes"] for hop in network.link("shared")["directions"])
        assert routed + shared > 500_000
        assert overlay < 100_000
