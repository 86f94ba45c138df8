"""Inside the environment that has SAGA: schedules of all its schedulers, a JSON line for each case.

A case has ``tasks`` (name, seconds at speed 1), ``edges`` (from, to, bytes), ``nodes`` (name,
speed) and ``links`` (a, b, bytes per second); the answer names for each scheduler the node and the
start of each task. Who fails, or needs more than ``limit_s``, is left out.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
from typing import Any, NoReturn

from saga import Network, TaskGraph, schedulers

# They look at all schedules, or at one that needs a solver.
_EXHAUSTIVE = {"BruteForceScheduler", "SMTScheduler"}


def too_long(*_: object) -> NoReturn:
    raise TimeoutError


def schedules(case: dict[str, Any]) -> dict[str, dict[str, list[Any]]]:
    network = Network.create(map(tuple, case["nodes"]), map(tuple, case["links"]))
    graph = TaskGraph.create(map(tuple, case["tasks"]), map(tuple, case["edges"]))
    out = {}
    for name in sorted(set(schedulers.__all__) - _EXHAUSTIVE):
        signal.alarm(case["limit_s"])
        try:
            made = getattr(schedulers, name)().schedule(network, graph)
        except Exception:  # whatever a scheduler cannot do, the others are asked
            continue
        finally:
            signal.alarm(0)
        out[name.removesuffix("Scheduler")] = {
            task.name: [node, task.start] for node, tasks in made.items() for task in tasks
        }
    return out


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # that a source and a sink are added
    signal.signal(signal.SIGALRM, too_long)
    for line in sys.stdin:
        print(json.dumps(schedules(json.loads(line))), flush=True)
