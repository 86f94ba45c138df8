"""Everything an esmond-style archive has, in as many answers as it takes.

Lists of tests are asked for by offset: esmond and elmond (perfSONAR 5's archive) count tests the
same way. Results are not. Elmond leaves those without a value out of a page after it has counted
them, so a page that is not full says nothing about what follows; and what is behind it,
OpenSearch, gives nothing beyond the 10,000th. Results are therefore asked for by time, and a time
with so many that some may have been left out is halved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

from monitors.measurements.perfsonar.fetch import Fetch, FetchError, TooLargeError

TESTS = 1000
"""Tests asked for at once: what both archives give where nothing is asked."""

RESULTS = 10_000
"""Results asked for at once: the most that elmond gives."""

_WINDOW_S = 2 * 86_400
_MOST_PAGES = 10_000


def tests(fetch: Fetch, url: str, query: Mapping[str, str]) -> Iterator[list[Any]]:
    """The metadata of all tests, page by page. Raises FetchError."""
    before = None
    for number in range(_MOST_PAGES):
        page = _list(fetch, url, {**query, "limit": str(TESTS), "offset": str(number * TESTS)})
        if not page or page == before:  # an archive that knows no offset gives the same again
            return
        yield page
        before = page


def results(fetch: Fetch, url: str, first: float, last: float) -> Iterator[list[Any]]:
    """All results from ``first`` to ``last`` (Unix seconds), in order of time but for those of one
    answer; some come twice. Nothing where ``last`` is before ``first``. Raises FetchError."""
    begin, end = int(max(0.0, first)), int(last)
    # Ends belong to both sides: a result at 9.5 s is neither up to 9 s nor from 10 s on.
    edges = [*range(begin, end, _WINDOW_S), end]
    for since, until in pairwise(edges) if len(edges) > 1 else [(begin, end)]:
        if since <= until:
            yield from _window(fetch, url, since, until)


def _window(fetch: Fetch, url: str, first: int, last: int) -> Iterator[list[Any]]:
    times = {"time-start": str(first), "time-end": str(last), "limit": str(RESULTS)}
    page: list[Any] = []
    try:
        page = _list(fetch, url, times)
        # Half: of 10,000 results elmond may have left out as many. One that gives more than it was
        # asked for, or what it was not asked for, does as it likes.
        more = RESULTS // 2 <= len(page) <= RESULTS and not _beyond(page, first, last)
    except TooLargeError:
        if last - first < 2:
            raise
        more = True
    if more and last - first >= 2:
        middle = (first + last) // 2
        yield from _window(fetch, url, first, middle)
        yield from _window(fetch, url, middle, last)
    elif page:
        yield page


def _beyond(page: list[Any], first: int, last: int) -> bool:
    times = [one.get("ts") for one in page if isinstance(one, Mapping)]
    return any(isinstance(at, int | float) and not first - 1 <= at <= last + 1 for at in times)


def _list(fetch: Fetch, url: str, query: Mapping[str, str]) -> list[Any]:
    page = fetch(f"{url}?{urlencode({**query, 'format': 'json'})}")
    if not isinstance(page, list):
        raise FetchError(f"{url}: answered {page!r:.80}, expected a list")
    return page
