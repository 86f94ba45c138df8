"""Assembles an OpenDaylight, starts it in the testbed's network, and runs these tests with it.

    python -m tests.opendaylight [PYTEST-ARGUMENT...]

Downloads happen outside of the box, everything else inside: when this process ends, however it
does, the kernel removes OpenDaylight, the switches and the network.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from adon.machine import box, packages
from examples.soykb.scenario import LAYOUT
from examples.testbed import odl_assembly
from examples.testbed.network import Network
from examples.testbed.opendaylight import OpenDaylight
from network_provisioner.base.errors import AdonError

HERE = Path(__file__).resolve().parent
RUN_DIR = HERE.parents[1] / ".adon" / "opendaylight"


class World:
    """A pytest plug-in that carries what runs, for the fixture ``world``."""

    def __init__(self, network: Network, opendaylight: OpenDaylight) -> None:
        self.network = network
        self.opendaylight = opendaylight


def say(line: str) -> None:
    """Progress, at once."""
    print(line, file=sys.stderr, flush=True)


def prepare(arguments: list[str]) -> int:
    """Outside: have everything that is downloaded, then run this again in a box."""
    reason = box.can_box()
    if reason is not None:
        say(f"OpenDaylight cannot be tried here: {reason}")
        return 2
    packages.ensure("openvswitch", progress=say)
    odl_assembly.ensure(progress=say)
    return box.run([sys.executable, "-m", "tests.opendaylight", *arguments], tied=True)


def test(arguments: list[str]) -> int:
    """Inside: network, OpenDaylight, tests."""
    # What a killed run left.
    shutil.rmtree(RUN_DIR, ignore_errors=True)
    RUN_DIR.mkdir(parents=True)
    programs = packages.ensure("openvswitch", progress=say) / "wrap"
    assembly = odl_assembly.ensure(progress=say)
    with (
        Network(LAYOUT, programs, RUN_DIR) as network,
        OpenDaylight(assembly, RUN_DIR, say) as opendaylight,
    ):
        words = ["-v", "-p", "no:cacheprovider", f"--basetemp={RUN_DIR / 'tests'}", str(HERE)]
        code = pytest.main([*words, *arguments], plugins=[World(network, opendaylight)])
    if code == 0:
        shutil.rmtree(RUN_DIR, ignore_errors=True)
    else:
        say(f"logs are in {RUN_DIR}")
    return int(code)


def main() -> int:
    """See the module's description."""
    arguments = sys.argv[1:]
    try:
        return test(arguments) if box.inside() else prepare(arguments)
    except AdonError as error:
        say(str(error))
        return 2


if __name__ == "__main__":
    sys.exit(main())
