"""Where a workflow is wide, and what it needs there: slots of a size, and paths with the bytes they
will carry. Pure functions of values.

A job's level is one more than the highest of its parents'; jobs of one level can run side by side.
Wide levels that follow each other are provisioned for together, so that the pool is not made small
and large again in between.

Where a file lies before it is read, and where a job will run, is known in part: a replica's site, a
job's own ``execution.site``. What is not is given: the site that workflows keep their files at in
between, and the sites that jobs may be sent to, over which they are taken to spread evenly.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from pegasus_hooks.provisioning.step import PathNeed, ProvisioningStep
from site_selector.catalogs.entries import SUBMIT_SITE
from site_selector.catalogs.workflow import Job, Workflow


@dataclass(frozen=True, slots=True)
class WideLevels:
    """Levels ``first`` to ``last``, the widest of which has ``width`` jobs.

    ``jobs``   all of them, in the order of the workflow
    ``first_jobs``  those that wait for no other job of them
    ``last_jobs``   those that no other job of them waits for
    ``after``  the latest jobs that all of ``first_jobs`` wait for anyhow: what comes after these
               delays no transfer. Empty where they have none in common
    """

    first: int
    last: int
    width: int
    jobs: tuple[str, ...]
    first_jobs: tuple[str, ...]
    last_jobs: tuple[str, ...]
    after: tuple[str, ...]


def needs_pool(workflow: Workflow, job: str) -> bool:
    """Whether a job takes a slot: sub-workflows, and what is sent to the submit host, do not."""
    spec = workflow.jobs[job]
    return spec.kind == "job" and spec.site_hint != SUBMIT_SITE


def wide_levels(workflow: Workflow, min_width: int) -> list[WideLevels]:
    """Runs of levels that have at least ``min_width`` jobs for the pool each, from the first on."""
    by_level: dict[int, list[str]] = {}
    for job in workflow.jobs:
        if needs_pool(workflow, job):
            by_level.setdefault(workflow.level[job], []).append(job)
    wide = sorted(level for level, jobs in by_level.items() if len(jobs) >= min_width)
    # Levels that follow each other have the same distance to their place in the list.
    runs = [
        [level for _, level in run]
        for _, run in groupby(enumerate(wide), key=lambda pair: pair[1] - pair[0])
    ]
    return [_levels(workflow, run, by_level) for run in runs]


def _levels(workflow: Workflow, run: list[int], by_level: dict[int, list[str]]) -> WideLevels:
    members = {job for level in run for job in by_level[level]}
    firsts = [j for j in workflow.jobs if j in members and _apart(workflow.parents[j], members)]
    lasts = [j for j in workflow.jobs if j in members and _apart(workflow.children[j], members)]
    return WideLevels(
        run[0],
        run[-1],
        max(len(by_level[level]) for level in run),
        tuple(j for j in workflow.jobs if j in members),
        tuple(firsts),
        tuple(lasts),
        latest_common_ancestors(workflow, firsts),
    )


def _apart(jobs: Iterable[str], members: Collection[str]) -> bool:
    return not any(job in members for job in jobs)


def latest_common_ancestors(workflow: Workflow, jobs: Collection[str]) -> tuple[str, ...]:
    """Ancestors of every one of ``jobs`` that are no ancestors of another such one."""
    bit = {job: 1 << place for place, job in enumerate(jobs)}
    everyone = (1 << len(bit)) - 1
    below: dict[str, int] = {}  # which of the jobs it is, or come after it, as bits
    common: list[str] = []
    for job in reversed(workflow.order):
        bits = bit.get(job, 0)
        for child in workflow.children[job]:
            bits |= below[child]
        below[job] = bits
        full = bits == everyone and job not in bit
        if full and not any(below[c] == everyone and c not in bit for c in workflow.children[job]):
            common.append(job)
    return tuple(reversed(common))


@dataclass(frozen=True, slots=True)
class FileLocations:
    """``execution``: sites that jobs without a site of their own may go to; none: nobody knows.
    ``between``: the site that files are kept at between jobs. ``replicas``: the site of each input
    of the workflow, where known; ``sizes``: bytes of files that the workflow declares none for."""

    execution: tuple[str, ...] = ()
    between: str = SUBMIT_SITE
    replicas: Mapping[str, str] | None = None
    sizes: Mapping[str, int] | None = None


def needs_of(workflow: Workflow, levels: WideLevels, where: FileLocations) -> ProvisioningStep:
    """What the levels need: a slot for each of the widest one's jobs, of the size of the largest;
    what they read as far as sizes are known, each file once; and paths by pair of sites."""
    jobs = [workflow.jobs[name] for name in levels.jobs]
    read = dict.fromkeys(lfn for job in jobs for lfn in job.inputs)
    sizes = [_size(workflow, lfn, where) for lfn in read]
    return ProvisioningStep(
        levels.first,
        levels.width,
        max(job.cores for job in jobs),
        math.ceil(max((job.memory_mb or 0 for job in jobs), default=0)),
        sum(size for size in sizes if size is not None),
        paths=_paths(workflow, jobs, where),
    )


def _paths(workflow: Workflow, jobs: Sequence[Job], where: FileLocations) -> tuple[PathNeed, ...]:
    """A file goes to each site once, however many jobs read it there. Where one size of a pair is
    not known, that of the pair is not."""
    total: dict[tuple[str, str], float] = defaultdict(float)
    unknown: set[tuple[str, str]] = set()
    for (lfn, src, dst), share in _moves(workflow, jobs, where).items():
        size = _size(workflow, lfn, where)
        if size is None:
            unknown.add((src, dst))
        total[src, dst] += (size or 0) * share
    return tuple(
        PathNeed(src, dst, None if (src, dst) in unknown else math.ceil(bytes_))
        for (src, dst), bytes_ in sorted(total.items())
    )


def _moves(
    workflow: Workflow, jobs: Sequence[Job], where: FileLocations
) -> dict[tuple[str, str, str], float]:
    """(file, from, to) and the part of the file that is expected to go that way."""
    within = {job.id for job in jobs}
    moves: dict[tuple[str, str, str], float] = {}

    def add(lfn: str, ends: Iterable[tuple[str, str]], share: float) -> None:
        for src, dst in ends:
            if src != dst:
                moves[lfn, src, dst] = min(1.0, moves.get((lfn, src, dst), 0.0) + share)

    for job in jobs:
        sites = (job.site_hint,) if job.site_hint else where.execution
        for lfn in job.inputs:
            lies = _lies_at(workflow, lfn, where)
            add(lfn, ((lies, site) for site in sites), 1 / max(1, len(sites)))
        for lfn in job.outputs:
            file = workflow.files[lfn]
            leaves = file.stage_out or any(reader not in within for reader in file.consumers)
            if leaves:
                add(lfn, ((site, where.between) for site in sites), 1 / max(1, len(sites)))
    return moves


def _lies_at(workflow: Workflow, lfn: str, where: FileLocations) -> str:
    producer = workflow.files[lfn].producer
    if producer is None:
        return (where.replicas or {}).get(lfn, SUBMIT_SITE)
    return where.between


def _size(workflow: Workflow, lfn: str, where: FileLocations) -> int | None:
    declared = workflow.files[lfn].size_bytes
    return (where.sizes or {}).get(lfn) if declared is None else declared
