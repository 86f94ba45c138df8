"""One workflow, followed through the files that DAGMan and HTCondor write into its directory.

Everything here is a function of what stands in the files: a new follower that reads them again from
the beginning finds the same measurements with the same ids, and the archive keeps each once. That
is why no position has to be stored anywhere, and why being killed loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from monitors.attempts import Attempts, Outcome
from monitors.dagman_log import StatusParser
from monitors.event_log import EventParser, JobEvent, Kind
from monitors.measurement import Measurement
from monitors.records import read_record
from monitors.runtimes import queue_wait, run_facts
from monitors.status import NOT_STARTED, State, Status
from monitors.submit_dir import SubmitDir
from monitors.tail import Tail


class FollowedWorkflow:
    """Reads what is new in a submit directory, as often as asked.

    ``status`` is the newest status, None before DAGMan's first. Raises InputError as
    :class:`~monitors.submit_dir.SubmitDir`.
    """

    def __init__(self, path: str | Path) -> None:
        self.dir = SubmitDir(path)
        self.status: Status | None = None
        self.attempts = Attempts(self.dir.job)
        self._measurements: list[Measurement] = []
        self._statuses: list[Status] = []
        self._out, self._out_parser = Tail(self.dir.dagman_out), StatusParser()
        self._nodes = _EventTail(self.dir.nodes_log)
        self._dagman = _EventTail(self.dir.dagman_log)
        self._run: JobEvent | None = None  # DAGMan's own job while it is in the queue
        self._backfilled = False

    @property
    def files(self) -> tuple[Path, list[str]]:
        """The folder and the names of the files whose growth matters."""
        paths = (self.dir.dagman_out, self.dir.nodes_log, self.dir.dagman_log)
        return self.dir.dag.parent, [path.name for path in paths]

    @property
    def ended(self) -> bool:
        """Whether DAGMan has ended and is not in the queue again (a rescue or a rerun)."""
        if self.status is None or not self.status.ended:
            return False
        return self._run is None or self._run.at <= self.status.at

    def step(self) -> None:
        """Reads what is new; :meth:`take` gives it.

        Raises InputError where a file is there and cannot be read; what was read until then stands.
        """
        # DAGMan tells of its end after the last job's events are written: reading its own words
        # first, no job's events are missed when it has ended.
        self._read_out()
        for event in self._dagman.read():
            self._dagman_event(event)
        for event in self._job_events():
            self._job_event(event)

    def take(self) -> tuple[list[Measurement], list[Status]]:
        """The measurements to record and the changes of status since it was last called."""
        taken = self._measurements, self._statuses
        self._measurements, self._statuses = [], []
        return taken

    def _read_out(self) -> None:
        for piece in self._out.read():
            if piece.first:
                self._out_parser = StatusParser()
            for change in self._out_parser.feed(piece.data):
                self._change(change.key, change.status)

    def _change(self, key: str, status: Status) -> None:
        self.status = status
        self._statuses.append(status)
        self._measurements.append(status.measurement(self.dir.workflow, key))

    def _job_events(self) -> Iterator[JobEvent]:
        if not self._backfilled:
            # DAGMan empties nodes.log at every start; the workflow's own log has earlier runs too.
            self._backfilled = True
            if self.dir.workflow_log is not None:
                yield from _EventTail(self.dir.workflow_log).read()
        yield from self._nodes.read()

    def _job_event(self, event: JobEvent) -> None:
        attempt = self.attempts.feed(event)
        if attempt is None:
            return
        if event.kind is Kind.EXECUTE:
            wait = queue_wait(attempt, self.dir.workflow)
            self._measurements += [] if wait is None else [wait]
            return
        record = None
        if attempt.job.output is not None and attempt.start and attempt.outcome is Outcome.DONE:
            record = read_record(attempt.job.output, attempt.start, attempt.end)
        self._measurements += run_facts(attempt, record, self.dir.workflow)

    def _dagman_event(self, event: JobEvent) -> None:
        """DAGMan's own job: tells of reruns, and of ends that DAGMan could not tell of itself."""
        if event.kind is Kind.SUBMIT:
            self._run = event
            return
        if event.kind not in (Kind.TERMINATED, Kind.ABORTED) or self._run is None:
            return
        submitted, self._run = self._run.at, None
        self._read_out()  # DAGMan's last words stand there before this event does
        status = self.status or NOT_STARTED
        if status.ended and status.at >= submitted:
            return
        state = State.DONE if event.returned == 0 else State.FAILED
        if event.kind is Kind.ABORTED:
            state = State.REMOVED
        key = f"dagman:{event.cluster}:{event.at:.3f}"
        self._change(key, replace(status, state=state, at=event.at))


class _EventTail:
    """An event log that is followed."""

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path)
        self._parser = EventParser()

    def read(self) -> Iterator[JobEvent]:
        for piece in self._tail.read():
            if piece.first:
                self._parser = EventParser()
            yield from self._parser.feed(piece.data)
