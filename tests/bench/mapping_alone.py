"""``python -m tests.bench.mapping_alone SAMPLES CHROMOSOMES``: map one large problem and tell, as
JSON, what that took. In a process of its own, so that its memory is its own."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from random import Random

from site_selector.evaluation.worlds import (
    LINK_BPS,
    SPEED,
    WORKERS,
    Platform,
    log_uniform,
    true_problem,
)
from site_selector.mapping.mapper import map_problem
from site_selector.mapping.uncertainty import Uncertainty
from tests.bench.shapes import soykb

SITES = 10


def platform(seed: int) -> Platform:
    """Ten sites, the first of which has the data."""
    rng = Random(seed)
    links = [[0.0] * SITES for _ in range(SITES)]
    for a in range(SITES):
        for b in range(a):
            links[a][b] = links[b][a] = log_uniform(rng, *LINK_BPS)
    return Platform(
        tuple(f"site{i}" for i in range(SITES)),
        tuple(round(log_uniform(rng, *WORKERS)) for _ in range(SITES)),
        tuple(log_uniform(rng, *SPEED) for _ in range(SITES)),
        tuple(log_uniform(rng, 1.0, 1800.0) for _ in range(SITES)),
        tuple(tuple(row) for row in links),
        0,
    )


def main(samples: int, chromosomes: int) -> int:
    """Seconds, and megabytes before and at the most."""
    trace = soykb(samples, chromosomes)
    problem = true_problem(trace, platform(1))
    before = _peak_mb()
    began = time.perf_counter()
    doubt = Uncertainty.everywhere(0.5, random_waits=True)
    chosen = map_problem(problem, trace.kinds, uncertainty=doubt)
    seconds = time.perf_counter() - began
    result = {
        "jobs": len(problem.jobs),
        "seconds": seconds,
        "before_mb": before,
        "peak_mb": _peak_mb(),
        "policy": chosen.policy,
        "makespan_s": chosen.schedule.makespan_s,
    }
    print(json.dumps(result))
    return 0


def _peak_mb() -> float:
    """Of this program alone: ru_maxrss would begin with what the parent had when it forked."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
