"""What HTCondor tells of a workflow's jobs, of all its runs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from monitors.logs.event_log import EventTail, JobEvent
from monitors.logs.submit_dir import SubmitDir
from monitors.logs.tail import state_of
from network_provisioner.errors import InputError


class JobEvents:
    """The events in ``<dag>.nodes.log``, each once, and at first those of earlier runs."""

    def __init__(self, submit_dir: SubmitDir) -> None:
        self._dir = submit_dir
        self._nodes = EventTail(submit_dir.nodes_log)
        self._backfilled = False
        self._began: dict[tuple[int, int], float] = {}  # first events of jobs, until then
        self.seen: tuple[object, ...] = ()
        """How that file was when it was last read, as :func:`~monitors.logs.tail.state_of`."""

    @property
    def changed_at(self) -> float:
        """See :attr:`~monitors.logs.tail.Tail.changed_at`."""
        return self._nodes.changed_at

    def read(self) -> Iterator[JobEvent]:
        """Those that are new. Raises InputError where a file is there and cannot be read; what can
        be had comes first."""
        # Before reading: what comes meanwhile makes the next look read again.
        self.seen = state_of(self._dir.nodes_log)
        if self._backfilled or self._dir.workflow_log is None:
            yield from self._nodes.read()
            return
        # DAGMan empties nodes.log at every start; the workflow's own log has earlier runs too. Of
        # jobs that are in both, nodes.log alone says how their POST scripts ended, and when.
        now = list(self._nodes.read())
        for event in now:
            self._began.setdefault((event.cluster, event.proc), event.at)
        problem: InputError | None = None
        try:
            for event in EventTail(self._dir.workflow_log).read():
                self._backfilled = True  # what was read in part is not read again
                if event.at < self._began.get((event.cluster, event.proc), math.inf):
                    yield event
            self._backfilled = True
            self._began.clear()
        except InputError as error:
            problem = error  # it may become readable
        yield from now
        if problem is not None:
            raise problem
