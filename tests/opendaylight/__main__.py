"""Assembles an OpenDaylight, starts it in the testbed's network, and runs these tests with it.

python -m tests.opendaylight [PYTEST-ARGUMENT...]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adon.machine import packages
from examples.soykb.scenario import LAYOUT
from examples.testbed import odl_assembly
from examples.testbed.network import Network
from examples.testbed.opendaylight import OpenDaylight
from tests import boxed
from tests.boxed import say

HERE = Path(__file__).resolve().parent
RUN_DIR = HERE.parents[1] / ".adon" / "opendaylight"


class World:
    """A pytest plug-in that carries what runs, for the fixture ``world``."""

    def __init__(self, network: Network, opendaylight: OpenDaylight) -> None:
        self.network = network
        self.opendaylight = opendaylight


def ensure() -> tuple[Path, Path]:
    """Open vSwitch's and OpenDaylight's programs."""
    switches = packages.ensure("openvswitch", progress=say) / "wrap"
    return switches, odl_assembly.ensure(progress=say)


@contextmanager
def world() -> Iterator[World]:
    """The network and OpenDaylight, while they run."""
    switches, assembly = ensure()
    with (
        Network(LAYOUT, switches, RUN_DIR) as network,
        OpenDaylight(assembly, RUN_DIR, say) as opendaylight,
    ):
        yield World(network, opendaylight)


if __name__ == "__main__":
    sys.exit(boxed.main("OpenDaylight", HERE, RUN_DIR, ensure, world))
