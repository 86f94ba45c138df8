"""What kernels work on: a problem as flat vectors, made once for a structure.

Where something has several things (a job its inputs), ``x_at[i]`` to ``x_at[i + 1]`` is the range
of its entries in ``x``. A *slot* is one job's use of one input file; slots run over jobs in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol, SupportsIndex, cast

import numpy as np
from numpy.typing import NDArray

from network_provisioner.base.errors import InputError
from site_selector.cost import Array
from site_selector.problem import JOBS_PER_STAGE_JOB, Problem

SHARES, FETCHES = 1, 2
"""How a job gets its files at a site: with the others there, or all of them for itself alone."""

_NUMBERS = (
    "compute_s", "queue_s", "workers", "size", "seconds_per_byte", "occupied_per_byte", "setup_s",
    "first_s", "file_s", "planned", "staged", "bypassed",
)  # fmt: skip
_TIMES = {
    "queue_order", "ready", "start", "end", "when", "clock", "set_s", "next_s", "due", "later",
    "sent", "arrived", "total", "taken",
}  # fmt: skip
IntArray = NDArray[np.int64]

# Fields that say what a problem consists of. As long as they are the same objects, so is the shape.
_STRUCTURE = (
    "parents", "children", "reads", "writes", "producer", "holders", "returns", "level", "places",
    "allowed", "fetches", "staged", "bypassed", "bottleneck",
)  # fmt: skip


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
    """What a problem consists of, without any number that could be estimated wrongly.

    ``group`` tells which input files of the workflow lie at the same places, -1 for results.
    ``shared`` is the place where a job's files are there for all. ``own`` tells of each slot
    whether the job brings the file itself when it has a worker, ``stages`` whether any job does so
    or shares files at another place than its site. ``line`` is the first of the paths that share
    what bounds a path.
    """

    n_jobs: int
    n_sites: int
    n_places: int
    n_files: int
    n_slots: int
    n_groups: int
    output: int
    stages: int
    parents_at: Ints
    parents: Ints
    children_at: Ints
    children: Ints
    slots_at: Ints
    slot_file: Ints
    slot_job: Ints
    own: Ints
    writes_at: Ints
    writes: Ints
    returns: Ints  # by file: whether the workflow wants it back
    producer: Ints
    group: Ints
    level: Ints
    allowed: Ints  # job * n_sites + site -> SHARES or FETCHES where the job can run, else 0
    shared: Ints  # job * n_sites + site -> place
    line: Ints  # from * n_places + to -> path
    held: Ints  # group * n_places + place -> 1 where the files of the group lie
    holders_at: Ints  # by group
    holders: Ints


class Order(NamedTuple):
    """What is settled before a workflow starts: who goes first, and which replica is taken.

    Jobs are numbered by urgency here, the most urgent first, which keeps together in memory what
    happens at about the same time; ``by_position`` tells their numbers in the problem.

    A *use* is a slot in another order: those of input files of the workflow first (``n_first``),
    then, by ``out_at``, those of each job's results; readers level by level as Pegasus looks at
    them, the most urgent first, then by file. ``use_row`` numbers the input files, or the results
    of one job. ``returns`` are the results that the workflow wants back. ``source`` is where a
    place fetches a file of a group, itself where it has it: group * n_places + place. ``bundle``
    tells which jobs of a level share their stage jobs. Of jobs that wait, those of the least
    ``priority`` start first, among equals those that came first.
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
    source: Ints
    n_bundles: int
    bundle: Ints
    priority: Ints


class Numbers(NamedTuple):
    """What can be estimated wrongly. Seconds, bytes; matrices row by row. ``busy`` is how long a
    job has a worker: ``compute``, and bringing and taking back what is staged elsewhere. ``queue``
    of a job at a site is at job * queue_row + site; ``queue_row`` is 0 if all jobs wait alike. At
    ``change_s`` a site has ``change_by`` workers more, or fewer."""

    compute: Floats
    busy: Floats
    queue: Floats
    queue_row: int
    workers: Ints
    size: Floats
    per_byte: Floats
    occupied: Floats
    setup: Floats
    first: Floats
    further: Floats
    change_s: Floats
    change_site: Ints
    change_by: Ints


class State(NamedTuple):
    """Work space of one simulation, and what it leaves behind. Jobs are numbered by urgency.

    ``total`` is the makespan and the sum of all computing and moving; ``counts`` the moves of
    files, the events that are waiting, the entries of ``active``, the transfers, and the entries of
    ``touched``, the sites where a worker may have got something to do, and the jobs that waited.

    By job: the ``place`` where its files are there for all, the inputs still ``missing`` there, and
    ``queue_order``, the least of which is the next of the jobs that wait. By file of a writer and
    place (row * n_places + place): the ``number`` of the transfer that moves it there, -1 where
    none does. By line (see ``Shape``): ``first`` and ``under_way`` are its heap and how many there
    are in it, ``taken`` are the shares of it that each would take alone, ``next_s`` is when the
    first of them ends if nothing comes between; ``active`` are the lines where any is under way. By
    stage job: how much it waits for (``coming``), and the last of its transfers (``loaded``), of
    which each knows the ``previous_transfer``. By transfer: its ``path``, what it takes besides its
    bytes (``later``), ``due`` on its line's clock, ``left`` and ``right`` of the heap, and the last
    of the uses that wait for it, of which each knows the one before (``before``). By move: its file
    and its transfer.
    """

    site: Ints
    place: Ints
    waiting: Ints
    missing: Ints
    queue_order: Floats
    ready: Floats
    start: Floats
    end: Floats
    free: Ints
    queued: Ints
    queued_at: Ints
    queued_count: Ints
    touched: Ints
    heap: Ints
    when: Floats
    number: Ints
    first: Ints
    under_way: Ints
    taken: Floats
    clock: Floats
    set_s: Floats
    next_s: Floats
    active: Ints
    due: Floats
    left: Ints
    right: Ints
    use: Ints
    before: Ints
    coming: Ints
    loaded: Ints
    previous_transfer: Ints
    path: Ints
    later: Floats
    sent: Floats
    arrived: Floats
    move_file: Ints
    move_number: Ints
    total: Floats
    counts: Ints


def shape_of(problem: Problem) -> Shape:
    """The structure as arrays; kept with the problem and all copies that differ in numbers only.

    Raises InputError if an input of the workflow lies nowhere.
    """
    parts = (*(getattr(problem, name) for name in _STRUCTURE), problem.n_sites, problem.output)
    kept = cast("tuple[tuple[object, ...], Shape] | None", problem.kept.get("shape"))
    if kept is not None and all(a is b for a, b in zip(kept[0], parts, strict=True)):
        return kept[1]
    shape = _make_shape(problem)
    problem.kept["shape"] = (parts, shape)
    return shape


def _make_shape(problem: Problem) -> Shape:
    n_jobs, n_places = len(problem.jobs), len(problem.places)
    slots_at, slot_file = ranges(problem.reads)
    groups: dict[tuple[int, ...], int] = {}
    group = np.full(len(problem.files), -1, dtype=np.int64)
    for file, producer in enumerate(problem.producer):
        if producer < 0:
            if not problem.holders[file]:
                raise InputError(f"input file {problem.files[file]!r} has no replica, expected one")
            group[file] = groups.setdefault(problem.holders[file], len(groups))
    held = np.zeros((max(1, len(groups)), n_places), dtype=np.int64)
    for holders, number in groups.items():
        held[number, list(holders)] = 1
    allowed = np.zeros((n_jobs, problem.n_sites), dtype=np.int64)
    at, sites = ranges(problem.allowed)
    allowed[np.repeat(np.arange(n_jobs), np.diff(at)), sites] = SHARES
    at, sites = ranges(problem.fetches)
    allowed[np.repeat(np.arange(len(problem.fetches)), np.diff(at)), sites] *= FETCHES
    shared, own = shared_places(problem), _own_slots(problem)
    return Shape(
        n_jobs,
        problem.n_sites,
        n_places,
        len(problem.files),
        len(slot_file),
        len(groups),
        problem.output,
        int((shared != np.arange(problem.n_sites)).any() or own.any()),
        *_fields(*ranges(problem.parents), *ranges(problem.children), slots_at, slot_file),
        *_fields(np.repeat(np.arange(n_jobs), np.diff(slots_at)), own, *ranges(problem.writes)),
        *_fields(integers(problem.returns), integers(problem.producer), group),
        *_fields(integers(problem.level), allowed.ravel(), shared.ravel(), _lines(problem)),
        *_fields(held.ravel(), *ranges(list(groups))),
    )


def _own_slots(problem: Problem) -> IntArray:
    """By slot, 1 where the job brings the file itself."""
    if not problem.bypassed:
        return np.zeros(sum(map(len, problem.reads)), dtype=np.int64)
    rows = zip(problem.reads, map(set, problem.bypassed), strict=True)
    return integers([file in own for files, own in rows for file in files])


def _lines(problem: Problem) -> IntArray:
    """By path, the first of those that share what bounds it."""
    lines = np.arange(len(problem.places) ** 2)
    if problem.bottleneck is not None:
        link = problem.bottleneck.ravel()
        known = np.flatnonzero(link >= 0)
        _, first, which = np.unique(link[known], return_index=True, return_inverse=True)
        lines[known] = known[first[which]]
    return lines


def shared_places(problem: Problem) -> IntArray:
    """(jobs, sites): the place where a job's files are there for all."""
    shared = np.tile(np.arange(problem.n_sites), (len(problem.jobs), 1))
    if problem.staged:
        number = {row: n for n, row in enumerate(dict.fromkeys(problem.staged))}
        rows = np.tile(np.arange(problem.n_sites), (len(number), 1))
        for row, n in number.items():
            for site, place in row:
                rows[n, site] = place
        shared = rows[[number[row] for row in problem.staged]]
    return shared


def busy_seconds(problem: Problem) -> Array:
    """(jobs, sites): how long a job has a worker, if nobody else uses the paths meanwhile."""
    if not problem.staged and not problem.bypassed:
        return problem.compute_s
    shape, sites = shape_of(problem), np.arange(problem.n_sites)
    shared, size = shared_places(problem), np.array(problem.size)
    away = shared != sites
    reader, file, own = (np.asarray(v) for v in (shape.slot_job, shape.slot_file, shape.own))
    read, written = np.flatnonzero(own == 0), np.asarray(shape.writes)
    busy = problem.compute_s.copy()
    if problem.bypassed:
        _add_bypassed(busy, problem)
    for job, moved, path in (
        (reader[read], file[read], (shared, sites)),
        (np.asarray(shape.producer)[written], written, (sites, shared)),
    ):
        count = np.bincount(job, minlength=shape.n_jobs)[:, None]
        n_bytes = np.bincount(job, size[moved], shape.n_jobs)[:, None]
        busy += np.where(away, _transfer_seconds(problem, count, n_bytes, path), 0.0)
    return busy


def _add_bypassed(busy: Array, problem: Problem) -> None:
    """Add what it takes to bring the inputs that a job brings itself, one place after the other."""
    shape = shape_of(problem)
    nearest = sources(shape, problem.seconds_per_byte).reshape(-1, shape.n_places)
    own = np.flatnonzero(np.asarray(shape.own))
    job, file = np.asarray(shape.slot_job)[own], np.asarray(shape.slot_file)[own]
    group, size = np.asarray(shape.group)[file], np.array(problem.size)[file]
    for site in range(problem.n_sites):
        src = nearest[group, site]
        at, length = job * shape.n_places + src, shape.n_jobs * shape.n_places
        count = np.bincount(at[src != site], minlength=length).reshape(-1, shape.n_places)
        n_bytes = np.bincount(at, np.where(src == site, 0.0, size), length).reshape(count.shape)
        busy[:, site] += _transfer_seconds(problem, count, n_bytes, (slice(None), site)).sum(axis=1)


def _transfer_seconds(
    problem: Problem, count: NDArray[Any], n_bytes: NDArray[Any], path: tuple[Any, Any]
) -> Array:
    """What one transfer of ``count`` files takes, nothing where there are none."""
    taken = n_bytes * problem.seconds_per_byte[path]
    for more_s, times in ((problem.first_s, 1), (problem.file_s, count - 1)):
        if more_s is not None:
            taken = taken + times * more_s[path]
    return np.where(count > 0, taken, 0.0)


def allowed_mask(shape: Shape) -> NDArray[np.bool_]:
    """(jobs, sites): where each job can run."""
    return np.asarray(shape.allowed).reshape(shape.n_jobs, shape.n_sites) > 0


def by_urgency(rank: Array | IntArray) -> IntArray:
    """Jobs, the highest rank first, in topological order where equal."""
    return np.lexsort((np.arange(len(rank)), -rank)).astype(np.int64)


def sources(shape: Shape, per_byte: Array) -> IntArray:
    """For each group of input files and each place, the replica with the fastest path to it."""
    source = np.zeros((max(1, shape.n_groups), shape.n_places), dtype=np.int64)
    holders, at = np.asarray(shape.holders), shape.holders_at
    for group in range(shape.n_groups):
        places = holders[at[group] : at[group + 1]]
        source[group] = places[per_byte[places].argmin(axis=0)]
        source[group, places] = places
    return source.ravel()


def order_of(shape: Shape, rank: IntArray, per_byte: Array) -> Order:
    """What is settled before the start, ``rank`` telling the urgency of jobs, the highest first."""
    n_jobs = shape.n_jobs
    by_position = by_urgency(rank)
    position = np.empty(n_jobs + 1, dtype=np.int64)
    position[by_position] = np.arange(n_jobs)
    position[-1] = -1  # of the producer -1
    producer, writes = np.asarray(shape.producer), np.asarray(shape.writes)
    writer_of = position[producer]
    file, reader = np.asarray(shape.slot_file), position[np.asarray(shape.slot_job)]
    level = np.asarray(shape.level)
    uses = np.lexsort((file, reader, level[np.asarray(shape.slot_job)], writer_of[file]))
    uses = uses[np.asarray(shape.own)[uses] == 0]
    bundle = bundles(level)
    n_first = int(np.count_nonzero(producer[file[uses]] < 0))
    raw = np.flatnonzero(producer < 0)
    row = np.zeros(shape.n_files, dtype=np.int64)
    n_writes = np.diff(np.asarray(shape.writes_at))
    row[writes] = np.arange(len(writes)) - np.repeat(np.asarray(shape.writes_at)[:-1], n_writes)
    row[raw] = np.arange(len(raw))
    back = np.flatnonzero((np.asarray(shape.returns) > 0) & (producer >= 0))
    back = back[np.lexsort((back, writer_of[back]))]
    children_at, children = _permuted(shape.children_at, shape.children, by_position)
    return Order(
        by_position=_whole(by_position),
        parents=_whole(np.diff(np.asarray(shape.parents_at))[by_position]),
        rows=_whole(n_writes[by_position]),
        children_at=_whole(children_at),
        children=_whole(position[children]),
        n_first=n_first,
        n_first_rows=len(raw),
        use_job=_whole(reader[uses]),
        use_file=_whole(file[uses]),
        use_row=_whole(row[file[uses]]),
        out_at=_whole(n_first + _counted(writer_of[file[uses[n_first:]]], n_jobs)),
        returns_at=_whole(_counted(writer_of[back], n_jobs)),
        returns_file=_whole(back),
        source=_whole(sources(shape, per_byte)),
        n_bundles=1 + int(bundle.max(initial=-1)),
        bundle=_whole(bundle[by_position]),
        priority=_whole(np.unique(-rank[by_position], return_inverse=True)[1]),
    )


def bundles(level: IntArray) -> IntArray:
    """The bundle of each job: those of a level take its stage jobs in turn, of which there is one
    for every ten jobs, as Pegasus's ``BalancedCluster`` has it by default."""
    count = np.bincount(level)
    stage_jobs = -(-count // JOBS_PER_STAGE_JOB)
    by_level = np.argsort(level, kind="stable")
    turn = np.empty(len(level), dtype=np.int64)
    turn[by_level] = np.arange(len(level)) - _starts(count)[level[by_level]]
    return np.asarray(_starts(stage_jobs)[level] + turn % np.maximum(1, stage_jobs[level]))


def _permuted(at: Ints, values: Ints, order: IntArray) -> tuple[IntArray, IntArray]:
    """Ranges in another order."""
    begins, counts = np.asarray(at)[:-1][order], np.diff(np.asarray(at))[order]
    starts = _starts(counts)
    index = np.arange(starts[-1]) - np.repeat(starts[:-1] - begins, counts)
    return starts, np.asarray(values)[index]


def _counted(owners: IntArray, length: int) -> IntArray:
    """Where the range of each begins, given the owner of each entry."""
    return _starts(np.bincount(owners, minlength=length))


def numbers_of(problem: Problem, simulated: bool = False) -> Numbers:
    """The problem's numbers as arrays; without ``busy``, which takes long, where they are
    ``simulated`` only."""
    nothing = np.zeros(problem.setup_s.size)
    return Numbers(
        _floats(problem.compute_s.ravel()),
        _floats(nothing if simulated else busy_seconds(problem).ravel()),
        _floats(problem.queue_s.ravel()),
        problem.n_sites if problem.queue_s.ndim > 1 else 0,
        _whole(integers(problem.workers)),
        _floats(np.array(problem.size, dtype=np.float64)),
        _floats(problem.seconds_per_byte.ravel()),
        _floats(problem.occupied_per_byte.ravel()),
        _floats(problem.setup_s.ravel()),
        _floats(nothing if problem.first_s is None else problem.first_s.ravel()),
        _floats(nothing if problem.file_s is None else problem.file_s.ravel()),
        _floats(np.array([at_s for at_s, _, _ in problem.planned])),
        _whole(integers([site for _, site, _ in problem.planned])),
        _whole(integers([by for _, _, by in problem.planned])),
    )


def state_for(shape: Shape, order: Order, changes: int = 0) -> State:
    """Work space for one simulation at a time, in which the workers of sites change so often."""
    jobs, sites, places = shape.n_jobs, shape.n_sites, shape.n_places
    rows = max(order.n_first_rows, *order.rows, 0)
    moves = shape.n_slots + len(order.returns_file)
    if shape.stages:  # each job brings and takes back, too
        moves += shape.n_slots + len(shape.writes) + 2 * jobs
    by_path = ("first", "under_way", "taken", "clock", "set_s", "next_s", "active")
    by_job = (
        "site", "place", "waiting", "missing", "queue_order", "ready", "start", "end", "queued",
    )  # fmt: skip
    stages = jobs + 2 * order.n_bundles * places
    lengths = {
        **dict.fromkeys(("free", "queued_at", "queued_count"), sites),
        "touched": 2 * jobs + changes,
        **dict.fromkeys(by_path, places**2), **dict.fromkeys(by_job, jobs),
        "number": rows * places, "before": shape.n_slots, "total": 2, "counts": 6,
        "coming": stages, "loaded": stages,
        "heap": jobs + moves + changes, "when": 2 * jobs + moves + changes,
    }  # fmt: skip
    made: dict[str, Any] = {
        name: np.zeros(lengths.get(name, moves), np.float64 if name in _TIMES else np.int64)
        for name in State._fields
    }
    made["first"].fill(-1)
    return State(**made)


def kernel_arguments(problem: Problem) -> tuple[Shape, Numbers]:
    """Shape and numbers as kernels take them, kept for as long as the problem stays the same."""
    return shape_of(problem), _kept_numbers(problem)


def _kept_numbers(problem: Problem) -> Numbers:
    parts = tuple(getattr(problem, name) for name in _NUMBERS)
    kept = cast("tuple[tuple[object, ...], Numbers] | None", problem.kept.get("numbers"))
    if kept is None or any(a is not b for a, b in zip(kept[0], parts, strict=True)):
        kept = (parts, numbers_of(problem))
        problem.kept["numbers"] = kept
    return kept[1]


def returned_bytes(shape: Shape, problem: Problem) -> Array:
    """Of each job, the bytes of its results that the workflow wants back."""
    at, files = np.asarray(shape.writes_at), np.asarray(shape.writes)
    writer = np.repeat(np.arange(shape.n_jobs), np.diff(at))
    wanted = np.asarray(shape.returns)[files] > 0
    size = np.array(problem.size, dtype=np.float64)[files]
    return np.bincount(writer[wanted], size[wanted], shape.n_jobs).astype(np.float64)


def edge_bytes(shape: Shape, problem: Problem) -> Array:
    """Of each edge, by ``shape.parents``, the bytes that the child reads of the parent's results.

    -1 where it reads none.
    """
    n_jobs = shape.n_jobs
    child = np.repeat(np.arange(n_jobs), np.diff(np.asarray(shape.parents_at)))
    edge = child * n_jobs + np.asarray(shape.parents)
    by_key = np.argsort(edge)
    file, job = np.asarray(shape.slot_file), np.asarray(shape.slot_job)
    producer = np.asarray(shape.producer)[file]
    written = np.zeros(shape.n_files, dtype=np.int64)  # sums run in the order of writing
    written[np.asarray(shape.writes)] = np.arange(len(shape.writes))
    order = np.argsort(written[file], kind="stable")
    order = order[producer[order] >= 0]
    key = job[order] * n_jobs + producer[order]
    at = np.searchsorted(edge[by_key], key)
    known = at < len(edge)
    known[known] = edge[by_key[at[known]]] == key[known]
    index = by_key[at[known]]
    size = np.array(problem.size, dtype=np.float64)[file[order[known]]]
    moved = np.bincount(index, size, len(edge)).astype(np.float64)
    return np.where(np.bincount(index, minlength=len(edge)) > 0, moved, -1.0)


def ranges(rows: Sequence[Sequence[int]]) -> tuple[IntArray, IntArray]:
    """Rows one after the other, and where each begins (one entry more than rows)."""
    counts = np.fromiter(map(len, rows), np.int64, len(rows))
    at = _starts(counts)
    return at, np.fromiter(chain.from_iterable(rows), np.int64, int(at[-1]))


def integers(values: Sequence[int]) -> IntArray:
    """As an array of 64-bit integers."""
    return np.array(values, dtype=np.int64).reshape(len(values))


def _starts(counts: NDArray[np.int64]) -> IntArray:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)


def _whole(values: IntArray) -> Ints:
    return cast(Ints, np.ascontiguousarray(values, dtype=np.int64))


def _fields(*arrays: IntArray) -> list[Ints]:
    return [_whole(values) for values in arrays]


def _floats(values: Array) -> Floats:
    return cast(Floats, np.ascontiguousarray(values, dtype=np.float64))
