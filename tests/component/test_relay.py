"""Real agents between two hosts, in a box."""

from __future__ import annotations

from pathlib import Path

import pytest
from ovs_rig import run_inside

from adon.machine import packages

pytestmark = [pytest.mark.component, pytest.mark.root]


def test_connections_through_two_agents(tmp_path: Path) -> None:
    packages.ensure("nftables", progress=print)
    run_inside(Path(__file__).with_name("relay"), tmp_path, "not long")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_thousand_transfers_and_a_path_that_is_lost(tmp_path: Path) -> None:
    packages.ensure("nftables", progress=print)
    run_inside(Path(__file__).with_name("relay"), tmp_path, "long")
