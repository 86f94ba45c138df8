"""Whose job HTCondor starts next: users share a pool by their effective priorities.

The negotiator gives each user who has jobs a share of the slots in proportion to 1 / priority
(``condor_userprio``), and what a user does not want to the others. So a new job of somebody who
has little waits for less than all jobs in the queue, and one of somebody who has much for more.
Pure functions of counts; a user is a submitter: ``ada``, or ``group_physics.ada``.
"""

from __future__ import annotations

from collections.abc import Mapping

NEW_USER = 500.0
"""Effective priority of a user who has run nothing: PRIORITY_HALFLIFE's least, 0.5, times
DEFAULT_PRIO_FACTOR."""
_MOST_STARTS = 2_000  # played through; of a longer queue a part stands for the whole

Counts = Mapping[str, float]


def share_of(user: str, idle: Counts, priority: Mapping[str, float]) -> float:
    """The share of slots that a user can have beside those who have jobs ``idle``, 0 to 1."""
    weights = {name: 1 / _of(priority, name) for name, n in idle.items() if n > 0}
    own = weights.setdefault(user, 1 / _of(priority, user))
    return own / sum(weights.values())


def starts_before(
    user: str, slots: float, running: Counts, idle: Counts, priority: Mapping[str, float]
) -> float:
    """How many jobs start before a new one of ``user`` does, of those that are ``idle``.

    Slots that are free are given out first; then one after the other falls free, in proportion to
    what users have ``running``. Each goes to the user who then has the least for the priority.
    """
    scale = max(1.0, sum(idle.values()) / _MOST_STARTS)
    left = {name: n / scale for name, n in idle.items() if n > 0}
    left[user] = left.get(user, 0.0) + 1
    used = {name: running.get(name, 0.0) / scale for name in {*running, *left}}
    free = max(0.0, slots / scale - sum(used.values()))
    starts = 0.0
    while True:
        if free >= 1:
            free -= 1
        else:
            ended = 1 / max(1.0, sum(used.values()))
            used = {name: n * (1 - ended) for name, n in used.items()}
        # Of equals the others go first: what a job waits is not to be hoped away.
        first = min(left, key=lambda name: (used[name] * _of(priority, name), name == user, name))
        used[first] += 1
        left[first] -= 1
        if first == user and left[first] < 1:
            return starts * scale
        starts += 1
        if left[first] <= 0:
            del left[first]


def _of(priority: Mapping[str, float], user: str) -> float:
    return max(priority.get(user, NEW_USER), 0.5)
