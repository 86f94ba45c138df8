"""Has the services of an OpenStack, starts them, and runs these tests with them.

python -m tests.cloud [PYTEST-ARGUMENT...]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adon.machine import packages
from tests import boxed
from tests.boxed import say
from tests.cloud import assembly
from tests.cloud.services import OpenStack

HERE = Path(__file__).resolve().parent
RUN_DIR = HERE.parents[1] / ".adon" / "openstack"


class World:
    """A pytest plug-in that carries what runs, for the fixture ``cloud``."""

    def __init__(self, cloud: OpenStack, condor: Path) -> None:
        self.cloud = cloud
        self.condor = condor


def ensure() -> tuple[Path, Path]:
    """HTCondor, and the services' programs."""
    return packages.ensure("condor", progress=say), assembly.ensure(progress=say)


@contextmanager
def world() -> Iterator[World]:
    """The services, while they run."""
    condor, programs = ensure()
    with OpenStack(programs, RUN_DIR, condor, say) as cloud:
        yield World(cloud, condor)


if __name__ == "__main__":
    sys.exit(boxed.main("OpenStack", HERE, RUN_DIR, ensure, world))
