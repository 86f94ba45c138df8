"""From a schedule to runs: which come next, which are taken back, and those on demand."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from monitors.measurements.agent_registry import AgentRegistry
from monitors.measurements.definitions import Definition
from monitors.measurements.registry import Change, TaskRegistry
from monitors.measurements.run_store import KeptTask, MeasuringStore, RunStore
from monitors.measurements.runs import Run, State, Uses, new_run
from monitors.measurements.schedule import squeeze
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
NOTHING = Schedule(1, ())
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
        self.run_store.load(now_ms)
        self.until_ms = int(store.fact("until_ms") or 0)
        """Up to here the schedule was followed: what begins before is a run, or never will be."""

        self.anew = int(store.fact("anew") or 0)  # runs before do not count: the clock was set back
        self.without_room: list[Slot] = []
        """Slots that are in the way of runs beside the schedule, and were not made."""
        self._seen_ms = 0

    def extend(self, now_ms: int) -> None:
        """Make runs of what the schedule has up to the horizon."""
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
                    "no measurement was begun for %d s before this: nobody followed the schedule",
                    (now_ms - until) // 1000,
                )
            since = max(until, now_ms + LEAD_MS)
            beyond = [run for run in self.occupying(now_ms, dropped) if run.end_ms > since]
            slots = self._registry.recurring.between(since, end)
            runs = [*dropped.values(), *self._of_slots(slots, beyond, dropped, anew)]
            moved = [run for run in self.run_store.all() if until <= run.at_ms < end]
            self.run_store.write(runs, facts={"until_ms": end, "anew": anew})
            self.until_ms, self.anew = end, anew
            self.run_store.news(part.agent for run in moved for part in run.parts)
        self._seen_ms = now_ms  # where the store failed, all of it is tried again

    def replaced(
        self, change: Change, now_ms: int, tasks: Mapping[str, KeptTask | None] | None = None
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
                else change.moved
                and run.at_ms > soon
                and not recurring.has(run.task, run.at_ms)
                and self._can_be_told(run, now_ms)
            )
        }
        slots = recurring.between(soon, self.until_ms)
        wanted = (slot for slot in slots if change.moved or slot.task in change.added)
        taken = list(self.occupying(now_ms, dropped))
        runs = [*dropped.values(), *self._of_slots(wanted, taken, dropped, self.anew)]
        facts: dict[str, Any] = {"until_ms": self.until_ms, "schedule": self._registry.saved()}
        self.run_store.write(runs, facts=facts, tasks=tasks or {})

    def to_tell(self, agent: str, now_ms: int) -> list[Run]:
        """What the agent has to do, as far ahead as it may know: what it knows stays where it
        is."""
        return [
            run
            for run in self.run_store.to_do(agent, now_ms)
            if run.at_ms < self.until_ms or run.demanded
        ]

    def close_overdue(self, now_ms: int) -> None:
        """Runs of which nothing was heard in time are missed."""
        self.run_store.write(
            [
                replace(run, state=State.MISSED, error=self._why_missed(run, now_ms))
                for run in self.run_store.all()
                if run.state is State.PLANNED and run.end_ms + GRACE_MS < now_ms
            ]
        )
        self.run_store.forget(now_ms)

    # -- within ------------------------------------------------------------------------------

    def to_come(self, now_ms: int) -> Iterator[Run]:
        """The schedule's runs that are not over."""
        return (
            run
            for run in self.run_store.all()
            if run.end_ms > now_ms and run.state is State.PLANNED and not run.demanded
        )

    def occupying(self, now_ms: int, dropped: Mapping[str, Run]) -> Iterator[Run]:
        """What may be under way from now on: also what was taken back, where an agent that knows
        of it may not have heard."""
        for known in self.run_store.all():
            run = dropped.get(known.id, known)
            if run.end_ms <= now_ms:
                continue
            if run.state is State.DROPPED:
                if not self._can_be_told(run, now_ms):
                    yield run
            elif run.state is State.PLANNED or run.at_ms <= now_ms:
                yield run  # not what ended before the clock was set back

    def _can_be_told(self, run: Run, now_ms: int) -> bool:
        """Whether everybody who knows of the run hears in time that it was taken back."""
        return all(
            self._agent_registry.present(p.agent, now_ms / 1000) for p in run.parts if p.told
        )

    def _of_slots(
        self,
        slots: Iterable[Slot],
        occupying: Sequence[Run],
        dropped: Mapping[str, Run],
        anew: int,
    ) -> list[Run]:
        """Runs of those slots whose release has none since ``anew``, and which have room beside
        ``occupying``."""
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
        runs: list[Run] = []
        of_server: dict[str, list[Run]] = {}
        for slot in slots:
            if (slot.task, slot.release_ms) in made:
                continue
            if not self._has_room(slot, occupying, runs):
                self.without_room.append(slot)
                continue
            entry = self._registry.get(slot.task)
            server = entry.definition.agents[-1]
            beside = of_server.get(server)
            if beside is None:
                beside = of_server[server] = self.run_store.to_do(server, slot.start_ms)
            times = slot.start_ms, slot.end_ms, slot.release_ms
            try:
                run = self.new(entry.definition, entry.task, *times, "", beside)
            except InputError as error:
                _log.warning("measurement %s is left out once: %s", slot.task, error)
                continue
            runs.append(run)
            beside.append(run)
        return runs

    def _has_room(self, slot: Slot, occupying: Sequence[Run], news: Sequence[Run]) -> bool:
        """Whether a slot that disturbs no other of the schedule disturbs nothing else either:
        runs on demand, and promises of an earlier schedule. ``news`` are runs of the schedule that
        are made together with it: what a domain bears is the sum of all."""
        recurring = self._registry.recurring
        near = [r for r in occupying if r.at_ms < slot.end_ms and slot.start_ms < r.end_ms]
        if all(
            run.state is not State.DROPPED
            and not run.demanded
            and recurring.has(run.task, run.at_ms)
            for run in near
        ):
            return True
        near += [r for r in news if r.at_ms < slot.end_ms and slot.start_ms < r.end_ms]
        task, taken = self._registry.get(slot.task).task, [as_taken(run) for run in near]
        try:
            squeeze(NOTHING, (), self._registry.agreement, task, slot.start_ms, slot.end_ms, taken)
        except Infeasible:
            return False
        return True

    def new(
        self, definition: Definition, task: Task, at_ms: int, end_ms: int, release_ms: int,
        by: str, beside: Iterable[Run] | None = None,
    ) -> Run:  # fmt: skip
        run_id, copies = f"{definition.name}:{at_ms / 1000:.3f}", 1
        while self.run_store.get(run_id if copies == 1 else f"{run_id}.{copies}") is not None:
            copies += 1  # one that was taken back has the name, and names are for ever
        if copies > 1:
            run_id = f"{run_id}.{copies}"
        others = self.run_store.all() if beside is None else beside
        return new_run(
            run_id, definition, at_ms, end_ms, release_ms, self._agent_registry.members, others,
            uses_of(task), by,
        )  # fmt: skip

    def _why_missed(self, run: Run, now_ms: int) -> str:
        for part in run.parts:
            if not part.reported:
                away = self._agent_registry.away(part.agent, now_ms / 1000)
                if not part.told:
                    return away or f"agent {part.agent!r} did not ask in time"
                return f"agent {part.agent!r} was told, and has not answered" + (
                    f"; {away}" if away else ""
                )
        return "nobody answered"


def taken_back(run: Run, why: str) -> Run:
    return replace(run, state=State.DROPPED, error=why)


def as_taken(run: Run) -> tuple[Task, Slot]:
    """A run as something that stands in a schedule once."""
    span = max(1, run.end_ms - run.at_ms)
    uses = run.uses
    return (
        Task(run.id, span, span, span, uses.hosts, uses.links, uses.load_bps),
        Slot(run.at_ms, run.end_ms, run.id, 0, run.at_ms, run.end_ms),
    )


def uses_of(task: Task) -> Uses:
    """What a run of a task needs for itself."""
    return Uses(task.hosts, task.links, task.load_bps)


_AT_ONCE = 10  # slots that are given another time in one turn
_log = logging.getLogger(__name__)


class OnDemand:
    """Changes a planner. Not for several threads at once."""

    def __init__(
        self,
        planner: RunPlanner,
        registry: TaskRegistry,
        agent_registry: AgentRegistry,
        store: MeasuringStore,
    ) -> None:
        self._planner, self._registry, self._agent_registry, self._store = (
            planner,
            registry,
            agent_registry,
            store,
        )

    def demand(
        self, definition: Definition, task: Task, by: str, now_ms: int, within_ms: int
    ) -> Run:
        """One run more, as early as it disturbs nobody, over ``within_ms`` from now.

        Raises BrokerError ``conflict`` where an agent is away or there is no room.
        """
        for agent in definition.agents:
            why = self._agent_registry.away(agent, now_ms / 1000)
            if not why and self._agent_registry.lacks(agent, definition.tool.name):
                why = f"agent {agent!r} says that it cannot use {definition.tool.name} now"
            if why:
                raise BrokerError(f"{why}; nothing was started", "conflict")
        self._planner.extend(now_ms)
        try:
            slot = self._room(task, now_ms + LEAD_MS, now_ms + within_ms)
            run = self._planner.new(definition, task, slot.start_ms, slot.end_ms, slot.start_ms, by)
        except InputError as error:
            raise BrokerError(f"{error}; nothing was started", "conflict") from None
        self._planner.run_store.write([run])
        return run

    def settle(self, now_ms: int) -> None:
        """Slots that found something in their place are made at another time of their windows: the
        schedule was changed, and does not know of runs on demand. To be called again: of many, the
        rest waits, so that nobody else has to."""
        waiting = self._planner.without_room
        slots, self._planner.without_room = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
        for slot in slots:
            entry = self._registry.find(slot.task)
            if entry is None or self._made(slot):
                continue
            since_ms = max(slot.release_ms, now_ms + LEAD_MS)
            until_ms = min(slot.deadline_ms, since_ms + LONGEST_WAIT_MS)
            try:
                found = self._room(entry.task, since_ms, until_ms)
                times = found.start_ms, found.end_ms, slot.release_ms
                run = self._planner.new(entry.definition, entry.task, *times, "")
            except InputError as error:
                _log.warning("measurement %s is left out once: %s", slot.task, error)
                continue
            self._planner.run_store.write([run])

    def moved(self, now_ms: int) -> list[tuple[Run, Slot]]:
        """The schedule's runs to come that are not where their slots are, and those slots."""
        to_come = sorted(self._planner.to_come(now_ms), key=lambda run: (run.at_ms, run.id))
        return list(self._elsewhere(to_come))

    def following(self, now_ms: int) -> Callable[[str], int | None]:
        """When a task is made next."""
        all_moved = self._elsewhere(self._planner.run_store.all())
        elsewhere = {(run.task, run.release_ms) for run, _ in all_moved}
        moved: dict[str, list[int]] = {}
        for run, _ in self.moved(now_ms):
            moved.setdefault(run.task, []).append(run.at_ms)

        def next_of(task: str) -> int | None:
            mine = moved.get(task, ())
            slot = self._registry.recurring.next_of(task, now_ms)
            while slot is not None and (task, slot.release_ms) in elsewhere:
                slot = self._registry.recurring.next_of(task, slot.start_ms + 1)
            regular = [slot.start_ms] if slot is not None else []
            return min([*(at for at in mine if at >= now_ms), *regular], default=None)

        return next_of

    def _elsewhere(self, runs: Iterable[Run]) -> Iterator[tuple[Run, Slot]]:
        """Those that do not start, or did not, where their slots are, and the slots."""
        for run in runs:
            slot = self._slot_of(run)
            if slot is not None and slot.start_ms != run.at_ms:
                yield run, slot

    def _slot_of(self, run: Run) -> Slot | None:
        """The schedule's own slot of a run, None where it has none or the run was taken back."""
        if run.demanded or run.state is State.DROPPED:
            return None
        return self._registry.recurring.of_release(run.task, run.release_ms)

    def _room(self, task: Task, since_ms: int, until_ms: int) -> Slot:
        """Beside the schedule, and all that may be under way and is not where the schedule has it.
        Raises Infeasible."""
        registry = self._registry
        taken = [
            as_taken(run)
            for run in self._planner.occupying(since_ms, {})
            if run.demanded or not registry.recurring.has(run.task, run.at_ms)
        ]
        known = registry.schedule, registry.tasks(), registry.agreement
        return squeeze(*known, task, since_ms, until_ms, taken)

    def _made(self, slot: Slot) -> bool:
        return self._store.has_release(slot.task, slot.release_ms, self._planner.anew)
