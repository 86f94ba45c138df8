"""DAGMan's own job in HTCondor's queue, run after run, and the workflow's statuses meanwhile.

What files say is taken in the order in which it happened; nothing here reads a file.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from monitors.workflows.logs.events import JobEvent, Kind
from monitors.workflows.logs.status import Status

DAGMAN = "dagman"  # the source of a status that DAGMan told itself
ENDS = (Kind.TERMINATED, Kind.ABORTED)


@dataclass(frozen=True, slots=True)
class DagmanRun:
    """DAGMan's own job as it was ``submitted``: whether HTCondor says that it was ``executed``, and
    whether anybody says that it has ``begun`` and ``ended``. ``left``: when another had begun
    although this one was not seen to leave the queue (Unix seconds)."""

    submitted: JobEvent
    executed: bool = False
    begun: bool = False
    ended: bool = False
    left: float = -math.inf

    def begins(self, at: float) -> DagmanRun:
        """A DAGMan says that it began (Unix seconds)."""
        return replace(self, begun=True, left=at if self.ended else self.left)

    def has_known_end(self, status: Status | None, never_ran: bool) -> bool:
        """Whether its end is known, with that newest status. Where it was not heard to begin, the
        times are all there is."""
        if self.ended or self.begun or never_ran:
            return self.ended
        submitted = math.floor(self.submitted.at)
        return status is not None and status.ended and status.at >= submitted


class Runs:
    """DAGMan's own job in HTCondor's queue, run after run. ``current`` is the one that is in the
    queue, as far as its events were taken.

    What HTCondor tells of it waits here until DAGMan's words before that are read. Those have whole
    seconds, so within one the times do not say what was first; that a job begins after it was
    submitted does.
    """

    def __init__(self) -> None:
        self.current: DagmanRun | None = None
        self.taken = 0
        """How many events do not wait any more."""
        self._known: set[JobEvent] = set()
        self._waiting: deque[JobEvent] = deque()

    @property
    def waiting(self) -> int:
        """How many events wait."""
        return len(self._waiting)

    def is_new(self, event: JobEvent) -> bool:
        """Whether it was not heard of before: two logs may tell of it."""
        return event not in self._known

    def add(self, event: JobEvent) -> None:
        """It waits from now on."""
        self._known.add(event)
        self._waiting.append(event)

    def tell(self, ended: bool) -> None:
        """Somebody tells of the run: that it ended, or that it goes on."""
        if self.current is not None:
            self.current = replace(self.current, ended=ended)

    def waits_before(self, until: float) -> bool:
        """Whether the next event is of before a time (Unix seconds)."""
        return bool(self._waiting) and self._waiting[0].at < until

    def before_begin(self, at: float) -> int:
        """How many events came before a DAGMan began, which says so in that second."""
        if self.current is not None and not self.current.begun and not self._never_ran():
            return 0
        kinds = [event.kind for event in self._waiting if math.floor(event.at) <= at]
        return kinds.index(Kind.SUBMIT) + 1 if Kind.SUBMIT in kinds else 0

    def begin(self, at: float) -> bool:
        """The DAGMan says that it began (Unix seconds); whether it is known of which run it is."""
        if self.current is not None:
            self.current = self.current.begins(at)
        return self.current is not None

    def take(self, status: Status | None) -> JobEvent | None:
        """The next event waits no longer; it is given where it is an end that nobody told of.
        ``status`` is the newest."""
        event, run = self._waiting.popleft(), self.current
        self.taken += 1
        if event.kind is Kind.SUBMIT:
            self.current = DagmanRun(event)
            return None
        if run is None or event.at < run.submitted.at:
            return None
        if event.kind is Kind.EXECUTE:
            self.current = replace(run, executed=True)
        if event.kind not in ENDS:
            return None
        self.current = None
        never_ran = event.kind is Kind.ABORTED and not run.executed
        if run.has_known_end(status, never_ran) or math.floor(event.at) <= run.left:
            return None
        # A newer status is of what came after it.
        return None if status is not None and status.at > event.at else event

    def gone(self, status: Status | None) -> bool:
        """The run is not in the queue any more; whether its end was known before."""
        run, self.current = self.current, None
        return run is not None and run.has_known_end(status, never_ran=not run.executed)

    def _never_ran(self) -> bool:
        """Whether the one in the queue was taken out of it before it began."""
        if self.current is None or self.current.executed:
            return False
        for event in self._waiting:
            if event.kind in (Kind.EXECUTE, *ENDS):
                return event.kind is Kind.ABORTED
        return False


class Statuses:
    """The statuses of a workflow in their order, each told once although its files may be read
    again from their beginning. ``newest`` is None before the first."""

    def __init__(self) -> None:
        self.newest: Status | None = None
        # Tells the newest status until a time (Unix seconds) that was recorded before this began.
        self.recorded: Callable[[float], Status | None] | None = None
        self.own_at = 0.0  # of the newest that DAGMan told itself
        self._key = ""  # of the newest
        self._again_until = ""  # key of the last that was told, where all are read again
        self.is_old = False
        """Whether the newest is of what is being read again."""
        self._untold: list[Status] = []

    def add(self, key: str, status: Status, source: str) -> Status | None:
        """The next one as it is to be recorded; None where that was done before."""
        recorded, self.recorded = self.recorded and self.recorded(status.at), None
        if recorded is not None and status.at > recorded.at and is_same(recorded, status):
            # Of a log that was emptied since: no change of what is known.
            self.newest, self.is_old = status, False
            return None
        before = None if self.is_old else self.newest
        if before is not None and math.floor(before.at) <= status.at < before.at:
            # DAGMan has whole seconds: what it says next is not older than what HTCondor said.
            status = replace(status, at=before.at)
        self.newest, self._key, self.is_old = status, key, False
        if source == DAGMAN:
            self.own_at = status.at
        if not self._again_until:
            self._untold.append(status)
        elif key == self._again_until:  # all that comes now is new
            self._again_until = ""
        return status

    def read_again(self) -> None:
        """What comes now are the same again, up to the newest."""
        self._again_until, self.is_old = self._key, True

    def hold(self, status: Status | None) -> None:
        """Nothing new was among them: that one stands."""
        self.newest, self._again_until, self.is_old = status, "", False

    def all_read(self) -> None:
        """Nothing more comes for now. Where what was told last does not stand there any more, it is
        another file, and the newest is to be told."""
        if self._again_until:
            self._again_until = ""
            self._untold += [self.newest] if self.newest is not None else []

    def take(self) -> list[Status]:
        """Those to be told since it was last called."""
        taken, self._untold = self._untold, []
        return taken


def is_same(first: Status, other: Status) -> bool:
    """Whether they differ in nothing but their times."""
    return replace(first, at=other.at) == other
