"""Tasks that arrive and leave, and runs on demand, beside a schedule that is under way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.schedule.checking import verify
from monitors.schedule.model import Agreement, Infeasible, Schedule, Slot, Task
from monitors.schedule.online import arrive, leave, moved, repeated, squeeze
from monitors.schedule.planning import plan
from network_provisioner.errors import InputError
from tests.unit.schedule_world import agreements, between, conflicting, tasks, within

FREE = Agreement()


@given(tasks(), agreements)
@settings(max_examples=50)
def test_arrivals_one_by_one_keep_to_everything(found: list[Task], agreement: Agreement) -> None:
    there: list[Task] = []
    schedule = Schedule(1, ())
    for task in found:
        try:
            after = arrive(schedule, there, agreement, task)
        except Infeasible as error:
            assert error.tasks == (task.name,)
            continue
        there.append(task)
        assert verify(there, agreement, after) == []
        assert set(moved(schedule, after)) < {other.name for other in there}
        schedule = after
    for task in there[::2]:
        schedule = leave(schedule, task.name)
    assert verify(there[1::2], agreement, schedule) == []


@given(tasks(), agreements)
@settings(max_examples=50)
def test_nothing_moves_where_the_gaps_are_enough(found: list[Task], agreement: Agreement) -> None:
    try:
        schedule = plan(found, agreement)
    except Infeasible:
        return
    for task in found:
        others = [other for other in found if other != task]
        after = arrive(leave(schedule, task.name), others, agreement, task)
        if moved(schedule, after):  # its own place was there again
            assert moved(schedule, after) == (task.name,)


def test_a_longer_hyperperiod_repeats_what_was() -> None:
    first, second = between("first", "a", "d", period=20), between("second", "a", "d", period=30)
    before = plan([first], FREE)
    after = arrive(before, [first], FREE, second)
    assert (before.hyperperiod_ms, after.hyperperiod_ms) == (20, 60)
    assert moved(before, after) == ()
    assert verify([first, second], FREE, after) == []
    assert leave(after, "second") == repeated(before, 60)


def test_slots_move_only_where_it_cannot_be_helped() -> None:
    """Two short runs stand where only moving one makes room for a long one."""
    short = [Task(f"short{n}", 30, 5, 30, frozenset("a")) for n in range(2)]
    apart = Schedule(30, (Slot(5, 10, "short0", 0, 0, 30), Slot(15, 20, "short1", 0, 0, 30)))
    long = Task("long", 30, 20, 30, frozenset("a"))
    after = arrive(apart, short, FREE, long)
    assert verify([*short, long], FREE, after) == []
    assert moved(apart, after)
    with pytest.raises(Infeasible, match="'long' cannot fit beside the others") as caught:
        arrive(apart, short, FREE, replace(long, duration_ms=21))
    assert caught.value.tasks == ("long",)


@given(tasks(), agreements, st.data())
@settings(max_examples=60)
def test_runs_on_demand_disturb_nobody(
    found: list[Task], agreement: Agreement, data: st.DataObject
) -> None:
    """Every instant looked at, against the schedule repeated for ever."""
    try:
        schedule = plan(found, agreement)
    except Infeasible:
        return
    by_name = {task.name: task for task in found}
    taken: list[tuple[Task, Slot]] = []
    for number in range(3):
        links = data.draw(st.sets(st.sampled_from(sorted({x for t in found for x in t.links})))
                          if any(t.links for t in found) else st.just(set()))  # fmt: skip
        hosts = data.draw(st.sets(st.sampled_from("abcde"), max_size=2))
        duration, now = data.draw(st.integers(1, 8)), data.draw(st.integers(0, 200))
        request = Task(f"t{number}", 1, duration, 1, frozenset(hosts), frozenset(links), 1.25)
        try:
            slot = squeeze(schedule, found, agreement, request, now, now + 80, taken)
        except Infeasible:
            continue
        assert now <= slot.start_ms
        assert slot.end_ms == slot.start_ms + duration <= now + 80
        taken.append((request, slot))
    for request, slot in taken:
        for at in range(slot.start_ms, slot.end_ms):
            running = [
                by_name[s.task]
                for s in schedule.slots
                if (at - s.start_ms) % schedule.hyperperiod_ms < s.end_ms - s.start_ms
            ]
            running += [t for t, s in taken if s.start_ms <= at < s.end_ms and s is not slot]
            assert not any(conflicting(request, other) for other in running)
            assert within(agreement, [request, *running])


def test_a_run_on_demand_takes_the_first_gap_or_says_that_there_is_none() -> None:
    regular = Task("regular", 10, 6, 10, frozenset("a"))
    schedule = plan([regular], FREE)
    request = Task("now", 1, 4, 1, frozenset("a"))
    assert squeeze(schedule, [regular], FREE, request, 1003, 1100).start_ms == 1006
    first = squeeze(schedule, [regular], FREE, request, 1006, 1100)
    again = squeeze(schedule, [regular], FREE, request, 1006, 1100, [(request, first)])
    assert (first.start_ms, again.start_ms) == (1006, 1016)
    elsewhere = replace(request, hosts=frozenset("b"))
    assert squeeze(schedule, [regular], FREE, elsewhere, 1003, 1100).start_ms == 1003
    for duration, until, words in ((5, 10**12, "takes 0.005 s"), (4, 1012, "within 0.005 s")):
        with pytest.raises(Infeasible, match=words) as caught:
            squeeze(schedule, [regular], FREE, replace(request, duration_ms=duration), 1007, until)
        assert caught.value.tasks == ("now",)
    with pytest.raises(InputError, match="takes 0 ms"):
        squeeze(schedule, [regular], FREE, replace(request, duration_ms=0), 1007, 1012)


def test_what_was_squeezed_in_may_overlap_a_schedule_that_changed_since() -> None:
    """It is in the way all the same, and what follows it is free."""
    regular = Task("regular", 10, 6, 10, frozenset("a"))
    schedule = plan([regular], FREE)
    before = Task("before", 1, 8, 1, frozenset("a")), Slot(3, 11, "before", 0, 3, 11)
    request = Task("now", 1, 4, 1, frozenset("a"))
    assert squeeze(schedule, [regular], FREE, request, 0, 60, [before]).start_ms == 16
