"""What is told to whom: functions of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from monitors.alerts.notices.data import ANOMALY, FAILED, FINISHED, REMOVED, STUCK, Target
from monitors.workflows.analysis import FailedJob
from monitors.workflows.overview import Overview
from monitors.workflows.status import Status, WorkflowState, for_people

_ENDS = {WorkflowState.DONE: FINISHED, WorkflowState.FAILED: FAILED, WorkflowState.REMOVED: REMOVED}
_SHOWN_FAILURES = 3
_SHOWN_LINES = 8


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell. ``key`` tells it from all others of its ``kind``: under one key a thing is
    told once. ``at`` is when it happened (Unix seconds)."""

    kind: str
    key: str
    text: str
    at: float
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        """Its first line."""
        return self.text.partition("\n")[0][:200]


def wants(target: Target, notice: Notice) -> bool:
    """Whether ``target`` is told. An anomaly belongs to no user and no workflow: who is told of
    certain ones' alone is not told of it."""
    if notice.kind not in target.on:
        return False
    if notice.kind == ANOMALY:
        return not target.users and not target.workflows
    names = [str(notice.details.get(key, "")) for key in ("name", "workflow")]
    return (not target.users or _among(str(notice.details.get("user", "")), target.users)) and (
        not target.workflows or any(_among(name, target.workflows) for name in names)
    )


def notice_id(target: Target, notice: Notice) -> str:
    """The id under which it stands in the archive that ``target`` is told of ``notice``."""
    return f"notice:{target.id}:{notice.kind}:{notice.key}"


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
            "failures": [
                {"job": f.job, "site": f.site, "exitcode": f.exitcode, "reason": f.reason}
                for f in failures[:_SHOWN_FAILURES]
            ],
        },
    )


def _plain(text: str) -> str:
    """Without what is for terminals: names and what jobs said are foreign text."""
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)


def _failure(failed: FailedJob) -> list[str]:
    site = f" at {failed.site}" if failed.site else ""
    how = f"exit code {failed.exitcode}" if failed.exitcode is not None else failed.outcome
    lines = ["", f"Failed: {failed.job}{site}: {failed.reason or how}"]
    said = [line for line in failed.stderr.splitlines() if line.strip()]
    return lines + [f"    {line}" for line in said[-_SHOWN_LINES:]]


def _among(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
