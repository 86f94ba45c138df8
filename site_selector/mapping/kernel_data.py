"""What kernels work on: a problem as flat vectors.

Where something has several things (a job its inputs), ``x_at[i]`` to ``x_at[i + 1]`` is the range
of its entries in ``x``. A *slot* is one job's use of one input file; slots run over jobs in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, SupportsIndex


class Ints(Protocol):
    """A vector of integers that can be changed in place."""

    def __getitem__(self, at: SupportsIndex, /) -> int: ...
    def __setitem__(self, at: SupportsIndex, value: int, /) -> None: ...
    def __iter__(self) -> Iterator[int]: ...
    def __len__(self) -> int: ...


class Floats(Protocol):
    """A vector of floating point numbers that can be changed in place."""

    def __getitem__(self, at: SupportsIndex, /) -> float: ...
    def __setitem__(self, at: SupportsIndex, value: float, /) -> None: ...
    def __len__(self) -> int: ...


class Shape(NamedTuple):
    """What a problem consists of, without any number that could be believed wrongly.

    ``group`` tells which input files of the workflow lie at the same places, -1 for results.
    ``per_job``: every job moves its own inputs, also those that others moved to its site.
    """

    n_jobs: int
    n_sites: int
    n_places: int
    n_files: int
    n_slots: int
    n_groups: int
    output: int
    per_job: bool
    parents_at: Ints
    parents: Ints
    children_at: Ints
    children: Ints
    slots_at: Ints
    slot_file: Ints
    slot_job: Ints
    writes_at: Ints
    writes: Ints
    returns: Ints  # by file: whether the workflow wants it back
    producer: Ints
    group: Ints
    level: Ints
    allowed: Ints  # job * n_sites + site -> 1 where the job can run
    held: Ints  # group * n_places + place -> 1 where the files of the group lie
    holders_at: Ints  # by group
    holders: Ints


class Order(NamedTuple):
    """What is settled before a workflow starts: who goes first, and which replica is taken.

    Jobs are numbered by urgency here, the most urgent first, which keeps together in memory what
    happens at about the same time; ``by_position`` tells their numbers in the problem.

    A *use* is a slot in another order: those of input files of the workflow first (``n_first``),
    then, by ``out_at``, those of each job's results; the most urgent reader first, then by file.
    ``use_row`` numbers the input files, or the results of one job. ``returns`` are the results that
    the workflow wants back. ``source`` is where a place fetches a file of a group, itself where it
    has it: group * n_places + place.
    """

    by_position: Ints
    parents: Ints  # how many
    rows: Ints  # how many files the job writes
    children_at: Ints
    children: Ints
    n_first: int
    n_first_rows: int
    use_job: Ints
    use_file: Ints
    use_row: Ints
    out_at: Ints
    returns_at: Ints
    returns_file: Ints
    returns_row: Ints
    source: Ints


class Numbers(NamedTuple):
    """What can be believed wrongly. Seconds, bytes; matrices row by row."""

    compute: Floats
    queue: Floats
    workers: Ints
    size: Floats
    per_byte: Floats
    occupied: Floats
    setup: Floats


class Room(NamedTuple):
    """Work space of one simulation, and what it leaves behind. Jobs are numbered by urgency.

    ``total`` is the makespan and the sum of all computing and moving; ``counts`` the transfers that
    are noted in ``move_*`` and the events that are waiting.
    """

    site: Ints
    waiting: Ints
    ready: Floats
    start: Floats
    end: Floats
    there: Floats  # row * n_places + place: when a file will be there, below zero if it is not sent
    busy: Floats
    free: Ints
    queued: Ints
    queued_at: Ints
    queued_count: Ints
    touched: Ints
    heap: Ints
    when: Floats
    move_file: Ints
    move_src: Ints
    move_dst: Ints
    move_start: Floats
    move_end: Floats
    total: Floats
    counts: Ints


class Sharing(NamedTuple):
    """Work space beside that of ``Room``. Paths are numbered from * n_places + to.

    ``missing``: by job, inputs that are still to come. ``number`` is ``Room.there`` for transfers:
    which one moves a file to a place, -1 where none does. ``first`` and ``under_way`` are a path's
    heap and its length; ``next_s`` is when the first of them ends if nothing comes between;
    ``active`` are the paths (``n_active[0]`` of them) where any is under way. By transfer: ``due``
    on its path's clock, ``left`` and ``right`` of the heap, ``path``, and the last of the uses that
    wait for it, of which each knows the one before (``before``).
    """

    missing: Ints
    number: Ints
    first: Ints
    under_way: Ints
    clock: Floats
    set_s: Floats
    next_s: Floats
    active: Ints
    n_active: Ints
    due: Floats
    left: Ints
    right: Ints
    use: Ints
    before: Ints
