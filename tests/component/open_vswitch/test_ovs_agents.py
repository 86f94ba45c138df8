"""Agents beside data nodes, on real switches with a real broker: they measure paths that nobody
took."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from agents_rig import Site, up
from waiting import until

from examples.testbed.network import Network
from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement

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
