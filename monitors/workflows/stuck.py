"""When a workflow does not go on although it has not ended."""

from __future__ import annotations

from monitors.status import State, Status

HELD_S = 60.0  # held jobs are often released again by themselves
_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86400.0


def stuck(
    status: Status, now: float, after_s: float, held: int = 0, held_since: float = 0.0
) -> str:
    """Why a workflow is stuck at ``now`` (Unix seconds), "" where it is not.

    It is where nothing changed for ``after_s`` seconds, or where all that it has in the queue is
    held, and no script runs, for a minute or ``after_s``, whichever is less.
    """
    if status.state is not State.RUNNING or not status.total:
        return ""
    busy = status.pre or status.post or status.ready
    if status.in_queue and held >= status.in_queue and not busy:
        since = max(held_since, status.at)
        if now - since >= min(HELD_S, after_s):
            jobs = "the only job" if status.in_queue == 1 else f"all {status.in_queue} jobs"
            return f"{jobs} in the queue held for {for_people(now - since)}"
    quiet = now - max(status.at, held_since)
    return f"nothing changed for {for_people(quiet)}" if quiet >= after_s else ""


def for_people(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3 h``, ``2 d``."""
    for unit_s, name in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "min")):
        if seconds >= 2 * unit_s:
            return f"{int(seconds // unit_s)} {name}"
    return f"{int(seconds)} s"
