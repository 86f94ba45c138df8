"""A browser for the tests of pages and an HTCondor pool, one for each file; a broker that faults
are made for, one for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, Page, browsing
from faults_door import Door
from faults_world import Service, Switches

from adon.machine import packages
from examples.testbed.pool import Pool


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.tab() as opened:
        opened.look()
        yield opened


@pytest.fixture(scope="module")
def pool(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pool]:
    """With the sites in ``POOL`` of the file, if any; the access point runs transfers itself, as
    Pegasus has it."""
    condor = packages.ensure("condor", progress=print)
    sites = getattr(request.module, "POOL", {})
    with Pool(tmp_path_factory.mktemp("pool"), condor, sites) as up:
        yield up


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
