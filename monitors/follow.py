"""Follows running workflows into the measurement archive, until each is done, failed or removed.

    python -m monitors.follow --archive archive.sqlite SUBMIT_DIR…

or, as a function, ``Follower([submit_dir], archive).run(stop)``. The kernel tells when DAGMan has
written (:mod:`monitors.watch`); only what is new is read. Being killed and started again neither
loses nor doubles anything (:mod:`monitors.workflow`).
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from monitors.archive import Archive, ArchiveError, Measurement
from monitors.status import State, Status, status_text
from monitors.submit_dir import SubmitDir
from monitors.watch import Watch, open_watch
from monitors.workflow import FollowedWorkflow
from network_provisioner.errors import AdonError, InputError

_log = logging.getLogger(__name__)

# DAGMan writes a table line by line; reading a moment after the first line takes it in one go.
SETTLE_S = 0.03

# How often everything is looked at although the kernel told nothing (network file systems).
LOOK_ANYWAY_S = 2.0

_STOP_CHECK_S = 0.25

OnStatus = Callable[[SubmitDir, Status], None]


class Follower:
    """Follows workflows by their submit directories, which must be planned already.

    DAGMan need not have started. ``on_status`` is called with every change after it is in the
    archive. Raises InputError as :class:`~monitors.submit_dir.SubmitDir`.
    """

    def __init__(
        self,
        submit_dirs: str | Path | Iterable[str | Path],
        archive: Archive,
        *,
        on_status: OnStatus | None = None,
        watch: Callable[[Mapping[Path, Iterable[str]]], Watch] = open_watch,
    ) -> None:
        paths = [submit_dirs] if isinstance(submit_dirs, str | Path) else submit_dirs
        self.workflows = [FollowedWorkflow(path) for path in paths]
        self._archive = archive
        self._on_status = on_status
        self._open_watch = watch
        self._unrecorded: list[Measurement] = []
        self._complaints: dict[Path, str] = {}

    def poll(self) -> bool:
        """Records what is new in all workflows now; whether all have ended.

        Raises ArchiveError where it cannot be recorded; what was read is kept for the next call.
        """
        return self._take(self.workflows)

    def run(self, stop: threading.Event | None = None) -> dict[Path, Status | None]:
        """Follows until every workflow has ended or ``stop`` is set; the last status of each.

        Whatever is written before ``stop`` is set is recorded. An archive that cannot be written
        for a while delays the recording; raises ArchiveError where it still cannot at the end.
        """
        stop = stop or threading.Event()
        by_folder: dict[Path, list[FollowedWorkflow]] = {}
        names: dict[Path, set[str]] = {}
        for workflow in self.workflows:
            folder, files = workflow.files
            by_folder.setdefault(folder, []).append(workflow)
            names.setdefault(folder, set()).update(files)
        watch = self._open_watch(names)
        try:
            ended = self._try(self.workflows)
            looked = time.monotonic()
            while not ended and not stop.is_set():
                changed = watch.wait(_STOP_CHECK_S)
                now = time.monotonic()
                if now - looked > LOOK_ANYWAY_S:
                    changed, looked = set(by_folder), now
                elif changed:
                    stop.wait(SETTLE_S)
                    changed |= watch.wait(0)
                if changed or self._unrecorded:
                    ended = self._try([w for folder in changed for w in by_folder[folder]])
        finally:
            watch.close()
        self.poll()
        return {workflow.dir.path: workflow.status for workflow in self.workflows}

    def _try(self, workflows: Sequence[FollowedWorkflow]) -> bool:
        try:
            return self._take(workflows)
        except ArchiveError as error:
            self._complain(Path(), str(error))
            return False

    def _take(self, workflows: Sequence[FollowedWorkflow]) -> bool:
        changes: list[tuple[SubmitDir, Status]] = []
        for workflow in workflows:
            try:
                workflow.step()
            except InputError as error:  # one workflow's trouble is not the others'
                self._complain(workflow.dir.path, str(error))
            measurements, statuses = workflow.take()
            self._unrecorded += measurements
            changes += [(workflow.dir, status) for status in statuses]
        if self._unrecorded:
            self._archive.record_many(self._unrecorded)
            self._unrecorded.clear()
        if self._on_status is not None:
            for submit_dir, status in changes:
                self._on_status(submit_dir, status)
        return all(workflow.ended or self._gone(workflow) for workflow in self.workflows)

    def _gone(self, workflow: FollowedWorkflow) -> bool:
        if workflow.dir.path.is_dir():
            return False
        self._complain(workflow.dir.path, "the submit directory is gone: no longer followed")
        return True

    def _complain(self, about: Path, message: str) -> None:
        """Warns once, however often the same happens again."""
        if self._complaints.get(about) != message:
            self._complaints[about] = message
            _log.warning("%s", message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 where all workflows were done, 1 where one was not, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m monitors.follow", description=__doc__)
    parser.add_argument("--archive", required=True, help="SQLite file, made where it is not there")
    parser.add_argument("--quiet", action="store_true", help="print nothing while it runs")
    parser.add_argument("submit_dir", nargs="+")
    options = parser.parse_args(arguments)
    logging.basicConfig(format="%(message)s")

    def show(submit_dir: SubmitDir, status: Status) -> None:
        print(status_text(status, submit_dir.name), flush=True)

    try:
        with Archive(options.archive) as archive:
            on_status = None if options.quiet else show
            last = Follower(options.submit_dir, archive, on_status=on_status).run()
    except AdonError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 1
    return 0 if all(s is not None and s.state is State.DONE for s in last.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
