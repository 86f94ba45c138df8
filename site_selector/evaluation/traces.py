"""A workflow as it was executed once: tasks with their run times, files with their sizes.

Reads traces in WfFormat, the JSON of WfCommons (https://wfcommons.org/format).

Versions 1.5 and 1.6 keep the workflow (``specification``) apart from its run (``execution``); 1.6
adds sums that nothing here needs. Versions 1.1 to 1.4 have one list of tasks (jobs, before 1.3)
with everything in it; the names of their fields differ and are all read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field

from network_provisioner.base.errors import InputError
from network_provisioner.base.schema import Number, Schema, read
from network_provisioner.base.units import MAX_DURATION_S, MAX_SIZE_BYTES
from site_selector.catalogs.workflow import children_of, find_cycle, topological_order

_NUMBERING = re.compile(r"[_.#-]?(?:ID)?[0-9]+\Z")
_CLAIMS = {"schemaVersion", "tasks", "jobs"}  # what only a trace has, besides its workflow
Row = TypeVar("Row")
_Text = Annotated[str, Field(min_length=1)]
_Bytes = Annotated[Number, Field(ge=0, le=MAX_SIZE_BYTES)]
_Seconds = Annotated[Number, Field(ge=0, le=MAX_DURATION_S)]


@dataclass(frozen=True, slots=True)
class Task:
    """What a trace says of one task. ``runtime_s`` is None if it says nothing."""

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
    """``soykb`` of ``soykb-chameleon-10fastq-10ch-001``: what is before the first hyphen."""
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
    warnings = list(notes)
    named = _by_id(tasks)
    writer = _writers(tasks)
    parents = _edges(tasks, named, writer, warnings)
    children = children_of(parents)
    order, levels = topological_order(parents, children)
    if len(order) < len(tasks):
        cycle = find_cycle(parents)
        raise InputError(f"found a cycle {' -> '.join(cycle)}, expected none")
    runtime = _runtimes(tasks, warnings)
    index = {task: i for i, task in enumerate(order)}
    files = {f: i for i, f in enumerate(_used_files(named[task] for task in order))}
    unsized = [f for f in files if f not in sizes]
    if unsized:
        warnings.append(
            f"{_count(unsized, 'file')} without a size (such as {unsized[0]}), taken as 0"
        )
    readers: list[list[int]] = [[] for _ in files]
    reads, writes = [], []
    for task in (named[task] for task in order):
        own = set(task.writes)
        names = tuple(files[f] for f in dict.fromkeys(task.reads) if f not in own)
        for f in names:
            readers[f].append(index[task.id])
        reads.append(names)
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
        tuple(tuple(sorted(names)) for names in readers),
        tuple(warnings),
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
        notes.append(f"{implied} edges that follow from files only, added")
    if own:
        notes.append(f"{own} files that a task reads and writes itself, taken as written")
    return {task: tuple(above) for task, above in parents.items()}


def _runtimes(tasks: Sequence[Task], notes: list[str]) -> dict[str, float]:
    known: dict[str, list[float]] = {}
    for task in tasks:
        if task.runtime_s is not None:
            known.setdefault(task.kind, []).append(task.runtime_s)
    if not known:
        raise InputError("found no task with a run time, expected runtimeInSeconds of each")
    everything = [seconds for group in known.values() for seconds in group]
    missing = [task.id for task in tasks if task.runtime_s is None]
    if missing:
        notes.append(
            f"{_count(missing, 'task')} without a run time (such as {missing[0]}), "
            "taken as the median of their kind"
        )
    return {
        task.id: median(known.get(task.kind, everything))
        if task.runtime_s is None
        else task.runtime_s
        for task in tasks
    }


def _used_files(tasks: Iterable[Task]) -> dict[str, None]:
    return {f: None for task in tasks for f in (*task.reads, *task.writes)}


def _count(things: Sequence[object], word: str) -> str:
    return f"{len(things)} {word}{'s' if len(things) != 1 else ''}"


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A trace and the file that it was read from: its path below the folder, and its SHA-256."""

    path: str
    sha256: str
    trace: Trace


def read_folder(folder: Path) -> tuple[list[TraceFile], list[str]]:
    """All traces at or below ``folder`` (or the one file it is), ordered by path, and a line for
    every JSON file there that is no trace, such as the format's own schema.

    Raises InputError if there is no trace, or where one cannot be used: a figure over a folder
    is not to depend on which of its files happened to be readable.
    """
    if folder.is_file():
        root, paths = folder.parent, [folder]
    elif folder.is_dir():
        root = folder
        paths = sorted(path for path in folder.rglob("*.json") if path.is_file())
    else:
        raise InputError(f"{folder}: found nothing, expected a folder of WfFormat traces")
    traces, skipped, bad = [], [], []
    for path in paths:
        try:
            read = read_file(path, path.relative_to(root).as_posix())
        except InputError as error:
            bad.append(str(error))
            continue
        if read is None:
            skipped.append(f"{path}: not a trace, left out")
        else:
            traces.append(read)
    if bad:
        more = f" (and {len(bad) - 1} more that cannot be used)" if len(bad) > 1 else ""
        raise InputError(bad[0] + more)
    if not traces:
        raise InputError(f"{folder}: found no trace, expected WfFormat files (*.json)")
    return traces, skipped


def read_file(path: Path, shown_path: str) -> TraceFile | None:
    """One trace; None for JSON that does not claim to be one. Raises InputError with its path."""
    raw = path.read_bytes()
    try:
        root = json.loads(raw, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        what = "nothing in it" if not raw.strip() else str(error)
        raise InputError(f"{path}: found {what}, expected JSON") from error
    if isinstance(root, Mapping) and "workflow" not in root and not _CLAIMS & set(root):
        return None
    try:
        trace = parse(root, path.name.removesuffix(".json"))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return TraceFile(shown_path, hashlib.sha256(raw).hexdigest(), trace)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"the number {text}")


def _or_empty(value: object) -> object:
    return () if value is None else value


_List = Annotated[tuple[Row, ...], BeforeValidator(_or_empty)]


class _Object(Schema):
    """A part of a trace, which may have more in it."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _SpecifiedTask(_Object):
    id: _Text
    name: Any = None
    parents: _List[_Text] = ()
    children: _List[_Text] = ()
    reads: _List[_Text] = Field((), alias="inputFiles")
    writes: _List[_Text] = Field((), alias="outputFiles")


class _SpecifiedFile(_Object):
    id: _Text
    size: _Bytes | None = Field(None, alias="sizeInBytes")


class _Specification(_Object):
    tasks: _List[_SpecifiedTask] = ()
    files: _List[_SpecifiedFile] = ()


class _ExecutedTask(_Object):
    id: _Text
    seconds: _Seconds | None = Field(None, alias="runtimeInSeconds")
    cores: Any = Field(None, alias="coreCount")
    command: Any = None


class _Execution(_Object):
    tasks: _List[_ExecutedTask] = ()


class _UsedFile(_Object):
    name: _Text = Field(validation_alias=AliasChoices("name", "id"))
    link: Literal["input", "output"]
    size: _Bytes | None = Field(None, validation_alias=AliasChoices("sizeInBytes", "size"))


class _TaskBefore(_Object):
    """A task of WfFormat 1.1 to 1.4, which others refer to by its name."""

    name: _Text
    parents: _List[_Text] = ()
    children: _List[_Text] = ()
    files: _List[_UsedFile] = ()
    seconds: _Seconds | None = Field(
        None, validation_alias=AliasChoices("runtimeInSeconds", "runtime")
    )
    cores: Any = Field(None, validation_alias=AliasChoices("coreCount", "cores"))
    command: Any = None


class _Flow(_Object):
    specification: _Specification | None = None
    execution: _Execution | None = None
    tasks: _List[_TaskBefore] | None = Field(None, validation_alias=AliasChoices("tasks", "jobs"))


class _Document(_Object):
    workflow: _Flow


def parse(root: Any, name: str) -> Trace:
    """The trace in a JSON value. Raises InputError, naming the place that is wrong.

    >>> tasks = [{"name": "a", "type": "compute", "runtime": 3, "parents": []}]
    >>> parse({"schemaVersion": "1.3", "workflow": {"tasks": tasks}}, "small").runtime_s
    (3.0,)
    """
    flow = read(_Document, root, "the file").workflow
    if flow.specification is not None:
        run = _Execution() if flow.execution is None else flow.execution
        tasks, sizes = _parse_current(flow.specification, run)
        cores = [(task.id, task.cores) for task in run.tasks]
    elif flow.tasks is not None:
        tasks, sizes = _parse_before(flow.tasks)
        cores = [(task.name, task.cores) for task in flow.tasks]
    else:
        raise InputError(
            "workflow: found neither specification (WfFormat 1.5) nor tasks (1.1 to 1.4), expected "
            "one of them"
        )
    if not tasks:
        raise InputError("found no tasks, expected at least one")
    wide = [task for task, n in cores if isinstance(n, int | float) and n > 1]
    notes = []
    if wide:
        notes.append(f"{len(wide)} tasks on several cores (such as {wide[0]}), taken as on one")
    return build_trace(name, tasks, sizes, notes)


def _parse_current(spec: _Specification, run: _Execution) -> tuple[list[Task], dict[str, float]]:
    """WfFormat 1.5 and 1.6."""
    executed: dict[str, _ExecutedTask] = {}
    for entry in run.tasks:
        if executed.setdefault(entry.id, entry) is not entry:
            raise InputError(f"task {entry.id}: found two executions, expected one")
    sizes: dict[str, float] = {}
    for file in spec.files:
        _add_size(sizes, file.id, file.size)
    tasks = []
    for described in spec.tasks:
        ran = executed.get(described.id)
        kind = (ran and _program(ran.command)) or kind_of(str(described.name or described.id))
        seconds = ran.seconds if ran else None
        tasks.append(
            Task(
                described.id,
                kind,
                described.parents,
                described.children,
                described.reads,
                described.writes,
                seconds,
            )
        )
    ids = {task.id for task in tasks}
    strangers = executed.keys() - ids
    if strangers and len(ids) == len(tasks) > 0:  # else something else is wrong, and is said
        raise InputError(
            f"task {min(strangers)}: found an execution of it, expected it in the specification"
        )
    return tasks, sizes


def _parse_before(entries: Sequence[_TaskBefore]) -> tuple[list[Task], dict[str, float]]:
    """WfFormat 1.1 to 1.4."""
    sizes: dict[str, float] = {}
    tasks = []
    for entry in entries:
        for use in entry.files:
            _add_size(sizes, use.name, use.size)
        kind = _program(entry.command) or kind_of(entry.name)
        reads, writes = (
            [use.name for use in entry.files if use.link == link] for link in ("input", "output")
        )
        tasks.append(
            Task(entry.name, kind, entry.parents, entry.children, reads, writes, entry.seconds)
        )
    return tasks, sizes


def _program(command: Any) -> str:
    """What a task runs, without its directory; empty if that is a script and not a name."""
    program = command.get("program") if isinstance(command, Mapping) else None
    if not isinstance(program, str) or len(program.split()) != 1:
        return ""
    return program.rpartition("/")[2]


def _add_size(sizes: dict[str, float], file: str, size: float | None) -> None:
    if size is not None and sizes.setdefault(file, size) != size:
        raise InputError(
            f"file {file}: found sizes {sizes[file]:.0f} and {size:.0f} bytes, expected one"
        )
