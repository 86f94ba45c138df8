"""What HTCondor tells of a workflow's jobs, of all its runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from monitors.logs.event_log import EventTail, JobEvent
from monitors.logs.submit_dir import SubmitDir
from monitors.logs.tail import state_of


class JobEvents:
    """The events in ``<dag>.nodes.log``, each once, and at first those of earlier runs."""

    def __init__(self, submit_dir: SubmitDir) -> None:
        self._dir = submit_dir
        self._nodes = EventTail(submit_dir.nodes_log)
        self._backfilled = False
        self._waiting: list[JobEvent] = []  # until those of earlier runs are read
        self.seen: tuple[object, ...] = ()
        """How that file was when all was last read, as :func:`~monitors.logs.tail.state_of`."""

    @property
    def changed_at(self) -> float:
        """See :attr:`~monitors.logs.tail.Tail.changed_at`."""
        return self._nodes.changed_at

    def read(self) -> Iterator[JobEvent]:
        """Those that are new. Raises InputError where a file is there and cannot be read: what
        comes later in time waits until it can be."""
        # Before reading: what comes meanwhile makes the next look read again.
        seen = state_of(self._dir.nodes_log)
        if not self._backfilled and self._dir.workflow_log is not None:
            yield from self._earlier(self._dir.workflow_log)
        waiting, self._waiting = self._waiting, []
        yield from waiting
        yield from self._nodes.read()
        self.seen = seen

    def _earlier(self, workflow_log: Path) -> Iterator[JobEvent]:
        """DAGMan empties nodes.log at every start; the workflow's own log has earlier runs too. Of
        jobs that are in both, nodes.log alone says how their POST scripts ended, and when."""
        began: dict[tuple[int, int], float] = {}
        for event in self._nodes.read():
            self._waiting.append(event)
        for event in self._waiting:
            began.setdefault((event.cluster, event.proc), event.at)
        for event in EventTail(workflow_log).read():
            self._backfilled = True  # what was read in part is not read again
            if event.at < began.get((event.cluster, event.proc), math.inf):
                yield event
        self._backfilled = True
