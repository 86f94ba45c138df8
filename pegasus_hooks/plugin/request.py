"""The request of the planner plug-in, read and checked: JSON text to values.

The planner has read the workflow already, so that mistakes of its author are rare here. What this
refuses is what would make a wrong answer: whatever is cut off, of another version, or refers to
something that is not there. The format is described in docs/planner-plugin.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from reprlib import repr as shown
from typing import Any, TypeVar

from network_provisioner.base.errors import InputError
from site_selector.catalogs.fields import positive_number
from site_selector.inputs import CLEANS

VERSION = 1
WHAT = "planner request"
KINDS = ("job", "pegasusWorkflow", "condorWorkflow")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RequestedTransformation:
    """A transformation: the sites that can run it, and there the catalog's ``pegasus: runtime`` and
    other profiles (``condor.priority``, ``dagman.priority``, ``pegasus.data.configuration``)."""

    name: str
    sites: tuple[str, ...]
    runtimes: Mapping[str, float]
    profiles: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class RequestedFile:
    """A logical file. ``places`` are pairs of site and URL, of an input of the workflow;
    ``checksum``: whether one is known; ``bypass``: whether all jobs that read it bring it
    themselves, past the staging site."""

    lfn: str
    size_bytes: int | None
    wanted: bool
    places: tuple[tuple[str, str], ...]
    checksum: bool
    bypass: bool = False


@dataclass(frozen=True, slots=True)
class RequestedJob:
    """A job. ``sites`` are those that can run it, one only where the user fixed it (``fixed``).

    ``group``: jobs of one name go to one site. ``cluster``: they become one job afterwards.
    ``reads``, ``writes`` and ``after`` are indices of files and tasks; ``profiles`` are the user's
    priorities.
    """

    id: str
    kind: str
    program: int
    sites: tuple[str, ...]
    fixed: bool
    group: str | None
    cluster: str | None
    runtime_s: float | None
    cores: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    after: tuple[int, ...]
    profiles: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """The whole question. ``sites`` holds the ``pegasus`` profiles of each site, and its
    priorities, ``tags`` the same for jobs with each tag; ``profiles`` are those that properties
    give all jobs; ``submit_dir`` is where the planner writes, where it says so; ``priorities``: it
    takes those of jobs, too; ``cleanup`` is its option; ``staging`` is the staging site of each
    site that has one by its options, ``scratch`` the URL by which files are staged to a site,
    ``properties`` those of Pegasus that say how."""

    workflow: str
    config: str | None
    limit_s: float
    data_configuration: str | None
    output_sites: tuple[str, ...]
    input_directories: tuple[str, ...]
    replica_files: tuple[tuple[str | None, str], ...]
    replica_properties: Mapping[str, str]
    sites: Mapping[str, Mapping[str, str]]
    tags: Mapping[str, Mapping[str, Mapping[str, str]]]
    programs: tuple[RequestedTransformation, ...]
    files: tuple[RequestedFile, ...]
    tasks: tuple[RequestedJob, ...]
    profiles: Mapping[str, str]
    submit_dir: str | None = None
    priorities: bool = False
    cleanup: str = CLEANS[0]
    staging: Mapping[str, str] = field(default_factory=dict)
    scratch: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


def parse_request(text: str | bytes) -> Request:
    """The request that the plug-in wrote. Raises InputError, one line."""
    try:
        root = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = " ".join(str(error).split())
        raise InputError(f"{WHAT}: not valid JSON: {where}") from None
    top = _Entry(root, WHAT)
    version = top.get("adon", int, None)
    if version != VERSION:
        raise InputError(f"{WHAT}: found version {shown(version)}, expected {VERSION}")
    programs = tuple(_program(entry) for entry in top.entries("transformations"))
    files = tuple(_file(entry) for entry in top.entries("files"))
    jobs, sites = top.entries("jobs"), top.entries("sites")
    tasks = tuple(_task(entry, programs, len(files), len(jobs)) for entry in jobs)
    if not tasks:
        raise InputError(f"{WHAT}: found no jobs, expected at least one")
    _no_twins([t.id for t in tasks], "job")
    _no_twins([f.lfn for f in files], "file")
    limit = top.get("limit_s", float, 30.0)
    if not 0 < limit < 1e7:
        raise InputError(f"{WHAT}: limit_s is {limit}, expected seconds above 0")
    return Request(
        top.get("workflow", str, "workflow"),
        top.get("config", str, None),
        limit,
        top.get("data_configuration", str, None),
        top.texts("output_sites"),
        top.texts("input_directories"),
        tuple((e.get("type", str, None), e.name("path")) for e in top.entries("replica_files")),
        top.table("replica_properties"),
        {e.name("name"): e.table("profiles") for e in sites},
        {e.name("name"): e.tables("tags") for e in sites},
        programs,
        files,
        tasks,
        top.table("profiles"),
        top.get("submit_dir", str, None),
        top.get("priorities", bool, False),
        top.get("cleanup", str, CLEANS[0]),
        _by_site(sites, "staging_site"),
        _by_site(sites, "scratch"),
        top.table("properties"),
    )


def _by_site(sites: Iterable[_Entry], key: str) -> dict[str, str]:
    """The text under a key, of the sites that have it."""
    return {e.name("name"): text for e in sites if (text := e.get(key, str, None)) is not None}


class _Entry:
    """A JSON object, asked for what it should hold."""

    __slots__ = ("data", "what")

    def __init__(self, data: object, what: str) -> None:
        if not isinstance(data, dict):
            raise InputError(f"{what}: found {shown(data)}, expected an object")
        self.data: dict[str, Any] = data
        self.what = what

    def get(self, key: str, kind: Callable[..., T], default: Any) -> Any:
        """The value under ``key``, the default where there is none (or null)."""
        value = self.data.get(key)
        if value is None:
            return default
        if kind is float and type(value) is int and abs(value) < 1 << 53:
            return float(value)
        if type(value) is not kind:
            raise self.error(key, value, {str: "text", int: "a whole number"}.get(kind, "a number"))  # type: ignore[call-overload]
        return value

    def name(self, key: str) -> str:
        value = self.data.get(key)
        if not isinstance(value, str) or not value:
            raise self.error(key, value, "a name")
        return value

    def entries(self, key: str) -> list[_Entry]:
        what = f"{WHAT}: {key}"
        return [_Entry(item, f"{what}[{i}]") for i, item in enumerate(self._list(key))]

    def texts(self, key: str) -> tuple[str, ...]:
        values = self._list(key)
        if not all(isinstance(item, str) and item for item in values):
            raise self.error(key, values, "a list of names")
        return tuple(values)

    def indices(self, key: str, count: int) -> tuple[int, ...]:
        values = self.data.get(key)
        if values is None:
            return ()
        # One pass in C each; a large workflow has a million of them.
        if type(values) is not list or not set(map(type, values)) <= {int}:
            raise self.error(key, values, "a list of indices")
        if values and (min(values) < 0 or max(values) >= count):
            raise self.error(key, values, f"indices from 0 to {count - 1}")
        if len(set(values)) < len(values):
            raise self.error(key, values, "each index once")
        return tuple(values)

    def tables(self, key: str) -> dict[str, dict[str, str]]:
        """Tables by name."""
        inner = _Entry(self.data.get(key) or {}, f"{self.what}: {key}")
        return {name: inner.table(name) for name in inner.data}

    def table(self, key: str) -> dict[str, str]:
        value = self.data.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise self.error(key, value, "an object of texts")
        return value

    def error(self, key: str, value: object, expected: str) -> InputError:
        actual = "nothing" if value is None else shown(value)
        return InputError(f"{self.what}: {key} is {actual}, expected {expected}")

    def _list(self, key: str) -> list[Any]:
        value = self.data.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.error(key, value, "a list")
        return value


def _program(entry: _Entry) -> RequestedTransformation:
    runtimes = {
        site: _number(entry, f"runtime at {site}", value)
        for site, value in entry.table("runtimes").items()
    }
    profiles = entry.tables("profiles")
    return RequestedTransformation(entry.name("name"), entry.texts("sites"), runtimes, profiles)


def _file(entry: _Entry) -> RequestedFile:
    size = entry.get("size", int, None)
    if size is not None and not 0 <= size < 1 << 63:
        raise entry.error("size", size, "0 bytes or more")
    places = []
    for item in entry._list("places"):
        if not isinstance(item, list) or len(item) != 2 or not all(_named(x) for x in item):
            raise entry.error("places", item, "pairs of site and URL")
        places.append((item[0], item[1]))
    flags = {key: entry.get(key, bool, False) for key in ("wanted", "checksum", "bypass")}
    return RequestedFile(entry.name("lfn"), size, places=tuple(places), **flags)


def _task(
    entry: _Entry, programs: Sequence[RequestedTransformation], files: int, jobs: int
) -> RequestedJob:
    job = entry.name("id")
    kind = entry.get("kind", str, "job")
    if kind not in KINDS:
        raise entry.error("kind", kind, f"one of {', '.join(KINDS)}")
    program = entry.get("transformation", int, -1)
    if not 0 <= program < len(programs):
        raise entry.error("transformation", program, f"an index from 0 to {len(programs) - 1}")
    fixed = entry.get("site", str, None)
    sites = (fixed,) if fixed else entry.texts("sites") or programs[program].sites
    if not sites:
        raise InputError(f"{WHAT}: job {job} can run at no site, expected one at least")
    runtime, cores = entry.get("runtime", str, None), entry.get("cores", str, None)
    return RequestedJob(
        job,
        kind,
        program,
        tuple(dict.fromkeys(sites)),
        bool(fixed),
        entry.get("group", str, None),
        entry.get("cluster", str, None),
        None if runtime is None else _number(entry, "runtime", runtime),
        1 if cores is None else max(1, int(_number(entry, "cores", cores))),
        entry.indices("reads", files),
        entry.indices("writes", files),
        entry.indices("after", jobs),
        entry.table("profiles"),
    )


def _number(entry: _Entry, key: str, value: str) -> float:
    number = positive_number(value)
    if number is None:
        raise entry.error(key, value, "a number above 0")
    return number


def _named(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _no_twins(names: list[str], what: str) -> None:
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twin = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InputError(f"{WHAT}: {what} {twin!r} is listed twice")
