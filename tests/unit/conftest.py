"""What many unit tests begin with. A file that needs it otherwise has a fixture of the same name.

Imports are where they are needed: most tests have no broker, which takes a while to load.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from broker_rig import Rig
    from fastapi.testclient import TestClient
    from monitor_files import Submitted
    from planned_world import Planned
    from planner_world import Case

    from monitors.archive.archive import Archive


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """A broker on the demo's network; its clock stands still."""
    from broker_rig import Rig

    return Rig(tmp_path / "state.sqlite")


@pytest.fixture
def web(rig: Rig) -> Iterator[TestClient]:
    """The REST service of the broker, in this process."""
    from api_rig import application
    from fastapi.testclient import TestClient

    with TestClient(application(rig), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def service(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """The broker behind a port of loopback, which commands find in ADON_BROKER."""
    from api_rig import application, serving

    monkeypatch.chdir(tmp_path)
    with serving(application(rig)) as port:
        monkeypatch.setenv("ADON_BROKER", f"http://127.0.0.1:{port}")
        yield rig


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    """An archive without anything in it."""
    from monitors.archive.archive import Archive

    with Archive(tmp_path / "archive.sqlite") as opened:
        yield opened


@pytest.fixture
def planned(tmp_path: Path) -> Submitted:
    """The submit directory of a small workflow that nobody has run yet."""
    from monitor_files import Submitted

    return Submitted(tmp_path / "run0001")


@pytest.fixture
def plan(tmp_path: Path) -> Planned:
    """A submit directory for jobs of the test's own, as pegasus-plan writes it."""
    from planned_world import Planned

    return Planned(tmp_path / "run")


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """A small workflow with its catalogs, to be planned."""
    from planner_world import make_case

    return make_case(tmp_path)
