"""One run more, on demand: where nobody is disturbed, or where others, of whom nobody was told yet,
move out of its way this once.

A slot that moves becomes a run at once, at its new instant: so it stands in the store, is in nobody
else's way, and its release is not made a second time where its slot is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from monitors.centre.agenda import LEAD_MS, LONGEST_WAIT_MS, NOTHING, Agenda, as_taken, taken_back
from monitors.centre.book import Book
from monitors.centre.definition import Definition
from monitors.centre.roll import Roll
from monitors.centre.run import Run, State
from monitors.centre.store import MeasuringStore
from monitors.schedule.model import Infeasible, Slot, Task
from monitors.schedule.online import squeeze
from monitors.schedule.room import Elsewhere, make_room
from network_provisioner.errors import BrokerError, InputError

_AT_ONCE = 10  # slots that are given another time in one turn
_log = logging.getLogger(__name__)


class Demands:
    """Changes an agenda. Not for several threads at once."""

    def __init__(self, agenda: Agenda, book: Book, roll: Roll, store: MeasuringStore) -> None:
        self._agenda, self._book, self._roll, self._store = agenda, book, roll, store

    def demand(
        self, definition: Definition, task: Task, by: str, now_ms: int, within_ms: int
    ) -> Run:
        """One run more, as early as it disturbs nobody, over ``within_ms`` from now.

        Raises BrokerError ``conflict`` where an agent is away or there is no room.
        """
        for agent in definition.agents:
            why = self._roll.away(agent, now_ms / 1000)
            if not why and self._roll.lacks(agent, definition.tool.name):
                why = f"agent {agent!r} says that it cannot use {definition.tool.name} now"
            if why:
                raise BrokerError(f"{why}; nothing was started", "conflict")
        # Among what are runs already, and stay; where these leave no room, among what comes then.
        self._agenda.extend(now_ms)
        until_ms, moved = now_ms + within_ms, list[Slot]()
        try:
            try:
                slot = self._room(task, now_ms, min(until_ms, self._agenda.until_ms))
            except Infeasible:
                if until_ms <= self._agenda.until_ms:
                    raise
                slot, moved = self._room_made(task, now_ms + LEAD_MS, until_ms)
            run = self._agenda.new(definition, task, slot.start_ms, slot.end_ms, slot.start_ms, by)
            others = self._where_they_are_now(moved, f"moved for {run.id}")
        except InputError as error:
            raise BrokerError(f"{error}; nothing was started", "conflict") from None
        self._agenda.diary.write([run, *others])
        if moved:
            _log.info("%d measurements move once to make room for %s", len(moved), run.id)
        return run

    def settle(self, now_ms: int) -> None:
        """Slots that found something in their place are made at another time of their windows: the
        schedule was changed, and does not know of runs on demand. To be called again: of many, the
        rest waits, so that nobody else has to."""
        waiting = self._agenda.without_room
        slots, self._agenda.without_room = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
        for slot in slots:
            entry = self._book.find(slot.task)
            if entry is None or self._made(slot):
                continue
            since_ms = max(slot.release_ms, now_ms + LEAD_MS)
            until_ms = min(slot.deadline_ms, since_ms + LONGEST_WAIT_MS)
            try:
                found, moved = self._room_made(entry.task, since_ms, until_ms, slot)
                times = found.start_ms, found.end_ms, slot.release_ms
                run = self._agenda.new(entry.definition, entry.task, *times, "")
                others = self._where_they_are_now(moved, f"moved for {run.id}")
            except InputError as error:
                _log.warning("measurement %s is left out once: %s", slot.task, error)
                continue
            self._agenda.diary.write([run, *others])

    def moved(self, now_ms: int) -> list[tuple[Run, Slot]]:
        """The schedule's runs to come that are not where their slots are, and those slots."""
        to_come = sorted(self._agenda.to_come(now_ms), key=lambda run: (run.at_ms, run.id))
        return list(self._elsewhere(to_come))

    def following(self, now_ms: int) -> Callable[[str], int | None]:
        """When a task is made next."""
        all_moved = self._elsewhere(self._agenda.diary.all())
        elsewhere = {(run.task, run.release_ms) for run, _ in all_moved}
        moved: dict[str, list[int]] = {}
        for run, _ in self.moved(now_ms):
            moved.setdefault(run.task, []).append(run.at_ms)

        def next_of(task: str) -> int | None:
            mine = moved.get(task, ())
            slot = self._book.recurring.next_of(task, now_ms)
            while slot is not None and (task, slot.release_ms) in elsewhere:
                slot = self._book.recurring.next_of(task, slot.start_ms + 1)
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
        return self._book.recurring.of_release(run.task, run.release_ms)

    def _room(self, task: Task, now_ms: int, until_ms: int) -> Slot:
        """Raises Infeasible."""
        taken = [as_taken(run) for run in self._agenda.occupying(now_ms, {})]
        since = now_ms + LEAD_MS
        return squeeze(NOTHING, (), self._book.agreement, task, since, until_ms, taken)

    def _room_made(
        self, task: Task, since_ms: int, until_ms: int, own: Slot | None = None
    ) -> tuple[Slot, list[Slot]]:
        """The same where others of the schedule may move that are not runs yet, or that nobody was
        told of; and those, where they are then. ``own``: a slot that it is made for."""
        fixed: list[tuple[Task, Slot]] = []
        elsewhere = [] if own is None else [Elsewhere(own.task, own.release_ms, None)]
        occupying = {run.id for run in self._agenda.occupying(since_ms, {})}
        for run in self._agenda.diary.all():
            slot = self._slot_of(run)
            if slot is not None and slot.start_ms == run.at_ms:
                continue
            may_move = slot is not None and self._may_move(run)
            if slot is not None:
                at = run.at_ms if may_move else None
                elsewhere.append(Elsewhere(run.task, run.release_ms, at))
            if run.id in occupying and not may_move:
                fixed.append(as_taken(run))
        frozen_ms, standing = self._agenda.until_ms, self._book.standing
        return make_room(standing, task, since_ms, until_ms, frozen_ms, fixed, elsewhere)

    def _may_move(self, run: Run) -> bool:
        """Nobody was told of it, nor is it about to be."""
        return (
            run.at_ms >= self._agenda.until_ms
            and run.state is State.PLANNED
            and not any(part.told for part in run.parts)
        )

    def _made(self, slot: Slot) -> bool:
        return self._store.has_release(slot.task, slot.release_ms, self._agenda.anew)

    def _where_they_are_now(self, slots: Iterable[Slot], why: str) -> list[Run]:
        """Runs of slots that moved, and what they replace. Raises InputError."""
        before = {
            (run.task, run.release_ms): run
            for run in self._agenda.diary.all()
            if not run.demanded and self._may_move(run)
        }
        found = []
        for slot in slots:
            old = before.get((slot.task, slot.release_ms))
            if old is not None:
                found.append(taken_back(old, why))
            elif self._made(slot):
                continue  # under another schedule
            entry = self._book.get(slot.task)
            times = slot.start_ms, slot.end_ms, slot.release_ms
            found.append(self._agenda.new(entry.definition, entry.task, *times, ""))
        return found
