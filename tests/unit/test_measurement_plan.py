"""Schedules of measurements: without conflicts, within deadlines and the agreement."""

from __future__ import annotations

import math
import random
from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.schedule.bounds import bound
from monitors.schedule.checking import verify
from monitors.schedule.edf import edf_ce, sweep
from monitors.schedule.model import Agreement, Infeasible, Schedule, Slot, Task
from monitors.schedule.planning import place, plan
from monitors.schedule.repair import Repair, Windows
from monitors.schedule.runs import Run, by_deadline, by_task, schedule_of, tightest
from monitors.schedule.timetable import Timetable
from monitors.schedule.usage import usage
from monitors.schedule.work import MOST_RUNS, Work, work_of
from network_provisioner.errors import InputError
from tests.unit.schedule_world import (
    agreements,
    algorithm_1,
    between,
    conflicting,
    tasks,
    within,
)

FREE = Agreement()


@given(tasks(), agreements, st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_any_plan_keeps_to_everything_whatever_the_order(
    found: list[Task], agreement: Agreement, rng: random.Random
) -> None:
    try:
        schedule = plan(found, agreement)
    except Infeasible as error:
        assert error.tasks
        assert set(error.tasks) <= {task.name for task in found}
        return
    assert verify(found, agreement, schedule) == []
    rng.shuffle(found)
    assert plan(found, agreement) == schedule


@given(tasks(), agreements)
@settings(max_examples=50)
def test_edf_ce_keeps_to_everything(found: list[Task], agreement: Agreement) -> None:
    try:
        schedule = edf_ce(found, agreement)
    except Infeasible as error:
        assert error.tasks
        return
    assert verify(found, agreement, schedule) == []


@given(tasks(offsets=False), agreements)
@settings(max_examples=50)
def test_edf_ce_is_algorithm_1(found: list[Task], agreement: Agreement) -> None:
    """Looking only at runs whose obstacle is gone finds what looking at all of them finds."""
    try:
        work = work_of(found, agreement)
    except Infeasible:
        return
    starts, _ = sweep(work)
    named = {(work.tasks[task].name, number): at for (task, number), at in starts.items()}
    # The sweep's ties: the same deadline, the same window, then what needs the fullest resource.
    rank = {t: n for n, t in enumerate(by_task(work, tightest).task)}
    renamed = {task.name: f"{rank.get(n, 0):09}" for n, task in enumerate(work.tasks)}
    in_order = [replace(task, name=renamed[task.name]) for task in found]
    expected = algorithm_1(in_order, agreement, work.hyperperiod_ms)
    assert {(renamed[name], number): at for (name, number), at in named.items()} == expected


@given(tasks(), agreements)
@settings(max_examples=60)
def test_what_has_a_schedule_is_within_the_bound(found: list[Task], agreement: Agreement) -> None:
    try:
        plan(found, agreement)
    except Infeasible:
        return
    assert bound(found, agreement).load <= 1


@given(tasks(most=5), agreements)
@settings(max_examples=50)
def test_the_bound_grows_with_durations(found: list[Task], agreement: Agreement) -> None:
    try:
        load = bound(found, agreement).load
        twice = [
            replace(task, duration_ms=2 * task.duration_ms, period_ms=4 * task.period_ms,
                    deadline_ms=4 * task.deadline_ms, offset_ms=4 * task.offset_ms)
            for task in found
        ]  # fmt: skip
        assert math.isclose(bound(twice, agreement).load, load / 2)
    except Infeasible:
        return


@given(tasks(), st.data())
@settings(max_examples=50)
def test_the_check_finds_what_is_wrong(found: list[Task], data: st.DataObject) -> None:
    """Each slot elsewhere, twice, too long or not at all; the plan itself is right."""
    try:
        schedule = plan(found, FREE)
    except Infeasible:
        return
    if not schedule.slots:
        return
    index = data.draw(st.integers(0, len(schedule.slots) - 1))
    slots = list(schedule.slots)
    slot = slots.pop(index)
    assert verify(found, FREE, Schedule(schedule.hyperperiod_ms, tuple(slots)))
    by = slot.deadline_ms - slot.end_ms + 1
    late = replace(slot, start_ms=slot.start_ms + by, end_ms=slot.end_ms + by)
    longer = replace(slot, end_ms=slot.end_ms + 1)
    unknown = replace(slot, task="unknown")
    for wrong in ((late,), (longer,), (slot, slot), (unknown,)):
        assert verify(found, FREE, Schedule(schedule.hyperperiod_ms, (*slots, *wrong)))


def test_the_check_finds_conflicts_and_loads() -> None:
    one, two = between("one", "a", "d", load=5), between("two", "b", "e", load=5)
    both = Schedule(60, (Slot(0, 5, "one", 0, 0, 60), Slot(4, 9, "two", 0, 0, 60)))
    (words,) = verify([one, two], FREE, both)
    assert words == "one and two are both on link ('s', 't') at 4 ms"
    apart = replace(two, links=frozenset({("b", "s")}))
    domain = {"near": frozenset({("a", "s"), ("b", "s")})}
    assert verify([one, apart], FREE, both) == []
    assert verify([one, apart], Agreement({}, domain, {"near": 9.0}), both)
    assert verify([one, apart], Agreement({}, domain, {}, {"near": 1}), both)
    assert verify([one, apart], Agreement({("b", "s"): 4.0}), both)
    late = Slot(58, 63, "two", 0, 3, 63)
    around = Schedule(60, (Slot(0, 5, "one", 0, 0, 60), late))
    assert verify([one, replace(two, offset_ms=3)], FREE, around)  # over the end, into the next


def test_what_edf_ce_starves_is_planned() -> None:
    """Whoever needs both ends and the link between has to wait for all three; those that need one
    end take it whenever it is free."""
    greedy = [Task(f"a{n}", 60, 7, 60, frozenset("a")) for n in range(7)]
    greedy += [Task(f"b{n}", 60, 10, 60, frozenset("b")) for n in range(5)]
    wide = Task("wide", 60, 5, 30, frozenset("ab"), offset_ms=1)
    with pytest.raises(Infeasible) as caught:
        edf_ce([*greedy, wide], FREE)
    assert caught.value.tasks == ("wide",)
    assert verify([*greedy, wide], FREE, plan([*greedy, wide], FREE)) == []


def test_nothing_to_do_and_what_conflicts_with_nothing() -> None:
    assert plan([], FREE) == Schedule(1, ())
    assert bound([], FREE).scale == math.inf
    hosts = [Task(f"cpu{n}", 1000, 1000, 1000) for n in range(50)]
    assert verify(hosts, FREE, plan(hosts, FREE)) == []
    assert verify(hosts, FREE, edf_ce(hosts, FREE)) == []


def test_a_proof_names_what_is_scarce() -> None:
    found = [between(f"t{n}", "a", "d", duration=10, deadline=30) for n in range(4)]
    with pytest.raises(
        Infeasible, match=r"no schedule exists: host . is needed 133\.3% of some 0\.03 s"
    ):
        plan(found, FREE)
    assert plan(found[:3], FREE)
    three = [between("ab", "a", "b"), between("bc", "b", "c"), between("ca", "c", "a")]
    long = [replace(task, duration_ms=25) for task in three]
    most = bound(long, FREE)
    assert (
        most.load == 75 / 60
    )  # each host is needed 50 of 60 ms, but any two of the tasks share one
    assert "any two of host a, host b, host c" in most.why
    short, slow = between("short", "a", "b", period=10, duration=2), between("slow", "a", "c")
    most = bound([short, replace(slow, duration_ms=20)], FREE)
    assert most.load == (20 + 2 * 2) / 20
    assert most.why == "a run of 'slow' has to fit between two of 'short'"


def test_domains_bound_what_runs_at_once() -> None:
    found = [
        Task(f"t{n}", 60, 20, 60, frozenset(), frozenset({(f"{n}", "x")}), 2.0) for n in range(7)
    ]
    links = {"all": frozenset(link for task in found for link in task.links)}
    for agreement in (Agreement({}, links, {}, {"all": 2}), Agreement({}, links, {"all": 5.0})):
        with pytest.raises(Infeasible, match="domain 'all'"):
            plan(found, agreement)
        schedule = plan(found[:6], agreement)
        assert verify(found[:6], agreement, schedule) == []
        (all_,) = (u for u in usage(found[:6], agreement, schedule) if u.kind == "domain")
        assert (all_.share, all_.tasks, all_.at_once, all_.load_bps) == (1.0, 6, 2, 4.0)


def test_the_agreement_may_forbid_a_task_altogether() -> None:
    task = between("t", "a", "d", load=5)
    domain = {"near": frozenset({("a", "s")})}
    for agreement, words in (
        (Agreement({("s", "t"): 4.0}), "puts 5 b/s on link s-t, the agreement allows 4 b/s there"),
        (Agreement({}, domain, {"near": 4.0}), "on domain 'near', the agreement allows 4 b/s"),
        (Agreement({}, domain, {}, {"near": 0}), "the agreement allows no measurement"),
    ):
        with pytest.raises(Infeasible, match=words) as caught:
            plan([task], agreement)
        assert caught.value.tasks == ("t",)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"duration_ms": 0}, "takes 0 ms, expected at least 1 ms"),
        ({"duration_ms": 70}, "takes 0.07 s within 0.06 s every 0.06 s, expected each to be no"),
        ({"deadline_ms": 61}, "expected each to be no longer than the next"),
        ({"offset_ms": 60}, "begins at 60 ms, expected 0 or more and less than its period"),
        ({"load_bps": math.nan}, "puts nan b/s on the network"),
    ],
)
def test_tasks_that_cannot_be_meant(wrong: dict[str, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        plan([replace(between("t", "a", "b"), **wrong)], FREE)


def test_one_name_for_one_task() -> None:
    with pytest.raises(InputError, match="'t' is there twice"):
        plan([between("t", "a", "b"), between("t", "c", "d")], FREE)


def test_periods_that_never_meet_are_named_with_a_way_out() -> None:
    periods = (60_000, 59_999, 61_001)
    found = [between(f"t{n}", "a", "b", period=period) for n, period in enumerate(periods)]
    with pytest.raises(InputError) as caught:
        plan(found, FREE)
    assert "the periods 59.999 s, 60 s, 61.001 s" in str(caught.value)
    assert f"expected at most {MOST_RUNS:,} runs" in str(caught.value)
    assert "instead of" in str(caught.value)


class Pinned(Windows):
    """Some runs stay where they are."""

    def __init__(self, work: Work, pinned: Collection[Run]) -> None:
        super().__init__(work)
        self.pinned = pinned

    def may_move(self, run: Run) -> bool:
        return run not in self.pinned


def test_repair_makes_room_without_touching_what_is_pinned() -> None:
    """Two short runs stand where a long one would just fit."""
    short = [Task(f"short{n}", 30, 5, 30, frozenset("a")) for n in range(2)]
    long = Task("long", 30, 20, 30, frozenset("a"))
    work = work_of([*short, long], FREE)
    places = {(1, 0): 5, (2, 0): 15}
    for pinned, left in (((), []), ([(1, 0), (2, 0)], [(0, 0)]), ([(1, 0)], [])):
        table, starts = Timetable(work), dict(places)
        for (task, _), at in starts.items():
            table.take(task, at)
        assert Repair(table, starts, Pinned(work, pinned)).place([(0, 0)]) == left
        assert all(starts[run] == places[run] for run in pinned)
        if not left:
            assert verify([*short, long], FREE, schedule_of(work, starts)) == []


@given(tasks(), agreements)
@settings(max_examples=60)
def test_a_timetable_forgets_what_is_released(found: list[Task], agreement: Agreement) -> None:
    try:
        work = work_of(found, agreement)
    except Infeasible:
        return
    table = Timetable(work)
    starts, _ = place(table, by_deadline(work, tightest))
    for (task, _), at in starts.items():
        table.release(task, at)
        assert table.earliest(task, at, at) == at
        table.take(task, at)
    for (task, _), at in starts.items():
        table.release(task, at)
    empty = Timetable(work)
    again, _ = place(table, by_deadline(work, tightest))
    assert again == place(empty, by_deadline(work, tightest))[0] == starts


@given(tasks(), agreements, st.data())
@settings(max_examples=50)
def test_the_earliest_start_is_the_first_instant_with_room(
    found: list[Task], agreement: Agreement, data: st.DataObject
) -> None:
    """Against a look at every instant of every start, also after something was given back."""
    try:
        work = work_of(found, agreement)
    except Infeasible:
        return
    whole = work.hyperperiod_ms
    table = Timetable(work)
    running: list[list[Task]] = [[] for _ in range(whole)]
    taken: list[tuple[int, int]] = []
    for index, task in enumerate(work.tasks):
        for number in range(whole // task.period_ms):
            release = task.offset_ms + number * task.period_ms
            last = release + task.deadline_ms - task.duration_ms

            def fits(at: int, task: Task = task) -> bool:
                return all(
                    not any(conflicting(task, other) for other in running[t % whole])
                    and within(agreement, [task, *running[t % whole]])
                    for t in range(at, at + task.duration_ms)
                )

            if taken and data.draw(st.booleans()):
                table.earliest(index, release, last)  # what it remembers of this is over then
                gone, since = taken.pop(data.draw(st.integers(0, len(taken) - 1)))
                table.release(gone, since)
                for t in range(since, since + work.tasks[gone].duration_ms):
                    running[t % whole].remove(work.tasks[gone])
            first = next((at for at in range(release, last + 1) if fits(at)), -1)
            assert table.earliest(index, release, last) == first
            later = data.draw(st.integers(release, last)) if first >= 0 else -1
            for at in {first, later} - {-1}:
                if fits(at):
                    table.take(index, at)
                    taken.append((index, at))
                    for t in range(at, at + task.duration_ms):
                        running[t % whole].append(task)


def test_room_that_was_given_back_is_found_by_others_that_need_the_same() -> None:
    twins = [Task(name, 100, 10, 100, frozenset("a")) for name in "bc"]
    table = Timetable(work_of(twins, Agreement()))
    table.take(0, 0)
    assert table.earliest(1, 0, 90) == 10
    table.release(0, 0)
    assert table.earliest(1, 0, 90) == 0


def test_what_runs_where_nothing_fits_beside_high_loads_takes_their_place() -> None:
    """Two of the four at once need all the time; a small one leaves room for one beside it."""
    links = [frozenset({(f"h{n}", f"i{n}")}) for n in range(5)]
    high = [
        Task(f"high{n}", 20, 10, 20, frozenset({f"h{n}"}), links[n], load_bps=2.0) for n in range(4)
    ]
    low = Task("low", 20, 5, 20, frozenset({"h4"}), links[4], load_bps=0.5)
    agreement = Agreement({}, {"all": frozenset().union(*links)}, {"all": 4.0})
    assert bound(high, agreement).load == 1
    assert verify(high, agreement, plan(high, agreement)) == []
    found = bound([*high, low], agreement)
    assert found.load == 45 / 40 and "high loads, and" in found.why
    assert bound([*high, low], replace(agreement, domain_bps={"all": 4.5})).load == 1
    less = [replace(task, duration_ms=7) for task in high]
    assert verify([*less, low], agreement, plan([*less, low], agreement)) == []


def test_a_domain_with_nothing_beside_high_loads_is_packed() -> None:
    """They take 95 % of what is possible, and beside four of 1 Gb/s nothing fits."""
    rng = random.Random(25)
    hour_ms = 3_600_000
    kinds = [(1e9, (2, 4), (10_000, 20_000, 40_000))] * 2
    kinds += [(1e8, (2, 4), (20_000,)), (1e5, (1, 2), (4_000, 8_000))]
    found = []
    for number in range(100):
        load, periods, durations = rng.choice(kinds)
        period = hour_ms * rng.choice(periods)
        hosts = {f"x{number % 17}"} if load < 1e9 else {f"h{number}"}
        link = frozenset({(f"h{number}", f"i{number}")})
        found.append(
            Task(
                f"t{number:03}", period, rng.choice(durations), period, frozenset(hosts), link, load
            )
        )
    links = frozenset().union(*(task.links for task in found))
    agreement = Agreement({}, {"all": links}, {"all": 4e9})
    most = bound(found, agreement)
    assert "high loads" in most.why
    full = [
        replace(task, duration_ms=math.ceil(task.duration_ms * 0.95 * most.scale)) for task in found
    ]
    assert 0.95 <= bound(full, agreement).load < 0.951
    assert verify(full, agreement, plan(full, agreement)) == []
