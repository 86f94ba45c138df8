"""Agents beside data nodes, on real switches with a real broker: they measure paths that nobody
took."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml
from agents_rig import Site, up
from ovs_rig import L2, L3
from waiting import until

from examples.testbed.network import Network
from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import TransitRequest

pytestmark = [pytest.mark.component, pytest.mark.root]

_SLOW_S = 0.2


def test_the_candidate_paths_of_sites_in_use_are_measured_each(
    network: Network, tmp_path: Path
) -> None:
    with Archive(tmp_path / "archive.sqlite") as archive:
        archive.record(
            Measurement("t", "throughput", "mu>tacc", 1e7, "bit/s", time.time(), "transfer")
        )
    short, long = "mu>tacc via s1-s2", "mu>tacc via s1-r1-s2"
    before = network.link("l3")["delay_s"]
    network.link("l3", delay_s=_SLOW_S)
    try:
        with (
            up(Site(tmp_path, "mu", "tacc", paths={"every": "5 s", "for": "1 s"})),
            Archive(tmp_path / "archive.sqlite", read_only=True) as archive,
        ):

            def measured() -> bool:
                # A busy machine answers late, but never before its time.
                rtts = {path: [m.value for m in archive.query("rtt", path)] for path in paths}
                assert all(rtt >= 2 * _SLOW_S for rtt in rtts[long])
                return bool(rtts[long]) and any(rtt < 2 * _SLOW_S for rtt in rtts[short])

            paths = (short, long)
            until(measured, "both paths")
    finally:
        network.link("l3", delay_s=before)


@pytest.mark.long
def test_an_anomaly_of_its_path_moves_a_transit(network: Network, tmp_path: Path) -> None:
    """Nothing limits its delay: the path has changed, and the other one is better now."""
    with Archive(tmp_path / "archive.sqlite") as archive:
        archive.record(
            Measurement("t", "throughput", "mu>tacc", 1e7, "bit/s", time.time(), "transfer")
        )
    site = Site(
        tmp_path, "mu", "tacc",
        paths={"every": "5 s", "for": "1 s"}, anomalies={"rtt": {"learn": "30 s"}},
    )  # fmt: skip
    config = yaml.safe_load((tmp_path / "adon.yml").read_text())
    config["templates"]["quick"] = {
        "qspec": {"min_throughput": "1 Mb/s"},
        "weights": {"throughput": 1, "delay": 9},
        "tables": {"delay": [[0, 10], ["500 ms", 1]]},
        "break_even": 0,
    }
    (tmp_path / "adon.yml").write_text(yaml.safe_dump(config))
    flows = (Flow("tcp", dst_ports=(5001, 5001)),)
    request = TransitRequest("a", "mu", "tacc", template="quick", lease_s=3600.0, flows=flows)
    before = network.link("l2")["delay_s"]
    try:
        with up(site), Archive(tmp_path / "archive.sqlite", read_only=True) as archive:
            (answer,) = site.client.ask([request])
            assert answer.transit is not None and tuple(answer.transit.grant.path) == L2

            def measured() -> bool:
                short, long = ("mu>tacc via s1-s2", "mu>tacc via s1-r1-s2")
                return len(archive.query("rtt", short)) >= 30 and bool(archive.query("rtt", long))

            until(measured, "what is usual", timeout_s=900)
            assert tuple(site.client.get("a").grant.path) == L2
            network.link("l2", delay_s=_SLOW_S)
            until(lambda: tuple(site.client.get("a").grant.path) == L3, "a move", timeout_s=900)
            assert "a change beyond noise" in site.client.get("a").reason
    finally:
        network.link("l2", delay_s=before)
