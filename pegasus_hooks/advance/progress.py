"""Where a run stands: of each job, how far it has come and since when. Pure.

What HTCondor tells of jobs is heard before what DAGMan tells of the same: a submission some seconds
before it, and all of a job where a watcher begins late. So DAGMan's words say only whether a PRE
has asked and its job is not submitted yet; all else is HTCondor's to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from monitors.watcher.events import Event, What


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
    """A job's phase, since which Unix second, and how often it has failed. Where it is ASKED,
    ``before`` is where it stood otherwise."""

    phase: Phase = Phase.WAITING
    since: float = 0.0
    failures: int = 0
    before: Stand | None = None

    @property
    def submitted(self) -> Stand:
        """Where it stands by what HTCondor tells."""
        return self.before or self


Progress = Mapping[str, Stand]
NOT_BEGUN = Stand()

_BECOMES = {
    What.RUNNING: Phase.RUNNING,
    What.HELD: Phase.SUBMITTED,
    What.EVICTED: Phase.SUBMITTED,
    What.UNHELD: Phase.SUBMITTED,
    What.REMOVED: Phase.NEVER,
}


def after(stand: Stand, event: Event, retries: int) -> Stand:
    """Where a job stands after one more event of its own.

    One that fails, or whose PRE does, waits to be run again, as long as DAGMan does so: ``retries``
    times. POST has the last word on what ended.
    """
    told = stand.submitted
    if event.what is What.PRE_STARTED:
        return replace(told, phase=Phase.ASKED, since=event.at, before=told)
    if event.what is What.PRE_ENDED:
        return _pre_failed(told, event.at, retries) if event.code else stand
    if event.what is What.SUBMITTED:
        return _submitted(told, event)
    if event.what in _BECOMES:
        return replace(told, phase=_BECOMES[event.what], since=event.at)
    return _ended(told, event, retries)


def after_start(stand: Stand, at: float, goes_on: bool) -> Stand:
    """Where a job stands when a DAGMan starts at Unix second ``at``. One that ``goes_on`` where
    another was killed knows of what that did; any other runs again what is not done."""
    told = stand.submitted
    if goes_on or told.phase is Phase.DONE or told.since >= int(at):
        return told
    return NOT_BEGUN


def _pre_failed(told: Stand, at: float, retries: int) -> Stand:
    if told.phase is Phase.WAITING:
        return _failed(told, max(told.since, at), retries)
    return replace(told, failures=told.failures + 1)  # it was tried again since


def _submitted(told: Stand, event: Event) -> Stand:
    if not event.cluster and told != NOT_BEGUN:
        return told
    failures = 0 if told.phase is Phase.NEVER else told.failures  # another DAGMan runs it
    return Stand(Phase.SUBMITTED, event.at, failures)


def _ended(told: Stand, event: Event, retries: int) -> Stand:
    if event.code == 0:
        return told if told.phase is Phase.DONE else replace(told, phase=Phase.DONE, since=event.at)
    if told.phase in (Phase.WAITING, Phase.NEVER):  # POST says again what the job's end said
        return told
    return _failed(told, event.at, retries)


def _failed(stand: Stand, at: float, retries: int) -> Stand:
    failures = stand.failures + 1
    phase = Phase.NEVER if failures > retries else Phase.WAITING
    return Stand(phase, at, failures)
