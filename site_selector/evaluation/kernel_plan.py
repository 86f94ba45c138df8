"""What the kernels of the simulator work on: vectors."""

from __future__ import annotations

from typing import NamedTuple

from site_selector.mapping.kernel_data import Floats, Ints


class Plan(NamedTuple):
    """What is executed. ``x_at[i]`` to ``x_at[i + 1]`` is the range of i's entries in ``x``.

    ``rank`` orders jobs that wait for a worker, the least first; ``source`` is where a place takes
    an input file of the workflow from (file * n_places + place), -1 for results; ``wanted[f]`` is 1
    for a result that goes to the place ``output``.
    """

    n_jobs: int
    n_sites: int
    n_places: int
    n_files: int
    output: int
    per_job: bool
    parents_at: Ints
    children_at: Ints
    children: Ints
    reads_at: Ints
    writes_at: Ints
    writes: Ints
    readers_at: Ints
    readers: Ints
    source: Ints
    wanted: Ints
    rank: Floats
    compute: Floats
    queue: Floats
    workers: Ints
    size: Floats
    per_byte: Floats


class State(NamedTuple):
    """What happens: work space, and afterwards the record.

    ``key``, ``left`` and ``right`` of jobs serve two heaps, because a job is never in both: what
    happens next, by time, and who waits for a worker of a site, by rank.
    """

    counts: Ints
    missing: Ints  # parents that are not done and files that are not there
    ready: Floats
    start: Floats
    end: Floats
    running: Ints
    key: Floats
    left: Ints
    right: Ints
    free: Ints
    queue_root: Ints
    touched: Ints
    seen: Ints
    link_root: Ints
    link_count: Ints
    service: Floats
    updated: Floats
    next_end: Floats
    move_file: Ints
    move_src: Ints
    move_dst: Ints
    move_for: Ints
    move_start: Floats
    move_end: Floats
    move_key: Floats
    move_left: Ints
    move_right: Ints
