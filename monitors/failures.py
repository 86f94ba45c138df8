"""Why a workflow failed: its failed jobs, with what each of them said last.

DAGMan lists the jobs that failed at the end of ``<dag>.dagman.out``, also those whose PRE script or
submission failed and which no event log knows:

    11/21/26 11:26:46 ERROR: the following job(s) failed:
    11/21/26 11:26:46 ---------------------- Node ----------------------
    11/21/26 11:26:46       Node Name: align_ID1
    11/21/26 11:26:46           Error: Job proc (5.0.0) failed with status 3 (after 1 node retries)

Where it did not come to that (it was killed), the event logs tell of the jobs that ran and failed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from monitors import kickstart
from monitors.attempts import Attempt, Outcome
from monitors.submit_dir import PlannedJob
from monitors.workflow import FollowedWorkflow

_TAIL_BYTES = 1 << 16
_MOST_LINES = 20
_MOST_COLUMNS = 400
_STAMP = r"^[\d/:. -]{14,40}(?: \([^)]*\))* "
_FAILED = re.compile(_STAMP + r"ERROR: the following job\(s\) failed:", re.MULTILINE)
_NODE = re.compile(_STAMP + r" *Node Name: (\S+)\s*$", re.MULTILINE)
_ERROR = re.compile(_STAMP + r" *Error: (.+?)\s*$", re.MULTILINE)
_COMPLAINT = re.compile(_STAMP + r"(ERROR[: ].+?|.*\bfatal\b.*?)\s*$", re.MULTILINE)
_OUR_RECORD = "adon-job-record:"


@dataclass(frozen=True, slots=True)
class Failure:
    """A job that failed for good.

    ``exit_code`` is of its last attempt, minus the signal where one ended it, None where it did not
    run to an end. ``reason`` is DAGMan's, ``tail`` the last lines of what the job wrote to its
    standard error, or else to its output. ``files`` are those of the job that are there.
    """

    job: str
    site: str
    exit_code: int | None
    attempts: int
    reason: str
    tail: Sequence[str]
    files: Sequence[Path]


def failures(submit_dir: str | Path) -> list[Failure]:
    """The failed jobs of a workflow, those first that failed first.

    Raises InputError where the directory cannot be read.
    """
    workflow = FollowedWorkflow(submit_dir)
    workflow.step()
    attempts: dict[str, list[Attempt]] = {}
    for attempt in workflow.attempts.all:
        attempts.setdefault(attempt.job.name, []).append(attempt)
    reasons = listed(_end_of(workflow.dir.dagman_out, 1 << 22))
    ran = [n for n, tries in attempts.items() if tries[-1].outcome is Outcome.FAILED]
    names = list(reasons) or ran
    ends = {name: attempts[name][-1].end for name in names if name in attempts}
    return [
        _failure(workflow.dir.job(name), attempts.get(name, []), reasons.get(name, ""))
        for name in sorted(names, key=lambda n: (ends.get(n, 0.0), n))
    ]


def listed(text: str) -> dict[str, str]:
    """Job name to reason, from DAGMan's last list of failed jobs in its log."""
    starts = list(_FAILED.finditer(text))
    if not starts:
        return {}
    text = text[starts[-1].end() :]
    nodes = list(_NODE.finditer(text))
    ends = [*(node.start() for node in nodes[1:]), len(text)]
    found = {}
    for node, end in zip(nodes, ends[: len(nodes)], strict=True):
        error = _ERROR.search(text, node.end(), end)
        found[node[1]] = error[1] if error else ""
    return found


def last_complaint(submit_dir: str | Path) -> str:
    """DAGMan's last error line, for workflows that failed without a failed job; else empty.

    Raises InputError where the directory cannot be read.
    """
    text = _end_of(FollowedWorkflow(submit_dir).dir.dagman_out, _TAIL_BYTES)
    said = _COMPLAINT.findall(text)
    return said[-1] if said else ""


def tail_of(text: str) -> list[str]:
    """The last lines with anything in them, each of a length that can be shown."""
    kept = [line.rstrip() for line in text.splitlines() if line.strip()]
    return ["".join(c if c.isprintable() else " " for c in k)[:_MOST_COLUMNS] for k in kept][
        -_MOST_LINES:
    ]


def _failure(job: PlannedJob, tries: Sequence[Attempt], reason: str) -> Failure:
    outputs = _versions(job.output)
    errors = _versions(job.error or (job.output.with_suffix(".err") if job.output else None))
    return Failure(
        job=job.name,
        site=job.site,
        exit_code=tries[-1].returned if tries else None,
        attempts=len(tries),
        reason=reason,
        tail=_last_words(errors, outputs) if tries else [],
        files=[*errors[:1], *outputs[:1]],
    )


def _last_words(errors: Iterable[Path], outputs: Iterable[Path]) -> list[str]:
    for path in errors:
        if said := tail_of(_end_of(path, _TAIL_BYTES)):
            return said
    for path in outputs:
        text = _end_of(path, _TAIL_BYTES)
        # kickstart puts the program's standard error into its own document.
        if "- invocation:" in text:
            return tail_of(kickstart.standard_error(text))
        lines = [line for line in text.splitlines() if not line.startswith(_OUR_RECORD)]
        if said := tail_of("\n".join(lines)):
            return said
    return []


def _versions(path: Path | None) -> list[Path]:
    """A job's file and those that pegasus-exitcode renamed to ``….000`` and so on, newest first."""
    if path is None:
        return []
    renamed = sorted(path.parent.glob(path.name + ".[0-9][0-9][0-9]"), reverse=True)
    return [found for found in (path, *renamed) if found.is_file()]


def _end_of(path: Path, most_bytes: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
            return file.read(most_bytes).decode(errors="replace")
    except OSError:
        return ""  # not there, or not to be read: then it tells nothing
