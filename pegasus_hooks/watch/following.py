"""One workflow as the watcher follows it: what it read so far, and what it owes for it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from network_provisioner.base.path_requests import UNASKED
from network_provisioner.model import TransitState
from pegasus_hooks.watch import rules
from pegasus_hooks.watch.duties import Duty
from pegasus_hooks.watch.events import Event, Watched, What, WorkflowListener
from pegasus_hooks.watch.papers import Pair, Papers
from pegasus_hooks.watch.returns import AskAgain, GiveBack, Measure, RequestsOf, Sweep, Tell
from pegasus_hooks.watch.rules import Decision, Fact, Standing
from pegasus_hooks.watch.source import Source

log = logging.getLogger(__name__)

# When what a DAG left is swept up; after that it is forgotten. Requests of hooks that were killed
# may still be on their way, and a DAGMan that is gone may come back.
_SWEEPS_S = {What.DAG_ENDED: (3.0, 8.0), What.DAG_GONE: (120.0,)}
# Nothing was heard for so long, and all leases have ended: the machine may have gone down.
_SILENT_S = 86400.0
_PATHLESS = frozenset({UNASKED, str(TransitState.BEST_EFFORT)})
_KILLED = "the hook before the job was killed or failed, and left no word"


@dataclass(slots=True)
class Following:
    """``clock`` is one that no one sets, ``now`` gives Unix seconds."""

    watched: Watched
    source: Source
    owe: Callable[[Duty], None]
    measure: Measure
    requests_of: RequestsOf
    clock: Callable[[], float]
    now: Callable[[], float]
    listener: WorkflowListener | None = None
    dag: Fact | None = None
    _look: int = 0
    _heard: float = 0.0
    _standing: dict[str, Standing] = field(default_factory=dict)
    _open: dict[Path, tuple[Papers, Decision]] = field(default_factory=dict)
    # Ids that are given back or will be, and of which run of PRE: another may get them anew.
    _owed: set[tuple[float, str]] = field(default_factory=set)
    _told: set[str] = field(default_factory=set)
    _paused: dict[Path, Papers] = field(default_factory=dict)
    _sweeps: int = 0

    def __post_init__(self) -> None:
        self._heard = self.clock()

    def look(self) -> None:
        """Read what is new, tell it, and take on what is due. Raises InputError, OSError."""
        self._look += 1
        # First, so that what is then read of the logs is not older than the decisions.
        for papers in self.source.papers():
            self._take(papers)
        for event in self.source.events():
            self._hear(event)
        for event in self.source.gone(self.now()):
            self._hear(event)
        now = self.clock()
        for papers, decision in list(self._open.values()):
            self._judge(papers, decision, now)
        self._sweep(now)

    def finished(self) -> bool:
        """Whether nothing is to be expected any more; what is owed is not looked at."""
        if self.clock() - self._heard > _SILENT_S:
            return True
        if self.dag is None or self._open:
            return False
        return self._sweeps == len(_SWEEPS_S.get(self.dag.what, (math.inf,)))

    def tick(self, now: float) -> None:
        """Let the listener know the time."""
        if self.listener is not None:
            try:
                self.listener.tick(now)
            except Exception:
                log.exception("%s: the listener failed", self.watched.workflow)

    def _sweep(self, now: float) -> None:
        """When the DAG is over: what no decision file tells of, such as what is reserved ahead."""
        dag = self.dag
        times = _SWEEPS_S.get(dag.what, ()) if dag is not None else ()
        if dag is None or self._sweeps >= len(times) or now - dag.heard < times[self._sweeps]:
            return
        if self._open and dag.what is What.DAG_GONE:
            return  # its jobs run on
        self._sweeps += 1
        if self.watched.workflow:
            ended = dag.what is What.DAG_ENDED
            outcome = rules.DAG_ENDED if ended else rules.DAGMAN_GONE
            self.owe(Sweep(self.watched, outcome, lambda: self.dag is dag, self.now))

    def _hear(self, event: Event) -> None:
        self._heard = self.clock()
        fact = Fact(event, self._look, self._heard)
        if event.job:
            self._standing[event.job] = rules.after(self._standing.get(event.job, Standing()), fact)
        else:
            dag = rules.dag_after(self.dag, fact)
            if dag is self.dag:
                return
            self.dag = dag
            self._sweeps = 0
        if self.listener is not None:
            try:
                self.listener.on(event, self.watched)
            except Exception:  # a listener's trouble is not the paths'
                log.exception("%s: the listener failed", self.watched.workflow)

    def _take(self, papers: Papers) -> None:
        known = self._open.get(papers.file)
        if known is not None and known[0] == papers:
            return
        self._heard = self.clock()
        same = known is not None and known[0].same_run(papers)
        left = [Pair(transit_id, "", "", UNASKED) for transit_id in papers.left_over]
        self._give_back(papers, [p for p in left if p.id not in papers.ids], "abandoned")
        if known is not None and not same:  # a later PRE took the place of this one
            self._give_back(known[0], known[0].pairs, "abandoned")
        if papers.given_back or (not same and self._all_owed(papers)):
            self._open.pop(papers.file, None)
            return
        look = known[1].look if known is not None and same else self._look
        decision = Decision(
            job=papers.job,
            retry=papers.retry,
            at=papers.at,
            ids=papers.ids,
            look=look,
            given_back=papers.given_back,
        )
        self._open[papers.file] = (papers, decision)
        for pair in papers.pairs:
            untold = not pair.told and pair.state in _PATHLESS and pair.reason
            if untold and pair.id not in self._told:
                self._told.add(pair.id)
                self.owe(Tell(self.watched, papers, pair, self.now))

    def _all_owed(self, papers: Papers) -> bool:
        return papers.file not in self._paused and self._owed.issuperset(
            (papers.at, i) for i in papers.ids
        )

    def _judge(self, papers: Papers, decision: Decision, now: float) -> None:
        standing = self._standing.get(decision.job)
        paused = self._paused.get(papers.file)
        if paused is not None and rules.runs_again(decision, standing):
            del self._paused[papers.file]
            self.owe(self._again(papers))
            return
        found = rules.due(decision, standing, self.dag, now)
        if found is None:
            return
        killed = found.outcome == "pre_failed"
        self._give_back(papers, papers.pairs, found.outcome, _KILLED if killed else "")
        if found.pause:
            self._paused.setdefault(papers.file, papers)
        else:
            self._paused.pop(papers.file, None)
            del self._open[papers.file]

    def _give_back(
        self, papers: Papers, pairs: Iterable[Pair], outcome: str, why: str = ""
    ) -> None:
        for pair in pairs:
            nothing = pair.told and pair.state == TransitState.BEST_EFFORT
            if (papers.at, pair.id) not in self._owed and not nothing:
                self._owed.add((papers.at, pair.id))
                reason = pair.reason or why
                self.owe(
                    GiveBack(self.watched, papers, pair, outcome, self.measure, self.now, reason)
                )

    def _again(self, papers: Papers) -> AskAgain:
        def wanted() -> bool:
            known = self._open.get(papers.file)
            return known is not None and rules.runs_again(
                known[1], self._standing.get(known[1].job)
            )

        return AskAgain(self.watched, papers, self.requests_of, wanted, self._take, self.now)
