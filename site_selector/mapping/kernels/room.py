"""Whether the files of a mapping fit on the sites' disks.

Where a site's jobs share their files, a file takes space there from the level of the workflow in
which it is first written or read to the one in which it is last used; what the workflow wants back
stays a level longer, until it has been moved. Pegasus's clean-up ``inplace`` goes by levels as
well. Without it a file stays to the end. An input of the workflow that lies at the site takes none,
and neither do the files that a job brings or fetches for itself: HTCondor finds it a slot with
enough disk. Files that are staged elsewhere take space there if that is one of the sites.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from site_selector.cost import Array
from site_selector.mapping.kernels.data import FETCHES, IntArray, Shape
from site_selector.problem import NEVER_S, Problem


def room_of(shape: Shape, problem: Problem) -> Room | None:
    """None if all files together fit on any of the disks."""
    if not problem.space or sum(problem.size) <= min(problem.space):
        return None
    return Room(shape, problem)


class Room:
    """What mappings of one problem need of each site's disk."""

    def __init__(self, shape: Shape, problem: Problem) -> None:
        self.space = np.array(problem.space)
        self._shape, self._cleans = shape, problem.cleans
        self._size = np.array(problem.size)
        level, writes = np.asarray(shape.level), np.asarray(shape.writes)
        writer = np.asarray(shape.producer)[writes]
        back = writes[np.asarray(shape.returns)[writes] > 0]
        read = np.flatnonzero(np.asarray(shape.own) == 0)
        file = np.concatenate([np.asarray(shape.slot_file)[read], writes, back])
        reader = np.asarray(shape.slot_job)[read]
        job = np.concatenate([reader, writer, np.asarray(shape.producer)[back]])
        at = level[job]
        at[len(at) - len(back) :] += 1
        order = np.argsort(at, kind="stable")
        self._file, self._job, self._level = file[order], job[order], at[order]
        self._allowed, self._shared = np.asarray(shape.allowed), np.asarray(shape.shared)
        self._held, self._group = np.asarray(shape.held), np.asarray(shape.group)[self._file]

    def needs(self, assignment: Sequence[int] | IntArray) -> Array:
        """The most bytes that a mapping has at each site at once."""
        shape, n_sites = self._shape, self._shape.n_sites
        at = self._job * n_sites + np.asarray(assignment, dtype=np.int64)[self._job]
        site = self._shared[at]
        lies = (self._group >= 0) & (self._held[self._group * shape.n_places + site] > 0)
        kept = ~lies & (self._allowed[at] != FETCHES) & (site < n_sites)
        file_at, level = self._file[kept] * n_sites + site[kept], self._level[kept]
        levels = int(self._level[-1]) + 1 if len(self._level) else 1
        first = np.full(shape.n_files * n_sites, -1, dtype=np.int64)
        last = first.copy()
        first[file_at[::-1]] = level[::-1]  # the earliest use is assigned last
        last[file_at] = level
        there = np.flatnonzero(first >= 0)
        where, size = there % n_sites, self._size[there // n_sites]
        gone = last[there] + 1 if self._cleans else np.full(len(there), levels)
        come_go = np.zeros((levels + 1) * n_sites)
        for at, amount in ((first[there], size), (gone, -size)):
            come_go += np.bincount(at * n_sites + where, amount, len(come_go))
        most: Array = come_go.reshape(-1, n_sites).cumsum(axis=0).max(axis=0)
        return most

    def lack_s(self, assignment: Sequence[int] | IntArray) -> float:
        """0 for a mapping that fits. One that does not never ends, and of those the one with less
        beyond a disk is the lesser evil."""
        beyond = float(np.maximum(self.needs(assignment) - self.space, 0.0).sum())
        return NEVER_S * (1.0 + beyond / float(self._size.sum())) if beyond >= 1 else 0.0
