"""Which tests can run here: what is not there is skipped with its reason, never passed."""

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import HealthCheck, settings

# A busy machine stops any process for seconds: how long an example takes proves nothing. Examples
# are the same at each run, so that a change is judged by what it changes; with ADON_SEARCH they are
# new ones, which is how to look for what nobody has thought of.
settings.register_profile(
    "adon",
    deadline=None,
    derandomize=not os.environ.get("ADON_SEARCH"),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("adon")
pytest.register_assert_rewrite("store_suite")  # tests that several modules run
ORDER = ("e2e", "component", "unit")  # what takes longest begins first


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    lacking = {}
    if os.geteuid() != 0:
        lacking["root"] = "needs root for network namespaces and Open vSwitch"
    if shutil.which("pegasus-plan") is None:
        lacking["pegasus"] = "needs a real pegasus-plan on PATH"
    for item in items:
        for marker, reason in lacking.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))
    items.sort(
        key=lambda item: ORDER.index(item.path.parent.name) if item.path.parent.name in ORDER else 0
    )
