"""Peers from outside: the schedulers of SAGA 2.0.2 (``anrg-saga``), and lookahead HEFT.

SAGA has an environment of its own in the cache: what it needs is 800 MB, and nothing of ADON's.
Its model is the literature's: a node does one task at a time, every edge moves its own bytes, and
no transfer slows another down.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from adon.machine.cached import Progress, cache_root, make_once
from network_provisioner.base.errors import MissingError
from site_selector.mapping.estimator import Assignment, upward_rank
from site_selector.mapping.kernels.data import by_urgency
from site_selector.problem import Problem

VERSION = "2.0.2"
LIMIT_S = 60  # of one scheduler on one case
_NEAR = 1e15  # bytes per second between workers of a site: as good as at once
_INSIDE = Path(__file__).with_name("saga_inside.py")


def environment(progress: Progress) -> Path:
    """The folder of its virtual environment.

    :raises MissingError: no package index, no space.
    """
    home = cache_root() / f"saga-{VERSION}"
    return make_once(home, "SAGA", 2_000_000_000, partial(_install, home, progress), progress)


def _install(home: Path, progress: Progress, work: Path) -> None:
    progress(f"SAGA: installing anrg-saga {VERSION}")
    made = work / "environment"
    pip = (str(made / "bin/python"), "-m", "pip", "install", "-q", f"anrg-saga=={VERSION}")
    for words in ((sys.executable, "-m", "venv", "--clear", str(made)), pip):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no reason given"]
            raise MissingError(f"SAGA: {lines[-1]}")
    made.rename(home)


def saga(problem: Problem, home: Path) -> dict[str, tuple[Assignment, list[float]]]:
    """For each scheduler the site of each job, and when it meant the job to start."""
    case = as_case(problem)
    done = subprocess.run(
        [str(home / "bin/python"), str(_INSIDE)],
        input=json.dumps(case) + "\n",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    jobs = [str(job) for job in range(len(problem.jobs))]
    return {
        name: (
            [int(rows[job][0].partition(".")[0]) for job in jobs],
            [float(rows[job][1]) for job in jobs],
        )
        for name, rows in json.loads(done.stdout).items()
        if all(job in rows for job in jobs)  # some leave jobs out
    }


def as_case(problem: Problem) -> dict[str, Any]:
    """Workers as nodes. Speeds are those of sites relative to the first."""
    speed = problem.compute_s[:, :1].mean() / problem.compute_s.mean(axis=0)
    nodes = [(f"{s}.{w}", speed[s]) for s, n in enumerate(problem.workers) for w in range(n)]
    site = [int(name.partition(".")[0]) for name, _ in nodes]
    links = []
    for i, (a, _) in enumerate(nodes):
        for j, (b, _) in enumerate(nodes[:i]):
            per_byte = problem.seconds_per_byte[site[i], site[j]]
            links.append((a, b, _NEAR if site[i] == site[j] else 1 / per_byte))
    moved: dict[tuple[int, int], float] = {
        (parent, job): 0.0 for job, above in enumerate(problem.parents) for parent in above
    }
    for job, files in enumerate(problem.reads):
        for file in files:
            if problem.producer[file] >= 0:
                moved[problem.producer[file], job] += problem.size[file]
    return {
        "tasks": [(str(job), problem.compute_s[job, 0]) for job in range(len(problem.jobs))],
        "edges": [(str(a), str(b), size) for (a, b), size in moved.items()],
        "nodes": nodes,
        "links": links,
        "limit_s": LIMIT_S,
    }


def lookahead_heft(problem: Problem) -> Assignment:
    """HEFT that places a job where the latest of its children would end first, each of them at its
    best (Bittencourt, Sakellariou, Madeira 2010). Without insertion."""
    free = [np.zeros(n) for n in problem.workers]
    site, end = [-1] * len(problem.jobs), np.zeros(len(problem.jobs))

    def finish(job: int, at: int, workers: list[Any]) -> float:
        arrivals = [0.0]
        for file in problem.reads[job]:
            writer = problem.producer[file]
            places = problem.holders[file] if writer < 0 else (site[writer],)
            if writer >= 0 and site[writer] < 0:
                continue  # another parent of a child: not placed yet, as in the paper
            move_s = min(problem.size[file] * problem.seconds_per_byte[p, at] for p in places)
            arrivals.append(move_s + (end[writer] if writer >= 0 else 0.0))
        arrivals += [end[parent] for parent in problem.parents[job] if site[parent] >= 0]
        ready = max(arrivals) + problem.queue_s[at]
        return float(max(ready, workers[at].min()) + problem.compute_s[job, at])

    for job in by_urgency(upward_rank(problem)).tolist():
        best = (np.inf, np.inf, 0)
        for at in problem.allowed[job]:
            site[job], end[job] = at, finish(job, at, free)
            workers = [slots.copy() for slots in free]
            workers[at][workers[at].argmin()] = end[job]
            children = [
                min(finish(child, there, workers) for there in problem.allowed[child])
                for child in problem.children[job]
            ]
            best = min(best, (max(children, default=float(end[job])), float(end[job]), at))
        site[job], end[job] = best[2], best[1]
        slots = free[best[2]]
        slots[slots.argmin()] = best[1]
    return site
