"""The coordinator: the one place where tasks, schedule, agents and runs meet and change.

Decisions are made by the pure modules beside it; what is decided stands in the store before anybody
hears of it. Everything happens under one lock, and nothing under it waits for the network.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement
from monitors.measurements.agent_registry import AgentRegistry, AgentReport
from monitors.measurements.candidate_paths import (
    BY,
    HeldPaths,
    PathHolder,
    used_pairs,
    wanted_tasks,
)
from monitors.measurements.load import shares
from monitors.measurements.registry import RegisteredTask, TaskRegistry
from monitors.measurements.run_planner import RunPlanner
from monitors.measurements.run_store import KeptTask, MeasuringStore, SharedTasks
from monitors.measurements.runs import Run, RunState, ValidResult, after, valid_result
from monitors.measurements.task_data import Definition, known_end
from monitors.rules import Rules
from network_provisioner.access import Principal
from network_provisioner.base.errors import BrokerError, InputError

_KEEP_MS = 7 * 86_400_000  # how long runs are kept: a result may come late
_MOST_KEPT = 200_000
_FORGET_EVERY_MS = 600_000
_RECENT = 20  # runs that a task shows
_PATHS_EVERY_MS = 600_000
_LATE_MS = 5_000  # until a result has come
_log = logging.getLogger(__name__)
_NEXT = 5  # runs that an agent shows


class Coordinator:
    """Safe to use from several threads. Every method may raise an AdonError of the store."""

    def __init__(
        self,
        agent_registry: AgentRegistry,
        registry: TaskRegistry,
        store: MeasuringStore,
        archive: Archive,
        rules: Rules,
        clock: Callable[[], float],
        holder: PathHolder | None = None,
        paths: Mapping[str, Any] | None = None,
        shared: SharedTasks | None = None,
    ) -> None:
        """Take up what an earlier process left in the store. ``clock`` gives Unix seconds;
        ``holder`` can hold packets to paths, and ``paths`` is how the candidate paths are measured,
        None for not at all. ``shared`` has the tasks for other brokers of the same store."""
        self._shared = shared
        self._agent_registry, self._registry, self._store = agent_registry, registry, store
        self._archive, self._rules, self._clock = archive, rules, clock
        self._lock = threading.RLock()
        self._forgot_ms = self._paths_ms = 0
        self._succeeded: dict[str, float] = {}  # when each task did last, or was seen first
        self._held, self._paths = HeldPaths(holder), paths if holder is not None else None
        self._planner = RunPlanner(registry, agent_registry, store, self._now())
        self._planner.replaced(registry.restore(store.tasks(), store.fact("schedule")), self._now())
        self.sweep()

    def take_over(self) -> None:
        """This broker leads from now on: replace the tasks that were added here by those that the
        brokers share."""
        if self._shared is None:
            return
        with self._lock:
            tasks, now = self._shared.read(), self._now()
            mine = {e.definition.name: e.kept for e in self._registry.entries()}
            added = {n: kept for n, kept in mine.items() if kept is not None and kept.by != BY}
            if tasks is None:
                for name, kept in added.items():
                    self._shared.write(name, kept)
                return
            for name in added.keys() - tasks.keys():
                self._delete(name, now)
            for name, kept in tasks.items():
                if added.get(name) != kept:
                    try:
                        self._put(self._registry.define(name, kept.body), kept, now)
                    except (InputError, BrokerError) as error:
                        _log.warning("measurement task %s is not scheduled: %s", name, error)

    def sweep(self) -> None:
        """Plan runs up to the horizon, and mark those without a report as missed. To be called
        about once a second."""
        with self._lock:
            now = self._now()
            self._planner.extend(now)
            self._planner.close_overdue(now)
            if now - self._forgot_ms > _FORGET_EVERY_MS:
                self._store.forget(now - _KEEP_MS, _MOST_KEPT)
                self._forgot_ms = now

    # -- candidate paths -----------------------------------------------------------------------

    def hold_paths(self) -> None:
        """Have the network hold the runs that are about to begin to the paths that they measure,
        and let go of those that are over. To be called after :meth:`sweep`; the network may take
        its time."""
        with self._lock:
            now = self._now()
            due = [
                (run, entry.definition.nodes)
                for run in self._held.due(self._planner.run_store.all(), now)
                if (entry := self._registry.find(run.task)) is not None
            ]
        for run, nodes in due:
            self._held.hold(run, nodes, self._now())
        self._held.release(self._now())

    def follow_paths(self) -> None:
        """Measure the candidate paths of the pairs of sites that are used now, and no others."""
        now = self._now()
        if self._paths is None or now - self._paths_ms < _PATHS_EVERY_MS:
            return
        self._paths_ms = now
        topology = self._registry.topology
        pairs = used_pairs(self._archive, topology.sites, now / 1000)
        tasks = wanted_tasks(pairs, self._agent_registry.members, topology, self._paths)
        with self._lock:
            entries = {e.definition.name: e for e in self._registry.entries()}
            mine = {n: e for n, e in entries.items() if e.kept is not None and e.kept.by == BY}
            for name in mine.keys() - tasks.keys():
                self._delete(name, now)
            for name, body in tasks.items():
                same = name in mine and mine[name].body == body and not mine[name].problem
                if not same and (name in mine or name not in entries):
                    try:
                        definition = self._registry.define(name, body)
                        self._put(definition, KeptTask(body, BY, now / 1000), now)
                    except InputError as error:  # no room within schedule and agreement
                        _log.info("a candidate path is not measured: %s", error)

    # -- agents ------------------------------------------------------------------------------

    def on_change(self, tell: Callable[[str], None]) -> None:
        """Call ``tell``, quick and harmless, with the name of each agent whose list has changed."""
        self._planner.run_store.on_change(tell)

    def version(self, agent: str) -> int:
        """The number of an agent's list, which changes with it."""
        return self._planner.run_store.version(agent)

    def heard(self, agent: str, report: AgentReport | None = None, wait_s: float = 0.0) -> None:
        """The agent asks, and waits for ``wait_s``. Raises BrokerError ``unknown_agent``."""
        with self._lock:
            self._agent_registry.known(agent)
            self._agent_registry.heard(agent, self._clock(), report, wait_s)

    def left(self, agent: str) -> None:
        """The agent closed the connection before the answer."""
        with self._lock:
            self._agent_registry.left(agent, self._clock())

    def reported(self, agent: str, what: str) -> None:
        """An agent reported what its host does. Raises BrokerError ``unknown_agent``."""
        with self._lock:
            self._agent_registry.known(agent)
            self._agent_registry.heard(agent, self._clock())
            self._agent_registry.reported(agent, what, self._clock())

    def silent(self) -> dict[str, tuple[float, str]]:
        """Agents that should have asked again, reports of hosts that should have come, and tasks
        that gave no result for two of their periods: since when (Unix seconds), and why."""
        with self._lock:
            now, agents = self._clock(), self._agent_registry
            away = agents.silent(now)
            why = "it has not polled in time"
            silent = {f"agent {name!r}": (at, why) for name, at in away.items()}
            for (name, what), at in agents.missing_reports(now).items():
                silent[f"agent {name!r}: {what}"] = at, f"it reports no {what} any more"
            entries = {entry.definition.name: entry for entry in self._registry.entries()}
            self._succeeded = {name: self._succeeded.get(name, now) for name in entries}
            for name, entry in entries.items():
                task, since = entry.task, self._succeeded[name]
                back = [agents.back_at(agent) for agent in entry.definition.agents]
                late = now > max([since, *back]) + (2 * task.period_ms + _LATE_MS) / 1000
                if late and not entry.problem and away.keys().isdisjoint(entry.definition.agents):
                    silent[f"task {name!r}"] = since, "its last two measurements gave no result"
            return silent

    def assignments(self, agent: str) -> tuple[int, float, list[dict[str, Any]]]:
        """The number of the agent's list, until when it holds (Unix seconds), and everything that
        the agent has to do."""
        with self._lock:
            self._agent_registry.known(agent)
            now = self._now()
            runs = self._planner.to_tell(agent, now)
            self._planner.run_store.mark_sent(agent, runs)
            version, until = self._planner.run_store.version(agent), self._planner.until_ms / 1000
        mine = [part.assignment for run in runs for part in run.parts if part.agent == agent]
        return version, until, [assignment.as_dict() for assignment in mine]

    def results(
        self, agent: str, items: Sequence[Mapping[str, Any]]
    ) -> tuple[list[str], dict[str, str]]:
        """Take an agent's results: those that are recorded, now or before, and why others never
        will be. Raises AdonError where the archive cannot take them now."""
        accepted: list[str] = []
        refused: dict[str, str] = {}
        changed: dict[str, Run] = {}
        measurements: list[Measurement] = []
        with self._lock:
            self._agent_registry.known(agent)
            self._agent_registry.heard(agent, self._clock())
            for item in items:
                key = str(item.get("assignment", ""))[:300]
                try:
                    run = changed.get(key) or self._given(agent, key)
                    part = run.part_of(agent)
                    assert part is not None
                    if not part.reported:
                        valid = valid_result(item, run, part, self._now())
                        if valid.measurements and (why := self._held.why_not(run)):
                            valid = ValidResult((), f"it was not held to its path: {why}")
                        measurements += valid.measurements
                        part = replace(part, reported=True, error=valid.error)
                        changed[key] = after(run, part, valid.measurements)
                        if valid.error:
                            self._agent_registry.failed(
                                agent, self._clock(), f"{key}: {valid.error}"
                            )
                    accepted.append(key)
                except InputError as error:
                    refused[key] = str(error)
                    self._agent_registry.failed(agent, self._clock(), f"{key}: refused: {error}")
            # First the archive: if this process dies in between, the agent sends all of it again,
            # and the archive takes each id once.
            if measurements:
                self._archive.record_many(measurements)
                succeeded = {run.task for run in changed.values() if run.state is RunState.DONE}
                self._succeeded |= dict.fromkeys(succeeded, self._clock())
            if changed:
                self._planner.run_store.write(changed.values())
        return accepted, refused

    def agents(self) -> list[dict[str, Any]]:
        """How each agent is, and what it does next."""
        with self._lock:
            return [self._agent_view(name) for name in self._agent_registry.members]

    def agent(self, name: str) -> dict[str, Any]:
        """One of them. Raises BrokerError ``unknown_agent``."""
        with self._lock:
            self._agent_registry.known(name)
            return self._agent_view(name)

    def _agent_view(self, name: str) -> dict[str, Any]:
        now_ms = self._now()
        to_do = self._planner.run_store.to_do(name, now_ms)
        return {
            **self._agent_registry.view(name, now_ms / 1000),
            "to_do": len(to_do),
            "next": [
                {"run": run.id, "at": run.at_ms / 1000, "tool": run.tool, "subject": run.subject}
                for run in to_do[:_NEXT]
            ],
        }

    # -- tasks -------------------------------------------------------------------------------

    def tasks(self) -> list[dict[str, Any]]:
        """Every task, its next run, and how its runs ended."""
        with self._lock:
            counts, now = self._store.counts(), self._now()
            next_of = self._planner.following(now)
            return [
                task_view(entry, next_of(entry.definition.name), counts)
                for entry in self._registry.entries()
            ]

    def task(self, name: str) -> dict[str, Any]:
        """One, with its latest runs. Raises BrokerError ``unknown_task``."""
        with self._lock:
            entry, now = self._registry.get(name), self._now()
            view = task_view(entry, self._planner.following(now)(name), self._store.counts(name))
            runs = self._store.runs(0, now + 1, name, _RECENT)
            return {**view, "runs": [run.as_dict() for run in runs]}

    def put_task(
        self, name: str, body: Mapping[str, Any], who: Principal
    ) -> tuple[dict[str, Any], bool]:
        """Add a task, or replace one; True where it is new. What is promised to others is kept.

        Raises InputError where it cannot be meant, Infeasible where it does not fit (everything
        stays as it was), BrokerError ``forbidden``, and ``conflict`` for one of the configuration.
        """
        with self._lock:
            definition = self._registry.define(name, body)
            before = self._registry.find(name)
            for task in (definition, *([before.definition] if before is not None else ())):
                self.need_start(who, task)
            kept = KeptTask(body, who.name, self._clock())
            self._put(definition, kept, self._now(), self._shared)
            return self.task(name), before is None

    def delete_task(self, name: str, who: Principal) -> dict[str, Any]:
        """Delete a task and return it; its runs that have begun go on. Raises BrokerError
        ``unknown_task``, ``forbidden``, ``conflict`` for one of the configuration."""
        with self._lock:
            self.need_start(who, self._registry.get(name).definition)
            before = self.task(name)
            self._delete(name, self._now(), self._shared)
            return before

    def need_start(self, who: Principal, definition: Definition) -> None:
        """Raises BrokerError ``forbidden`` where ``who`` may not start this."""
        for metric in definition.metrics:
            self._rules.need_start(who, definition.src, definition.dst, metric)

    def need_ends(self, source: str, target: str) -> None:
        """Raises InputError where one of them is at no site; ``target`` is "" for what is measured
        at one end."""
        for key, end in (("from", source), ("to", target)):
            if end or key == "from":
                known_end(end, key, self._registry.topology)

    # -- on demand ---------------------------------------------------------------------------

    def run_task(self, name: str, who: Principal, within_ms: int) -> Run:
        """Make a task's measurement once more, as soon as it disturbs nobody.

        Raises BrokerError ``unknown_task``, ``forbidden``, and ``conflict`` where an agent is away
        or there is no room in time.
        """
        with self._lock:
            entry = self._registry.get(name)
            self.need_start(who, entry.definition)
            by = who.name or "anybody"
            return self._planner.demand(entry.definition, by, self._now(), within_ms)

    def run_once(self, body: Mapping[str, Any], who: Principal, within_ms: int) -> Run:
        """Measure once without a task. Raises as :meth:`run_task`, and InputError."""
        with self._lock:
            ends = (str(body.get(key) or "") for key in ("tool", "from", "to"))
            name = "-".join(["once", *(end.replace("/", ".") for end in ends if end)])[:100]
            definition = self._registry.define(name, body, once=True)
            self.need_start(who, definition)
            by = who.name or "anybody"
            return self._planner.demand(definition, by, self._now(), within_ms)

    def run(self, run_id: str) -> Run:
        """One run. Raises BrokerError ``unknown_measurement``."""
        with self._lock:
            stored = self._planner.run_store.get(run_id)
        if stored is None:
            raise BrokerError(f"there is no run {run_id!r:.200}", "unknown_measurement")
        return stored

    def runs(self, since_ms: int, until_ms: int, task: str | None, limit: int) -> list[Run]:
        """The newest ``limit`` runs that begin in between, oldest first."""
        return self._store.runs(since_ms, until_ms, task, limit)

    def schedule(self) -> dict[str, Any]:
        """The schedule that repeats: its length, how many runs it has, the share of time that each
        host and link is used by them, and which runs to come are not where their slots are."""
        with self._lock:
            schedule, tasks = self._registry.schedule, self._registry.tasks()
            until_ms, moved = self._planner.until_ms, self._planner.misplaced_runs(self._now())
        use = {key: round(share, 6) for key, share in shares(tasks).items()}
        links = sorted(key for key in use if not isinstance(key, str))
        return {
            "hyperperiod_s": schedule.hyperperiod_ms / 1000,
            "slots": len(schedule.slots),
            "tasks": len(tasks),
            "until": until_ms / 1000,
            "hosts": {name: use[name] for name in sorted(k for k in use if isinstance(k, str))},
            "links": [{"link": list(link), "use": use[link]} for link in links],
            "moved": [
                {
                    "run": run.id,
                    "task": run.task,
                    "at": run.at_ms / 1000,
                    "instead_of": slot.start_ms / 1000,
                    "release": slot.release_ms / 1000,
                    "deadline": slot.deadline_ms / 1000,
                }
                for run, slot in moved
            ],
        }

    def counts(self) -> dict[str, int]:
        """The number of kept runs in each state, of all tasks."""
        return dict(sum(map(Counter, self._store.counts().values()), Counter[str]()))

    # -- within ------------------------------------------------------------------------------

    def _put(
        self, definition: Definition, kept: KeptTask, now: int, shared: SharedTasks | None = None
    ) -> None:
        with self._registry.all_or_nothing():
            change = self._registry.put(definition, kept)
            if shared is not None:
                shared.write(definition.name, kept)
            self._planner.replaced(change, now, {definition.name: kept})

    def _delete(self, name: str, now: int, shared: SharedTasks | None = None) -> None:
        with self._registry.all_or_nothing():
            change = self._registry.delete(name)
            if shared is not None:
                shared.write(name, None)
            self._planner.replaced(change, now, {name: None})

    def _given(self, agent: str, run_id: str) -> Run:
        run = self._planner.run_store.get(run_id)
        part = None if run is None else run.part_of(agent)
        if run is None or part is None or not part.told:
            raise InputError(f"agent {agent!r} was never assigned this run, or it is too old")
        return run

    def _now(self) -> int:
        return int(self._clock() * 1000)


def task_view(
    entry: RegisteredTask, next_ms: int | None, counts: Mapping[str, Mapping[str, int]]
) -> dict[str, Any]:
    """A task, its next run, and how many of its runs ended how."""
    definition, task = entry.definition, entry.task
    known = counts.get(definition.name, {})
    return {
        "name": definition.name,
        "tool": definition.tool.name,
        "from": definition.src,
        "to": definition.dst,
        "subject": definition.subject,
        "metrics": list(definition.metrics),
        "every_s": task.period_ms / 1000,
        "for_s": task.duration_ms / 1000,
        "within_s": task.deadline_ms / 1000,
        "load_bps": task.load_bps,
        "hosts": sorted(task.hosts),
        "links": sorted(map(list, task.links)),
        "options": {k: v for k, v in definition.options.items() if v is not None and k != "key"},
        "by": None if entry.kept is None else entry.kept.by,
        "configured": entry.kept is None,
        "problem": entry.problem,
        "next": None if next_ms is None else next_ms / 1000,
        "counts": {str(state): known.get(str(state), 0) for state in RunState},
    }
