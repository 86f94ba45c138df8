"""The shape of a DAG however large it is: its jobs by level and kind, small enough to be recorded.

A job's level is one more than the highest of its parents'. Its kind is in its name, as Pegasus
gives it (``bwa_mem_ID0000005``, ``stage_in_remote_tacc_0_0``): no submit file is read for it. A
small DAG has a box for each job, a large one for each kind at each level, a deep one for each kind
at several neighbouring levels.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from monitors.base.measurement import Measurement, number_in

MOST_EACH = 80  # jobs that have a box of their own
OTHER = "other"
_SIZES = ((40, 20), (30, 10), (20, 5), (10, 3))  # bands of levels, and kinds of jobs
_MOST_TEXT = 48_000  # characters of JSON: less than a measurement's details may have
_LONGEST = 100
_ADDED = re.compile(r"(stage_in|stage_out|stage_inter|create_dir|clean_?up|register)_")
_DIGITS, _BEFORE = "0123456789", ("_PID", "_ID", "_", ".", "-")


def kind_of(job: str) -> str:
    """What a job does, by its name; jobs that differ by a number do the same."""
    if added := _ADDED.match(job):
        return added[1]
    kind = job
    while kind != (short := kind.rstrip(_DIGITS)):
        before = next((mark for mark in _BEFORE if short.endswith(mark)), "")
        kind = short.removesuffix(before)
    return (kind or job)[:_LONGEST]


def levels_of(parents: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The level of each job. Jobs that wait for each other in a circle have none; who is no job of
    the DAG is nobody's parent."""
    children: dict[str, list[str]] = {}
    left: dict[str, int] = {}
    for job, above in parents.items():
        known = {parent for parent in above if parent in parents}
        left[job] = len(known)
        for parent in known:
            children.setdefault(parent, []).append(job)
    levels = dict.fromkeys((job for job, count in left.items() if not count), 0)
    ready = list(levels)
    for job in ready:
        below = levels[job] + 1
        for child in children.get(job, ()):
            levels[child] = max(below, levels.get(child, 0))
            left[child] -= 1
            if not left[child]:
                ready.append(child)
    return {job: levels[job] for job in ready}


@dataclass(frozen=True, slots=True)
class Box:
    """``count`` jobs of a ``kind`` in a band of levels; ``job`` is the only one where each has a
    box."""

    band: int
    kind: str
    count: int
    job: str = ""


@dataclass(frozen=True, slots=True)
class DagShape:
    """``jobs`` in ``levels``, of which ``width`` make a band; ``edges`` join boxes by number."""

    jobs: int
    levels: int
    width: int
    boxes: Sequence[Box]
    edges: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, parents: Mapping[str, Sequence[str]], levels: Mapping[str, int]) -> Self:
        """The shape of a DAG by the parents of its jobs and :func:`levels_of` them."""
        for bands, kinds in _SIZES:
            shape = cls._of(parents, levels, bands, kinds)
            if len(json.dumps(shape.as_dict())) <= _MOST_TEXT:
                break
        return shape

    @classmethod
    def _of(
        cls, parents: Mapping[str, Sequence[str]], levels: Mapping[str, int], bands: int, kinds: int
    ) -> Self:
        deep = 1 + max(levels.values(), default=-1)
        each = len(levels) <= MOST_EACH and kinds == _SIZES[0][1]
        width = 1 if each else max(1, -(-deep // bands))
        named = {job: kind_of(job) for job in levels}
        usual = {kind for kind, _ in Counter(named.values()).most_common(kinds)}
        counts: Counter[tuple[int, str, str]] = Counter()
        keys = {}
        for job, level in levels.items():
            kind = named[job] if each or named[job] in usual else OTHER
            keys[job] = key = (level // width, kind, job if each else "")
            counts[key] += 1
        number = {key: n for n, key in enumerate(sorted(counts))}
        joined = {
            (number[keys[parent]], number[keys[job]])
            for job in levels
            for parent in parents[job]
            if parent in keys and keys[parent][0] < keys[job][0]
        }
        boxes = [Box(band, kind, counts[band, kind, job], job) for band, kind, job in number]
        return cls(len(levels), deep, width, boxes, sorted(joined))

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        boxes = [[b.band, b.kind, b.count, *([b.job] if b.job else [])] for b in self.boxes]
        return {
            "jobs": self.jobs, "levels": self.levels, "width": self.width, "boxes": boxes,
            "edges": [list(edge) for edge in self.edges],
        }  # fmt: skip

    @classmethod
    def read(cls, recorded: Measurement) -> Self | None:
        """The inverse, of a ``dag`` measurement; None for one that says none."""
        details = recorded.details
        try:
            boxes = [
                Box(int(band), str(kind), int(count), str(job[0]) if job else "")
                for band, kind, count, *job in details["boxes"]
            ]
            numbers = [int(number_in(details[key]) or 0) for key in ("jobs", "levels", "width")]
            edges = [(int(a), int(b)) for a, b in details["edges"]]
        except (KeyError, TypeError, ValueError):
            return None
        if numbers[2] < 1 or any(not 0 <= n < len(boxes) for edge in edges for n in edge):
            return None
        return cls(numbers[0], numbers[1], numbers[2], boxes, edges)

    def finder(self) -> Mapping[tuple[int, str], int]:
        """The number of each box by band and kind, or by 0 and the name of its job."""
        return {(0, b.job) if b.job else (b.band, b.kind): n for n, b in enumerate(self.boxes)}


def dag_fact(workflow: str, at: float, shape: DagShape, plan: Mapping[str, Any]) -> Measurement:
    """Metric ``dag``: the shape of a workflow, and how it was ``plan``ned, where ADON did."""
    return Measurement(
        id=f"dag:{workflow}",
        metric="dag",
        subject=workflow,
        value=float(shape.jobs),
        unit="1",
        at=at,
        source="submit directory",
        workflow=workflow,
        details={**shape.as_dict(), "plan": dict(plan)},
    )
