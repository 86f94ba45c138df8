"""The testbed's network and the embedded controller on real Open vSwitch, in a box."""

from __future__ import annotations

from pathlib import Path

import pytest
from ovs_rig import run_inside

from adon.machine import packages

pytestmark = [pytest.mark.component, pytest.mark.root, pytest.mark.timeout(1800)]
INSIDE = Path(__file__).with_name("open_vswitch")


def test_the_network_and_its_controller(tmp_path: Path) -> None:
    packages.ensure("gridftp", progress=print)
    packages.ensure("condor", progress=print)
    run_inside(INSIDE, tmp_path, "not long")


@pytest.mark.long
def test_rates_restarts_and_the_rest(tmp_path: Path) -> None:
    packages.ensure("gridftp", progress=print)
    run_inside(INSIDE, tmp_path, "long and not pegasus")


@pytest.mark.long
@pytest.mark.pegasus
def test_what_pegasus_plans(tmp_path: Path) -> None:
    packages.ensure("gridftp", progress=print)
    packages.ensure("condor", progress=print)
    run_inside(INSIDE, tmp_path, "pegasus")
