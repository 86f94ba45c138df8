"""What others than a workflow's own files tell of it: HTCondor where its DAGMan is silent
(:mod:`monitors.jobs.condor`), ``pegasus-status`` where its files cannot be understood.

    pegasus-status -j -Q DIR
    {"totals": {"unready": 0, "ready": 1, …}, "dags": {"root": {"unready": 0, "ready": 1, "pre": 0,
     "queued": 2, "post": 0, "succeeded": 3, "failed": 0, "percent_done": 50.0, "total": 6,
     "state": "Running", "dagname": "mini-0.dag"}}}

It starts a process and reads all that DAGMan ever wrote, so it is asked only where following the
files says nothing, and seldom. ``-Q``: the queue is not asked. What it prints of a workflow that it
does not understand either are zeros, which say nothing. Tried with Pegasus 5.1.3 and 6.0.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, TypeVar

from monitors.jobs.condor import Dagman, Dagmans, Gone, command_output
from monitors.workflows.logs.status import Status, WorkflowState
from monitors.workflows.workflow_tree import TreeMember

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")
TIMEOUT_S = 30.0
PATIENCE_S = 20.0  # for DAGMan's own words, before anybody else is asked
AGAIN_S = 60.0
_NAMES = {
    "unready": "unready",
    "ready": "ready",
    "pre": "pre",
    "in_queue": "queued",
    "post": "post",
    "done": "succeeded",
    "fail": "failed",
    "total": "total",
}
_STATES = {
    "Running": WorkflowState.RUNNING,
    "Success": WorkflowState.DONE,
    "Failure": WorkflowState.FAILED,
}
_MOST_JOBS = 10**9
Ask = Callable[[Path], str | None]
SILENT_S = 600.0
"""After so long without a word of a DAGMan, HTCondor is asked whether it is still there."""
_SCHEDD_PATIENCE_S, _SCHEDD_AGAIN_S = 5.0, 300.0


class Inquiry(Generic[Key, Answer]):
    """Asks ``ask`` about what has been of interest for ``patience_s``, and every ``again_s`` while
    it is. ``ask`` gives None where it cannot tell, and raises nothing."""

    def __init__(
        self, ask: Callable[[Key], Answer | None], name: str, patience_s: float, again_s: float
    ) -> None:
        self._ask, self._name = ask, name
        self._patience_s, self._again_s = patience_s, again_s
        self._due: dict[Key, float] = {}  # when to ask, by the monotonic clock
        self._asked: dict[Key, Future[Answer | None]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def observe(self, wanted: Collection[Key]) -> dict[Key, Answer]:
        """What was answered since the last time of what is ``wanted`` now, which also says what to
        ask next. Never waits."""
        now = time.monotonic()
        answers: dict[Key, Answer] = {}
        with self._lock:
            for key, future in list(self._asked.items()):
                if future.done():
                    del self._asked[key]
                    answer = future.result()
                    if answer is not None and key in wanted:
                        answers[key] = answer
            for key in [known for known in self._due if known not in wanted]:
                del self._due[key]
            for key in wanted:
                due = self._due.setdefault(key, now + self._patience_s)
                if now >= due and key not in self._asked:
                    self._due[key] = now + self._again_s
                    self._asked[key] = self._pool().submit(self._ask, key)
        return answers

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, self._name)
        return self._threads

    def close(self) -> None:
        """Asks nobody any more; waits for the one that is being asked."""
        with self._lock:
            if self._threads is not None:
                self._threads.shutdown(wait=True, cancel_futures=True)
                self._threads = None
                self._asked.clear()  # who begins again asks anew


def parsed(text: str | None, at: float) -> Status | None:
    """What it says of the workflow itself at ``at`` (Unix seconds); None where it says nothing, or
    what cannot be: counts that are none, more jobs than there are, or another share than theirs."""
    try:
        dag = json.loads(text or "")["dags"]["root"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(dag, dict):
        return None
    counts = {name: _count(dag, theirs) for name, theirs in _NAMES.items()}
    state = _STATES.get(str(dag.get("state")))
    share = dag.get("percent_done")
    if state is None or None in counts.values() or not isinstance(share, int | float):
        return None
    known: dict[str, Any] = {name: count for name, count in counts.items() if count is not None}
    all_jobs = known["total"]
    futile = all_jobs - sum(count for name, count in known.items() if name != "total")
    if not all_jobs or futile < 0 or not abs(share - 100 * known["done"] / all_jobs) <= 0.011:
        return None  # also where the share is no number
    return Status(**known, percent_done=float(share), state=state, at=at, futile=futile)


def key_of(status: Status) -> str:
    """Tells a status that it told from all others."""
    return f"pegasus-status:{status.at:.3f}:{sha256(repr(status).encode()).hexdigest()[:8]}"


def ask(folder: Path) -> str | None:
    """What it prints of a submit directory, as its owner; None where it is not there, or takes too
    long."""
    owner = None
    with suppress(OSError):
        owner = folder.stat().st_uid
    command = ["pegasus-status", "-j", "-Q", str(folder.absolute())]
    return command_output(command, TIMEOUT_S, user=owner)


class Fallback(Inquiry[Path, Status]):
    """Asks for workflows that have been unclear for a while.

    ``run`` prints what pegasus-status says of a directory, ``clock`` gives Unix seconds.
    """

    def __init__(
        self,
        run: Ask = ask,
        clock: Callable[[], float] = time.time,
        patience_s: float = PATIENCE_S,
        again_s: float = AGAIN_S,
    ) -> None:
        super().__init__(
            lambda folder: parsed(run(folder), clock()), "pegasus-status", patience_s, again_s
        )


def _count(dag: Mapping[str, Any], name: str) -> int | None:
    count = dag.get(name)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MOST_JOBS:
        return None
    return count


def inquiry_into(
    dagmans: Dagmans, patience_s: float = _SCHEDD_PATIENCE_S, again_s: float = _SCHEDD_AGAIN_S
) -> Inquiry[Dagman, Gone]:
    """Has HTCondor asked in a thread of its own."""
    return Inquiry(dagmans.gone, "dagmans", patience_s, again_s)


@dataclass
class Inquiries:
    """``fallback`` is asked where DAGMan is not understood, ``dagmans`` where nothing was written
    for ``silent_s`` and DAGMan should run."""

    fallback: Fallback | None = None
    dagmans: Inquiry[Dagman, Gone] | None = None
    silent_s: float = SILENT_S

    def observe(self, members: Collection[TreeMember], now: float) -> list[TreeMember]:
        """Notes what was answered, and asks about what there is to ask now (Unix seconds); which
        workflows it changed. Never waits."""
        return [*self._by_pegasus(members), *self._by_condor(members, now)]

    def _by_pegasus(self, members: Collection[TreeMember]) -> list[TreeMember]:
        if self.fallback is None:
            return []
        unclear = {m.dir.path: m for m in members if m.unclear and m.is_planned}
        answers = self.fallback.observe(unclear)
        for folder, status in answers.items():
            unclear[folder].note(status, key_of(status), "pegasus-status")
        return [unclear[folder] for folder in answers]

    def _by_condor(self, members: Collection[TreeMember], now: float) -> list[TreeMember]:
        if self.dagmans is None:
            return []
        silent: dict[Dagman, TreeMember] = {}
        for member in members:
            dagman = None if member.is_over else member.dagman
            if dagman is None:
                continue
            # One that was begun just now, such as a sub-workflow's that is tried again, is not
            # silent, however old its files are.
            if now - max(member.written_at, dagman.submitted) >= self.silent_s:
                silent[dagman] = member
        answers = self.dagmans.observe(list(silent))
        for dagman, gone in answers.items():
            with suppress(Exception):  # whoever reads it next complains
                silent[dagman].step()  # its last words, where they come now
            silent[dagman].gone(dagman, gone)
        return [silent[dagman] for dagman in answers]

    def close(self) -> None:
        """Asks nobody any more."""
        for inquiry in (self.fallback, self.dagmans):
            if inquiry is not None:
                inquiry.close()
