"""T_t of every job at every site, seen from a finished mapping.

A job's inputs lie where the mapping has put their producers. A file that must move to a site is
charged to the first job that needs it there, once (of jobs that fetch: to every one that does not
find it at its site); results that the workflow wants back are charged to the job that writes them.
Of a job whose files are staged at another place, what it brings from there and takes back is.
N is the job's share of the site's workers: one worker, or less where the jobs that the mapping put
there on the same level outnumber the workers and take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from network_provisioner.base.units import BITS_PER_BYTE
from site_selector.cost import Array, Terms, total_time
from site_selector.mapping.estimator import Schedule
from site_selector.mapping.kernels.data import (
    FETCHES,
    Shape,
    allowed_mask,
    returned_bytes,
    shape_of,
    shared_places,
    sources,
)
from site_selector.problem import NEVER_S, Problem

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class JobTerms:
    """Arrays of shape (jobs, sites). Terms are infinite where a job cannot run.

    ``s_t_bytes`` is S_t. ``moves`` takes it apart.
    """

    terms: Terms
    share: Array
    s_t_bytes: Array
    _first_read: Indices  # of each job, and one more
    _source: Indices  # (reads, sites): the place that the file comes from
    _charged: Array  # (reads, sites): bytes that move
    _written: Array  # (jobs, sites): bytes that a job takes to where its files are staged
    _shared: Indices  # (jobs, sites): where its files are there for all
    _back: Array  # of each job: bytes of its results that are wanted at the output site
    _output: int

    def moves(self, job: int, site: int) -> dict[tuple[int, int], float]:
        """Bytes that move from place to place where ``job`` runs at ``site``; they add up to S_t.

        What moves between the same two places is one entry.
        """
        out: dict[tuple[int, int], float] = {}
        for read in range(self._first_read[job], self._first_read[job + 1]):
            size = float(self._charged[read, site])
            if size > 0:
                key = (int(self._source[read, site]), site)
                out[key] = out.get(key, 0.0) + size
        at = int(self._shared[job, site])
        for size, path in (
            (float(self._written[job, site]), (site, at)),
            (float(self._back[job]), (at, self._output)),
        ):
            if size > 0 and path[0] != path[1]:
                out[path] = out.get(path, 0.0) + size
        return out


def job_terms(problem: Problem, assignment: Sequence[int], schedule: Schedule) -> JobTerms:
    """Evaluate Algorithm 4 for all jobs and sites, ``schedule`` being that of ``assignment``.

    Takes time and memory in proportion to (files that jobs read) x sites.
    """
    n_jobs, n = len(problem.jobs), problem.n_sites
    at = np.asarray(assignment, dtype=np.int64)
    shape = shape_of(problem)
    job, file = np.asarray(shape.slot_job), np.asarray(shape.slot_file)
    size = np.asarray(problem.size, dtype=np.float64)
    seconds_per_byte = np.where(
        problem.seconds_per_byte < NEVER_S, problem.seconds_per_byte, np.inf
    )
    shared = shared_places(problem)
    staged = shared != np.arange(n)
    own = np.asarray(shape.own)[:, None] > 0
    source = np.where(staged[job] & ~own, shared[job], _sources(shape, problem, at))
    charged = np.where(source != np.arange(n), size[file][:, None], 0.0)
    share_files = (np.asarray(shape.allowed).reshape(n_jobs, n) != FETCHES) & ~staged
    share_reads = share_files[job] & ~own
    together = share_reads[np.arange(len(job)), at[job]]
    start_s = np.asarray(schedule.start_s)
    moved_files = _moved_before(job, file, at, start_s, n, together)
    charged[moved_files & share_reads] = 0.0
    to_site = _product(charged, seconds_per_byte[source, np.arange(n)])
    s_t_bytes = _sum_rows(charged, job, n_jobs)
    seconds = _sum_rows(to_site, job, n_jobs)
    back = np.zeros(n_jobs)
    written = np.zeros((n_jobs, n))
    if staged.any():
        own = np.array([size[list(files)].sum() for files in problem.writes])
        written = staged * own[:, None]
        s_t_bytes += written
        seconds += _product(written, seconds_per_byte[np.arange(n), shared])
    if problem.output >= 0:
        back = returned_bytes(shape, problem)
        away = back[:, None] * (shared != problem.output)
        s_t_bytes += away
        seconds += _product(away, seconds_per_byte[shared, problem.output])
    share = _shares(problem, at)
    # One rate per job and site that gives the sum over all its moves.
    rate = np.divide(
        s_t_bytes * BITS_PER_BYTE, seconds, out=np.full_like(seconds, np.inf), where=seconds > 0
    )
    gamma_c = np.divide(
        problem.input_bytes[:, None],
        problem.compute_s,
        out=np.zeros_like(seconds),
        where=allowed_mask(shape) & (problem.compute_s > 0),
    )
    queue = np.where(problem.queue_s >= NEVER_S, np.inf, problem.queue_s)
    terms = total_time(queue, problem.input_bytes[:, None], share, gamma_c, s_t_bytes, rate, rate)
    return JobTerms(
        terms,
        share,
        s_t_bytes,
        np.asarray(shape.slots_at),
        source,
        charged,
        written,
        shared,
        back,
        problem.output,
    )


def _sources(shape: Shape, problem: Problem, at: Indices) -> Indices:
    """(reads, sites): where each site would fetch each file from, itself where it is there."""
    file, n = np.asarray(shape.slot_file), problem.n_sites
    producer, group = np.asarray(shape.producer)[file], np.asarray(shape.group)[file]
    nearest = sources(shape, problem.seconds_per_byte).reshape(-1, shape.n_places)[:, :n]
    made = at[np.maximum(producer, 0)][:, None]
    return np.asarray(np.where(producer[:, None] < 0, nearest[np.maximum(group, 0)], made))


def _moved_before(
    job: Indices,
    file: Indices,
    at: Indices,
    start_s: Array,
    n_sites: int,
    together: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """(reads, sites): whether another job that the mapping put there has had the file moved, in a
    read that is ``together`` with others there."""
    key = file * n_sites + at[job]
    order = np.lexsort((job, start_s[job], key))
    order = order[together[order]]
    keys, leading = np.unique(key[order], return_index=True)
    first = order[leading]  # the read that comes first, for every file and site of a reader
    wanted = file[:, None] * n_sites + np.arange(n_sites)
    if not len(keys):
        return np.zeros(wanted.shape, dtype=bool)
    position = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    other, mine = job[first[position]], job[:, None]
    earlier = (start_s[other] < start_s[mine]) | (
        (start_s[other] == start_s[mine]) & (other < mine)
    )
    return np.asarray((keys[position] == wanted) & earlier)


def _product(size: Array, seconds_per_byte: Array) -> Array:
    """Their product, zero where nothing moves, however long a byte would take."""
    return np.where(size > 0, size * np.where(size > 0, seconds_per_byte, 0.0), 0.0)


def _sum_rows(values: Array, job: Indices, n_jobs: int) -> Array:
    out = np.zeros((n_jobs, values.shape[1]))
    np.add.at(out, job, values)
    return out


def _shares(problem: Problem, at: Indices) -> Array:
    """N of Algorithm 4: one worker, or a share of one where jobs of the level take turns."""
    n = problem.n_sites
    level = np.asarray(problem.level, dtype=np.int64)
    crowd = np.zeros((int(level.max(initial=0)) + 1, n))
    np.add.at(crowd, (level, at), 1)
    others = crowd[level]
    others[np.arange(len(at)), at] -= 1
    return np.minimum(1.0, np.asarray(problem.workers, dtype=np.float64) / (others + 1))
