"""What a wide stretch needs: slots of a size, and paths with the bytes they will carry. Pure.

Where a file lies before it is read, and where a job will run, is known in part: a replica's site, a
job's own ``execution.site``. What is not is given: the site that workflows keep their files at in
between, and the sites that jobs may be sent to, over which they are taken to spread evenly.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pegasus_hooks.provisioning.levels import Stretch
from pegasus_hooks.provisioning.step import PathNeed
from site_selector.catalogs.workflow import Job, Workflow
from site_selector.inputs import SUBMIT_SITE


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """``execution``: sites that jobs without a site of their own may go to; none: nobody knows.
    ``between``: the site that files are kept at between jobs. ``replicas``: the site of each input
    of the workflow, where known; ``sizes``: bytes of files that the workflow declares none for."""

    execution: tuple[str, ...] = ()
    between: str = SUBMIT_SITE
    replicas: Mapping[str, str] | None = None
    sizes: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Needs:
    """``slots`` with ``cores`` and ``memory_mb`` (0: nobody says) each; ``input_bytes`` is what the
    stretch reads as far as sizes are known, each file once; ``paths`` by pair of sites."""

    slots: int
    cores: int
    memory_mb: int
    input_bytes: int
    paths: tuple[PathNeed, ...]


def needs_of(workflow: Workflow, stretch: Stretch, where: Whereabouts) -> Needs:
    """What ``stretch`` needs."""
    jobs = [workflow.jobs[name] for name in stretch.jobs]
    read = dict.fromkeys(lfn for job in jobs for lfn in job.inputs)
    sizes = [_size(workflow, lfn, where) for lfn in read]
    return Needs(
        stretch.width,
        max(job.cores for job in jobs),
        math.ceil(max((job.memory_mb or 0 for job in jobs), default=0)),
        sum(size for size in sizes if size is not None),
        _paths(workflow, jobs, where),
    )


def _paths(workflow: Workflow, jobs: Sequence[Job], where: Whereabouts) -> tuple[PathNeed, ...]:
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
    workflow: Workflow, jobs: Sequence[Job], where: Whereabouts
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


def _lies_at(workflow: Workflow, lfn: str, where: Whereabouts) -> str:
    producer = workflow.files[lfn].producer
    if producer is None:
        return (where.replicas or {}).get(lfn, SUBMIT_SITE)
    return where.between


def _size(workflow: Workflow, lfn: str, where: Whereabouts) -> int | None:
    declared = workflow.files[lfn].size_bytes
    return (where.sizes or {}).get(lfn) if declared is None else declared
