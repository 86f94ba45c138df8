"""Pegasus 5 abstract workflows: jobs, files and the edges between them.

Edges are those of ``jobDependencies`` and those that data make: who reads a file waits for who
writes it (Pegasus adds the same ones).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as shown
from typing import Any

from site_selector.dag import DataFile, Job, Workflow, find_cycle, topological_order
from site_selector.fields import did_you_mean, full_name, positive_number, size_of
from site_selector.yamltext import Document, Key, parse_document, read_document

__all__ = [
    "DataFile",
    "Job",
    "Workflow",
    "did_you_mean",
    "full_name",
    "parse_workflow",
    "read_workflow",
    "workflow_of",
]

WHAT = "Pegasus 5 abstract workflow"
SUBWORKFLOWS = ("pegasusWorkflow", "condorWorkflow")
_FALSE = frozenset({"false", "False", "FALSE"})


def read_workflow(path: str | Path) -> Workflow:
    """Read an abstract workflow. Raises InputError that names file and line or job."""
    return workflow_of(read_document(path, WHAT))


def parse_workflow(text: str, name: str = "workflow.yml") -> Workflow:
    """The same from text."""
    return workflow_of(parse_document(text, name, WHAT))


def workflow_of(document: Document) -> Workflow:
    """The workflow that a parsed document describes. Raises InputError."""
    root = document.root
    version = root.get("pegasus")
    if isinstance(version, str) and version.partition(".")[0] != "5":
        raise document.error(("pegasus",), f"found version {version}, expected {WHAT}")
    entries = root.get("jobs")
    if not isinstance(entries, list) or not entries:
        raise document.error(("jobs",), f"no list of jobs, expected a {WHAT}")
    reader = _Reader(document)
    for index, entry in enumerate(entries):
        reader.add_job(entry, ("jobs", index))
    reader.add_dependencies(root.get("jobDependencies"))
    return reader.finish(_text(root.get("name")) or Path(document.name).stem)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


class _Reader:
    """Collects jobs and files, checking each as it comes."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.jobs: dict[str, Job] = {}
        self.sizes: dict[str, int] = {}
        self.producer: dict[str, str] = {}
        self.consumers: dict[str, list[str]] = {}
        self.stage_out: set[str] = set()
        self.edges: dict[str, dict[str, None]] = {}  # child to its parents, in order, without twins

    def add_job(self, entry: Any, path: tuple[Key, ...]) -> None:
        if not isinstance(entry, dict):
            raise self.document.error(path, "a job is no mapping")
        job_id = _text(entry.get("id"))
        if not job_id:
            raise self.document.error(path, "a job has no id")
        if job_id in self.jobs:
            raise self.document.error((*path, "id"), f"job id {job_id!r} is used twice")
        kind = entry.get("type", "job")
        if kind != "job" and kind not in SUBWORKFLOWS:
            raise self.document.error(
                (*path, "type"),
                f"job {job_id}: found type {shown(kind)}, expected job, {', '.join(SUBWORKFLOWS)}",
            )
        name = _text(entry.get("name")) or (_text(entry.get("file")) if kind != "job" else None)
        if not name:
            raise self.document.error(path, f"job {job_id} names no transformation")
        inputs, outputs = self._uses(entry.get("uses"), path, job_id)
        profiles = entry.get("profiles")
        settings = self._profiles(profiles, (*path, "profiles"), job_id) if profiles else {}
        pegasus = settings.get("pegasus", {})
        where = (*path, "profiles", "pegasus")
        self.jobs[job_id] = Job(
            job_id,
            full_name(_text(entry.get("namespace")), name, _text(entry.get("version")))
            if kind == "job"
            else f"pegasus::{kind}",
            tuple(inputs),
            tuple(outputs),
            kind,
            settings.get("selector", {}).get("execution.site"),
            self._number(pegasus, "runtime", where, job_id),
            max(1, int(self._number(pegasus, "cores", where, job_id) or 1)),
            self._number(pegasus, "memory", where, job_id),
            settings,
        )
        self.edges[job_id] = {}

    def _uses(
        self, uses: Any, path: tuple[Key, ...], job: str
    ) -> tuple[dict[str, None], dict[str, None]]:
        inputs: dict[str, None] = {}
        outputs: dict[str, None] = {}
        if uses is None:
            return inputs, outputs
        if not isinstance(uses, list):
            raise self.document.error((*path, "uses"), f"job {job}: 'uses' is no list")
        for index, use in enumerate(uses):
            lfn = use.get("lfn") if isinstance(use, dict) else None
            where = (*path, "uses", index)
            if not isinstance(lfn, str):
                raise self.document.error(where, f"job {job}: a file it uses has no lfn")
            if lfn in inputs or lfn in outputs:
                raise self.document.error(where, f"job {job} uses file {lfn!r} twice")
            size = size_of(self.document, where, use, lfn)
            if size is not None and self.sizes.setdefault(lfn, size) != size:
                raise self.document.error(
                    where, f"file {lfn!r} has {size} bytes here and {self.sizes[lfn]} before"
                )
            link = use.get("type")
            if link == "input":
                inputs[lfn] = None
                self.consumers.setdefault(lfn, []).append(job)
            elif link in ("output", "checkpoint"):
                if lfn in self.producer:
                    raise self.document.error(
                        where, f"file {lfn!r} is written by job {self.producer[lfn]} and by {job}"
                    )
                outputs[lfn] = None
                self.producer[lfn] = job
                if _text(use.get("stageOut")) not in _FALSE:
                    self.stage_out.add(lfn)
            else:
                raise self.document.error(
                    where,
                    f"job {job}: file {lfn!r} has type {shown(link)}, "
                    "expected input, output or checkpoint",
                )
        return inputs, outputs

    def _profiles(self, value: Any, path: tuple[Key, ...], job: str) -> dict[str, dict[str, str]]:
        if not isinstance(value, dict) or not all(
            isinstance(v, dict) or v is None for v in value.values()
        ):
            raise self.document.error(path, f"job {job}: profiles are no mapping of namespaces")
        return {
            namespace: {k: "" if v is None else str(v) for k, v in (keys or {}).items()}
            for namespace, keys in value.items()
        }

    def _number(
        self, profiles: Mapping[str, str], key: str, path: tuple[Key, ...], job: str
    ) -> float | None:
        value = profiles.get(key)
        if value is None:
            return None
        number = positive_number(value)
        if number is None:
            raise self.document.error(
                (*path, key), f"job {job}: {key} is {value!r}, expected a number above 0"
            )
        return number

    def add_dependencies(self, entries: Any) -> None:
        if entries is not None and not isinstance(entries, list):
            raise self.document.error(("jobDependencies",), "jobDependencies is no list")
        for index, entry in enumerate(entries or ()):
            path: tuple[Key, ...] = ("jobDependencies", index)
            if not isinstance(entry, dict) or not isinstance(entry.get("children"), list):
                raise self.document.error(path, "a dependency has no id or no list of children")
            for job in (entry.get("id"), *entry["children"]):
                if not isinstance(job, str) or job not in self.jobs:
                    raise self.document.error(
                        path,
                        f"dependency names the unknown job {shown(job)}"
                        + (did_you_mean(job, self.jobs) if isinstance(job, str) else ""),
                    )
            for child in entry["children"]:
                self.edges[child][entry["id"]] = None

    def finish(self, name: str) -> Workflow:
        for lfn, consumers in self.consumers.items():
            producer = self.producer.get(lfn)
            if producer is not None:
                for consumer in consumers:
                    self.edges[consumer][producer] = None
        children: dict[str, list[str]] = {job: [] for job in self.jobs}
        for child, parents in self.edges.items():
            for parent in parents:
                children[parent].append(child)
        above = {job: tuple(parents) for job, parents in self.edges.items()}
        order, level = topological_order(above, children)
        if len(order) < len(self.jobs):
            ring = find_cycle(above, order)
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
            )
            for lfn in {**self.consumers, **self.producer}
        }
        return Workflow(
            name,
            self.jobs,
            files,
            above,
            {job: tuple(found) for job, found in children.items()},
            order,
            level,
            self.document,
        )
