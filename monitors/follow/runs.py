"""DAGMan's own job in HTCondor's queue, run after run: which of them runs, and whether the end of
each is known.

What HTCondor tells of it waits here until DAGMan's words before that are read. Those have whole
seconds, so within one the times do not say what was first; that a job begins after it was
submitted does.
"""

from __future__ import annotations

import math
from collections import deque

from monitors.logs.event_log import JobEvent, Kind
from monitors.status import Status

ENDS = (Kind.TERMINATED, Kind.ABORTED)


class Runs:
    """``current`` is the submission that is in the queue, as far as its events were taken."""

    def __init__(self) -> None:
        self.current: JobEvent | None = None
        self.taken = 0
        """How many events do not wait any more."""
        self._known: set[JobEvent] = set()
        self._waiting: deque[JobEvent] = deque()
        self._ran = False  # whether HTCondor says that it was executed
        self._said_begun = False
        self._said_ended = False
        self._left = -math.inf  # when another had begun although it was not seen to end

    @property
    def is_over(self) -> bool:
        """Whether there is none, or its end is known."""
        return self.current is None or self._said_ended

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

    def said(self, ended: bool) -> None:
        """Somebody tells of the run: that it ended, or that it goes on."""
        self._said_ended = ended and self.current is not None

    def waits_before(self, until: float) -> bool:
        """Whether the next event is of before a time (Unix seconds)."""
        return bool(self._waiting) and self._waiting[0].at < until

    def before_begin(self, at: float) -> int:
        """How many events came before a DAGMan began, which says so in that second."""
        if self.current is not None and not self._said_begun and not self._never_ran():
            return 0
        kinds = [event.kind for event in self._waiting if math.floor(event.at) <= at]
        return kinds.index(Kind.SUBMIT) + 1 if Kind.SUBMIT in kinds else 0

    def begin(self, at: float) -> bool:
        """The DAGMan says that it began (Unix seconds); whether it is known of which run it is."""
        if self._said_ended:  # where HTCondor's log of the next one cannot be read
            self._left = at
        self._said_begun = self.current is not None
        return self._said_begun

    def take(self, status: Status | None) -> JobEvent | None:
        """The next event waits no longer; it is given where it is an end that nobody told of.
        ``status`` is the newest."""
        event = self._waiting.popleft()
        self.taken += 1
        if event.kind is Kind.SUBMIT:
            self.current, self._left = event, -math.inf
            self._ran = self._said_begun = self._said_ended = False
            return None
        if self.current is None or event.at < self.current.at:
            return None
        self._ran |= event.kind is Kind.EXECUTE
        if event.kind not in ENDS:
            return None
        never_ran = event.kind is Kind.ABORTED and not self._ran
        told = self._is_told(status, never_ran) or math.floor(event.at) <= self._left
        self.current = None
        if told or (status is not None and status.at > event.at):
            return None  # in the second case DAGMan itself told of what came after it
        return event

    def gone(self, status: Status | None) -> bool:
        """The run is not in the queue any more; whether its end was known before."""
        told = self._is_told(status, never_ran=not self._ran)
        self.current = None
        return told

    def _never_ran(self) -> bool:
        """Whether the one in the queue was taken out of it before it began."""
        for event in self._waiting if not self._ran else ():
            if event.kind in (Kind.EXECUTE, *ENDS):
                return event.kind is Kind.ABORTED
        return False

    def _is_told(self, status: Status | None, never_ran: bool) -> bool:
        """Where it was not heard to begin, the times are all there is."""
        if self.current is None or self._said_ended or self._said_begun or never_ran:
            return self._said_ended
        submitted = math.floor(self.current.at)
        return status is not None and status.ended and status.at >= submitted
