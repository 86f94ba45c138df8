"""These tests need what ``python -m tests.cloud`` sets up around them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from examples.testbed.pool import Pool
from tests.cloud.rig import WORKER, driver, until_gone
from tests.cloud.services import ADMIN, GATEWAY


@pytest.fixture(scope="session")
def world(pytestconfig: pytest.Config) -> Any:
    """What runs: ``cloud``, and ``condor``, the directory of HTCondor's programs."""
    for plugin in pytestconfig.pluginmanager.get_plugins():
        if type(plugin).__name__ == "World" and hasattr(plugin, "cloud"):
            return plugin
    pytest.skip("needs the services of an OpenStack: make test-openstack")


@pytest.fixture(scope="session")
def admin(world: Any) -> Any:
    return world.cloud.connect(ADMIN)


@pytest.fixture(autouse=True)
def nothing_is_left(world: Any) -> Iterator[None]:
    """Every test begins with an empty project, and must be able to delete what it started."""
    yield
    world.cloud.check()
    for pool in ("p1", "p2"):
        until_gone(driver(pool=pool, qos_policy="any"))  # its ports, too


@pytest.fixture(scope="session")
def pool(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    more = "".join(
        f"ALLOW_{right} = $(ALLOW_{right}), {WORKER}\n"
        for right in ("ADVERTISE_STARTD", "ADVERTISE_MASTER")
    )
    run_dir = tmp_path_factory.mktemp("pool")
    with Pool(run_dir, world.condor, {}, hub_address=GATEWAY, hub_settings=more) as pool:
        yield pool
