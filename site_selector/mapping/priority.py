"""The order in which jobs that wait start, as ``condor: priority``.

HTCondor starts the waiting jobs of a user by priority, among equals first come, first served;
DAGMan's ``PRIORITY`` of the node is the same number. Pegasus gives all jobs of a level one
priority, so that a level runs as it comes. What ADON hands over instead are numbers about the mean
of Pegasus's own, one less for each job by upward rank: beside other workflows of the user none is
preferred on the whole, and stage jobs, at 700 and more, still go first. A priority that the user
gave stays.
"""

from __future__ import annotations

import numpy as np

from site_selector.cost import Array
from site_selector.mapping.kernel_data import IntArray, by_urgency
from site_selector.problem import Problem

#: The highest that is handed over; Pegasus's stage-in jobs have 700.
MOST = 690
_SPAN = 1200  # of all that is handed over; in a larger workflow, neighbours share a number


def start_priorities(problem: Problem, rank: Array) -> IntArray:
    """The priority of each job, the highest first: by ``rank`` or, where no priority can be handed
    over, Pegasus's own by level; the user's own in either case."""
    by_level = 10 * (np.asarray(problem.level, dtype=np.int64) + 2)
    priority, jobs = by_level, len(problem.jobs)
    if not problem.by_level:
        place = np.empty(jobs, dtype=np.int64)
        place[by_urgency(rank)] = np.arange(jobs)
        span = min(jobs - 1, _SPAN)
        top = min(MOST, int(by_level.mean()) + span // 2)
        priority = top - place * span // max(1, jobs - 1)
    if problem.own_priority:
        given = [value is not None for value in problem.own_priority]
        own = np.array([value or 0 for value in problem.own_priority], dtype=np.int64)
        priority = np.where(given, own, priority)
    return priority
