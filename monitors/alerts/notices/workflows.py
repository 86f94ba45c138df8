"""Finds in the archive what is to be told of workflows: that one finished, failed, was removed or
is stuck. Whoever records their status, this process or another, is no matter."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Protocol

from monitors.alerts.notices.targets import FAILED, FINISHED, REMOVED, STUCK, Notice
from monitors.archive.archive import Archive, Measurement
from monitors.base.background import Background
from monitors.workflows.analysis import FailedJob, Hold, analyse
from monitors.workflows.logs.status import Status, WorkflowState, for_people
from monitors.workflows.overview import HeldJob, KnownWorkflows, Overview
from network_provisioner.base.errors import AdonError
from network_provisioner.base.instants import local_time

_log = logging.getLogger(__name__)

LOOK_S = 1.0
_CLOCK_S = 1.0  # DAGMan tells the time in whole seconds
_MARK = "notice:workflows:since"
_KEPT_S = 7 * 86400.0  # what ended longer ago was told, or nobody was there to be told

_ENDS = {WorkflowState.DONE: FINISHED, WorkflowState.FAILED: FAILED, WorkflowState.REMOVED: REMOVED}
_SHOWN_FAILURES = 3
_SHOWN_LINES = 8


class Tells(Protocol):
    """Somebody who tells."""

    def tell_of(self, notice: Notice) -> None:
        """Tell those who want to know. Returns at once; never raises."""


class WorkflowNotices(Background):
    """Looks at an archive, from :meth:`start` to :meth:`stop`, and has ``tells`` told.

    Nothing is told of what happened before the first start ever on this archive; what happened
    while no such process ran is told at the next start. ``known`` are the archive's workflows;
    ``clock`` gives Unix seconds.
    """

    def __init__(
        self, archive: Archive, tells: Tells, clock: Callable[[], float], known: KnownWorkflows
    ) -> None:
        super().__init__("workflow notices", self._run)
        self._archive, self._tells, self._clock, self._known = archive, tells, clock, known
        self._before: dict[str, Status] = {}
        self._stuck: dict[str, float] = {}
        self._went_on: set[str] = set()  # those that were seen while they were not stuck
        self._since: float | None = None

    def start(self) -> None:
        """Begin: what happens from now on is told."""
        try:
            self._since = self._first_start()
        except AdonError as error:
            _log.warning("notices of workflows: %s", error)
        super().start()

    def observe(self) -> None:
        """Tell what is new now. Raises ArchiveError."""
        if self._since is None:
            self._since = self._first_start()
        overviews = self._known.all(lambda _: True, self._clock() - _KEPT_S)
        for workflow in overviews.values():
            self._look_at(workflow, overviews)

    def _look_at(self, workflow: Overview, overviews: Mapping[str, Overview]) -> None:
        status = workflow.status
        if status is None or self._since is None:
            return
        before = self._before.get(workflow.id)
        recent = status.at >= max(self._since - _CLOCK_S, self._clock() - _KEPT_S)
        if kind := end_of(workflow, before):
            if recent:
                self._tells.tell_of(self._notice(workflow, kind, overviews))
        elif workflow.stuck and not workflow.parent and self._stuck.get(workflow.id) != status.at:
            self._stuck[workflow.id] = status.at
            # Its last change may be older than anybody who tells, and its standstill not.
            if recent or workflow.id in self._went_on:
                self._tells.tell_of(self._notice(workflow, STUCK, overviews))
        if not workflow.stuck:
            self._went_on.add(workflow.id)
        self._before[workflow.id] = status

    def _notice(self, workflow: Overview, kind: str, overviews: Mapping[str, Overview]) -> Notice:
        failures = []
        if kind != FINISHED:
            ids = self._known.inside(workflow.id, overviews)
            jobs = [job for key in ids for job in self._archive.query("job", workflow=key)]
            failures = [failed for failed in analyse(jobs).failures if not failed.retried]
        return workflow_notice(workflow, kind, failures)

    def _first_start(self) -> float:
        """When notices of workflows in this archive began (Unix seconds)."""
        now = self._clock()
        self._archive.record(
            Measurement(_MARK, "notice", "", 0.0, "1", now, "notices", "", {"outcome": "begins"})
        )
        mark = self._archive.get(_MARK)
        return now if mark is None else mark.at

    def _run(self) -> None:
        problem, seen = "", object()
        looked_at = -1e9
        while True:
            last = self.stopping.wait(LOOK_S)
            try:
                changed = self._archive.changed()
                now = self._clock()
                # What is stuck is so without anything being written.
                if last or changed != seen or abs(now - looked_at) > 5 * LOOK_S:
                    self.observe()
                    seen, looked_at = changed, now
                problem = ""
            except AdonError as error:
                if str(error) != problem:  # once, however long it lasts
                    problem = str(error)
                    _log.warning("notices of workflows: %s", error)
            except Exception:  # a fault of ours must not end it for good
                _log.exception("notices of workflows")
            if last:
                return


def end_of(workflow: Overview, before: Status | None) -> str:
    """The kind of notice that a change of status is, "" where it is none: how a workflow ended that
    had not ended ``before``, or otherwise."""
    now = workflow.status
    if now is None or not now.ended or workflow.parent:
        return ""
    if before is not None and before.state is now.state:
        return ""
    return _ENDS[now.state]


def key_of(workflow: Overview, kind: str) -> str:
    """One for each end of a workflow, and for each standstill: it may be run again."""
    return f"{workflow.id}:{workflow.at:.3f}" if kind == STUCK else (
        f"{workflow.id}:{workflow.state}:{workflow.at:.3f}")  # fmt: skip


def workflow_notice(workflow: Overview, kind: str, failures: Sequence[FailedJob] = ()) -> Notice:
    """What is told of a workflow that ended or is stuck."""
    total = workflow.totals
    whose = f" of {workflow.user}" if workflow.user else ""
    took = ""
    if kind != STUCK and workflow.planned_at and workflow.at > workflow.planned_at:
        took = f" after {for_people(workflow.at - workflow.planned_at)}"
    what = f"is stuck: {workflow.stuck}" if kind == STUCK else f"{kind}{took}"
    where = f" on {workflow.host}" if workflow.host else ""
    lines = [
        f"Workflow {workflow.name}{whose} {what}",
        "",
        f"{total.done} of {total.total} jobs done, {total.fail} failed ({total.percent_done:g} %).",
        *([f"Why: {total.reason}"] if total.reason else []),
        f"Submit directory: {workflow.submit_dir}{where}" if workflow.submit_dir else "",
        f"Id: {workflow.id}",
    ]
    for held in workflow.held[:_SHOWN_FAILURES]:
        since = local_time(held.since)
        lines += ["", f"Held: {_at(held.job, held.site)} since {since}: {_why(held)}"]
    if len(workflow.held) > _SHOWN_FAILURES:
        lines += ["", f"… and {len(workflow.held) - _SHOWN_FAILURES} more held jobs"]
    lines += [line for failed in failures[:_SHOWN_FAILURES] for line in _failure(failed)]
    if len(failures) > _SHOWN_FAILURES:
        lines += ["", f"… and {len(failures) - _SHOWN_FAILURES} more failed jobs"]
    return Notice(
        kind=kind,
        key=key_of(workflow, kind),
        text=_plain("\n".join(lines) + "\n"),
        at=workflow.at,
        details={
            "workflow": workflow.id,
            "name": workflow.name,
            "user": workflow.user,
            "state": workflow.state,
            "stuck": workflow.stuck,
            "done": total.done,
            "failed": total.fail,
            "total": total.total,
            "percent_done": total.percent_done,
            "held": [asdict(held) for held in workflow.held[:_SHOWN_FAILURES]],
            "failures": [
                {"job": f.job, "site": f.site, "exitcode": f.exitcode, "reason": f.reason}
                for f in failures[:_SHOWN_FAILURES]
            ],
        },
    )


def _plain(text: str) -> str:
    """Without control characters: names and output of jobs are foreign text."""
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)


def _at(job: str, site: str) -> str:
    return f"{job} at {site}" if site else job


def _why(hold: Hold | HeldJob) -> str:
    return f"{hold.reason or 'HTCondor gives no reason'} (code {hold.code}.{hold.subcode})"


def _failure(failed: FailedJob) -> list[str]:
    how = f"exit code {failed.exitcode}" if failed.exitcode is not None else failed.outcome
    why = f"{how}: {failed.reason}" if failed.reason and how == "removed" else failed.reason or how
    inside = ", ".join(
        f"{failed_task.task} ({failed_task.transformation})" for failed_task in failed.failed_tasks
    )
    tasks = f", in task {inside}" if inside else ""
    lines = ["", f"Failed: {_at(failed.job, failed.site)}: {why}{tasks}"]
    if failed.hold is not None:
        lines.append(
            f"    on hold for {for_people(failed.hold.seconds)} before: {_why(failed.hold)}"
        )
    output = [line for line in failed.stderr.splitlines() if line.strip()]
    return lines + [f"    {line}" for line in output[-_SHOWN_LINES:]]
