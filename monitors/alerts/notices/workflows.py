"""Finds in the archive what is to be told of workflows: that one finished, failed, was removed or
is stuck. Whoever records their status, this process or another, is no matter."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from monitors.alerts.notices.data import FINISHED, STUCK
from monitors.alerts.notices.deciding import Notice, end_of, workflow_notice
from monitors.archive.archive import Archive, Measurement
from monitors.background import Background
from monitors.workflows.analysis import analyse
from monitors.workflows.overview import KnownWorkflows, Overview
from monitors.workflows.status import Status
from network_provisioner.base.errors import AdonError

_log = logging.getLogger(__name__)

LOOK_S = 1.0
_CLOCK_S = 1.0  # DAGMan tells the time in whole seconds
_MARK = "notice:workflows:since"
_KEPT_S = 7 * 86400.0  # what ended longer ago was told, or nobody was there to be told


class Tells(Protocol):
    """Somebody who tells."""

    def tell_of(self, notice: Notice) -> None:
        """Tell those who want to know. Returns at once; never raises."""


class WorkflowNotices:
    """Looks at an archive, from :meth:`start` to :meth:`stop`, and has ``tells`` told.

    Nothing is told of what happened before the first start ever on this archive; what happened
    while no such process ran is told at the next start. ``known`` are the archive's workflows;
    ``clock`` gives Unix seconds.
    """

    def __init__(
        self, archive: Archive, tells: Tells, clock: Callable[[], float], known: KnownWorkflows
    ) -> None:
        self._archive = archive
        self._tells = tells
        self._clock = clock
        self._known = known
        self._before: dict[str, Status] = {}
        self._stuck: dict[str, float] = {}
        self._went_on: set[str] = set()  # those that were seen while they were not stuck
        self._since: float | None = None
        self._thread = Background("workflow notices", self._run)
        self._stop = self._thread.stopping

    def start(self) -> None:
        """Begin: what happens from now on is told."""
        try:
            self._since = self._first_start()
        except AdonError as error:
            _log.warning("notices of workflows: %s", error)
        self._thread.start()

    def stop(self) -> None:
        """End, after a last look."""
        self._thread.stop()

    def look(self) -> None:
        """Tell what is new now. Raises ArchiveError."""
        if self._since is None:
            self._since = self._first_start()
        found = self._known.all(lambda _: True, self._clock() - _KEPT_S)
        for workflow in found.values():
            self._look_at(workflow, found)

    def _look_at(self, workflow: Overview, found: Mapping[str, Overview]) -> None:
        status = workflow.status
        if status is None or self._since is None:
            return
        before = self._before.get(workflow.id)
        recent = status.at >= max(self._since - _CLOCK_S, self._clock() - _KEPT_S)
        if kind := end_of(workflow, before):
            if recent:
                self._tells.tell_of(self._notice(workflow, kind, found))
        elif workflow.stuck and not workflow.parent and self._stuck.get(workflow.id) != status.at:
            self._stuck[workflow.id] = status.at
            # Its last change may be older than anybody who tells, and its standstill not.
            if recent or workflow.id in self._went_on:
                self._tells.tell_of(self._notice(workflow, STUCK, found))
        if not workflow.stuck:
            self._went_on.add(workflow.id)
        self._before[workflow.id] = status

    def _notice(self, workflow: Overview, kind: str, found: Mapping[str, Overview]) -> Notice:
        failures = []
        if kind != FINISHED:
            ids = self._known.inside(workflow.id, found)
            jobs = [job for one in ids for job in self._archive.query("job", workflow=one)]
            failures = [failed for failed in analyse(jobs).failures if not failed.retried]
        return workflow_notice(workflow, kind, failures)

    def _first_start(self) -> float:
        """When anybody began to tell of workflows in this archive."""
        now = self._clock()
        self._archive.record(
            Measurement(_MARK, "notice", "", 0.0, "1", now, "notices", "", {"outcome": "begins"})
        )
        found = self._archive.get(_MARK)
        return now if found is None else found.at

    def _run(self) -> None:
        said, seen = "", object()
        looked_at = -1e9
        while True:
            last = self._stop.wait(LOOK_S)
            try:
                changed = self._archive.changed()
                now = self._clock()
                # What is stuck is so without anything being written.
                if last or changed != seen or abs(now - looked_at) > 5 * LOOK_S:
                    self.look()
                    seen, looked_at = changed, now
                said = ""
            except AdonError as error:
                if str(error) != said:  # once, however long it lasts
                    said = str(error)
                    _log.warning("notices of workflows: %s", error)
            except Exception:  # a fault of ours must not end it for good
                _log.exception("notices of workflows")
            if last:
                return
