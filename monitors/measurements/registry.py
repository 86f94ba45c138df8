"""The task registry: what is measured regularly, and the schedule of all of it.

Tasks come from the configuration, which nobody changes while the broker runs, and from people who
add them. A new task is put between the others where there is room, so that nothing promised moves;
only where there is none, all are planned anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from monitors.measurements.agent_registry import RegisteredAgent
from monitors.measurements.probes.tools import TOOLS
from monitors.measurements.run_store import KeptTask
from monitors.measurements.schedule import Recurring, arrive, leave, moved_tasks, plan
from monitors.measurements.task_data import Definition, definition_of
from monitors.measurements.tasks import Agreement, Infeasible, Schedule, Slot, Task
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.schema import adapter
from network_provisioner.topology.graph import Topology

_MOST_ARRIVALS = 20  # at a start: more are planned anew, all at once


@dataclass(frozen=True, slots=True)
class RegisteredTask:
    """A task of the registry. ``kept`` is what somebody added, None where the configuration has it;
    ``problem`` says why it is in no schedule, "" where it is."""

    definition: Definition
    body: Mapping[str, Any]
    kept: KeptTask | None = None
    problem: str = ""

    @property
    def task(self) -> Task:
        """As the schedule has it."""
        return self.definition.task


@dataclass(frozen=True, slots=True)
class ScheduleChange:
    """What a change of the registry means for runs: tasks that are ``gone`` as they were, those
    that were ``added`` or are other ones now, and whether slots of others ``moved``."""

    gone: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    moved_tasks: bool = False


class TaskRegistry:
    """Not for several threads at once."""

    def __init__(
        self,
        members: Mapping[str, RegisteredAgent],
        topology: Topology,
        agreement: Agreement,
        fixed: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """``fixed`` are the tasks of the configuration; nothing is scheduled before
        :meth:`restore`. Raises InputError for one that cannot be meant."""
        self._members, self.topology = members, topology
        self.agreement = agreement
        self._entries: dict[str, RegisteredTask] = {}
        for name, body in fixed.items():
            self._entries[name] = RegisteredTask(definition_of(name, body, topology, members), body)
        self._set(Schedule(1, ()))

    def restore(self, kept: Mapping[str, KeptTask], saved: Any) -> ScheduleChange:
        """Take up tasks that were added, and the schedule that an earlier process had, None where
        there was none. What was added and no longer can be (its agent is gone, there is no room)
        stays in the registry with its problem. Raises Infeasible where those of the configuration
        do not fit all together, naming them."""
        for name, kept_task in kept.items():
            if name not in self._entries:
                self._entries[name] = self._revived(name, kept_task)
        before: dict[str, Task] = {}
        if saved is not None and saved["agreement"] == _fingerprint(self.agreement):
            before = {
                task.name: task for task in adapter(list[Task]).validate_python(saved["tasks"])
            }
        tasks = {task.name: task for task in self.tasks()}
        unchanged = {name for name in before if tasks.get(name) == before[name]}
        gone = tuple(sorted(before.keys() - unchanged))
        news = [task for name, task in tasks.items() if name not in unchanged]
        if not before or len(news) > _MOST_ARRIVALS:
            self._plan_all()
            return ScheduleChange(gone, (), moved_tasks=saved is not None)
        schedule = _saved_schedule(saved)
        for name in gone:
            schedule = leave(schedule, name)
        self._set(schedule)
        settled = [tasks[name] for name in sorted(unchanged)]
        kept_places = True
        for task in news:
            try:
                kept_places &= self._arrives(settled, task)
                settled.append(task)
            except Infeasible:
                self._plan_all()
                return ScheduleChange(gone, (), moved_tasks=True)
        return ScheduleChange(gone, tuple(task.name for task in news), not kept_places)

    # -- reading -----------------------------------------------------------------------------

    @property
    def schedule(self) -> Schedule:
        """The schedule of all tasks without a problem."""
        return self._schedule

    def tasks(self) -> list[Task]:
        """The tasks in the schedule."""
        return [entry.task for entry in self.entries() if not entry.problem]

    def entries(self) -> list[RegisteredTask]:
        """All, in the order of their names."""
        return [self._entries[name] for name in sorted(self._entries)]

    def find(self, name: str) -> RegisteredTask | None:
        """One, or None."""
        return self._entries.get(name)

    def get(self, name: str) -> RegisteredTask:
        """One. Raises BrokerError ``unknown_task``."""
        if name not in self._entries:
            raise BrokerError(f"there is no measurement task {name!r:.110}", "unknown_task")
        return self._entries[name]

    def define(self, name: str, body: Mapping[str, Any], once: bool = False) -> Definition:
        """A task, checked, and not in the registry; ``once``: of one run. Raises InputError."""
        return definition_of(name, body, self.topology, self._members, once)

    def saved(self) -> dict[str, Any]:
        """The schedule and its tasks as JSON, for :meth:`restore`."""
        return {
            "agreement": _fingerprint(self.agreement),
            "tasks": adapter(list[Task]).dump_python(self.tasks(), mode="json"),
            "hyperperiod_ms": self._schedule.hyperperiod_ms,
            "slots": [
                [s.start_ms, s.end_ms, s.task, s.number, s.release_ms, s.deadline_ms]
                for s in self._schedule.slots
            ],
        }

    # -- changing ----------------------------------------------------------------------------

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Restores the registry if the block fails."""
        before = dict(self._entries), self._schedule
        try:
            yield
        except BaseException:
            self._entries = before[0]
            self._set(before[1])
            raise

    def put(self, definition: Definition, kept: KeptTask) -> ScheduleChange:
        """Add a task or replace one that was added. Raises Infeasible, and BrokerError ``conflict``
        for one of the configuration; then all stays as it was."""
        name, task = definition.name, definition.task
        before = self._changeable(name)
        entry = RegisteredTask(definition, kept.body, kept)
        if before is not None and before.task == task and not before.problem:
            self._entries[name] = entry
            changed = before.definition != definition
            return ScheduleChange((name,), (name,)) if changed else ScheduleChange()
        was = self._schedule
        if before is not None and not before.problem:
            self._set(leave(was, name))
        try:
            stays = self._arrives([t for t in self.tasks() if t.name != name], task)
        except InputError:
            self._set(was)
            raise
        self._entries[name] = entry
        return ScheduleChange(() if before is None else (name,), (name,), moved_tasks=not stays)

    def delete(self, name: str) -> ScheduleChange:
        """Take a task away. Raises BrokerError ``unknown_task``, and ``conflict`` for one of the
        configuration."""
        self.get(name)
        before = self._changeable(name)
        del self._entries[name]
        if before is not None and not before.problem:
            self._set(leave(self._schedule, name))
        return ScheduleChange((name,))

    # -- within ------------------------------------------------------------------------------

    def _changeable(self, name: str) -> RegisteredTask | None:
        before = self._entries.get(name)
        if before is not None and before.kept is None:
            raise BrokerError(
                f"measurement task {name!r} is configured in adon.yml, expected an added one: "
                "change it there and restart the broker",
                "conflict",
            )
        return before

    def _revived(self, name: str, kept_task: KeptTask) -> RegisteredTask:
        try:
            return RegisteredTask(self.define(name, kept_task.body), kept_task.body, kept_task)
        except InputError as error:
            tool = TOOLS.get(str(kept_task.body.get("tool")), TOOLS["host"])
            src, dst = (str(kept_task.body.get(key) or "") for key in ("from", "to"))
            never = Definition(tool, src, dst, "", {}, Task(name, 1, 1, 1))
            return RegisteredTask(never, kept_task.body, kept_task, str(error))

    def _plan_all(self) -> None:
        """All of the configuration, which fits; then what was added, one by one."""
        fixed = [e.task for e in self.entries() if e.kept is None]
        added = [e for e in self.entries() if e.kept is not None and not e.problem]
        try:
            self._set(plan([*fixed, *(e.task for e in added)], self.agreement))
            return
        except InputError:
            self._set(plan(fixed, self.agreement))
        for entry in added:
            try:
                self._arrives(fixed, entry.task)
                fixed.append(entry.task)
            except InputError as error:
                self._entries[entry.task.name] = replace(entry, problem=str(error))

    def _arrives(self, others: Sequence[Task], task: Task) -> bool:
        """Insert a task; whether no other moved. Raises InputError, also Infeasible, and then
        changes nothing."""
        before = self._schedule
        self._set(arrive(before, others, self.agreement, task))
        return not moved_tasks(before, self._schedule)

    def _set(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.recurring = Recurring(schedule)


def _fingerprint(agreement: Agreement) -> str:
    text = json.dumps(
        [
            sorted([*link, bps] for link, bps in agreement.links.items()),
            sorted((name, sorted(links)) for name, links in agreement.domains.items()),
            sorted(agreement.domain_bps.items()),
            sorted(agreement.at_once.items()),
        ]
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _saved_schedule(saved: Any) -> Schedule:
    slots = (Slot(*item) for item in saved["slots"])
    return Schedule(int(saved["hyperperiod_ms"]), tuple(slots))
