"""A workflow as it was executed once: tasks with their run times, files with their sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from network_provisioner.errors import InputError
from site_selector.catalogs.dag import find_cycle, topological_order

_NUMBERING = re.compile(r"[_.#-]?(?:ID)?[0-9]+\Z")


@dataclass(frozen=True, slots=True)
class Task:
    """What a trace says of one task. ``runtime_s`` is None where it says nothing."""

    id: str
    kind: str
    parents: Sequence[str]
    children: Sequence[str]
    reads: Sequence[str]
    writes: Sequence[str]
    runtime_s: float | None


@dataclass(frozen=True, slots=True)
class Trace:
    """A workflow without cycles; indices run over tasks in topological order and over files.

    ``runtime_s`` is on the machine that was traced. ``producer[f]`` is -1 for a file that no task
    writes. ``notes`` say what the trace left out and what was put in its place.
    """

    name: str
    family: str
    tasks: tuple[str, ...]
    kinds: tuple[str, ...]
    runtime_s: tuple[float, ...]
    parents: tuple[tuple[int, ...], ...]
    children: tuple[tuple[int, ...], ...]
    reads: tuple[tuple[int, ...], ...]
    writes: tuple[tuple[int, ...], ...]
    level: tuple[int, ...]
    files: tuple[str, ...]
    size_bytes: tuple[float, ...]
    producer: tuple[int, ...]
    readers: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...] = ()


def kind_of(name: str) -> str:
    """The program behind a task's name: ``mProject_ID0000001`` is one ``mProject`` of many."""
    return _NUMBERING.sub("", name) or name


def family_of(name: str) -> str:
    """``soykb`` of ``soykb-chameleon-10fastq-10ch-001``: what stands before the first hyphen."""
    return name.partition("-")[0] or name


def build_trace(
    name: str, tasks: Sequence[Task], sizes: Mapping[str, float], notes: Iterable[str] = ()
) -> Trace:
    """Orders the tasks, adds the edges that files imply, fills in what is missing.

    A task that reads what another writes is its child whether the trace says so or not. A task
    without a run time is taken to run as long as the median of its kind (else of all tasks), a
    file without a size to be empty; both are noted.

    Raises InputError for a cycle, an id or a file's writer that is there twice, a parent or child
    that is not there, and a trace without any run time.
    """
    said = list(notes)
    named = _by_id(tasks)
    writer = _writers(tasks)
    parents = _edges(tasks, named, writer, said)
    children: dict[str, list[str]] = {task.id: [] for task in tasks}
    for task in tasks:
        for parent in parents[task.id]:
            children[parent].append(task.id)
    order, levels = topological_order(parents, children)
    if len(order) < len(tasks):
        cycle = find_cycle(parents, order)
        raise InputError(f"found a cycle {' -> '.join(cycle)}, expected none")
    runtime = _runtimes(tasks, said)
    index = {task: i for i, task in enumerate(order)}
    files = {f: i for i, f in enumerate(_used_files(named[task] for task in order))}
    unsized = [f for f in files if f not in sizes]
    if unsized:
        said.append(f"{_count(unsized, 'file')} without a size (such as {unsized[0]}), taken as 0")
    readers: list[list[int]] = [[] for _ in files]
    reads, writes = [], []
    for task in (named[task] for task in order):
        own = set(task.writes)
        found = tuple(files[f] for f in dict.fromkeys(task.reads) if f not in own)
        for f in found:
            readers[f].append(index[task.id])
        reads.append(found)
        writes.append(tuple(files[f] for f in dict.fromkeys(task.writes)))
    return Trace(
        name,
        family_of(name),
        order,
        tuple(named[task].kind for task in order),
        tuple(runtime[task] for task in order),
        tuple(tuple(index[p] for p in parents[task]) for task in order),
        tuple(tuple(index[c] for c in children[task]) for task in order),
        tuple(reads),
        tuple(writes),
        tuple(levels[task] for task in order),
        tuple(files),
        tuple(sizes.get(f, 0.0) for f in files),
        tuple(index[writer[f]] if f in writer else -1 for f in files),
        tuple(tuple(sorted(found)) for found in readers),
        tuple(said),
    )


def _by_id(tasks: Sequence[Task]) -> dict[str, Task]:
    named: dict[str, Task] = {}
    for task in tasks:
        if task.id in named:
            raise InputError(f"found task {task.id!r} twice, expected every id once")
        named[task.id] = task
    return named


def _writers(tasks: Sequence[Task]) -> dict[str, str]:
    writer: dict[str, str] = {}
    for task in tasks:
        for f in task.writes:
            if writer.setdefault(f, task.id) != task.id:
                raise InputError(
                    f"file {f!r}: found two tasks that write it, {writer[f]} and {task.id}, "
                    "expected one"
                )
    return writer


def _edges(
    tasks: Sequence[Task], named: Mapping[str, Task], writer: Mapping[str, str], notes: list[str]
) -> dict[str, tuple[str, ...]]:
    """Parents of every task: those it names, those that name it as a child, those it reads from."""
    parents: dict[str, dict[str, None]] = {task.id: {} for task in tasks}
    for task in tasks:
        for words, others in (("parent", task.parents), ("child", task.children)):
            for other in others:
                if other not in named:
                    raise InputError(
                        f"task {task.id}: found {words} {other!r}, expected the id of a task"
                    )
        parents[task.id].update(dict.fromkeys(task.parents))
        for child in task.children:
            parents[child][task.id] = None
    implied = own = 0
    for task in tasks:
        for f in task.reads:
            source = writer.get(f)
            if source == task.id:
                own += 1
            elif source is not None and source not in parents[task.id]:
                parents[task.id][source] = None
                implied += 1
    if implied:
        notes.append(f"{implied} edges that only files tell of, added")
    if own:
        notes.append(f"{own} files that a task reads and writes itself, taken as written")
    return {task: tuple(found) for task, found in parents.items()}


def _runtimes(tasks: Sequence[Task], notes: list[str]) -> dict[str, float]:
    known: dict[str, list[float]] = {}
    for task in tasks:
        if task.runtime_s is not None:
            known.setdefault(task.kind, []).append(task.runtime_s)
    if not known:
        raise InputError("found no task with a run time, expected runtimeInSeconds of each")
    everything = [seconds for found in known.values() for seconds in found]
    missing = [task.id for task in tasks if task.runtime_s is None]
    if missing:
        notes.append(
            f"{_count(missing, 'task')} without a run time (such as {missing[0]}), "
            "taken as the median of their kind"
        )
    return {
        task.id: _median(known.get(task.kind, everything))
        if task.runtime_s is None
        else task.runtime_s
        for task in tasks
    }


def _used_files(tasks: Iterable[Task]) -> dict[str, None]:
    return {f: None for task in tasks for f in (*task.reads, *task.writes)}


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _count(things: Sequence[object], word: str) -> str:
    return f"{len(things)} {word}{'s' if len(things) != 1 else ''}"
