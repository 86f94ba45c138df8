"""How many jobs of a workflow ran and waited, over time and by site. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from monitors.base.measurement import Measurement
from monitors.workflows.analysis import number, split_subject

_DECIMALS = 3


@dataclass(frozen=True, slots=True)
class SiteTimeline:
    """The mean number of jobs in each bin that ran at a site, and that waited for a slot there."""

    site: str
    running: list[float]
    waiting: list[float]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Bins of ``width_s`` seconds from Unix second ``start`` on; ``attempts`` of jobs are counted,
    those that have ended."""

    start: float = 0.0
    width_s: float = 0.0
    attempts: int = 0
    sites: list[SiteTimeline] = field(default_factory=list)


def timeline(jobs: Iterable[Measurement], bins: int) -> Timeline:
    """Of ``job`` measurements; what has no times in it is passed over."""
    spans = list(_spans(jobs))
    if not spans:
        return Timeline()
    start = min(submitted for _, submitted, _, _ in spans)
    width = max((max(ended for *_, ended in spans) - start) / bins, 1e-3)
    rows: dict[str, tuple[_Bins, _Bins]] = defaultdict(
        lambda: (_Bins(start, width, bins), _Bins(start, width, bins))
    )
    for site, submitted, began, ended in spans:
        running, waiting = rows[site]
        waiting.add(submitted, began)
        running.add(began, ended)
    sites = [SiteTimeline(site, *(row.means() for row in rows[site])) for site in sorted(rows)]
    return Timeline(start, width, len(spans), sites)


def _spans(jobs: Iterable[Measurement]) -> Iterator[tuple[str, float, float, float]]:
    for job in jobs:
        began = number(job, "started_at")
        if began is not None and began <= job.at:
            submitted = number(job, "submitted_at")
            waited_from = began if submitted is None else min(began, submitted)
            yield split_subject(job.subject)[1], waited_from, began, job.at


class _Bins:
    """Adds up spans of time in bins: whole bins by what changes at their edges, parts by
    themselves."""

    def __init__(self, start: float, width: float, bins: int) -> None:
        self._start, self._width, self._last = start, width, bins - 1
        self._parts = [0.0] * bins
        self._changes = [0] * (bins + 1)

    def add(self, begun: float, ended: float) -> None:
        a, b = (begun - self._start) / self._width, (ended - self._start) / self._width
        first, last = min(int(a), self._last), min(int(b), self._last)
        if first == last:
            self._parts[first] += b - a
            return
        self._parts[first] += first + 1 - a
        self._parts[last] += b - last
        self._changes[first + 1] += 1
        self._changes[last] -= 1

    def means(self) -> list[float]:
        whole = accumulate(self._changes)
        return [round(n + part, _DECIMALS) for n, part in zip(whole, self._parts, strict=False)]
