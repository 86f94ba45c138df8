"""These tests need what ``python -m tests.cloud`` sets up around them."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def world(pytestconfig: pytest.Config) -> Any:
    """What runs: ``cloud``, and ``condor``, the directory of HTCondor's programs."""
    for plugin in pytestconfig.pluginmanager.get_plugins():
        if type(plugin).__name__ == "World" and hasattr(plugin, "cloud"):
            return plugin
    pytest.skip("needs the services of an OpenStack: make test-openstack")
