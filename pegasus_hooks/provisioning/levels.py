"""Where a workflow is wide: stretches of levels with many jobs each. Pure functions of values.

A job's level is one more than the highest of its parents'; jobs of one level can run side by side.
Wide levels that follow each other make one stretch, so that the pool is not made small and large
again in between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import groupby

from site_selector.catalogs.workflow import Workflow
from site_selector.inputs import SUBMIT_SITE


@dataclass(frozen=True, slots=True)
class Stretch:
    """Levels ``first`` to ``last``, the widest of which has ``width`` jobs.

    ``jobs``   all of them, in the order of the workflow
    ``first_jobs``  those that wait for no other job of the stretch
    ``last_jobs``   those that no other job of the stretch waits for
    ``after``  the latest jobs that all of ``first_jobs`` wait for anyhow: what comes after these
               delays nobody. Empty where they have none in common
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
    found = workflow.jobs[job]
    return found.kind == "job" and found.site_hint != SUBMIT_SITE


def stretches(workflow: Workflow, min_width: int) -> list[Stretch]:
    """The stretches of levels with at least ``min_width`` jobs for the pool, from the first on."""
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
    return [_stretch(workflow, run, by_level) for run in runs]


def _stretch(workflow: Workflow, run: list[int], by_level: dict[int, list[str]]) -> Stretch:
    members = {job for level in run for job in by_level[level]}
    firsts = [j for j in workflow.jobs if j in members and _apart(workflow.parents[j], members)]
    lasts = [j for j in workflow.jobs if j in members and _apart(workflow.children[j], members)]
    return Stretch(
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
        found = bit.get(job, 0)
        for child in workflow.children[job]:
            found |= below[child]
        below[job] = found
        full = found == everyone and job not in bit
        if full and not any(below[c] == everyone and c not in bit for c in workflow.children[job]):
            common.append(job)
    return tuple(reversed(common))
