"""Pegasus 5 abstract workflows: jobs, files and the edges between them.

Edges are those of ``jobDependencies`` and those that data make: who reads a file waits for who
writes it (Pegasus adds the same ones).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from reprlib import repr as shown
from typing import Any, TypeVar

from network_provisioner.base.errors import InputError, did_you_mean
from network_provisioner.base.units import MAX_DURATION_S
from site_selector.catalogs.documents import (
    Document,
    Key,
    parse_document,
    read_document,
    uncollected,
)
from site_selector.catalogs.fields import (
    EXPECTED_NAME,
    Profiles,
    brief,
    full_name,
    is_name,
    is_number,
    positive_number,
    profiles_of,
    size_of,
)
from site_selector.catalogs.hints import refuse_hints
from site_selector.catalogs.schema import JOB, PROFILES, USE, WORKFLOW, check

T = TypeVar("T", bound=Hashable)
WHAT = "Pegasus 5 abstract workflow"
SUBWORKFLOWS = ("pegasusWorkflow", "condorWorkflow")
_JOB_KEYS, _USE_KEYS = JOB.keys.keys(), USE.keys.keys()
_NAMESPACES = PROFILES.keys.keys()
_NONE: list[Any] = []
_HINTS = ("selector", "hints")  # namespaces of execution.site, hints being the older one
_FALSE = frozenset({"false", "False", "FALSE"})
_TRUE = frozenset({"true", "True", "TRUE"})
# What is larger is a slip; sums of what is smaller stay finite. Seconds, cores, MB.
_MOST = {"runtime": MAX_DURATION_S, "cores": 1e6, "memory": 1e12}


@dataclass(frozen=True, slots=True)
class Job:
    """One job. ``transformation`` is ``namespace::name:version``, parts that are missing left out.

    ``site_hint`` is the user's own selector profile ``execution.site``; ``runtime_s`` the job's own
    ``pegasus: runtime``; ``kind`` is ``job``, or the type of a sub-workflow, which has no
    transformation and runs at the submit host.
    """

    id: str
    transformation: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kind: str = "job"
    site_hint: str | None = None
    runtime_s: float | None = None
    cores: int = 1
    memory_mb: float | None = None
    profiles: Profiles = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A logical file. ``size_bytes`` is None if the workflow declares none.

    ``producer`` is None for an input of the workflow. ``stage_out``: the workflow wants it back.
    ``optional``: every job that reads it does without it as well. ``bypass``: every job that
    reads it brings it from where it lies.
    """

    lfn: str
    size_bytes: int | None
    producer: str | None
    consumers: tuple[str, ...]
    stage_out: bool
    optional: bool = False
    bypass: bool = False


@dataclass(frozen=True, slots=True)
class Workflow:
    """An abstract workflow without cycles.

    ``jobs`` keeps the order of the file, ``order`` is topological (and the order of the file where
    that allows); ``level`` is 0 for roots and one more than the highest parent's below.
    """

    name: str
    jobs: Mapping[str, Job]
    files: Mapping[str, DataFile]
    parents: Mapping[str, tuple[str, ...]]
    children: Mapping[str, tuple[str, ...]]
    order: tuple[str, ...]
    level: Mapping[str, int]
    document: Document

    def job_error(self, job: str, message: str) -> InputError:
        """An InputError that names file, line and job."""
        index = list(self.entries).index(job)
        return self.document.error(("jobs", index), f"job {job}: {message}")

    @property
    def reused(self) -> list[DataFile]:
        """Results that the workflow wants back and that no job writes: they are there already."""
        return [f for f in self.files.values() if f.stage_out and f.producer is None]

    @property
    def entries(self) -> dict[str, dict[str, Any]]:
        """What the document says of each job, also of those that are left out."""
        return {entry["id"]: entry for entry in self.document.root["jobs"]}


def children_of(parents: Mapping[T, Iterable[T]]) -> dict[T, tuple[T, ...]]:
    """The jobs that come directly after each job, in the order of ``parents``."""
    children: dict[T, list[T]] = {job: [] for job in parents}
    for child, above in parents.items():
        for parent in above:
            children[parent].append(child)
    return {job: tuple(below) for job, below in children.items()}


def topological_order(
    parents: Mapping[T, Sequence[T]], children: Mapping[T, Sequence[T]]
) -> tuple[tuple[T, ...], dict[T, int]]:
    """Jobs with every parent before its children, and each job's level (0 for roots).

    Jobs that are part of a cycle or below one are missing from both.
    """
    waiting = {job: len(place) for job, place in parents.items()}
    level = {job: 0 for job, count in waiting.items() if count == 0}
    order = list(level)
    for job in order:  # grows while it is walked
        for child in children[job]:
            waiting[child] -= 1
            level[child] = max(level.get(child, 0), level[job] + 1)
            if waiting[child] == 0:
                order.append(child)
    done = set(order)
    return tuple(order), {job: place for job, place in level.items() if job in done}


def find_cycle(parents: Mapping[T, Iterable[T]]) -> list[T]:
    """A cycle, each job a parent of the next and the first repeated at the end; empty for none."""
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def read_workflow(path: str | Path, variables: Mapping[str, str] | None = None) -> Workflow:
    """Read an abstract workflow; ``${NAME}`` in it stands for one of ``variables``, by default the
    environment. Raises InputError that names file and line or job."""
    return workflow_of(read_document(path, WHAT, variables))


def parse_workflow(text: str, name: str = "workflow.yml") -> Workflow:
    """The same from text."""
    return workflow_of(parse_document(text, name, WHAT))


def workflow_of(document: Document) -> Workflow:
    """The workflow that a parsed document describes. Raises InputError."""
    root = document.root
    entries = root.get("jobs")
    if not isinstance(entries, list) or not entries:
        other = next((key for key in ("sites", "replicas", "transformations") if key in root), "")
        actual = f"found a catalog of {other}" if other else "no list of jobs"
        raise document.error(("jobs",), f"{actual}, expected a {WHAT}")
    check(document, (), WORKFLOW, root, "workflow")
    with uncollected():
        reader = _Reader(document)
        for index, entry in enumerate(entries):
            reader.add_job(entry, ("jobs", index))
        reader.add_dependencies(root.get("jobDependencies", []))
        return reader.finish(_name(document, root.get("name")) or Path(document.name).stem)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _name(document: Document, value: Any) -> str | None:
    name = _text(value)
    if name and not is_name(name):
        raise document.error(("name",), f"workflow name {shown(name)}, {EXPECTED_NAME}")
    return name


class _Reader:
    """Collects jobs and files, checking each as it arrives."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.jobs: dict[str, Job] = {}
        self.sizes: dict[str, int] = {}
        self.producer: dict[str, str] = {}
        self.consumers: dict[str, list[str]] = {}
        self.stage_out: set[str] = set()
        self.needed: set[str] = set()  # by at least one of the jobs that read it
        self.staged: set[str] = set()  # for at least one of them
        self.edges: dict[str, dict[str, None]] = {}  # child to its parents, in order, without twins

    def add_job(self, entry: Any, path: tuple[Key, ...]) -> None:
        if not isinstance(entry, dict):
            raise self.document.error(path, "a job is no mapping")
        job_id = _text(entry.get("id"))
        if not job_id:
            raise self.document.error(path, "a job has no id")
        if job_id in self.jobs:
            raise self.document.error((*path, "id"), f"job id {job_id!r} is used twice")
        if not is_name(job_id):
            raise self.document.error((*path, "id"), f"job id {shown(job_id)}, {EXPECTED_NAME}")
        kind = entry.get("type", "job")
        if kind != "job" and kind not in SUBWORKFLOWS:
            raise self.document.error(
                (*path, "type"),
                f"job {job_id}: found type {brief(kind)}, expected job, {', '.join(SUBWORKFLOWS)}",
            )
        name = _text(entry.get("name" if kind == "job" else "file"))
        if not name:
            missing = "names no transformation" if kind == "job" else "has no file"
            raise self.document.error(path, f"job {job_id} {missing}")
        if "hooks" in entry or not entry.keys() <= _JOB_KEYS:
            check(self.document, path, JOB, entry, f"job {job_id}")
        if type(entry.get("arguments", _NONE)) is not list:
            raise self.document.error((*path, "arguments"), f"job {job_id}: 'arguments' is no list")
        inputs, outputs = self._uses(entry.get("uses", _NONE), path, job_id)
        profiles = entry.get("profiles")
        settings: Profiles = self._profiles(profiles, path, job_id) if profiles else {}
        pegasus = settings.get("pegasus", {})
        self.jobs[job_id] = Job(
            job_id,
            full_name(_text(entry.get("namespace")), name, _text(entry.get("version")))
            if kind == "job"
            else f"pegasus::{kind}",
            tuple(inputs),
            tuple(outputs),
            kind,
            next(filter(None, (settings.get(n, {}).get("execution.site") for n in _HINTS)), None),
            self._number(pegasus, "runtime", path, job_id),
            max(1, int(self._number(pegasus, "cores", path, job_id) or 1)),
            self._number(pegasus, "memory", path, job_id),
            settings,
        )
        self.edges[job_id] = {}

    def _uses(
        self, uses: Any, path: tuple[Key, ...], job: str
    ) -> tuple[dict[str, None], dict[str, None]]:
        inputs: dict[str, None] = {}
        outputs: dict[str, None] = {}
        if not isinstance(uses, list):
            raise self.document.error((*path, "uses"), f"job {job}: 'uses' is no list")
        for index, use in enumerate(uses):
            lfn = use.get("lfn") if isinstance(use, dict) else None
            if not isinstance(lfn, str) or not lfn:
                raise self._use_error(path, index, f"job {job}: a file it uses has no lfn")
            if not use.keys() <= _USE_KEYS:
                check(self.document, (*path, "uses", index), USE, use, f"job {job}: file {lfn!r}")
            if "size" in use or "metadata" in use:
                size = size_of(use)
                if size is not None:
                    self.sizes.setdefault(lfn, size)
                elif not is_number(use.get("size", "0")):  # what Pegasus refuses
                    actual = brief(use["size"])
                    raise self._use_error(
                        path, index, f"size of {lfn!r} is {actual}, expected bytes"
                    )
            wrong = self._add_use(use, lfn, job, inputs, outputs)
            if wrong:
                raise self._use_error(path, index, wrong)
        return inputs, outputs

    def _add_use(
        self,
        use: Mapping[str, Any],
        lfn: str,
        job: str,
        inputs: dict[str, None],
        outputs: dict[str, None],
    ) -> str:
        """What is wrong with it; "" for nothing."""
        link = use.get("type")
        if lfn in (outputs if link == "input" else inputs):
            return f"job {job} reads and writes file {lfn!r}"
        if link == "input":
            if lfn not in inputs:
                inputs[lfn] = None
                self.consumers.setdefault(lfn, []).append(job)
            if _text(use.get("optional")) not in _TRUE:
                self.needed.add(lfn)
            if _text(use.get("bypass")) not in _TRUE:
                self.staged.add(lfn)
            return ""
        if link not in ("output", "checkpoint"):
            expected = "expected input, output or checkpoint"
            return f"job {job}: file {lfn!r} has type {brief(link)}, {expected}"
        self.producer[lfn] = job  # of several the last, as Pegasus takes it
        outputs[lfn] = None
        if _text(use.get("stageOut")) not in _FALSE:
            self.stage_out.add(lfn)
        return ""

    def _use_error(self, path: tuple[Key, ...], index: int, message: str) -> InputError:
        return self.document.error((*path, "uses", index), message)

    def _profiles(self, value: Any, path: tuple[Key, ...], job: str) -> Profiles:
        where = (*path, "profiles")
        if type(value) is dict and not value.keys() <= _NAMESPACES:
            check(self.document, where, PROFILES, value, f"job {job}: profiles")
        profiles = profiles_of(self.document, where, value, f"job {job}")
        refuse_hints(self.document, where, profiles, f"job {job}")
        return profiles

    def _number(
        self, profiles: Mapping[str, str], key: str, path: tuple[Key, ...], job: str
    ) -> float | None:
        value = profiles.get(key)
        if value is None:
            return None
        number = positive_number(value)
        if number is None or number > _MOST[key]:
            if key != "memory":  # which Pegasus insists on
                return None
            most = "" if number is None else f" and at most {_MOST[key]:g}"
            raise self.document.error(
                (*path, "profiles", "pegasus", key),
                f"job {job}: {key} is {shown(value)}, expected a number above 0{most}",
            )
        return number

    def _check_names(self) -> None:
        for lfn, job in ({k: v[0] for k, v in self.consumers.items()} | self.producer).items():
            if not is_name(lfn):
                index = list(self.jobs).index(job)
                raise self.document.error(
                    ("jobs", index, "uses"), f"job {job}: file {shown(lfn)}, {EXPECTED_NAME}"
                )

    def add_dependencies(self, entries: Any) -> None:
        if not isinstance(entries, list):
            raise self.document.error(("jobDependencies",), "jobDependencies is no list")
        for index, entry in enumerate(entries):
            path: tuple[Key, ...] = ("jobDependencies", index)
            if not isinstance(entry, dict) or not isinstance(entry.get("children"), list):
                raise self.document.error(path, "a dependency has no id or no list of children")
            for job in (entry.get("id"), *entry["children"]):
                if not isinstance(job, str) or job not in self.jobs:
                    raise self.document.error(
                        path,
                        f"dependency names the unknown job {brief(job)}"
                        + (did_you_mean(job, self.jobs) if isinstance(job, str) else ""),
                    )
            for child in entry["children"]:
                self.edges[child][entry["id"]] = None

    def finish(self, name: str) -> Workflow:
        """The workflow of what was added. Raises InputError for a cycle."""
        self._check_names()
        for lfn, consumers in self.consumers.items():
            producer = self.producer.get(lfn)
            if producer is not None:
                for consumer in consumers:
                    self.edges[consumer][producer] = None
        above = {job: tuple(parents) for job, parents in self.edges.items()}
        children = children_of(above)
        order, level = topological_order(above, children)
        if len(order) < len(self.jobs):
            ring = find_cycle(above)
            shown = ring if len(ring) <= 12 else [*ring[:10], "…", ring[-1]]
            index = list(self.jobs).index(ring[0])
            raise self.document.error(("jobs", index), f"jobs form a cycle: {' -> '.join(shown)}")
        files = {
            lfn: DataFile(
                lfn,
                self.sizes.get(lfn),
                self.producer.get(lfn),
                tuple(self.consumers.get(lfn, ())),
                lfn in self.stage_out,
                lfn not in self.needed,
                lfn in self.consumers and lfn not in self.staged,
            )
            for lfn in {**self.consumers, **self.producer}
        }
        return Workflow(
            name,
            self.jobs,
            files,
            above,
            children,
            order,
            level,
            self.document,
        )
