"""Follows running workflows into a sink of measurements, until each is done, failed or removed.

``Follower([submit_dir], archive).run(stop)``; ``adon monitor run`` is the command. The kernel tells
when DAGMan has written; only what is new is read. Being killed and started again neither loses nor
doubles anything (:mod:`monitors.workflows.followed`). Sub-workflows are followed as they begin,
other workflows as they are found (:mod:`monitors.workflows.discovery`).
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from monitors.archive.archive import ArchiveError
from monitors.base.measurement import Measurement
from monitors.workflows.discovery import Discovery
from monitors.workflows.inquiries import Inquiries
from monitors.workflows.logs.status import NOT_STARTED, Status
from monitors.workflows.logs.watch import FileWatch, open_watch
from monitors.workflows.planned.submit_dir import SubmitDir, submit_dir_of
from monitors.workflows.sink import (
    Requests,
    Sink,
    SinkError,
    known_status,
    known_user,
    record_what_fits,
)
from monitors.workflows.workflow_tree import TreeMember, WorkflowTree

_log = logging.getLogger(__name__)

# DAGMan writes a table line by line; reading a moment after the first line takes it in one go.
SETTLE_S = 0.03

# How often everything is looked at although the kernel told nothing (network file systems), and
# how often workflows that have ended.
LOOK_ANYWAY_S, LOOK_AT_ENDED_S = 2.0, 30.0

# What is kept while it cannot be recorded. With more nothing is read: it stands in the files.
MOST_UNRECORDED = 100_000
_PORTION = 5000  # recorded at once, as far as there is so much
_AGAIN_S, _AGAIN_MOST_S = 0.5, 30.0  # how soon a sink that failed is tried again

_STOP_CHECK_S = 0.25

OnStatus = Callable[[SubmitDir, Status], None]


def refresh_key(number: int, at: float) -> str:
    """The key of the status that answers a request: its id is ``status:WORKFLOW:KEY``."""
    return f"refresh:{number}:{at:.3f}"


class Follower:
    """Follows workflows by their submit directories, or DAGs in them, which must be there already.

    DAGMan need not have started. ``on_status`` is called with every change after it is in the
    ``sink``; of what was before it was followed, with the last. ``discovery`` finds more workflows
    while it runs, ``inquiries`` is asked where the files do not tell, ``requests`` are answered.
    With ``keep`` it goes on when all have ended; those of which nothing was written for
    ``give_up_s`` seconds are not waited for. Raises InputError as
    :func:`~monitors.workflows.planned.submit_dir.submit_dir_of`.
    """

    def __init__(
        self,
        submit_dirs: str | Path | Iterable[str | Path],
        sink: Sink,
        *,
        on_status: OnStatus | None = None,
        watch: Callable[[Mapping[Path, Iterable[str]]], FileWatch] = open_watch,
        discovery: Discovery | None = None,
        inquiries: Inquiries | None = None,
        requests: Requests | None = None,
        keep: bool = False,
        give_up_s: float = math.inf,
        clock: Callable[[], float] = time.time,
    ) -> None:
        paths = [submit_dirs] if isinstance(submit_dirs, str | Path) else submit_dirs
        self._sink, self._on_status = sink, on_status
        self._open_watch = watch
        self._watch: FileWatch | None = None
        self._discovery, self._requests = discovery, requests
        self._inquiries, self._give_up_s, self._clock = inquiries, give_up_s, clock
        self._asked = 0  # number of the last request that was answered
        self._asked_at = 0.0
        self._keep = keep
        self._lock = threading.RLock()
        self._unrecorded: list[Measurement] = []
        self._untold: list[tuple[SubmitDir, Status]] = []
        # Those that changed and were not read yet, in order.
        self._unread: dict[TreeMember, None] = {}
        self._sink_at, self._again_s = 0.0, _AGAIN_S
        self._complaints: dict[Path, str] = {}
        self.tree = WorkflowTree(
            self._complain, self._added, keep, self._left, partial(known_user, sink)
        )
        for path in paths:
            self.tree.add(submit_dir_of(path))

    # ---------------------------------------------------------------- use

    @property
    def workflows(self) -> list[TreeMember]:
        """Those that are a part of no other."""
        return self.tree.roots

    def poll(self) -> bool:
        """Records what is new in all workflows now; whether all have ended.

        Raises ArchiveError or SinkError where it cannot be recorded; what was read is kept for the
        next call.
        """
        with self._lock:
            self._changed(self.tree.members)
            while self._unread:
                self._read()
                self._record()
            return self.tree.ended

    def run(self, stop: threading.Event | None = None) -> dict[Path, Status | None]:
        """Follows until every workflow has ended or ``stop`` is set; the last status of each, by
        submit directory.

        Whatever is written before ``stop`` is set is recorded. A sink that cannot take measurements
        for a while delays the recording; raises ArchiveError or SinkError where it still cannot at
        the end.
        """
        stop = stop or threading.Event()
        with self._lock:
            self._watch = self._open_watch({})
            for member in self.tree.members:
                self._watch.add(*member.files)
        try:
            if self._discovery is not None:
                self._discovery.start()
            self._loop(self._watch, stop)
        finally:
            with self._lock:
                self._watch.close()
                self._watch = None
            if self._discovery is not None:
                self._discovery.close()
            if self._inquiries is not None:
                self._inquiries.close()
        self.poll()
        return {member.dir.path: member.status for member in self.tree.roots}

    def refresh(self, workflow: str, key: str) -> Status | None:
        """Reads all that a workflow (a UUID) and those inside it have written, now, and records its
        status once more as ``status:WORKFLOW:KEY``, also where nothing changed. None where it is
        not followed here. For any thread; raises ArchiveError or SinkError where it cannot be
        recorded.
        """
        with self._lock:
            member = self.tree.of(workflow)
            if member is None:
                return None
            self._changed([member, *self.tree.below(member)])
            self._read()
            self._unrecorded.append(member.once_more(key))
            self._record()
            return member.status or NOT_STARTED

    def observe(self, workflow: str) -> None:
        """Has :meth:`run` read a workflow (a UUID) at its next turn, within 0.25 s. For any thread;
        nothing happens where it is not followed here."""
        with self._lock:
            member = self.tree.of(workflow)
            self._changed([member] if member is not None else [])

    # ---------------------------------------------------------------- turns

    def _loop(self, watch: FileWatch, stop: threading.Event) -> None:
        looked = looked_at_ended = -1e9
        while not stop.is_set():
            now = time.monotonic()
            everything = now - looked > LOOK_ANYWAY_S
            with self._lock:
                self._take_found()
                if everything:
                    looked = now
                    ended_too = now - looked_at_ended > LOOK_AT_ENDED_S
                    looked_at_ended = now if ended_too else looked_at_ended
                    self._changed(self.tree.members_to_check(ended_too))
                    self._inquire()
                self._answer()
                self._read()
                self._record_if_due(1)  # whatever the sink does not take now is kept
                if self.tree.ended and not self._keep:
                    return
            changed = watch.wait(_STOP_CHECK_S)
            if changed:
                stop.wait(SETTLE_S)
                changed |= watch.wait(0)
                with self._lock:
                    self._changed(m for folder in changed for m in self.tree.in_folder(folder))

    def _changed(self, members: Iterable[TreeMember]) -> None:
        self._unread.update(dict.fromkeys(members))

    def _read(self) -> None:
        while self._unread and len(self._unrecorded) < MOST_UNRECORDED:
            member = next(iter(self._unread))
            del self._unread[member]
            measurements, statuses, others = self.tree.step(member)
            self._unrecorded += measurements
            self._untold += [(member.dir, status) for status in statuses]
            self._changed(others)
            self._record_if_due(_PORTION)

    def _record_if_due(self, least: int) -> None:
        waiting = len(self._unrecorded) + len(self._untold)
        if waiting >= least and time.monotonic() >= self._sink_at:
            try:
                self._record()
            except (ArchiveError, SinkError) as error:
                if self._keep or not self.tree.ended:  # at the end it is raised
                    self._complain(Path(), str(error))

    def _record(self) -> None:
        try:
            if self._unrecorded:
                record_what_fits(self._sink, self._unrecorded)
        except (ArchiveError, SinkError):
            self._sink_at = time.monotonic() + self._again_s
            self._again_s = min(2 * self._again_s, _AGAIN_MOST_S)
            raise
        self._sink_at, self._again_s = 0.0, _AGAIN_S
        self._unrecorded.clear()
        unreported, self._untold = self._untold, []
        if self._on_status is not None:
            for submit_dir, status in unreported:
                self._on_status(submit_dir, status)

    def _added(self, member: TreeMember) -> None:
        """A workflow is followed from now on."""
        member.statuses.recorded = partial(known_status, self._sink, member.dir.workflow)
        self._unrecorded.append(member.facts())
        self._changed([member])
        if self._watch is not None:
            self._watch.add(*member.files)

    def _left(self, folder: Path) -> None:
        """A folder is not there any more, and nothing is to be looked for in it."""
        if self._watch is not None:
            self._watch.drop(folder)

    # ---------------------------------------------------------------- what others tell

    def _take_found(self) -> None:
        for workflow in self._discovery.take() if self._discovery is not None else ():
            self.tree.take_in(workflow)

    def _inquire(self) -> None:
        if self._inquiries is not None:
            self._changed(self._inquiries.observe(self.tree.members, self._clock()))
        if math.isfinite(self._give_up_s):
            self.tree.give_up(self._clock(), self._give_up_s)

    def _answer(self) -> None:
        now = time.monotonic()
        if self._requests is None or now - self._asked_at < _STOP_CHECK_S / 2:
            return
        self._asked_at = now
        try:
            for number, workflow, at in self._requests.requests("refresh", self._asked):
                self.refresh(workflow, refresh_key(number, at))
                self._asked = number
        except (ArchiveError, SinkError) as error:
            self._complain(Path(), str(error))

    def _complain(self, about: Path, message: str) -> None:
        """Warns once, however often the same happens again."""
        if self._complaints.get(about) != message:
            self._complaints[about] = message
            _log.warning("%s", message)
