"""The runs of now: those that agents have been told of, are about to be, or have just made.

They are held in memory and in the store alike; what is only in the store is past. Not for several
threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from monitors.measurements.runs import Run, State
from monitors.measurements.store import MeasuringStore

_KEEP_MS = 600_000  # how long a run stays in memory after its end


class RunStore:
    """Runs by id and by agent, and for each agent a number that changes with what it has to do."""

    def __init__(self, store: MeasuringStore, first_version: int) -> None:
        """``first_version`` is not to be that of an earlier process: an agent compares."""
        self._store = store
        self._runs: dict[str, Run] = {}
        self._of: dict[str, set[str]] = {}
        self._versions: dict[str, int] = {}
        self._first = max(1, first_version)
        self._tell: Callable[[str], None] = lambda _: None

    def load(self, now_ms: int) -> None:
        """Take up what an earlier process left."""
        for run in self._store.open_runs(now_ms - _KEEP_MS):
            self._keep(run)

    def on_change(self, tell: Callable[[str], None]) -> None:
        """Call ``tell`` with the name of every agent whose list has changed."""
        self._tell = tell

    def write(self, runs: Iterable[Run], **more: Mapping[str, Any]) -> None:
        """Write runs, new or changed, and ``more`` as :meth:`MeasuringStore.write` takes it: all
        or none. Agents whose list changes so are told."""
        runs = list(runs)
        if not (runs or more):
            return
        self._store.write(runs, **more)
        changed: set[str] = set()
        for run in runs:
            before = self._runs.get(run.id)
            was = before is not None and before.state is not State.DROPPED
            if was != (run.state is not State.DROPPED):
                changed.update(part.agent for part in run.parts)
            self._keep(run)
        self.news(changed)

    def news(self, agents: Iterable[str]) -> None:
        """What these agents have to do has changed."""
        for agent in sorted(set(agents)):
            self._versions[agent] = self.version(agent) + 1
            self._tell(agent)

    def version(self, agent: str) -> int:
        """The number of the agent's list as it is."""
        return self._versions.get(agent, self._first)

    def get(self, run_id: str) -> Run | None:
        """One run, also of the past; None where there is none."""
        return self._runs.get(run_id) or self._store.run(run_id)

    def all(self) -> list[Run]:
        """All that are in memory."""
        return list(self._runs.values())

    def to_do(self, agent: str, now_ms: int) -> list[Run]:
        """What the agent has to do from now on, by start: what has begun and is not over, too."""
        found = [self._runs[key] for key in self._of.get(agent, ())]
        return sorted(
            (
                run
                for run in found
                if run.end_ms > now_ms
                and run.state is not State.DROPPED
                and not any(p.agent == agent and p.reported for p in run.parts)
            ),
            key=lambda run: (run.at_ms, run.id),
        )

    def told(self, agent: str, runs: Iterable[Run]) -> None:
        """The agent is about to hear of these runs."""
        news = [
            replace(
                run,
                parts=tuple(replace(p, told=True) if p.agent == agent else p for p in run.parts),
            )
            for run in runs
            if any(p.agent == agent and not p.told for p in run.parts)
        ]
        if news:
            self.write(news)

    def forget(self, now_ms: int) -> None:
        """Let go of what is long past and has its end; the store still has it."""
        for run in [r for r in self._runs.values() if r.end_ms < now_ms - _KEEP_MS]:
            if run.state is not State.PLANNED:
                del self._runs[run.id]
                for part in run.parts:
                    self._of[part.agent].discard(run.id)

    def _keep(self, run: Run) -> None:
        self._runs[run.id] = run
        for part in run.parts:
            self._of.setdefault(part.agent, set()).add(run.id)
