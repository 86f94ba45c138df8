"""One workflow's files: its logs as events, its decision files as decisions.

    <dag>.nodes.log, <condor_log of braindump.yml>   what HTCondor did with its jobs
    <dag>.dagman.out                                 DAGMan's life and its PRE scripts
    <dag>.dagman.log                                 what HTCondor did with DAGMan
    <dir>/<job>.adon.json                            what PRE asked for and got

The logs of the jobs are read before DAGMan's, which tells of the same later.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import merge
from pathlib import Path
from typing import Protocol

from monitors.watcher.decision_file import DecisionFile
from monitors.watcher.events import Event, EventKind
from monitors.workflows.logs.dagman import DagmanParser, StatusChange, StepKind
from monitors.workflows.logs.events import EventParser, JobEvent, Kind
from monitors.workflows.logs.tail import Tail
from monitors.workflows.planned.job_files import DECISION_ENDING
from monitors.workflows.planned.submit_dir import DAG, SubmitDir

_KINDS = {
    Kind.SUBMIT: EventKind.SUBMITTED,
    Kind.EXECUTE: EventKind.RUNNING,
    Kind.EVICTED: EventKind.EVICTED,
    Kind.SHADOW_EXCEPTION: EventKind.EVICTED,
    Kind.TERMINATED: EventKind.ENDED,
    Kind.ABORTED: EventKind.REMOVED,
    Kind.HELD: EventKind.HELD,
    Kind.RELEASED: EventKind.UNHELD,
    Kind.POST_SCRIPT_TERMINATED: EventKind.POST_ENDED,
}
_DAGMANS = {
    Kind.EXECUTE: EventKind.DAG_STARTED,
    Kind.EVICTED: EventKind.DAG_GONE,
    Kind.SHADOW_EXCEPTION: EventKind.DAG_GONE,
    Kind.HELD: EventKind.DAG_GONE,
    Kind.TERMINATED: EventKind.DAG_ENDED,
    Kind.ABORTED: EventKind.DAG_ENDED,
}
_STEPS = {
    StepKind.PRE_STARTED: EventKind.PRE_STARTED,
    StepKind.PRE_ENDED: EventKind.PRE_ENDED,
}


Alive = Callable[[int], bool | None]
"""Whether a DAGMan runs, by its process on the machine where the workflow was registered; None
where nobody can tell from here."""


class JobSource(Protocol):
    """What the watcher sees of one workflow."""

    def events(self) -> list[Event]:
        """What happened since the last call, in order. Raises InputError."""
        ...

    def gone(self, now: float) -> list[Event]:
        """That DAGMan is no more, found out at ``now`` (Unix seconds), where no log tells it.
        Raises OSError."""
        ...

    def decision_files(self) -> list[DecisionFile]:
        """All decision files as they are now, where one changed; else nothing. Raises OSError."""
        ...


def process_alive(pid: int) -> bool | None:
    """Whether process ``pid`` is a DAGMan: its number may have gone to another one since."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False if Path("/proc/self/cmdline").exists() else None
    except OSError:
        return None
    # A process that is just being started, or has just ended, has no arguments.
    return not command or b"-dag" in command.lower()


def elsewhere(_pid: int) -> bool | None:
    """For a DAGMan on another machine."""
    return None


def is_deleted(submit_dir: Path) -> bool:
    """Whether nothing is left of a submit directory. Raises OSError where nobody can tell."""
    return not (submit_dir / "braindump.yml").exists()


class DeletedFiles:
    """A :class:`JobSource`: what its user deleted does not run any more."""

    def __init__(self, submit_dir: Path) -> None:
        self.dag = submit_dir
        self.logs: list[Path] = []

    def events(self) -> list[Event]:
        """See :class:`JobSource`."""
        return []

    def gone(self, now: float) -> list[Event]:
        """See :class:`JobSource`."""
        return [Event(EventKind.DAG_ENDED, now)]

    def decision_files(self) -> list[DecisionFile]:
        """See :class:`JobSource`."""
        return []


@dataclass(slots=True)
class _Log:
    """A job log: its events once each, though two logs tell of the same."""

    tail: Tail
    parser: EventParser = field(default_factory=EventParser)

    def read(self) -> Iterator[JobEvent]:
        for piece in self.tail.read():
            if piece.first:
                self.parser = EventParser()
            yield from self.parser.feed(piece.data)


@dataclass(slots=True)
class _Submission:
    node: str
    procs: set[int]


class Files:
    """The files of one submit directory. Raises InputError where it is none."""

    def __init__(self, submit_dir: Path, alive: Alive = process_alive) -> None:
        plan = SubmitDir(submit_dir)
        self.dag = plan.dag
        own = [plan.nodes_log, *([plan.workflow_log] if plan.workflow_log else [])]
        self._jobs = [_Log(Tail(path)) for path in own]
        self._dagman = _Log(Tail(plan.dagman_log))
        self._out = Tail(plan.dagman_out)
        self._run = DagmanParser()
        self._seen: set[JobEvent] = set()
        self._submissions: dict[int, _Submission] = {}
        self._alive = alive
        self._place = submit_dir
        self._pid = 0  # of the DAGMan that runs, 0 for none
        self._folders = _Folders(plan)

    @property
    def logs(self) -> list[Path]:
        """The files that tell when something happened."""
        return [*(log.tail.path for log in self._jobs), self._out.path, self._dagman.tail.path]

    def events(self) -> list[Event]:
        """See :class:`JobSource`."""
        found = [event for log in self._jobs for told in log.read() for event in self._of_job(told)]
        # Neither tells all of it, and which came first is known to the second.
        return [*found, *merge(self._of_schedd(), self._of_dagman(), key=lambda e: int(e.at))]

    def decision_files(self) -> list[DecisionFile]:
        """See :class:`JobSource`."""
        return self._folders.read()

    def gone(self, now: float) -> list[Event]:
        """See :class:`JobSource`."""
        alive = self._alive(self._pid) if self._pid else False
        if not alive and is_deleted(self._place):  # after pegasus-remove: no log tells more
            return [Event(EventKind.DAG_ENDED, now)]
        if self._pid and alive is False:
            self._pid = 0
            return [Event(EventKind.DAG_GONE, now)]
        return []

    def _of_schedd(self) -> Iterator[Event]:
        for told in self._dagman.read():
            if told.kind in _DAGMANS:
                yield Event(_DAGMANS[told.kind], told.at, code=told.returned)

    def _of_dagman(self) -> Iterator[Event]:
        for piece in self._out.read():
            if piece.first:
                self._run = DagmanParser()
            for told in self._run.feed(piece.data):
                if isinstance(told, StatusChange):
                    continue
                if told.step is StepKind.PID:
                    self._pid = told.number
                elif told.step is StepKind.STARTED:
                    self._pid = 0  # that of the one before; its own comes next
                    yield Event(EventKind.DAG_STARTED, told.at)
                elif told.step is StepKind.EXITED:
                    self._pid = 0
                    what = EventKind.DAG_GONE if told.again else EventKind.DAG_ENDED
                    yield Event(what, told.at, code=told.number)
                elif told.step is StepKind.SUBMITTED:
                    yield Event(EventKind.SUBMITTED, told.at, told.node)
                elif told.step in _STEPS:
                    yield Event(_STEPS[told.step], told.at, told.node, told.number)

    def _of_job(self, told: JobEvent) -> Iterator[Event]:
        if told in self._seen:
            return
        self._seen.add(told)
        if told.kind is Kind.SUBMIT:
            if told.node:
                known = self._submissions.get(told.cluster)
                if known is None or told.proc == 0 or known.node != told.node:
                    self._submissions[told.cluster] = _Submission(told.node, {told.proc})
                else:
                    known.procs.add(told.proc)
                yield Event(EventKind.SUBMITTED, told.at, told.node, cluster=told.cluster)
            return
        known = self._submissions.get(told.cluster)
        if known is None:
            return
        if told.kind in (Kind.TERMINATED, Kind.ABORTED):
            known.procs.discard(told.proc)
            if known.procs:  # the node has ended when all of its processes have
                return
        yield Event(_KINDS[told.kind], told.at, known.node, told.returned, told.cluster)


class _Folders:
    """The decision files in all folders that the DAG names, read again where they changed."""

    # How many more looks a folder gets after one that found it changed: the times of files are
    # coarse, and what comes right after a look may not change them.
    _MORE = 3

    def __init__(self, plan: SubmitDir) -> None:
        files = map(plan.submit_file, plan.job_names())
        folders = {file.parent for file in files if file and file.suffix != DAG}
        self._times = dict.fromkeys(sorted(folders), (0, 0))
        self._files: dict[Path, tuple[tuple[int, int], DecisionFile]] = {}

    def read(self) -> list[DecisionFile]:
        changed = False
        for folder, (known, more) in self._times.items():
            try:
                time = folder.stat().st_mtime_ns
            except OSError:
                continue
            more_now = self._MORE if time != known else more
            if more_now:
                self._times[folder] = (time, more_now - 1)
                changed |= self._scan(folder)
        return [file for _, file in self._files.values()] if changed else []

    def _scan(self, folder: Path) -> bool:
        changed = False
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.endswith(DECISION_ENDING):
                    continue
                with suppress(FileNotFoundError):
                    status = entry.stat()
                    path, mark = Path(entry.path), (status.st_ino, status.st_mtime_ns)
                    if path in self._files and self._files[path][0] == mark:
                        continue
                    self._files[path] = (mark, DecisionFile.read(path))
                    changed = True
        return changed
