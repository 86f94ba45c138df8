"""These tests need what ``python -m tests.opendaylight`` sets up around them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

# The rig of the tests with Open vSwitch serves here, too.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "component"))
pytest.register_assert_rewrite("packet_suite")  # tests that several modules run


@pytest.fixture(scope="session")
def world(pytestconfig: pytest.Config) -> Any:
    """What runs: ``network`` and ``opendaylight``."""
    for plugin in pytestconfig.pluginmanager.get_plugins():
        if type(plugin).__name__ == "World":
            return plugin
    pytest.skip("needs a running OpenDaylight: make test-opendaylight")
