"""Where a run stands: of each job, how far it has come and since when. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from pegasus_hooks.watch.events import Event, What


class Phase(IntEnum):
    """How far a job has come. One that is not spoken of is WAITING."""

    WAITING = 0
    ASKED = 1  # its PRE has begun, so that its paths are its own business
    SUBMITTED = 2
    RUNNING = 3
    DONE = 4
    NEVER = 5  # it failed for good, or its workflow has ended


@dataclass(frozen=True, slots=True)
class Stand:
    """A job's phase, since which Unix second, and how often it has failed."""

    phase: Phase = Phase.WAITING
    since: float = 0.0
    failures: int = 0


Progress = Mapping[str, Stand]
NOT_BEGUN = Stand()

_BECOMES = {
    What.PRE_STARTED: Phase.ASKED,
    What.SUBMITTED: Phase.SUBMITTED,
    What.RUNNING: Phase.RUNNING,
    What.HELD: Phase.SUBMITTED,
    What.EVICTED: Phase.SUBMITTED,
    What.UNHELD: Phase.SUBMITTED,
    What.REMOVED: Phase.NEVER,
}
_SCRIPTS_END = {What.PRE_ENDED, What.ENDED, What.POST_ENDED}


def after(stand: Stand, event: Event, retries: int) -> Stand:
    """Where a job stands after one more event of its own.

    One that fails, or whose PRE does, waits to be run again, as long as DAGMan does so: ``retries``
    times. POST has the last word on what ended.
    """
    if event.what in _BECOMES:
        return replace(stand, phase=_BECOMES[event.what], since=event.at)
    if event.what not in _SCRIPTS_END:
        return stand
    if event.code != 0:
        if event.what is What.PRE_ENDED and event.code is None:
            return stand
        return _failed(stand, event.at, retries)
    if event.what is What.PRE_ENDED or stand.phase is Phase.DONE:
        return stand
    return replace(stand, phase=Phase.DONE, since=event.at)


def _failed(stand: Stand, at: float, retries: int) -> Stand:
    if stand.phase in (Phase.WAITING, Phase.NEVER):  # POST says again what the job's end said
        return stand
    failures = stand.failures + 1
    phase = Phase.NEVER if failures > retries else Phase.WAITING
    return Stand(phase, at, failures)
