"""Why the planner plug-in's jobs are where they are: a file in the submit directory, written by a
process of its own, for nobody who plans is to wait for it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from network_provisioner.errors import AdonError
from site_selector.beliefs import World, beliefs_dict
from site_selector.describe import describe
from site_selector.inputs import Inputs
from site_selector.placement import Mapping
from site_selector.placementfile import write_placements
from site_selector.problem import Problem
from site_selector.simulate import Estimator

_LONGEST_S = 300.0


def told(
    inputs: Inputs, world: World, problem: Problem, sites: Sequence[int], policy: str
) -> Mapping:
    """An assignment of sites with the reason for each."""
    schedule = Estimator(problem)(tuple(sites))
    placements = describe(inputs, world, problem, sites, schedule)
    return Mapping(
        inputs.workflow.name, policy, schedule.makespan_s, {}, placements, beliefs_dict(world)
    )


def leave(submit_dir: Path, tell: Callable[[], Mapping]) -> None:
    """Have ``tell`` asked, and what it says written into ``submit_dir``, by a process that outlives
    this one and belongs to nobody. Nothing where the directory is not there."""
    if not submit_dir.is_dir():
        return
    try:
        first = os.fork()
    except OSError:
        return  # too many processes: then nobody is told why
    if first:
        os.waitpid(first, 0)
        return
    # From here on nothing may return: this is a second process in the middle of the caller's code.
    try:
        os.setsid()
        if os.fork() == 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(nothing, standard)
            signal.setitimer(signal.ITIMER_REAL, _LONGEST_S)
            os.nice(10)
            write_placements(submit_dir, tell(), time.time())
    except (AdonError, OSError):
        pass  # a disk that is full, a directory that is gone
    finally:
        os._exit(0)
