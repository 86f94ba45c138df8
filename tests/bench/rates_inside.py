"""Runs inside a box for the bench P17: one stream between two hosts at a switch, whose links are
pairs of veth that are said to carry 10 Gb/s, without a transit and with one.

    python -m tests.bench.rates_inside [4|6 [dscp-htb|meter]]

Writes one line of JSON at its end: b/s of each round, by setup.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from adon.machine import packages
from examples.soykb.scenario import LAYOUT
from examples.testbed.network import Network
from network_provisioner.base.model import LIVE, TransitRequest
from network_provisioner.broker import Broker
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.topology.data import topology_from_dict
from tests.bench.bench_p17 import BEFORE

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "component"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from ipv6_world import add_ipv6, with_ipv6
from ovs_rig import OvsRig, transfer

ROUNDS, SECONDS = 5, 3.0
SRC, DST = "mu", "local"
FAST = replace(LAYOUT, sites=tuple(replace(site, access_bps=10e9) for site in LAYOUT.sites))


def main(folder: Path, version: int = 4, bandwidth: str = "auto") -> None:
    """All setups in turn, so that all meet the same machine."""
    programs = packages.ensure("openvswitch", progress=lambda _: None) / "wrap"
    rates_by_setup: dict[str, list[float]] = {"without": [], "with": [], "capped": []}
    with Network(FAST, programs, folder) as network:
        if version == 6:
            add_ipv6(FAST)
        data = with_ipv6(FAST) if version == 6 else FAST.topology()
        rig = OvsRig(network, topology_from_dict(data))
        rig.controller = rig.new_controller(bandwidth=bandwidth)
        named = {"capped": {**BEFORE["default"], "applications": []}}
        store = SqliteStore(folder / "state.sqlite")
        broker = Broker(rig.topology, templates_from_dict(named), rig.controller, store)
        broker.start(60.0)
        try:
            for number in range(ROUNDS):
                for setup, rates in rates_by_setup.items():
                    name = f"{setup}-{number}"
                    if setup != "without":
                        template = "capped" if setup == "capped" else "default"
                        request = TransitRequest(name, SRC, DST, template=template)
                        assert broker.request(request).state in LIVE
                    rates.append(transfer(SRC, DST, SECONDS, version=version)["bps"])
                    if setup != "without":
                        broker.release(name)
        finally:
            broker.stop()
    print(json.dumps(rates_by_setup), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        main(Path(name), *map(int, sys.argv[1:2]), *sys.argv[2:])
