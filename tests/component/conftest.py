"""A browser for the tests of pages, one for each file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import Browser, Page, browsing


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.tab() as opened:
        opened.look()
        yield opened
