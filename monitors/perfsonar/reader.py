"""Reads esmond-style archives again and again, each result once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from monitors.archive import Archive, Selection
from monitors.background import Background
from monitors.perfsonar import esmond
from monitors.perfsonar.data import Remote
from monitors.perfsonar.esmond import BESIDE, CLOCKS, DELAYS, READ, RUNS, Series
from monitors.perfsonar.fetch import Fetch, FetchError
from monitors.perfsonar.hosts import Hosts
from monitors.perfsonar.results import SOURCE
from network_provisioner.errors import AdonError, InputError

_log = logging.getLogger(__name__)

PAGE = 1000
_MOST_PAGES = 10_000
OVERLAP_S = 6 * 3600.0
"""Results may reach an archive late, as pScheduler tries again for hours: so much of what was read
is read again. Ids keep it from being recorded twice."""

_SETTLED_S = 600.0  # by then the run of a result stands beside it, or never will


@dataclass
class Reader:
    """Reads one archive. ``read`` is where each series was read up to (Unix seconds)."""

    remote: Remote
    hosts: Hosts
    archive: Archive
    fetch: Fetch
    read: dict[str, float] = field(default_factory=dict)

    def once(self, now: float) -> int:
        """Reads what is new, and returns how many measurements were recorded.

        Raises FetchError where the archive does not answer, ArchiveError where ours cannot be
        written. What was read before stays, and the next time goes on from there.
        """
        recorded = 0
        for tests in self._metadata():
            beside = {one.event_type: one for one in tests if one.event_type in BESIDE}
            for one in tests:
                if one.event_type in READ:
                    recorded += self._series(one, beside, now)
        return recorded

    def _metadata(self) -> Iterator[list[Series]]:
        for found in self._pages(self.remote.url, dict(self.remote.only)):
            for metadata in found:
                try:
                    yield esmond.series_of(metadata, self.remote.url, self.hosts)
                except InputError as error:
                    _log.warning("perfSONAR archive %s: %s", self.remote.url, error)

    def _series(self, one: Series, beside: Mapping[str, Series], now: float) -> int:
        since = self._since(one, now)
        if one.updated is not None and one.updated < since:
            return 0
        recorded = 0
        for page in self._points(one, since, now):
            runs = esmond.runs_of(self._beside(beside.get(RUNS), page))
            clocks: dict[int, Any] = {}
            if one.event_type == DELAYS:
                clocks.update(self._beside(beside.get(CLOCKS), page))
            settled = now - _SETTLED_S if RUNS in beside else now + 1
            points = [(at, value) for at, value in page if at in runs or at < settled]
            taken, problem = esmond.measurements(one, points, runs, clocks)
            if problem:
                _log.warning("perfSONAR archive %s: %s", self.remote.url, problem)
            recorded += self.archive.record_many(taken)
        self.read[one.id] = now
        return recorded

    def _beside(self, one: Series | None, page: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        """What another event type has for the times of a page."""
        if one is None or not page:
            return []
        return [point for some in self._points(one, page[0][0], page[-1][0]) for point in some]

    def _since(self, one: Series, now: float) -> float:
        """Where to go on: after what was read, be it by a process before this one."""
        until = self.read.get(one.id) or self._known_until(one)
        return now - self.remote.back_s if until is None else until - OVERLAP_S

    def _known_until(self, one: Series) -> float | None:
        """The newest of our measurements that this test gave."""
        wanted = Selection((), one.subject, source=SOURCE)
        for _, found in self.archive.page(wanted, newest=True, limit=PAGE):
            if found.details.get("archive_key") == one.key:
                return found.at
        return None

    def _points(self, one: Series, since: float, until: float) -> Iterator[list[tuple[int, Any]]]:
        limits = {"time-start": str(int(max(0.0, since))), "time-end": str(int(until))}
        for page in self._pages(one.url, limits):
            try:
                yield esmond.points_of(page)
            except InputError as error:
                _log.warning("perfSONAR archive %s: %s: %s", self.remote.url, one.id, error)
                return

    def _pages(self, url: str, query: dict[str, str]) -> Iterator[list[Any]]:
        """Page by page, until one is not full."""
        offset, before = 0, None
        for _ in range(_MOST_PAGES):
            asked = {**query, "format": "json", "limit": str(PAGE), "offset": str(offset)}
            page = self.fetch(f"{url}?{urlencode(asked)}")
            if not isinstance(page, list):
                raise FetchError(f"{url}: answered {page!r:.80}, expected a list")
            if not page or page == before:  # an archive that knows no offset gives the same again
                return
            yield page
            if len(page) < PAGE:
                return
            offset, before = offset + len(page), page


class Readers:
    """All archives, in one thread."""

    def __init__(self, readers: Sequence[Reader], clock: Callable[[], float]) -> None:
        """``clock`` gives Unix seconds."""
        self._readers = list(readers)
        self._clock = clock
        self._thread = Background("perfsonar", self._run)
        self._stop = self._thread.stopping

    def start(self) -> None:
        """Begin, where there is anything to read."""
        if self._readers:
            self._thread.start()

    def stop(self) -> None:
        """End, and wait for it."""
        self._thread.stop()

    def _run(self) -> None:
        due = dict.fromkeys(range(len(self._readers)), 0.0)
        while not self._stop.is_set():
            now = self._clock()
            for number, reader in enumerate(self._readers):
                if due[number] <= now and not self._stop.is_set():
                    due[number] = now + reader.remote.every_s
                    self._once(reader)
            self._stop.wait(max(0.2, min(due.values()) - self._clock()))

    def _once(self, reader: Reader) -> None:
        try:
            recorded = reader.once(self._clock())
            if recorded:
                _log.info("perfSONAR archive %s: %d new", reader.remote.url, recorded)
        except AdonError as error:
            _log.warning("perfSONAR archive: %s", error)
        except Exception:  # whatever an archive answered, the others are read on
            _log.exception("perfSONAR archive %s", reader.remote.url)
