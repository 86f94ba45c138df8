"""One workflow's files as the watcher reads them: its logs as events, its decision files
(``<dir>/<job>.adon.json``: what PRE asked for and got) as decisions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from monitors.jobs.jobs import AnyEvent, DagEvent, DagmanState
from monitors.jobs.logs import WorkflowLogs
from monitors.watcher.decision_file import DecisionFile
from monitors.workflows.planned.job_files import DECISION_ENDING
from monitors.workflows.planned.submit_dir import SubmitDir

Alive = Callable[[int], bool | None]
"""Whether a DAGMan runs, by its process on the machine where the workflow was registered; None
where nobody can tell from here."""


class JobSource(Protocol):
    """What the watcher sees of one workflow."""

    def events(self) -> Iterable[AnyEvent]:
        """What happened since the last call, in order. Raises InputError, after what could be
        read."""
        ...

    def gone(self, now: float) -> list[DagEvent]:
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


def remote_dagman(_pid: int) -> bool | None:
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

    def events(self) -> list[AnyEvent]:
        """See :class:`JobSource`."""
        return []

    def gone(self, now: float) -> list[DagEvent]:
        """See :class:`JobSource`."""
        return [DagEvent(DagmanState.ENDED, now)]

    def decision_files(self) -> list[DecisionFile]:
        """See :class:`JobSource`."""
        return []


class Files:
    """The files of one submit directory. Raises InputError where it is none."""

    def __init__(self, submit_dir: Path, alive: Alive = process_alive) -> None:
        plan = SubmitDir(submit_dir)
        self.dag = plan.dag
        self._logs = WorkflowLogs(plan)
        self._alive = alive
        self._place = submit_dir
        self._folders = _Folders(plan)

    @property
    def logs(self) -> list[Path]:
        """The files that tell when something happened."""
        return self._logs.paths

    def events(self) -> Iterator[AnyEvent]:
        """See :class:`JobSource`."""
        return self._logs.events()

    def decision_files(self) -> list[DecisionFile]:
        """See :class:`JobSource`."""
        return self._folders.read()

    def gone(self, now: float) -> list[DagEvent]:
        """See :class:`JobSource`."""
        pid = self._logs.pid
        alive = self._alive(pid) if pid else False
        if not alive and is_deleted(self._place):  # after pegasus-remove: no log tells more
            return [DagEvent(DagmanState.ENDED, now)]
        if pid and alive is False:
            self._logs.pid = 0
            return [DagEvent(DagmanState.GONE, now)]
        return []


class _Folders:
    """The decision files in all folders that the DAG names, read again where they changed."""

    # How many more looks a folder gets after one that found it changed: the times of files are
    # coarse, and what comes right after a look may not change them.
    _MORE = 3

    def __init__(self, plan: SubmitDir) -> None:
        folders = {node.file.parent for node in plan.nodes.values() if not node.is_subdag}
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
