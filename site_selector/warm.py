"""``python -m site_selector.warm``: compile all kernels now, so that no workflow waits for it.

Does nothing, quickly, where machine code of the present source is there already.
"""

from __future__ import annotations

import os
import sys
import time

from site_selector.evaluation.traces import Task, build_trace
from site_selector.evaluation.worlds import draw_platform, true_problem
from site_selector.mapping.estimator import Estimator
from site_selector.mapping.kernels import compiled
from site_selector.mapping.policies import VARIANTS, by_level, greedy, list_schedule
from site_selector.problem import Problem


def done() -> bool:
    """Whether there is nothing to compile."""
    return compiled.is_warm()


def warm() -> None:
    """Run every kernel compiled, on a workflow of two jobs."""
    compiled.compile_from_now_on()
    problem = two_jobs()
    run = Estimator(problem)
    run.makespan(greedy(problem))
    by_level(problem)
    for knows in VARIANTS.values():
        list_schedule(problem, run.rank, knows)


def two_jobs() -> Problem:
    """One job reads a file and writes one for another, whose result goes back."""
    tasks = [
        Task("first", "first", (), (), ("raw",), ("between",), 20.0),
        Task("second", "second", (), (), ("between",), ("result",), 10.0),
    ]
    sizes = {"raw": 1e9, "between": 1e8, "result": 1e7}
    return true_problem(build_trace("two", tasks, sizes), draw_platform(0, 0))


def main() -> int:
    """One line of progress where something is to be done, on standard error."""
    os.umask(os.umask(0o022) & 0o022)  # what is kept beside the package is for all its users
    if done():
        return 0
    if not compiled.can_keep():
        folder = compiled.cache_directory()
        print(f"{folder} cannot be written: each process compiles for itself", file=sys.stderr)
        return 0
    print("compiling what selects sites, once, in about 20 s", file=sys.stderr, flush=True)
    began = time.monotonic()
    warm()
    print(f"compiled in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
