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
# Files that take minutes, the longest first. With several files at a time, whoever begins one of
# these last would be waited for by all others at the end.
LONG = (
    "test_request_sequences.py",
    "test_demo_network.py",
    "test_faults_killed.py",
    "test_provision_pool.py",
    "test_broker_killed_postgres.py",
    "test_demo_user.py",
    "test_demo_faults.py",
    "test_archive_broker.py",
    "test_faults_disk.py",
    "test_agents_real.py",
    "test_faults_chaos.py",
    "test_faults_broker.py",
    "test_planner_pool.py",
    "test_faults_clock.py",
    "test_soykb_science.py",
    "test_faults_switches.py",
    "test_openflow.py",
    "test_cli_machine.py",
    "test_openflow_killed.py",
    "test_faults_openflow.py",
    "test_monitor_stream.py",
    "test_monitor_facts.py",
    "test_anomalies_real.py",
)


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
    last = len(LONG)
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else last)
