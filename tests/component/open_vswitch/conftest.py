"""Tests of the testbed's network and of the controllers on it, which run in a box.

The network's names and addresses belong to a box (:mod:`adon.machine.box`), and a process is in one
or it is not: ``test_open_vswitch.py`` runs this folder inside, with one network for all of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ovs_rig import OvsRig, controlled, network_up

from adon.machine import box
from examples.testbed.network import Network

pytest.register_assert_rewrite("packet_suite")  # tests that several modules run
collect_ignore_glob = [] if box.inside() else ["test_*.py"]


@pytest.hookimpl(trylast=True)  # tests/conftest.py keeps files whole
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs no network comes before it is up."""
    items.sort(key=lambda item: "network" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with network_up(tmp_path_factory.mktemp("network")) as made:
        yield made


@pytest.fixture(scope="module")
def up(network: Network) -> Iterator[OvsRig]:
    with controlled(network) as made:
        yield made
