"""Room for a run on demand where the schedule leaves none: other runs move, this once.

Only runs that nobody was told of yet move, and within their own windows; the schedule that repeats
stays as it is. The run takes the place that does least harm of those that come first, and whoever
is in its way is placed anew (:mod:`monitors.schedule.repair`). How much is tried is bounded by
numbers, not by time, so that the same question has the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from monitors.schedule.model import Infeasible, Slot, Task
from monitors.schedule.online import later
from monitors.schedule.repair import Repair, Taken, Windows
from monitors.schedule.runs import NOT, Run
from monitors.schedule.standing import Standing
from monitors.schedule.timetable import Timetable
from monitors.schedule.work import Work, joined, seconds

STARTS = 24
"""Starts of a run on demand that are tried, ..."""
OF_THEM = 3
"""... of those that are no further apart than ..."""
TOGETHER_MS = 20_000
"""... this: there the least harmful are tried, not the first."""
PLACED = 60
"""Runs that are placed anew in all tries."""
LOOKED_AT = 24
"""Starts that are looked at for each of them."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A run of the schedule that does not start where its slot is, but at ``start_ms``; None: it
    will not be made, or was already."""

    task: str
    release_ms: int
    start_ms: int | None


def make_room(
    standing: Standing,
    request: Task,
    since_ms: int,
    until_ms: int,
    frozen_ms: int,
    fixed: Sequence[tuple[Task, Slot]] = (),
    elsewhere: Iterable[Elsewhere] = (),
) -> tuple[Slot, list[Slot]]:
    """A time from ``since_ms`` on at which ``request`` can run once, over by ``until_ms``; and the
    slots that move for it, where they are then.

    Instants are those of the schedule, which began at 0 and repeats for ever. Nothing moves that
    starts before ``frozen_ms``, nothing to before that, and no run leaves its window. ``fixed`` are
    runs beside the schedule, which stay. Of ``request`` the period, deadline and offset do not
    count. Raises Infeasible naming the request where no room was found, and InputError for what
    cannot be meant.
    """
    # Twice as long: what is in the way at the end has somewhere to go.
    standing = standing.for_at_least(2 * (until_ms - since_ms))
    whole = standing.work.hyperperiod_ms
    first_ms = since_ms // whole * whole  # where the hyperperiod began that it begins in
    moved_ones: list[tuple[Run, int | None]] = []
    beside = list(fixed)
    for one in elsewhere:
        run = _ahead_of(standing, one.task, one.release_ms - first_ms, since_ms - first_ms)
        if run is not None:
            moved_ones.append((run, one.start_ms))
        elif one.start_ms is not None:  # its slot has passed, or is not near yet, but not itself
            task = standing.work.tasks[standing.number[one.task]]
            end_ms = one.start_ms + task.duration_ms
            beside.append((task, Slot(one.start_ms, end_ms, one.task, 0, one.release_ms, end_ms)))
    once = [
        Task(f" {n}", task.duration_ms, task.duration_ms, task.duration_ms, task.hosts, task.links,
             task.load_bps)
        for n, task in enumerate((request, *(task for task, _ in beside)))
    ]  # fmt: skip
    work = joined(standing.work, once, standing.agreement)
    ahead = _Ahead(work, standing, since_ms - first_ms, frozen_ms - first_ms)
    # All are taken out before any is put back: one may be where another was.
    for run, _ in moved_ones:
        ahead.take_out(run)
    for run, start_ms in moved_ones:
        if start_ms is not None:
            ahead.stands_elsewhere(run, start_ms - first_ms)
    for n, (_, slot) in enumerate(beside, 1):
        if slot.end_ms > since_ms and slot.start_ms < since_ms + whole:
            ahead.stays((len(standing.number) + n, 0), slot.start_ms - first_ms)
    start, moved = ahead.squeezed((len(standing.number), 0), until_ms - first_ms)
    if start == NOT:
        raise Infeasible(
            f"measurement {request.name!r} takes {seconds(request.duration_ms)}, and found no room "
            f"within {seconds(until_ms - since_ms)}, also where others move",
            (request.name,),
        )
    at = first_ms + start
    found = Slot(at, at + request.duration_ms, request.name, 0, since_ms, until_ms)
    return found, [later(slot, first_ms, slot.number) for slot in moved]


def _ahead_of(standing: Standing, name: str, release: int, since: int) -> Run | None:
    """The run of a task's release in the hyperperiod that begins at ``since``; None where it is in
    another one."""
    index, whole = standing.number[name], standing.work.hyperperiod_ms
    task = standing.work.tasks[index]
    run = index, (release - task.offset_ms) // task.period_ms % (whole // task.period_ms)
    if run not in standing.starts:
        return None
    own = Windows(standing.work).of(run)[0] + standing.later_ms(run, since)
    return run if own == release else None


class _Ahead(Windows):
    """The hyperperiod that begins at ``since``: each run of the schedule is there once. Instants
    from the beginning of the one before, so that they are less than two of it."""

    def __init__(self, work: Work, standing: Standing, since: int, frozen: int) -> None:
        super().__init__(work)
        self._standing, self._since, self._frozen = standing, since, frozen
        self._end = since + work.hyperperiod_ms
        self._at: dict[Run, int] = {}  # of those that are elsewhere
        self._stay: set[Run] = set()
        self._table = Timetable(work, standing)
        self._starts = dict(standing.starts)
        self._repair = Repair(self._table, self._starts, self, self._taken, LOOKED_AT)
        self._windows: dict[Run, tuple[int, int]] = {}

    def of(self, run: Run) -> tuple[int, int]:
        """As far as it is ahead, and may be changed."""
        found = self._windows.get(run)
        if found is None:
            release, last = self._window(run)
            until = self._end - self.work.tasks[run[0]].duration_ms
            found = self._windows[run] = max(release, self._frozen), min(last, until)
        return found

    def may_move(self, run: Run) -> bool:
        """Whether it is one of the schedule, and not frozen."""
        if run[0] >= len(self._standing.number) or run in self._stay:
            return False
        first, last = self.of(run)
        return first <= self._at.get(run, self._regular(run)) <= last

    def take_out(self, run: Run) -> None:
        """It is not where its slot is."""
        self._repair.take_out(run)

    def stands_elsewhere(self, run: Run, start: int) -> None:
        """Where one that was taken out is."""
        if self._since <= start < self._end:
            self._at[run] = start
            self.stays(run, start, only_if_in_the_way=True)

    def stays(self, run: Run, start: int, only_if_in_the_way: bool = False) -> None:
        """It is there; nothing that it overlaps with moves, because what is given up must be free
        then."""
        others = self._repair.on_the_same(run, start)
        self._stay |= others
        if others or not only_if_in_the_way:
            self._stay.add(run)
        self._repair.put(run, start)

    def squeezed(self, run: Run, until: int) -> tuple[int, list[Slot]]:
        """The start of a run on demand, over by ``until``, and the slots that move for it."""
        before = self._repair.changes()
        last = min(until, self._end) - self.work.tasks[run[0]].duration_ms
        gap = self._table.earliest(run[0], self._since, last) if last >= self._since else NOT
        tried = placed = 0
        starts = self._repair.candidates(run, self._since, last)
        for turn, group in groupby(starts, lambda at: (at - self._since) // TOGETHER_MS):
            if tried >= STARTS or placed >= PLACED or NOT < gap <= self._since + turn * TOGETHER_MS:
                break
            for _, at, others in sorted(self._repair.disturbances(run, group))[:OF_THEM]:
                tried += 1
                for other in others:
                    self._repair.take_out(other)
                self._repair.put(run, at)
                count = self._repair.changes()
                left = self._repair.place(others, PLACED - placed)
                placed += self._repair.changes() - count
                if not left:
                    return at, self._moved(self._repair.touched(before) - {run})
                self._repair.undo(before)
        return gap, []

    def _moved(self, runs: Iterable[Run]) -> list[Slot]:
        found = []
        for run in runs:
            at, task = self._starts[run], self.work.tasks[run[0]]
            if at != self._at.get(run, self._regular(run)):
                release = self._window(run)[0]
                times = release, release + task.deadline_ms
                found.append(Slot(at, at + task.duration_ms, task.name, run[1], *times))
        return sorted(found)

    def _regular(self, run: Run) -> int:
        """When its slot starts."""
        return self._standing.starts[run] + self._standing.later_ms(run, self._since)

    def _window(self, run: Run) -> tuple[int, int]:
        """Without regard to what is frozen."""
        release, last = super().of(run)
        later_ms = self._standing.later_ms(run, self._since)
        return release + later_ms, last + later_ms

    def _taken(self, place: int) -> Taken:
        domain = place - len(self.work.resources)
        return self._standing.within(domain) if domain >= 0 else self._standing.on(place)
