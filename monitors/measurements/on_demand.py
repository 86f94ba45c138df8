"""One run more, on demand, where nobody is disturbed; and another time for slots of the schedule
that found something in their place."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from monitors.measurements.agent_registry import AgentRegistry
from monitors.measurements.definitions import Definition
from monitors.measurements.registry import TaskRegistry
from monitors.measurements.run_planner import LEAD_MS, LONGEST_WAIT_MS, RunPlanner, as_taken
from monitors.measurements.runs import Run, State
from monitors.measurements.schedule import squeeze
from monitors.measurements.store import MeasuringStore
from monitors.measurements.tasks import Slot, Task
from network_provisioner.errors import BrokerError, InputError

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
