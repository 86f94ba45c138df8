"""A browser for the tests of pages, and an HTCondor pool; one for each file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import Browser, Page, browsing

from adon.machine import packages
from examples.testbed.pool import Pool


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.tab() as opened:
        opened.observe()
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
