"""How far a workflow's DAG has come, by level and kind of job: which level it waits for, and when
the jobs of each kind ran; and how many jobs ran and waited over time, by site. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from monitors.base.measurement import Measurement
from monitors.workflows.analysis import number, split_subject, text, whole
from monitors.workflows.planned.levels import OTHER, DagShape, kind_of

DONE = "done"
_FEW, _PART = 10, 0.05  # of the jobs that DAGMan says are done: they have no event, or not yet
_MOST_KINDS = 5  # that are named of a level
_DECIMALS = 3


@dataclass(frozen=True, slots=True)
class BoxRun:
    """When attempts of the jobs of a box ran at a site: from the first start to the last end (Unix
    seconds), ``busy_s`` and ``waited_s`` of all together."""

    site: str
    attempts: int
    failed: int
    started_at: float
    ended_at: float
    busy_s: float
    waited_s: float


@dataclass(frozen=True, slots=True)
class BoxProgress:
    """Jobs of one kind in levels ``level`` to ``until``, counted from 1; ``job`` where it is one.
    A job has ``failed`` of which an attempt has ended and none well."""

    level: int
    until: int
    kind: str
    job: str
    count: int
    done: int
    failed: int
    runs: Sequence[BoxRun]


@dataclass(frozen=True, slots=True)
class AwaitedLevel:
    """The first levels, ``level`` to ``until``, whose jobs are not all done: ``left`` of ``jobs``,
    and the ``kinds`` of those with the most left."""

    level: int
    until: int
    left: int
    jobs: int
    kinds: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class DagProgress:
    """``jobs`` of a DAG in ``levels``; ``edges`` join boxes by number. ``awaits`` is None where
    nothing is left to wait for."""

    jobs: int = 0
    levels: int = 0
    boxes: Sequence[BoxProgress] = ()
    edges: Sequence[tuple[int, int]] = ()
    awaits: AwaitedLevel | None = None


@dataclass(slots=True)
class _Count:
    done: int = 0
    failed: int = 0
    runs: dict[str, list[float]] = field(default_factory=dict)


def progress(shape: DagShape, jobs: Iterable[Measurement], known_done: int = 0) -> DagProgress:
    """Of the ``job`` measurements of a workflow. What is in no box of its DAG is passed over. No
    boxes where many more of its jobs are ``known_done`` than were measured: the archive forgets
    them first, and older versions did not say their levels."""
    finder, kinds = shape.finder(), {box.kind for box in shape.boxes}
    counts = [_Count() for _ in shape.boxes]
    ends: dict[str, tuple[int, bool]] = {}
    for measured in jobs:
        name, level = text(measured, "job"), whole(measured, "level")
        box = finder.get((0, name))
        if box is None and level is not None:
            kind = kind_of(name)
            box = finder.get((level // shape.width, kind if kind in kinds else OTHER))
        if box is None:
            continue
        outcome = text(measured, "outcome")
        ends[name] = (box, outcome == DONE or (name in ends and ends[name][1]))
        _run(counts[box].runs, measured, outcome != DONE)
    counted = sum(done for _, done in ends.values())
    if known_done - counted > max(_FEW, _PART * known_done) or (known_done and not counted):
        return DagProgress(shape.jobs, shape.levels)
    for box, done in ends.values():
        counts[box].done += done
        counts[box].failed += not done
    boxes = [
        BoxProgress(
            box.band * shape.width + 1,
            min(shape.levels, (box.band + 1) * shape.width),
            box.kind, box.job, box.count, count.done, count.failed, _runs(count),
        )
        for box, count in zip(shape.boxes, counts, strict=True)
    ]  # fmt: skip
    return DagProgress(shape.jobs, shape.levels, boxes, shape.edges, _awaits(boxes))


def _run(runs: dict[str, list[float]], measured: Measurement, is_bad: bool) -> None:
    began = number(measured, "started_at")
    if began is None or began > measured.at:
        return
    submitted = number(measured, "submitted_at")
    waited = 0.0 if submitted is None else max(0.0, began - submitted)
    site = split_subject(measured.subject)[1]
    run = runs.setdefault(site, [0, 0, began, measured.at, 0.0, 0.0])
    run[0] += 1
    run[1] += is_bad
    run[2], run[3] = min(run[2], began), max(run[3], measured.at)
    run[4] += measured.at - began
    run[5] += waited


def _runs(count: _Count) -> list[BoxRun]:
    return [
        BoxRun(site, int(run[0]), int(run[1]), *(round(value, _DECIMALS) for value in run[2:]))
        for site, run in sorted(count.runs.items())
    ]


def _awaits(boxes: Sequence[BoxProgress]) -> AwaitedLevel | None:
    first = min((box.level for box in boxes if box.done < box.count), default=None)
    if first is None:
        return None
    level = [box for box in boxes if box.level == first]
    left: dict[str, int] = {}
    for box in level:
        if box.done < box.count:
            left[box.kind] = left.get(box.kind, 0) + box.count - box.done
    named = sorted(left.items(), key=lambda item: (-item[1], item[0]))[:_MOST_KINDS]
    jobs = sum(box.count for box in level)
    return AwaitedLevel(first, level[0].until, sum(left.values()), jobs, named)


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
