"""What every run of a job does now, from what happened: nothing here asks or changes anything.

A run is an :class:`~monitors.jobs.executions.Execution` that HTCondor numbers. Of a run that sends
common files nothing is heard after they are sent: it is over then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from condor_plugins.jobs.jobad import JobAd, number
from condor_plugins.jobs.request_builder import Run
from condor_plugins.transfers.events import RunEvent
from monitors.jobs.executions import ENDS, Execution
from monitors.workflows.logs.events import Kind, TransferStep

SUPERSEDED = "started again"
_UNHEARD_S = 86_400.0


@dataclass(slots=True)
class RunState(Execution):
    """One run. ``ad`` has the newest of what its events said; ``handled`` tells those events from
    others: one that comes again is no news."""

    run: Run
    ad: JobAd = field(default_factory=dict)
    handled: set[tuple[Kind, TransferStep | None, float]] = field(default_factory=set)


class RunStates:
    """All runs that were heard of lately."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[int, RunState]] = {}

    def __iter__(self) -> Iterator[RunState]:
        return (state for runs in self._jobs.values() for state in runs.values())

    def get(self, run: Run) -> RunState | None:
        """The state of a run; None where nothing was heard of it."""
        return self._jobs.get(run.job, {}).get(run.starts)

    def feed(self, job_events: Iterable[RunEvent]) -> None:
        """Take what happened into account."""
        for event in job_events:
            runs = self._jobs.setdefault(event.job, {})
            if event.starts == 0:  # of the job as a whole, such as the removal of one that waits
                if event.kind in ENDS:
                    for state in runs.values():
                        # A log that is read again tells of ends from before a run began, too.
                        if event.at >= min((at for _, _, at in state.handled), default=event.at):
                            state.end(ENDS[event.kind], event.at)
                continue
            state = runs.setdefault(event.starts, RunState(Run(event.job, event.starts)))
            newest = max(runs)
            for starts, earlier in runs.items():
                if starts < newest:
                    earlier.end(SUPERSEDED, event.at)
            _follow(state, event)

    def forget(self, now: float, kept_s: float) -> None:
        """Drop jobs of which all runs are over and nothing was heard for ``kept_s`` seconds; where
        common files broke off, it may be that nobody tells."""
        for job, runs in list(self._jobs.items()):
            last = max((state.at for state in runs.values()), default=0.0)
            done = all(state.is_over for state in runs.values())
            unheard = any(state.run.common for state in runs.values()) and now - last > _UNHEARD_S
            if (done and now - last > kept_s) or unheard:
                del self._jobs[job]


def _follow(state: RunState, one: RunEvent) -> None:
    mark = (one.kind, one.step, one.at)
    if state.is_over or mark in state.handled:
        return
    state.handled.add(mark)
    # What the hook said is known to the shadow alone: events that the schedd writes lack it.
    state.ad = {**state.ad, **one.ad}
    if one.kind in (Kind.TERMINATED, Kind.EVICTED):
        sent = number(one.ad, "SentBytes")
        state.sent_bytes = None if sent is None or sent < 0 else int(sent)
    state.apply(one.kind, one.at, one.step)
    if state.run.common and one.step in (TransferStep.IN_FINISHED, TransferStep.OUT_FINISHED):
        state.ran = True
        state.end(ENDS[Kind.TERMINATED], one.at)
