"""Tells people, each thing once, also over restarts, and only so much at a time.

That somebody is to be told stands in the archive (metric ``notice``) before anything is sent, and
its end after. Of several processes on one archive the one whose record was new sends. What a
process left behind that was killed in between is sent by the next one: a web hook gets the same
``Idempotency-Key`` again; a command that had begun is not run again, for nobody knows how far it
came.
"""

from __future__ import annotations

import heapq
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from monitors.alerts.notices import channels
from monitors.alerts.notices.channels import Delivery
from monitors.alerts.notices.targets import ANOMALY, LINK, Notice, Target, notice_id, wants
from monitors.archive.archive import Archive, Measurement
from network_provisioner.base.errors import AdonError, InputError
from network_provisioner.base.schema import read

_log = logging.getLogger(__name__)

TRIES = 8
_AGAIN_S = (2.0, 10.0, 30.0, 120.0, 600.0, 1800.0, 3600.0)  # from one try to the next
_LEFT_BEHIND_S = 86400.0  # how old a notice of a process that is gone may be to be still told
_MOST_WAITING = 10_000
_ARCHIVE_AGAIN_S = 5.0
_LAST_S = 15.0  # for what was not tried yet, when it is to end
_LOOK_S = 0.1

WINDOW_S = 3600.0
OF_WORKFLOW, OF_USER = 5, 20
"""Within :data:`WINDOW_S`, to each target; as many of a link as of a user."""


@dataclass(order=True)
class _Task:
    due: float
    number: int
    target: Target = field(compare=False)
    notice: Notice = field(compare=False)
    claimed: bool = field(compare=False, default=False)
    tries: int = field(compare=False, default=0)
    done: Delivery | None = field(compare=False, default=None)  # sent, and not yet recorded


class NoticeService:
    """Notifies ``targets``; a :class:`adon.service.parts.Notifier`. ``clock`` gives Unix seconds;
    ``steady`` gives seconds that never jump, by which tries are spaced; ``runs`` says whether the
    process that recorded a notice may still be sending it."""

    def __init__(
        self,
        targets: Sequence[Target],
        archive: Archive,
        clock: Callable[[], float],
        steady: Callable[[], float],
        deliver: Callable[[Target, Notice, str], Delivery] = channels.deliver,
        runs: Callable[[Measurement], bool] | None = None,
    ) -> None:
        self._targets = tuple(targets)
        self._archive = archive
        self._clock, self._steady = clock, steady
        self._deliver = deliver
        self._runs = runs or may_run
        self._limits = NoticeLimits()
        self._tasks: list[_Task] = []
        self._number = 0
        self._more = threading.Condition()
        self._stopped = False
        self._until = 0.0
        self._trying = False
        self._thread: threading.Thread | None = None
        self._said = ""

    def start(self) -> None:
        """Begin, with what a process that has ended left behind."""
        if not self._targets or self._thread is not None:
            return
        try:
            self._take_over()
        except AdonError as error:
            _log.warning("notices: %s", error)
        self._thread = threading.Thread(target=self._run, name="notices", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End when everything that waits was tried once, or after 15 s. What was not sent is sent
        at the next start."""
        with self._more:
            self._stopped = True
            self._until = self._steady() + _LAST_S
            self._more.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def settle(self, timeout_s: float) -> None:
        """Wait until everything was tried once, but no longer than ``timeout_s``."""
        until = self._steady() + timeout_s
        with self._more:
            while self._trying or any(not task.tries for task in self._tasks):
                left = until - self._steady()
                if left <= 0 or self._thread is None:
                    return
                self._more.wait(min(left, _LOOK_S))

    def tell(self, kind: str, key: str, text: str, details: Mapping[str, Any]) -> None:
        """Notify the targets of ``kind``, once for each ``key``. Returns at once; never raises."""
        self.tell_of(Notice(kind, key, text, self._clock(), dict(details)))

    def tell_of(self, notice: Notice) -> None:
        """The same."""
        for target in self._targets:
            if wants(target, notice):
                self._put(_Task(self._steady(), 0, target, notice))

    def _put(self, task: _Task) -> None:
        with self._more:
            if len(self._tasks) >= _MOST_WAITING:
                _log.error("too many notices wait: not sent: %s", task.notice.subject)
                return
            self._number += 1
            task.number = self._number
            heapq.heappush(self._tasks, task)
            self._more.notify_all()

    def _run(self) -> None:
        while (task := self._next()) is not None:
            try:
                self._do(task)
            except AdonError as error:  # the archive, for now
                self._say(str(error))
                if self._stopped:
                    return
                task.due = self._steady() + _ARCHIVE_AGAIN_S
                self._put(task)
            except Exception:  # one notice's trouble is not the others'
                _log.exception("a notice could not be sent: %s", task.notice.subject)

    def _next(self) -> _Task | None:
        with self._more:
            self._trying = False
            while not self._stopped:
                wait_s = self._tasks[0].due - self._steady() if self._tasks else None
                if wait_s is not None and wait_s <= 0:
                    self._trying = True
                    return heapq.heappop(self._tasks)
                self._more.wait(wait_s)
            first = [task for task in self._tasks if not task.tries and task.due <= self._until]
            if not first or self._steady() >= self._until:
                return None
            self._tasks.remove(min(first))
            heapq.heapify(self._tasks)
            return min(first)

    def _do(self, task: _Task) -> None:
        key = notice_id(task.target, task.notice)
        if not task.claimed:
            if not self._archive.record(self._record(key, task, "", 1.0)):
                return  # told before, or by another process
            task.claimed = True
            may, full = self._limits.take(task.target, task.notice, self._steady())
            if not may:
                self._archive.record(self._record(f"{key}:end", task, "held back", 0.0))
                return
            if full:
                text = f"{task.notice.text}\nNo more notices of {full} for an hour.\n"
                task.notice = replace(task.notice, text=text)
        if task.done is None:
            if task.target.command:
                self._archive.record(self._record(f"{key}:began:{task.tries}", task, "began", 0.0))
            task.tries += 1
            delivery = self._deliver(task.target, task.notice, key)
            if not delivery.ok and delivery.again and task.tries < TRIES:
                later = max(_AGAIN_S[min(task.tries, len(_AGAIN_S)) - 1], delivery.later_s)
                _log.warning("%s: %s; again in %.0f s", task.target.shown, delivery.why, later)
                if task.target.command:  # it ended, so it may be run again
                    failed = self._record(f"{key}:failed:{task.tries}", task, "failed", 0.0)
                    self._archive.record(failed)
                task.due = self._steady() + later
                self._put(task)
                return
            task.done = delivery
        outcome = "delivered" if task.done.ok else "given up"
        if not task.done.ok:
            _log.error("%s: given up: %s", task.target.shown, task.done.why)
        self._archive.record(
            self._record(f"{key}:end", task, outcome, float(task.done.ok), task.done.why)
        )

    def _record(
        self, key: str, task: _Task, outcome: str, value: float, why: str = ""
    ) -> Measurement:
        details: dict[str, Any] = {
            "of": notice_id(task.target, task.notice),
            "to": task.target.shown,
            "text": task.notice.subject,
            "outcome": outcome,
            "why": why,
            "tries": task.tries,
        }
        if not outcome:  # all that is needed to send it again
            details["notice"] = asdict(task.notice)
            details["process"] = _this_process()
        return Measurement(
            key, "notice", task.notice.kind, value, "1", self._clock(), "notices", "", details
        )

    def _take_over(self) -> None:
        """Continue what processes that have ended did not finish."""
        notices = self._archive.query("notice", since=self._clock() - _LEFT_BEHIND_S)
        by_id = {target.id: target for target in self._targets}
        begun: dict[str, int] = {}
        for record in notices:
            outcome = record.details.get("outcome")
            if outcome in ("began", "failed"):
                of = str(record.details.get("of"))
                begun[of] = begun.get(of, 0) + (1 if outcome == "began" else -1)
        ended = {m.details.get("of") for m in notices if m.id.endswith(":end")}
        for record in notices:
            target = by_id.get(record.id.split(":")[1]) if record.id.count(":") >= 3 else None
            notice = _notice_in(record)
            if target is None or notice is None or record.id in ended or self._runs(record):
                continue
            task = _Task(self._steady(), 0, target, notice, claimed=True)
            if begun.get(record.id, 0) > 0:
                task.done = Delivery(False, "the process ended while the command ran")
            self._put(task)

    def _say(self, message: str) -> None:
        """Once, however often the same happens again."""
        if self._said != message:
            self._said = message
            _log.warning("notices: %s", message)


def _notice_in(record: Measurement) -> Notice | None:
    try:
        return read(Notice, record.details.get("notice"), "notice")
    except InputError:
        return None


def _this_process() -> list[Any]:
    """The machine, the process and when it was started: a number may be another's later."""
    return [os.uname().nodename, os.getpid(), _started(os.getpid())]


def may_run(record: Measurement) -> bool:
    """Whether the process that began a notice may still be at it."""
    process = record.details.get("process")
    if not isinstance(process, list) or len(process) != 3 or not isinstance(process[1], int):
        return False
    host, number, started = process
    if host != os.uname().nodename:
        return True  # nobody here can tell
    return number == os.getpid() or (bool(started) and _started(number) == started)


def _started(process: int) -> str:
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    words = text.rpartition(")")[2].split()
    return words[19] if len(words) > 19 else ""


class NoticeLimits:
    """Counts what is told of each workflow and each user, or of each link. Anomalies are told once
    each."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str, str], list[float]] = {}

    def take(self, target: Target, notice: Notice, now: float) -> tuple[bool, str]:
        """Whether ``target`` may be told at ``now`` (seconds that never jump), which counts; and
        of whom nothing more is told for a while, "" where more would be."""
        if notice.kind == ANOMALY:
            return True, ""
        since = now - WINDOW_S
        self._told = {
            of: kept
            for of, times in self._told.items()
            if (kept := [t for t in times if t > since])
        }
        most = {"workflow": OF_WORKFLOW, "user": OF_USER}
        if notice.kind == LINK:
            most = {"link": OF_USER}
        names = {what: str(notice.details.get(what, "")) for what in most}
        earlier = {
            what: self._told.get((target.id, what, name), []) for what, name in names.items()
        }
        if any(len(earlier[what]) >= most[what] for what in most):
            return False, ""
        for what, name in names.items():
            self._told[target.id, what, name] = [*earlier[what], now]
        last = [f"{what} {names[what]}" for what in most if len(earlier[what]) == most[what] - 1]
        return True, last[-1].strip() if last else ""
