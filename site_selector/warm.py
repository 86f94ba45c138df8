"""``python -m site_selector.warm``: compile all kernels now, so that no workflow waits for it.

Does nothing, quickly, where machine code of the present source is there already.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from site_selector.mapping import kernel
from site_selector.mapping.estimator import Estimator
from site_selector.mapping.policies import VARIANTS, by_level, greedy, list_schedule
from site_selector.problem import Problem


def is_warm() -> bool:
    """Whether machine code of every kernel is there."""
    return all(map(kernel.has_machine_code, kernel.kernels()))


def warm() -> None:
    """Run every kernel compiled, on a workflow of two jobs."""
    kernel.compile_from_now_on()
    problem = two_jobs()
    run = Estimator(problem)
    run.makespan(greedy(problem))
    by_level(problem)
    for knows in VARIANTS.values():
        list_schedule(problem, run.rank, knows)


def two_jobs() -> Problem:
    """One job reads a file and writes one for another, whose result goes back; two sites."""
    between = np.array([[0.0, 1e-8], [1e-8, 0.0]])
    return Problem(
        jobs=("first", "second"),
        places=("here", "there"),
        n_sites=2,
        files=("raw", "between", "result"),
        parents=((), (0,)),
        children=((1,), ()),
        reads=((0,), (1,)),
        writes=((1,), (2,)),
        readers=((0,), (1,), ()),
        producer=(-1, 0, 1),
        holders=((0,), (), ()),
        returns=(False, False, True),
        size=(1e9, 1e8, 1e7),
        guessed=(False, False, False),
        allowed=((0, 1), (0, 1)),
        level=(0, 1),
        input_bytes=np.array([1e9, 1e8]),
        compute_s=np.array([[20.0, 10.0], [5.0, 5.0]]),
        queue_s=np.zeros(2),
        workers=(1, 1),
        seconds_per_byte=between,
        occupied_per_byte=between,
        setup_s=np.zeros((2, 2)),
        output=0,
        compute=((None, None), (None, None)),
    )


def main() -> int:
    """One line of progress where something is to be done, on standard error."""
    if is_warm():
        return 0
    print("compiling what selects sites, once, in about 20 s", file=sys.stderr, flush=True)
    began = time.monotonic()
    warm()
    if is_warm():
        print(f"compiled in {time.monotonic() - began:.0f} s", file=sys.stderr)
    else:
        folder = kernel.cache_directory()
        print(f"{folder} cannot be written: each process compiles for itself", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
