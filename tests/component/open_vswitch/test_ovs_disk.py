"""Bandwidth up to the rate of a real disk, on real switches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from disk_rig import transfer_into
from ovs_rig import MBPS, RATE_BPS, OvsRig

from examples.testbed.network import Network

pytestmark = [pytest.mark.component, pytest.mark.root, pytest.mark.long]


@pytest.fixture
def rig(network: Network) -> Iterator[OvsRig]:
    yield OvsRig(network)


def test_what_a_disk_does_not_take_is_given_back(rig: OvsRig, tmp_path: Path) -> None:
    with transfer_into(rig, tmp_path, 16 * MBPS, RATE_BPS) as made:
        made.wait_for("knee of a disk of 16 Mb/s", lambda: 12e6 < made.get().request.max_bps < 20e6)
        assert made.get().request.min_bps <= 20e6
