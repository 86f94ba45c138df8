"""The paths that one workflow holds: what happened to its jobs, and what is due of it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from monitors.jobs.jobs import AnyEvent, DagEvent, DagmanState, Jobs, Reading
from monitors.watcher import rules
from monitors.watcher.actions import (
    ConnectionsOf,
    GiveBack,
    JobFiles,
    ReportFlows,
    ReportProgress,
    RequestAgain,
    Sweep,
    Tell,
    Watched,
)
from monitors.watcher.decision_file import DecisionFile, Pair
from monitors.watcher.pending import PendingAction
from monitors.watcher.rules import DecisionTime
from network_provisioner.base.model import TransitState
from network_provisioner.client.path_requests import UNASKED

log = logging.getLogger(__name__)

# When what a DAG left is swept up; after that it is forgotten. Requests of hooks that were killed
# may still be on their way, and a DAGMan that is gone may come back.
_SWEEPS_S: dict[object, tuple[float, ...]] = {
    DagmanState.ENDED: (3.0, 8.0),
    DagmanState.GONE: (120.0,),
}
# Nothing was heard for so long, and all leases have ended: the machine may have gone down.
_SILENT_S = 86400.0
_PATHLESS = frozenset({UNASKED, str(TransitState.BEST_EFFORT)})
_KILLED = "the hook before the job was killed or failed, and left no record"


class JobSource(Protocol):
    """What the watcher sees of one workflow."""

    def events(self) -> Iterable[AnyEvent]:
        """What happened since the last call, in order. Raises InputError, after what could be
        read."""
        ...

    def gone(self, now: float) -> list[DagEvent]:
        """That DAGMan is no more, found out at ``now`` (Unix seconds), where no log tells it.
        Raises OSError."""
        ...

    def decision_files(self) -> list[DecisionFile]:
        """All decision files as they are now, where one changed; else nothing. Raises OSError."""
        ...


class WorkflowListener(Protocol):
    """Hears what happens. Called by one thread only; what it raises is logged, and costs nobody
    else anything. It must not wait: a call of a broker has that broker's time limit."""

    def on(self, jobs: Jobs, name: str, /) -> None:
        """An event changed the state of the job ``name``, or of the DAG where that is empty. They
        come in the order of the workflow's logs; a watcher that starts later than its workflow
        tells everything from the beginning."""
        ...

    def tick(self, now: float, /) -> None:
        """Called once a second or more often, after all that happened was told. Unix seconds."""
        ...


# Makes the listener to a workflow, None where there is nothing to listen for. It is called when the
# workflow is first seen; the watcher lets go of the listener when the workflow has ended.
ListenerOf = Callable[[Watched], WorkflowListener | None]


@dataclass(slots=True)
class HeldPaths:
    """Of one workflow. ``add`` takes what is to be done at the broker, ``journal`` lines for the
    journal of the submit directory; ``clock`` is one that no one sets, ``now`` gives Unix
    seconds."""

    watched: Watched
    source: JobSource
    files: JobFiles
    open_now: ConnectionsOf
    add: Callable[[PendingAction], None]
    journal: Callable[[Watched, list[Mapping[str, Any]]], None]
    clock: Callable[[], float]
    now: Callable[[], float]
    listener: WorkflowListener | None = None
    _jobs: Jobs = field(default_factory=Jobs)
    _look: int = 0
    _heard: float = 0.0
    _open: dict[Path, tuple[DecisionFile, DecisionTime]] = field(default_factory=dict)
    # Ids that are given back or will be, and of which run of PRE: another may get them anew.
    _returned: set[tuple[float, str]] = field(default_factory=set)
    _told: set[str] = field(default_factory=set)
    _followed: set[str] = field(default_factory=set)
    _paused: dict[Path, DecisionFile] = field(default_factory=dict)
    _sweeps: int = 0

    def __post_init__(self) -> None:
        self._heard = self.clock()

    def observe(self) -> None:
        """Read what is new, tell it, and add what is due. Raises InputError, OSError."""
        self._look += 1
        self._jobs.reading = Reading(self._look, self.clock())
        # First, so that what is then read of the logs is not older than the decisions.
        for file in self.source.decision_files():
            self._take(file)
        for event in self.source.events():
            self._hear(event)
        for event in self.source.gone(self.now()):
            self._hear(event)
        now = self.clock()
        for file, decision in list(self._open.values()):
            self._judge(file, decision, now)
        self._sweep(now)

    def finished(self) -> bool:
        """Whether nothing is to be expected any more; what is pending is not looked at."""
        if self.clock() - self._heard > _SILENT_S:
            return True
        dag = self._jobs.dag
        if dag is None or self._open:
            return False
        return self._sweeps == len(_SWEEPS_S.get(dag.state, (math.inf,)))

    def tick(self, now: float) -> None:
        """Let the listener know the time."""
        if self.listener is not None:
            try:
                self.listener.tick(now)
            except Exception:
                log.exception("%s: the listener failed", self.watched.workflow)

    def _sweep(self, now: float) -> None:
        """When the DAG is over: what no decision file tells of, such as what is reserved ahead."""
        dag = self._jobs.dag
        times = _SWEEPS_S.get(dag.state, ()) if dag is not None else ()
        if (
            dag is None
            or self._sweeps >= len(times)
            or now - self._jobs.dag_read.at < times[self._sweeps]
        ):
            return
        if self._open and dag.state is DagmanState.GONE:
            return  # its jobs run on
        self._sweeps += 1
        if self.watched.workflow:
            ended = dag.state is DagmanState.ENDED
            outcome = rules.DAG_ENDED if ended else rules.DAGMAN_GONE
            self.add(Sweep(self.watched, self._record, outcome, lambda: self._jobs.dag is dag))

    def _hear(self, event: AnyEvent) -> None:
        self._heard = self.clock()
        name = self._jobs.take(event)
        if name is None:
            return
        if not name:
            self._sweeps = 0
        if self.listener is not None:
            try:
                self.listener.on(self._jobs, name)
            except Exception:  # a listener's trouble is not the paths'
                log.exception("%s: the listener failed", self.watched.workflow)

    def _take(self, file: DecisionFile) -> None:
        known = self._open.get(file.file)
        if known is not None and known[0] == file:
            return
        self._heard = self.clock()
        same = known is not None and known[0].same_run(file)
        left = [Pair(transit_id, "", "", UNASKED) for transit_id in file.left_over]
        self._give_back(file, [p for p in left if p.id not in file.ids], "abandoned")
        if known is not None and not same:  # a later PRE took the place of this one
            self._give_back(known[0], known[0].pairs, "abandoned")
        if file.given_back or (not same and self._all_returned(file)):
            self._open.pop(file.file, None)
            return
        look = known[1].look if known is not None and same else self._look
        self._open[file.file] = (file, DecisionTime(file.at, look))
        for pair in file.pairs:
            untold = not pair.told and pair.state in _PATHLESS and pair.reason
            if untold and pair.id not in self._told:
                self._told.add(pair.id)
                self.add(Tell(self.watched, self._record, file, pair))

    def _all_returned(self, file: DecisionFile) -> bool:
        return file.file not in self._paused and self._returned.issuperset(
            (file.at, transit_id) for transit_id in file.ids
        )

    def _judge(self, file: DecisionFile, decision: DecisionTime, now: float) -> None:
        last = rules.newest_event(self._jobs.get(file.job))
        if file.file in self._paused and rules.runs(decision, last):
            del self._paused[file.file]
            runs = partial(self._runs, file)
            self.add(RequestAgain(self.watched, self._record, file, self.files, runs, self._take))
            return
        actions = rules.due(decision, last, rules.newest_of_dag(self._jobs), now)
        if actions is None:
            self._follow(file)
            return
        killed = actions.outcome == "pre_failed"
        self._give_back(file, file.pairs, actions.outcome, _KILLED if killed else "")
        if actions.pause:
            self._paused.setdefault(file.file, file)
        else:
            self._paused.pop(file.file, None)
            del self._open[file.file]

    def _follow(self, file: DecisionFile) -> None:
        """Have it said which packets a job that runs has and what it moved, once for each path."""
        if not self._runs(file):
            return
        for pair in file.pairs:
            if pair.state == TransitState.INSTALLED and pair.id not in self._followed:
                self._followed.add(pair.id)
                running = partial(self._runs, file)
                whose = self.watched, self._record, file, pair
                self.add(ReportProgress(*whose, self.files, running))
                if pair.client:
                    self.add(ReportFlows(*whose, self.open_now, running))

    def _runs(self, file: DecisionFile) -> bool:
        known = self._open.get(file.file)
        return known is not None and rules.runs(
            known[1], rules.newest_event(self._jobs.get(file.job))
        )

    def _give_back(
        self, file: DecisionFile, pairs: Iterable[Pair], outcome: str, why: str = ""
    ) -> None:
        for pair in pairs:
            if (file.at, pair.id) not in self._returned:
                self._returned.add((file.at, pair.id))
                reason = pair.reason or why
                self.add(
                    GiveBack(self.watched, self._record, file, pair, outcome, self.files, reason)
                )

    def _record(self, event: str, values: dict[str, Any]) -> None:
        log.info("%s: %s: %s", self.watched.workflow, event, values)
        head = {"at": self.now(), "hook": "watch", "event": event}
        self.journal(self.watched, [{**head, "workflow": self.watched.workflow, **values}])
