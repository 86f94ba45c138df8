"""What HTCondor knows of DAGMan's jobs, by its commands.

A DAGMan whose machine lost its power, or whose disk was full, never says how it ended, and nor does
its event log. Who follows it would wait for ever. Whether its job is still there, HTCondor can
tell: it is in the queue (running, held, or about to be started again after a crash), or in the
history, or it is gone. Seen with HTCondor 25.14.1.
"""

from __future__ import annotations

import json
import logging
import math
import os
import pwd
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from monitors.base.measurement import number_in
from monitors.workflows.logs.events import schedd_of
from monitors.workflows.logs.status import WorkflowState
from network_provisioner.base.errors import printable

_log = logging.getLogger(__name__)

PATIENCE_S = 20.0
_ENVIRONMENT = ("PATH", "LANG", "TZ", "CONDOR_CONFIG")

Run = Callable[[Sequence[str]], str | None]
Ad = Mapping[str, Any]
_QUEUE_S = 60.0  # for so long one answer serves all workflows
_SAME_S = 2.0  # the queue has whole seconds
_REMOVED, _COMPLETED = 3, 4
_WANTED = "ClusterId,QDate,JobStatus,ExitCode,CompletionDate,EnteredCurrentStatus,RemoveReason"


def command_output(
    command: Sequence[str],
    patience_s: float = PATIENCE_S,
    level: int = logging.INFO,
    user: int | None = None,
) -> str | None:
    """What a command prints; None where it is not there, fails, or takes longer than ``patience_s``
    seconds. The reason is logged with ``level``. Root runs it as ``user`` (an id), who then may see
    all that it has: it gets nothing of our environment."""
    whose: dict[str, Any] = {}
    if user and os.geteuid() == 0:
        named = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        whose = {"user": user, "group": _group(user), "extra_groups": [], "env": named, "cwd": "/"}
    try:
        done: subprocess.CompletedProcess[bytes] = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience_s,
            check=False,
            **whose,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        _log.log(level, "%s: %s", command[0], error)
        return None
    if done.returncode:
        why = done.stderr[-300:].decode(errors="replace").strip()
        _log.log(level, "%s: exit code %d: %s", command[0], done.returncode, why)
        return None
    return done.stdout.decode(errors="replace")


def _group(user: int) -> int:
    try:
        return pwd.getpwuid(user).pw_gid
    except KeyError:  # not known on this machine
        return user


def ads(text: str | None) -> list[Ad] | None:
    """The jobs in what a command of HTCondor's printed with ``-json``: no job may be no text, and
    those of several schedds are a list each, one behind the other. None where nobody answered, or
    with something else."""
    if text is None:
        return None
    left, jobs = text.strip(), list[Ad]()
    try:
        while left:
            part, end = json.JSONDecoder().raw_decode(left)
            if not isinstance(part, list):
                return None
            jobs += [ad for ad in part if isinstance(ad, dict)]
            left = left[end:].lstrip()
    except (ValueError, RecursionError):
        return None
    return jobs


@dataclass(frozen=True, slots=True)
class Dagman:
    """The job that a DAGMan is: its number, when it was ``submitted`` (Unix seconds) and at which
    ``schedd`` (:func:`~monitors.workflows.logs.events.schedd_of`), "" where nobody told."""

    cluster: int
    submitted: float
    schedd: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """It is not there any more. ``at``: since when (Unix seconds), None where nobody knows."""

    state: WorkflowState
    why: str
    at: float | None = None


class Dagmans(Protocol):
    """Somebody who knows DAGMan's jobs."""

    def gone(self, dagman: Dagman) -> Gone | None:
        """How it ended; None where it is there, or nobody knows. Raises nothing."""


class Schedd:
    """The schedd of this machine, asked by ``run``. ``clock`` is a monotonic one."""

    def __init__(
        self, run: Run = command_output, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run, self._clock = run, clock
        self._queue: set[int] | None = None
        self._queue_until = -math.inf

    def gone(self, dagman: Dagman) -> Gone | None:
        """See :class:`Dagmans`.

        Numbers of jobs begin anew with each pool: a job is the same where it was submitted at the
        same time. One that is in neither queue nor history is gone only where this is the schedd
        that it was submitted at.
        """
        queue = self._in_queue()
        if queue is None or dagman.cluster in queue:
            return None
        only = f"ClusterId == {dagman.cluster}"
        past = ads(self._run(
            ["condor_history", "-json", "-attributes", _WANTED, "-constraint", only]
        ))  # fmt: skip
        for ad in past or ():
            queued = number_in(ad.get("QDate"))
            if queued is not None and abs(queued - dagman.submitted) <= _SAME_S:
                return _ended(ad, dagman)
        if past or past is None or not self._is_where(dagman):
            return None
        return Gone(
            WorkflowState.FAILED,
            f"its DAGMan (job {dagman.cluster}) never said how it ended, and HTCondor has it"
            " neither in the queue nor in the history",
        )

    def _in_queue(self) -> set[int] | None:
        """The numbers of all DAGMans' jobs that are there, None where nobody answers."""
        if self._clock() >= self._queue_until:
            jobs = ads(self._run(
                ["condor_q", "-allusers", "-constraint", "JobUniverse == 7",
                 "-json", "-attributes", "ClusterId"]
            ))  # fmt: skip
            self._queue_until = self._clock() + _QUEUE_S
            numbers = [ad.get("ClusterId") for ad in jobs or ()]
            self._queue = None if jobs is None else {n for n in numbers if isinstance(n, int)}
        return self._queue

    def _is_where(self, dagman: Dagman) -> bool:
        """Whether this is the schedd that it was submitted at, by the address it listens at; not
        where there are several, which share an address."""
        daemons = re.split(r"[\s,]+", self._run(["condor_config_val", "DAEMON_LIST"]) or "")
        if sum("SCHEDD" in name.upper() for name in daemons) > 1:
            return False
        address_file = self._run(["condor_config_val", "SCHEDD_ADDRESS_FILE"]) or ""
        with suppress(OSError, ValueError, IndexError):
            line = (
                Path(address_file.strip())
                .read_text(encoding="utf-8", errors="replace")
                .splitlines()[0]
            )
            return bool(dagman.schedd) and schedd_of(line) == dagman.schedd
        return False


def _ended(ad: Ad, dagman: Dagman) -> Gone | None:
    """How a job in the history ended."""
    job = f"its DAGMan (job {dagman.cluster})"
    at = number_in(ad.get("CompletionDate")) or number_in(ad.get("EnteredCurrentStatus"))
    if ad.get("JobStatus") == _REMOVED:
        at = number_in(ad.get("EnteredCurrentStatus")) or at
        why = printable(str(ad.get("RemoveReason") or "nobody says why")[:200])
        return Gone(WorkflowState.REMOVED, f"{job} was removed: {why}", at)
    if ad.get("JobStatus") != _COMPLETED:
        return None
    code = ad.get("ExitCode")
    state = WorkflowState.DONE if code == 0 else WorkflowState.FAILED
    how = f"with exit code {code}" if isinstance(code, int) else "by a signal"
    return Gone(state, f"{job} ended {how}, which HTCondor's history alone tells", at)
