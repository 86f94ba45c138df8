"""An abstract workflow as values: jobs, files, edges, and their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from network_provisioner.errors import InputError
from site_selector.catalogs.documents import Document
from site_selector.catalogs.fields import Profiles

__all__ = ["DataFile", "Job", "Profiles", "Workflow", "find_cycle", "topological_order"]


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
    """A logical file. ``size_bytes`` is None where the workflow declares none.

    ``producer`` is None for an input of the workflow. ``stage_out``: the workflow wants it back.
    """

    lfn: str
    size_bytes: int | None
    producer: str | None
    consumers: tuple[str, ...]
    stage_out: bool


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
        index = next(i for i, name in enumerate(self.jobs) if name == job)
        return self.document.error(("jobs", index), f"job {job}: {message}")


def topological_order(
    parents: Mapping[str, Sequence[str]], children: Mapping[str, Sequence[str]]
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Jobs with every parent before its children, and each job's level (0 for roots).

    Jobs that are part of a cycle or below one are missing from both.
    """
    waiting = {job: len(found) for job, found in parents.items()}
    level = {job: 0 for job, count in waiting.items() if count == 0}
    order = list(level)
    for job in order:  # grows while it is walked
        for child in children[job]:
            waiting[child] -= 1
            level[child] = max(level.get(child, 0), level[job] + 1)
            if waiting[child] == 0:
                order.append(child)
    done = set(order)
    return tuple(order), {job: found for job, found in level.items() if job in done}


def find_cycle(parents: Mapping[str, Sequence[str]], ordered: Sequence[str]) -> list[str]:
    """A cycle among the jobs that are not in ``ordered``, first job repeated at the end.

    Every job that could not be ordered has such a parent, so walking up comes back to one seen.
    """
    stuck = parents.keys() - set(ordered)
    job = next(job for job in parents if job in stuck)
    walk: dict[str, None] = {}
    while job not in walk:
        walk[job] = None
        job = next(parent for parent in parents[job] if parent in stuck)
    names = list(walk)
    return [job, *reversed(names[names.index(job) + 1 :]), job]
