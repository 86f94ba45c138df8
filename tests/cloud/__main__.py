"""Has the services of an OpenStack, starts them, and runs these tests with them.

    python -m tests.cloud [PYTEST-ARGUMENT...]

Downloads happen outside of the box, everything else inside: when this process ends, however it
does, the kernel removes the services, the machines and their network.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from adon.machine import box, packages
from network_provisioner.base.errors import AdonError
from tests.cloud import assembly
from tests.cloud.services import OpenStack

HERE = Path(__file__).resolve().parent
RUN_DIR = HERE.parents[1] / ".adon" / "openstack"


class World:
    """A pytest plug-in that carries what runs, for the fixture ``cloud``."""

    def __init__(self, cloud: OpenStack, condor: Path) -> None:
        self.cloud = cloud
        self.condor = condor


def say(line: str) -> None:
    """Progress, at once."""
    print(line, file=sys.stderr, flush=True)


def prepare(arguments: list[str]) -> int:
    """Outside: have everything that is downloaded, then run this again in a box."""
    reason = box.can_box()
    if reason is not None:
        say(f"OpenStack cannot be tried here: {reason}")
        return 2
    packages.ensure("condor", progress=say)
    assembly.ensure(progress=say)
    return box.run([sys.executable, "-m", "tests.cloud", *arguments], tied=True)


def test(arguments: list[str]) -> int:
    """Inside: services, tests."""
    # What a killed run left.
    shutil.rmtree(RUN_DIR, ignore_errors=True)
    RUN_DIR.mkdir(parents=True)
    programs = assembly.ensure(progress=say)
    condor = packages.ensure("condor", progress=say)
    with OpenStack(programs, RUN_DIR, condor, say) as cloud:
        words = ["-v", "-p", "no:cacheprovider", f"--basetemp={RUN_DIR / 'tests'}", str(HERE)]
        code = pytest.main([*words, *arguments], plugins=[World(cloud, condor)])
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
