"""Runs on demand for which others move: every instant looked at, whatever was moved before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.schedule.model import Agreement, Infeasible, Schedule, Slot, Task
from monitors.schedule.planning import plan
from monitors.schedule.room import Elsewhere, make_room
from monitors.schedule.standing import Standing
from network_provisioner.errors import InputError
from tests.unit.schedule_world import agreements, conflicting, tasks, within

FREE = Agreement()
END = 400
"""Instants up to here are looked at."""


class World:
    """A schedule that repeats, the runs that are not where their slots are, and those on demand."""

    def __init__(self, schedule: Schedule, found: list[Task], agreement: Agreement) -> None:
        self.schedule, self.agreement = schedule, agreement
        self.tasks = {task.name: task for task in found}
        self.standing = Standing(schedule, found, agreement)
        self.moved: dict[tuple[str, int], int] = {}
        self.demanded: list[tuple[Task, Slot]] = []

    def starts(self) -> dict[tuple[str, int], int]:
        """Of every release."""
        whole = self.schedule.hyperperiod_ms
        regular = {
            (slot.task, slot.release_ms + turn): slot.start_ms + turn
            for turn in range(-whole, END + 1, whole)
            for slot in self.schedule.slots
        }
        return regular | self.moved

    def demand(self, request: Task, now: int, until: int, frozen: int) -> tuple[Slot, list[Slot]]:
        """Where it can run, and what moves for it; nothing is changed."""
        starts = self.starts()
        fixed = [*self.demanded]
        elsewhere = []
        for (name, release), at in self.moved.items():
            stays = at < frozen
            elsewhere.append(Elsewhere(name, release, None if stays else at))
            if stays:
                slot = Slot(at, at + self.tasks[name].duration_ms, name, 0, release, release + 1)
                fixed.append((self.tasks[name], slot))
        found = make_room(self.standing, request, now, until, frozen, fixed, elsewhere)
        assert found == make_room(self.standing, request, now, until, frozen, fixed, elsewhere)
        for slot in found[1]:
            task = self.tasks[slot.task]
            before = starts[slot.task, slot.release_ms]
            assert before >= frozen and slot.start_ms >= frozen and slot.start_ms != before
            assert slot.release_ms <= slot.start_ms
            assert slot.end_ms == slot.start_ms + task.duration_ms
            assert slot.end_ms <= slot.deadline_ms == slot.release_ms + task.deadline_ms
        return found

    def running(self, at: int) -> Iterator[Task]:
        """Everything that is under way."""
        for (name, _), start in self.starts().items():
            if start <= at < start + self.tasks[name].duration_ms:
                yield self.tasks[name]
        yield from (task for task, slot in self.demanded if slot.start_ms <= at < slot.end_ms)


@given(tasks(), agreements, st.data())
@settings(max_examples=120, deadline=None)
def test_nobody_is_disturbed_and_nobody_leaves_its_window(
    found: list[Task], agreement: Agreement, data: st.DataObject
) -> None:
    try:
        world = World(plan(found, agreement), found, agreement)
    except Infeasible:
        return
    now = 0
    for number in range(3):
        hosts = data.draw(st.sets(st.sampled_from("abcde"), max_size=2))
        links = data.draw(st.sets(st.sampled_from(sorted({x for t in found for x in t.links})))
                          if any(t.links for t in found) else st.just(set()))  # fmt: skip
        duration = data.draw(st.integers(1, 9))
        now += data.draw(st.integers(0, 40))
        frozen, until = now + data.draw(st.integers(0, 20)), now + data.draw(st.integers(1, 80))
        request = Task(f"now{number}", 1, duration, 1, frozenset(hosts), frozenset(links), 1.25)
        try:
            slot, moved = world.demand(request, now, until, frozen)
        except Infeasible:
            continue
        assert now <= slot.start_ms
        assert slot.end_ms == slot.start_ms + duration <= until
        world.moved |= {(m.task, m.release_ms): m.start_ms for m in moved}
        world.demanded.append((request, slot))
    for at in range(END):
        running = list(world.running(at))
        assert within(agreement, running)
        for n, one in enumerate(running):
            assert not any(conflicting(one, other) for other in running[n + 1 :])


REGULAR = Task("regular", 60, 40, 60, frozenset("a"))
REQUEST = Task("now", 1, 10, 1, frozenset("a"))


def test_a_run_moves_only_as_long_as_nobody_knows_of_it() -> None:
    standing = Standing(plan([REGULAR], FREE), [REGULAR], FREE)  # 0 to 40, 60 to 100, ...
    assert make_room(standing, REQUEST, 0, 60, 60)[0].start_ms == 40
    slot, moved = make_room(standing, REQUEST, 57, 80, 60)
    assert (slot.start_ms, moved) == (57, [Slot(67, 107, "regular", 0, 60, 120)])
    for frozen in (61, 200):
        with pytest.raises(Infeasible, match=r"'now' .*also where others move") as caught:
            make_room(standing, REQUEST, 57, 80, frozen)
        assert caught.value.tasks == ("now",)
    with pytest.raises(InputError, match="takes 0 ms"):
        make_room(standing, replace(REQUEST, duration_ms=0), 57, 80, 60)


def test_who_is_in_the_way_moves_on_in_a_chain() -> None:
    """The short one has to go where the long one is, which has time."""
    short = Task("short", 60, 10, 20, frozenset("a"))
    long = Task("long", 60, 20, 60, frozenset("a"))
    schedule = Schedule(60, (Slot(0, 10, "short", 0, 0, 20), Slot(10, 30, "long", 0, 0, 60)))
    standing = Standing(schedule, [short, long], FREE)
    slot, moved = make_room(standing, REQUEST, 60, 70, 60)
    assert slot.start_ms == 60
    assert [m.task for m in moved] == ["short", "long"]
    assert moved[0].start_ms == 70 and moved[1].start_ms >= 80


def test_what_is_elsewhere_or_done_leaves_its_place_free() -> None:
    standing = Standing(plan([REGULAR], FREE), [REGULAR], FREE)
    gone = [Elsewhere("regular", 60, None)]
    assert make_room(standing, REQUEST, 60, 70, 60, (), gone) == (
        Slot(60, 70, "now", 0, 60, 70),
        [],
    )
    there = [Elsewhere("regular", 60, 75)]
    slot, moved = make_room(standing, REQUEST, 60, 90, 60, (), there)
    assert (slot.start_ms, moved) == (60, [])
    slot, moved = make_room(standing, replace(REQUEST, duration_ms=20), 60, 90, 60, (), there)
    assert slot.start_ms == 60 and [m.start_ms for m in moved] == [80]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("frozen_ms", [950_000, 1_300_000])
def test_one_that_moved_may_stand_where_another_was(turned: bool, frozen_ms: int) -> None:
    """In whichever order they are told."""
    whole, host = 3_600_000, frozenset({"h"})

    def task(name: str, duration_ms: int) -> Task:
        return Task(name, whole, duration_ms, whole, host)

    def slot(task: Task, at: int) -> Slot:
        return Slot(at, at + task.duration_ms, task.name, 0, 0, whole)

    a, b = task("a", 60_000), task("b", 60_000)
    standing = Standing(Schedule(whole, (slot(b, 1_000_000), slot(a, 1_100_000))), [a, b],
                        Agreement())  # fmt: skip
    others = [(task("d", 60_000), 1_000_000), (task("e", 100_000), 900_000)]
    fixed = [(one, slot(one, at)) for one, at in others]
    elsewhere = [Elsewhere("b", 0, 1_100_000), Elsewhere("a", 0, 1_200_000)]
    found, moved = make_room(standing, task("r", 60_000), 900_000, 1_700_000, frozen_ms, fixed,
                             elsewhere[::-1] if turned else elsewhere)  # fmt: skip
    at = {"b": 1_100_000, "a": 1_200_000, **{one.task: one.start_ms for one in moved}}
    taken = sorted([found.start_ms, *at.values(), *(at for _, at in others)])
    ends = {900_000: 1_000_000}
    for one, following in pairwise(taken):
        assert ends.get(one, one + 60_000) <= following


def test_one_whose_slot_has_passed_is_in_the_way_where_it_is() -> None:
    whole, host = 3_600_000, frozenset({"h"})
    busy = Task("busy", whole, 600_000, whole, host)
    standing = Standing(Schedule(whole, (Slot(0, 600_000, "busy", 0, 0, whole),)), [busy],
                        Agreement())  # fmt: skip
    request = Task("r", 300_000, 300_000, 300_000, host)
    elsewhere = [Elsewhere("busy", 0, 1_300_000)]
    found, _ = make_room(standing, request, 1_200_000, 2_600_000, 1_250_000, (), elsewhere)
    assert found.start_ms >= 1_900_000
