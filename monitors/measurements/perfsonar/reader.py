"""Reads esmond-style archives again and again, each result once."""

from __future__ import annotations

import json
import logging
import math
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any
from urllib.parse import urlencode

from monitors.archive.archive import Archive, Selection
from monitors.base.background import Background
from monitors.base.measurement import believable
from monitors.measurements.perfsonar import esmond
from monitors.measurements.perfsonar.convert import FAILURE
from monitors.measurements.perfsonar.esmond import (
    BESIDE,
    CLOCKS,
    DELAYS,
    FAILURES,
    READ,
    RUNS,
    Series,
)
from monitors.measurements.perfsonar.results import SOURCE, not_yet
from monitors.measurements.perfsonar.settings import Hosts, Remote
from network_provisioner.base.errors import AdonError, InputError

_log = logging.getLogger(__name__)

OVERLAP_S = 6 * 3600.0
"""Results may reach an archive late, as pScheduler tries again for hours: so much of what was read
is read again. Ids keep it from being recorded twice."""

_NEWEST = 1000  # of our measurements, among which those that a test gave are looked for
_REGULAR = 3  # results, from which on the time between two is known
_GONE_S = 7 * 86_400.0  # a test that gave nothing for so long is over
_SETTLED_S = 600.0  # by then the run of a result stands beside it, or never will
TESTS = 1000
"""Tests asked for at once: what both archives give where nothing is asked."""
RESULTS = 10_000
"""Results asked for at once: the most that elmond gives."""
_WINDOW_S = 2 * 86_400
_MOST_PAGES = 10_000
_TIMEOUT_S = 30.0
_MOST_BYTES = 64 * 1024 * 1024
Fetch = Callable[[str], Any]
"""The JSON at a URL. Raises FetchError."""


@dataclass
class Reader:
    """Reads one archive. ``read`` is where each series was read up to, ``listed`` from when on
    tests are worth a look (Unix seconds). ``answered_at``: when the archive did so last, or was
    asked first; ``newest``: of each series the last result's Unix second, and the usual time
    between two of them."""

    remote: Remote
    hosts: Hosts
    archive: Archive
    fetch: Fetch
    read: dict[str, float] = field(default_factory=dict)
    listed: float | None = None
    answered_at: float = 0.0
    newest: dict[Series, tuple[float, float]] = field(default_factory=dict)

    def once(self, now: float) -> int:
        """Reads what is new, and returns how many measurements were recorded.

        Raises FetchError where the archive does not answer, ArchiveError where ours cannot be
        written. What was read before stays, and the next time goes on from there. Where it
        answers that it cannot give some results, the others are read.
        """
        self.answered_at = self.answered_at or now
        recorded, whole = 0, True
        for tests in self._tests(now):
            beside = {test.event_type: test for test in tests if test.event_type in BESIDE}
            starts = [(test, self._since(test, now)) for test in tests if test.event_type in READ]
            for test, since in starts:
                try:
                    recorded += self._series(test, beside, since, now)
                except RefusedError as error:
                    _log.warning("perfSONAR archive: %s", error)
                    whole = False
        if whole:
            self.listed = now - OVERLAP_S
        self.answered_at = now
        return recorded

    def silent(self, clock: Callable[[], float]) -> dict[str, tuple[float, str]]:
        """The archive, if it has not answered for two of its periods; else its series that should
        have had two more results by now, with the time of the last."""
        now, every_s, url = clock(), self.remote.every_s, self.remote.url
        if self.answered_at and now > self.answered_at + 2 * every_s + _TIMEOUT_S:
            return {f"perfSONAR archive {url}": (self.answered_at, "it does not answer")}
        return {
            f"perfSONAR {series.event_type} {series.subject}": (at, f"no result comes, at {url}")
            for series, (at, gap_s) in list(self.newest.items())
            if 0 <= now - at - 2 * gap_s - every_s - _SETTLED_S < _GONE_S
        }

    def _note_newest(self, series: Series, times: Sequence[float]) -> None:
        if len(times) >= _REGULAR:
            gaps = [b - a for a, b in pairwise(sorted(times))]
            self.newest[series] = max(times), median(gaps)
        elif times and series in self.newest:
            at, gap_s = self.newest[series]
            self.newest[series] = max(at, *times), gap_s

    def _tests(self, now: float) -> Iterator[list[Series]]:
        """The tests that may have something new, each as its series."""
        if self.listed is None:
            self.listed = self._left_off(now)
        url, query = self.remote.url, dict(self.remote.only)
        query["time-start"] = str(int(max(0.0, self.listed)))
        reverse: set[str] | None = None
        for page in listed_tests(self.fetch, url, query):
            for metadata in page:
                if reverse is None and esmond.hides_reverse(metadata):
                    reverse = self._reverse(query)
                try:
                    yield esmond.series_of(metadata, url, self.hosts, reverse or ())
                except InputError as error:
                    _log.warning("perfSONAR archive %s: %s", url, error)

    def _reverse(self, query: dict[str, str]) -> set[str]:
        """The keys of the tests that were done in reverse."""
        return {
            str(metadata["metadata-key"])
            for page in listed_tests(self.fetch, self.remote.url, {**query, "reverse": "true"})
            for metadata in page
            if esmond.hides_reverse(metadata) and "metadata-key" in metadata
        }

    def _series(
        self, series: Series, beside: Mapping[str, Series], since: float, now: float
    ) -> int:
        recorded = 0
        for page in self._points(series, since, now):
            runs = esmond.runs_of(self._beside(beside.get(RUNS), page))
            clocks: dict[int, Any] = {}
            if series.event_type == DELAYS:
                clocks.update(self._beside(beside.get(CLOCKS), page))
            self._note_newest(series, [at for at, _ in page])
            settled = now - _SETTLED_S if RUNS in beside else now + 1
            points = [(at, value) for at, value in page if at in runs or at < settled]
            if series.event_type == FAILURES:
                points = [
                    point for point in points if point[0] in runs or self._is_new(series, point)
                ]
            measurements, problem = esmond.measurements(series, points, runs, clocks)
            taken, doubt = believable(measurements, now)
            for why in filter(None, (problem, doubt)):
                _log.warning("perfSONAR archive %s: %s", self.remote.url, why)
            recorded += self.archive.record_many(not_yet(taken, self.archive))
        self.read[series.id] = now
        return recorded

    def _is_new(self, series: Series, point: tuple[int, Any]) -> bool:
        """Whether no failure was posted of the run that this one is of: elmond does not say which
        run it is."""
        at, _ = point
        return not any(
            "run" in known.details and known.details.get("test") == series.test
            for known in self.archive.query(FAILURE, series.subject, since=at, until=at + 1)
        )

    def _beside(self, series: Series | None, page: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        """What another event type has for the times of a page."""
        if series is None or not page:
            return []
        last = page[-1][0] + 1  # the whole of that second
        return [point for some in self._points(series, page[0][0], last) for point in some]

    def _since(self, series: Series, now: float) -> float:
        """Where to go on: after what was read, be it by a process before this one."""
        until = self.read.get(series.id)
        if until is None:
            until = self._newest(lambda of: of == (series.key, series.event_type), series.subject)
        return now - self.remote.back_s if until is None else until - OVERLAP_S

    def _left_off(self, now: float) -> float:
        """From when on tests are worth a look at the start."""
        until = self._newest(lambda of: of[0] is not None)
        back = now - self.remote.back_s
        return back if until is None else min(back, until - OVERLAP_S)

    def _newest(
        self, gave: Callable[[tuple[Any, Any]], bool], subject: str | None = None
    ) -> float | None:
        """When the newest of our measurements that such a series gave was made, None where none
        did."""
        ours = Selection((), subject, source=SOURCE)
        for _, measurement in self.archive.page(ours, newest=True, limit=_NEWEST):
            if gave(
                (measurement.details.get("archive_key"), measurement.details.get("archive_type"))
            ):
                return measurement.at
        return None

    def _points(
        self, series: Series, since: float, until: float
    ) -> Iterator[list[tuple[int, Any]]]:
        some = False
        for page in listed_results(self.fetch, series.url, since, until):
            some = True
            yield from self._understood(series, page)
        if not some and series.statistics:
            for page in listed_results(self.fetch, series.statistics, since, until):
                yield from self._understood(series, page)

    def _understood(self, series: Series, page: list[Any]) -> Iterator[list[tuple[int, Any]]]:
        try:
            yield esmond.points_of(page)
        except InputError as error:
            _log.warning("perfSONAR archive %s: %s: %s", self.remote.url, series.id, error)


class Readers(Background):
    """All archives, in one thread."""

    def __init__(self, readers: Sequence[Reader], clock: Callable[[], float]) -> None:
        """``clock`` gives Unix seconds."""
        super().__init__("perfsonar", self._run)
        self._readers, self._clock = list(readers), clock

    def _run(self) -> None:
        due = [-math.inf] * len(self._readers)  # steady seconds: the clock may be set back
        while not self.stopping.is_set():
            for number, reader in enumerate(self._readers):
                if due[number] <= time.monotonic() and not self.stopping.is_set():
                    due[number] = time.monotonic() + reader.remote.every_s
                    self._once(reader)
            self.stopping.wait(max(0.2, min(due) - time.monotonic()))

    def _once(self, reader: Reader) -> None:
        try:
            recorded = reader.once(self._clock())
            if recorded:
                _log.info("perfSONAR archive %s: %d new", reader.remote.url, recorded)
        except AdonError as error:
            _log.warning("perfSONAR archive: %s", error)
        except Exception:  # whatever an archive answered, the others are read on
            _log.exception("perfSONAR archive %s", reader.remote.url)


def listed_tests(fetch: Fetch, url: str, query: Mapping[str, str]) -> Iterator[list[Any]]:
    """The metadata of all tests, page by page. Raises FetchError."""
    before = None
    for number in range(_MOST_PAGES):
        page = _list(fetch, url, {**query, "limit": str(TESTS), "offset": str(number * TESTS)})
        if not page or page == before:  # an archive that knows no offset gives the same again
            return
        yield page
        before = page


def listed_results(fetch: Fetch, url: str, first: float, last: float) -> Iterator[list[Any]]:
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
    times = [point.get("ts") for point in page if isinstance(point, Mapping)]
    return any(isinstance(at, int | float) and not first - 1 <= at <= last + 1 for at in times)


def _list(fetch: Fetch, url: str, query: Mapping[str, str]) -> list[Any]:
    page = fetch(f"{url}?{urlencode({**query, 'format': 'json'})}")
    if not isinstance(page, list):
        raise FetchError(f"{url}: answered {page!r:.80}, expected a list")
    return page


class FetchError(AdonError):
    """An archive did not answer, or answered with something else than JSON."""


class RefusedError(FetchError):
    """An archive answered that it will not, or cannot, answer this."""


class TooLargeError(RefusedError):
    """An archive answered more than is taken at once."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirection could lead the token anywhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


def fetch_of(remote: Remote) -> Fetch:
    """How to ask an archive. Raises InputError where its files cannot be read."""
    try:
        file: object = remote.ca
        context = ssl.create_default_context(cafile=remote.ca)
        file = remote.token_file
        token = remote.token_file.read_text().strip() if remote.token_file else ""
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"perfSONAR archive {remote.url}: {file}: {why}") from error
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect)
    headers = {"Accept": "application/json"}
    if token:
        headers["Authorization"] = f"Token {token}"

    def fetch(url: str) -> Any:
        request = urllib.request.Request(url, headers=headers)
        try:
            with opener.open(request, timeout=_TIMEOUT_S) as answer:
                body = answer.read(_MOST_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise RefusedError(f"{url}: answered {error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            raise FetchError(f"{url}: {error}") from error
        if len(body) > _MOST_BYTES:
            raise TooLargeError(f"{url}: answered more than {_MOST_BYTES} bytes")
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise FetchError(f"{url}: answered no JSON: {error}") from error

    return fetch
