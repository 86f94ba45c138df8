"""From a schedule to runs: which come next, which are taken back, and those on demand."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from monitors.measurements.agent_registry import AgentRegistry
from monitors.measurements.registry import ScheduleChange, TaskRegistry
from monitors.measurements.run_store import KeptTask, MeasuringStore, RunStore
from monitors.measurements.runs import Run, RunState, new_run
from monitors.measurements.schedule import squeeze
from monitors.measurements.task_data import Definition
from monitors.measurements.tasks import Infeasible, Schedule, Slot, Task
from network_provisioner.base.errors import BrokerError, InputError

HORIZON_MS = 300_000
"""How far ahead agents are told what to do: for so long they go on without the broker."""
STEP_MS = 60_000
"""The horizon is moved on when it has come so much nearer."""
LEAD_MS = 3_000
"""How far ahead a run is placed at least: agents that listen hear of it at once, and both of them
must before it begins."""
LONGEST_WAIT_MS = 3_600_000
"""How far ahead a run on demand may be squeezed in."""
GRACE_MS = 30_000
"""For a result to come, before a run counts as missed."""

_SET_BACK_MS = 10_000  # a clock that is kept right is not set back by so much
_NOTHING = Schedule(1, ())
_log = logging.getLogger(__name__)


class RunPlanner:
    """The runs of a registry's schedule. Not for several threads at once."""

    def __init__(
        self,
        registry: TaskRegistry,
        agent_registry: AgentRegistry,
        store: MeasuringStore,
        now_ms: int,
    ) -> None:
        """Take up what an earlier process left in the store; nothing is told to anybody before
        :meth:`extend`."""
        self._registry, self._agent_registry, self._store = registry, agent_registry, store
        self.run_store = RunStore(store, now_ms)
        self.until_ms = int(store.fact("until_ms") or 0)
        """Up to here the schedule was followed: what begins before is a run, or never will be."""

        self.anew = int(store.fact("anew") or 0)  # runs before do not count: the clock was set back
        self._seen_ms = 0

    def extend(self, now_ms: int) -> None:
        """Plan the schedule's runs up to the horizon."""
        until, anew = self.until_ms, self.anew
        dropped: dict[str, Run] = {}
        back = now_ms < self._seen_ms - _SET_BACK_MS
        if back or until > now_ms + LONGEST_WAIT_MS + 2 * HORIZON_MS:
            _log.warning("the clock was set back: the schedule of measurements is followed anew")
            until, anew = 0, self._store.newest()
            to_come = (run for run in self.to_come(now_ms) if run.at_ms > now_ms)
            dropped = {run.id: taken_back(run, "the clock was set back") for run in to_come}
        end = now_ms + HORIZON_MS
        if until <= end - STEP_MS:
            if 0 < until < now_ms:
                _log.warning(
                    "no measurement began in the last %d s: no broker followed the schedule",
                    (now_ms - until) // 1000,
                )
            slots = self._registry.recurring.between(max(until, now_ms + LEAD_MS), end)
            runs = [*dropped.values(), *self._of_slots(slots, now_ms, dropped, anew)]
            moved = [run for run in self.run_store.all() if until <= run.at_ms < end]
            self.run_store.write(runs, facts={"until_ms": end, "anew": anew})
            self.until_ms, self.anew = end, anew
            self.run_store.news(part.agent for run in moved for part in run.parts)
        self._seen_ms = now_ms  # where the store failed, all of it is tried again

    def replaced(
        self,
        change: ScheduleChange,
        now_ms: int,
        tasks: Mapping[str, KeptTask | None] | None = None,
    ) -> None:
        """The registry has changed: runs of tasks that are gone and have not begun are taken back,
        those that were added begin at once where there is room. Where slots of others moved, their
        runs move as well, but for those that an agent would do all the same because it cannot be
        told. ``tasks`` are written to the store with it."""
        soon, recurring = now_ms + LEAD_MS, self._registry.recurring
        dropped = {
            run.id: taken_back(run, "the schedule was changed")
            for run in self.to_come(now_ms)
            if (
                run.at_ms > now_ms
                if run.task in change.gone
                else change.moved_tasks
                and run.at_ms > soon
                and not recurring.has(run.task, run.at_ms)
                and self._can_be_told(run, now_ms)
            )
        }
        slots = recurring.between(soon, self.until_ms)
        added = (slot for slot in slots if change.moved_tasks or slot.task in change.added)
        runs = [*dropped.values(), *self._of_slots(added, now_ms, dropped, self.anew)]
        facts: dict[str, Any] = {"until_ms": self.until_ms, "schedule": self._registry.saved()}
        self.run_store.write(runs, facts=facts, tasks=tasks or {})

    def demand(self, definition: Definition, by: str, now_ms: int, within_ms: int) -> Run:
        """One run more, as early as it disturbs nobody, over ``within_ms`` from now.

        Raises BrokerError ``conflict`` where an agent is away or there is no room.
        """
        for agent in definition.agents:
            why = self._agent_registry.away(agent, now_ms / 1000)
            if not why and self._agent_registry.lacks(agent, definition.tool.name):
                why = f"agent {agent!r} says that it cannot use {definition.tool.name} now"
            if why:
                raise BrokerError(f"{why}; nothing was started", "conflict")
        self.extend(now_ms)
        try:
            strangers = self._strangers(now_ms, {})
            times = now_ms + LEAD_MS, now_ms + within_ms
            at_ms = self._squeezed(definition.task, *times, strangers)
            run = self._new(definition, at_ms, at_ms, by, self.run_store.all())
        except InputError as error:
            raise BrokerError(f"{error}; nothing was started", "conflict") from None
        self.run_store.write([run])
        return run

    def to_tell(self, agent: str, now_ms: int) -> list[Run]:
        """The agent's runs, as far ahead as it may know them: runs that it knows do not move."""
        return [
            run
            for run in self.run_store.to_do(agent, now_ms)
            if run.at_ms < self.until_ms or run.demanded
        ]

    def close_overdue(self, now_ms: int) -> None:
        """Mark runs without a report in time as missed."""
        self.run_store.write(
            [
                replace(run, state=RunState.MISSED, error=self._why_missed(run, now_ms))
                for run in self.run_store.all()
                if run.state is RunState.PLANNED and run.end_ms + GRACE_MS < now_ms
            ]
        )
        self.run_store.forget(now_ms)

    def misplaced_runs(self, now_ms: int) -> list[tuple[Run, Slot]]:
        """Future runs that are not at the time of their slot, with that slot."""
        recurring = self._registry.recurring
        to_come = sorted(self.to_come(now_ms), key=lambda run: (run.at_ms, run.id))
        slots = ((run, recurring.of_release(run.task, run.release_ms)) for run in to_come)
        return [(run, slot) for run, slot in slots if slot and slot.start_ms != run.at_ms]

    def following(self, now_ms: int) -> Callable[[str], int | None]:
        """Gives the next start of a task: that of a run, or of the first unplanned slot."""
        first: dict[str, int] = {}
        for run in self.to_come(now_ms):
            if run.at_ms >= now_ms:
                first[run.task] = min(run.at_ms, first.get(run.task, run.at_ms))

        def next_of(task: str) -> int | None:
            slot = self._registry.recurring.next_of(task, max(now_ms, self.until_ms))
            return first.get(task, slot.start_ms if slot is not None else None)

        return next_of

    # -- within ------------------------------------------------------------------------------

    def to_come(self, now_ms: int) -> Iterator[Run]:
        """Planned runs of the schedule that are not over."""
        return (
            run
            for run in self.run_store.all()
            if run.end_ms > now_ms and run.state is RunState.PLANNED and not run.demanded
        )

    def occupying(self, now_ms: int, dropped: Mapping[str, Run]) -> Iterator[Run]:
        """What may be under way from now on: also what was taken back, where an agent that knows
        of it may not have heard."""
        for known in self.run_store.all():
            run = dropped.get(known.id, known)
            if run.end_ms <= now_ms:
                continue
            if run.state is RunState.DROPPED:
                if not self._can_be_told(run, now_ms):
                    yield run
            elif run.state is RunState.PLANNED or run.at_ms <= now_ms:
                yield run  # not what ended before the clock was set back

    def _can_be_told(self, run: Run, now_ms: int) -> bool:
        """Whether all agents that know of the run hear in time that it was dropped."""
        return all(
            self._agent_registry.present(p.agent, now_ms / 1000) for p in run.parts if p.told
        )

    def _of_slots(
        self, slots: Iterable[Slot], now_ms: int, dropped: Mapping[str, Run], anew: int
    ) -> list[Run]:
        """Runs of those slots whose release has none since ``anew``: in their place, or where
        something beside the schedule has that, elsewhere in their window."""
        slots = list(slots)
        if not slots:
            return []
        # Also of what is over: in another schedule a release may have a later slot.
        first_ms = min(slot.release_ms for slot in slots)
        made = {
            key
            for key, run_id in self._store.released(first_ms, anew).items()
            if run_id not in dropped
        }
        known, strangers = [*self.occupying(now_ms, dropped)], self._strangers(now_ms, dropped)
        runs: list[Run] = []
        of_server: dict[str, list[Run]] = {}
        for slot in slots:
            if (slot.task, slot.release_ms) in made:
                continue
            definition = self._registry.get(slot.task).definition
            server = definition.agents[-1]
            if server not in of_server:
                of_server[server] = self.run_store.to_do(server, slot.start_ms)
            try:
                at_ms = slot.start_ms
                if not self._has_room(slot, strangers, known):
                    since_ms = max(slot.release_ms, now_ms + LEAD_MS)
                    until_ms = min(slot.deadline_ms, since_ms + LONGEST_WAIT_MS)
                    at_ms = self._squeezed(definition.task, since_ms, until_ms, strangers)
                run = self._new(definition, at_ms, slot.release_ms, "", of_server[server])
            except InputError as error:
                _log.warning("one run of measurement %s is left out: %s", slot.task, error)
                continue
            runs.append(run)
            known.append(run)
            of_server[server].append(run)
            if at_ms != slot.start_ms:
                strangers.append(run)
        return runs

    def _strangers(self, now_ms: int, dropped: Mapping[str, Run]) -> list[Run]:
        """What may be under way and is not where the schedule has it: runs on demand, and promises
        of an earlier schedule."""
        recurring = self._registry.recurring
        return [
            run
            for run in self.occupying(now_ms, dropped)
            if run.demanded
            or run.state is RunState.DROPPED
            or not recurring.has(run.task, run.at_ms)
        ]

    def _has_room(self, slot: Slot, strangers: Sequence[Run], known: Sequence[Run]) -> bool:
        """Whether a slot that disturbs no other of the schedule disturbs nothing else either.
        ``known`` is all that runs then: what a domain bears is the sum."""
        if not _overlapping(slot, strangers):
            return True
        task = self._registry.get(slot.task).definition.task
        taken = [as_taken(run) for run in _overlapping(slot, known)]
        try:
            squeeze(_NOTHING, (), self._registry.agreement, task, slot.start_ms, slot.end_ms, taken)
        except Infeasible:
            return False
        return True

    def _squeezed(self, task: Task, since_ms: int, until_ms: int, strangers: Sequence[Run]) -> int:
        """The first instant at which the task has room beside the schedule and ``strangers``.
        Raises Infeasible."""
        taken = [as_taken(run) for run in strangers]
        known = self._registry.schedule, self._registry.tasks(), self._registry.agreement
        return squeeze(*known, task, since_ms, until_ms, taken).start_ms

    def _new(
        self, definition: Definition, at_ms: int, release_ms: int, by: str, beside: Iterable[Run]
    ) -> Run:
        run_id = name = f"{definition.name}:{at_ms / 1000:.3f}"
        copies = 1
        while self.run_store.get(run_id) is not None:
            copies += 1  # one that was taken back has the name, and names are for ever
            run_id = f"{name}.{copies}"
        members = self._agent_registry.members
        return new_run(run_id, definition, at_ms, release_ms, members, beside, by)

    def _why_missed(self, run: Run, now_ms: int) -> str:
        for part in run.parts:
            if not part.reported:
                away = self._agent_registry.away(part.agent, now_ms / 1000)
                if not part.told:
                    return away or f"agent {part.agent!r} did not poll in time"
                return f"agent {part.agent!r} got the run, and has not reported" + (
                    f"; {away}" if away else ""
                )
        return "no agent answered"


def taken_back(run: Run, why: str) -> Run:
    return replace(run, state=RunState.DROPPED, error=why)


def as_taken(run: Run) -> tuple[Task, Slot]:
    """A run as a task and slot of a schedule."""
    span = max(1, run.end_ms - run.at_ms)
    return (
        Task(run.id, span, span, span, run.hosts, run.links, run.load_bps),
        Slot(run.at_ms, run.end_ms, run.id, 0, run.at_ms, run.end_ms),
    )


def _overlapping(slot: Slot, runs: Iterable[Run]) -> list[Run]:
    return [run for run in runs if run.at_ms < slot.end_ms and slot.start_ms < run.end_ms]
