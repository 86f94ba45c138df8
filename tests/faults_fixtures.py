"""What the tests of faults share: a broker and its door for a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults_door import Door
from faults_world import Service, Switches


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A broker that serves, and is started again whenever it is killed."""
    folder = tmp_path / "broker"
    folder.mkdir()
    with Service(folder) as up:
        yield up


@pytest.fixture
def switches(tmp_path: Path) -> Iterator[Switches]:
    """Switches that are a process of their own, for a ``service`` that uses them."""
    folder = tmp_path / "broker"
    folder.mkdir()
    with Switches(folder) as up:
        yield up


@pytest.fixture
def door(service: Service) -> Iterator[Door]:
    """What stands before the broker."""
    made = Door(service.port)
    yield made
    made.close()
