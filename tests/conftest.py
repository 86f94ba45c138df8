"""Which tests can run here: what is not there is skipped with its reason, never passed."""

from __future__ import annotations

import gc
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine stops any process for seconds: how long an example takes proves nothing. Examples
# are the same at each run, so that a change is judged by what it changes; with ADON_SEARCH they are
# new ones, and more, which is how to look for what nobody has thought of.
SEARCHES = bool(os.environ.get("ADON_SEARCH"))
settings.register_profile(
    "adon",
    max_examples=200 if SEARCHES else 30,
    deadline=None,
    derandomize=not SEARCHES,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("adon")
pytest.register_assert_rewrite("store_suite")  # tests that several modules run
os.environ["TZ"] = "UTC"  # what is shown is the same on each machine
time.tzset()
os.umask(0o022)  # and so is who may read what is made
gc.disable()  # until all modules of tests are loaded: nothing of them becomes garbage
LONGEST = "test_open_vswitch"
QUICK_AFTER_SLOW = 2
"""Files of unit tests that begin after each file of component or end-to-end tests: the ones work
while the others wait, and no slow one begins last."""


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
    items[:] = interleaved(items)


def pytest_collection_finish() -> None:
    gc.freeze()  # looking through all modules of tests takes half a second each time
    gc.enable()


def interleaved(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Whole files in turn: end to end, component, and between them those of unit tests.

    The longest is first: what takes long and begins late leaves the other workers idle.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    quick = [path for path in files if "unit" in path.parts]
    slow = [path for path in files if "unit" not in path.parts]
    for path in sorted(slow, key=lambda path: (path.stem != LONGEST, "e2e" not in path.parts)):
        yield from files[path]
        for other in quick[:QUICK_AFTER_SLOW]:
            yield from files[other]
        del quick[:QUICK_AFTER_SLOW]
    for path in quick:
        yield from files[path]
