"""Schedules of measurements: without conflicts, within deadlines and the agreement."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.measurements.load import MOST_RUNS, bound, usage
from monitors.measurements.schedule import Timetable, arrive, leave, moved_tasks, plan, squeeze
from monitors.measurements.tasks import Agreement, Infeasible, LinkId, Schedule, Slot, Task
from network_provisioner.base.errors import InputError
from tests.bench.bench_p8 import scaled
from tests.bench.meshes import NETWORKS, measurements
from tests.schedule_check import verify

FREE = Agreement()
LINKS: tuple[LinkId, ...] = (("a", "s"), ("b", "s"), ("c", "s"), ("s", "t"), ("d", "t"), ("e", "t"))
WAYS = {"a": ("a", "s"), "b": ("b", "s"), "c": ("c", "s"), "d": ("d", "t"), "e": ("e", "t")}
PERIODS = (10, 20, 30, 60)


def between(name: str, src: str, dst: str, **times: int) -> Task:
    """A task between two of the hosts a, b, c (at s) and d, e (at t)."""
    links = {WAYS[src], WAYS[dst]}
    if (src in "abc") != (dst in "abc"):
        links.add(("s", "t"))
    period = times.get("period", 60)
    return Task(
        name, period, times.get("duration", 5), times.get("deadline", period),
        frozenset((src, dst)), frozenset(links), times.get("load", 0),
    )  # fmt: skip


@st.composite
def tasks(draw: st.DrawFn, most: int = 7) -> list[Task]:
    """Any tasks, also such as no network has."""
    result = []
    for number in range(draw(st.integers(0, most))):
        period = draw(st.sampled_from(PERIODS))
        deadline = draw(st.integers(1, period))
        result.append(
            Task(
                f"t{number}",
                period,
                draw(st.integers(1, max(1, deadline // 2))),
                deadline,
                frozenset(draw(st.sets(st.sampled_from("abcde"), max_size=2))),
                frozenset(draw(st.sets(st.sampled_from(LINKS), max_size=3))),
                draw(st.sampled_from((0.0, 1.25, 2.5, 0.5))),
            )
        )
    return result


agreements = st.builds(
    lambda most, at_once: Agreement(
        {},
        {"near": frozenset(LINKS[:3]), "far": frozenset(LINKS[2:])},
        {} if most is None else {"near": most},
        {} if at_once is None else {"far": at_once},
    ),
    st.sampled_from((None, 2.5, 3.75, 4.0)),
    st.sampled_from((None, 1, 2)),
)


def conflicting(task: Task, other: Task) -> bool:
    """They share a host or a link."""
    return bool(task.hosts & other.hosts or task.links & other.links)


def within(agreement: Agreement, running: list[Task]) -> bool:
    """Whether these may run at the same time."""
    for name, links in agreement.domains.items():
        inside = [task for task in running if links & task.links]
        if len(inside) > agreement.at_once.get(name, len(inside)):
            return False
        if sum(task.load_bps for task in inside) > agreement.domain_bps.get(name, 1e9):
            return False
    return True


@given(tasks(), agreements, st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_any_plan_keeps_to_everything_whatever_the_order(
    tasks: list[Task], agreement: Agreement, rng: random.Random
) -> None:
    try:
        schedule = plan(tasks, agreement)
    except Infeasible as error:
        assert error.tasks
        assert set(error.tasks) <= {task.name for task in tasks}
        return
    assert verify(tasks, agreement, schedule) == []
    rng.shuffle(tasks)
    assert plan(tasks, agreement) == schedule


@given(tasks(), agreements)
@settings(max_examples=60)
def test_what_has_a_schedule_is_within_the_bound(tasks: list[Task], agreement: Agreement) -> None:
    try:
        plan(tasks, agreement)
    except Infeasible:
        return
    assert bound(tasks, agreement).load <= 1


@given(tasks(most=5), agreements)
@settings(max_examples=50)
def test_the_bound_grows_with_durations(tasks: list[Task], agreement: Agreement) -> None:
    try:
        load = bound(tasks, agreement).load
        twice = [
            replace(task, duration_ms=2 * task.duration_ms, period_ms=4 * task.period_ms,
                    deadline_ms=4 * task.deadline_ms)
            for task in tasks
        ]  # fmt: skip
        assert math.isclose(bound(twice, agreement).load, load / 2)
    except Infeasible:
        return


def test_what_edf_ce_starves_is_planned() -> None:
    """A run that needs both ends has to wait for both; by Algorithm 1, those that need one take it
    whenever it is free, and the wide one is never started."""
    greedy = [Task(f"a{n}", 60, 7, 59, frozenset("a")) for n in range(7)]
    greedy += [Task(f"b{n}", 60, 10, 59, frozenset("b")) for n in range(5)]
    wide = Task("wide", 60, 5, 60, frozenset("ab"))
    assert verify([*greedy, wide], FREE, plan([*greedy, wide], FREE)) == []


def test_nothing_to_do_and_what_conflicts_with_nothing() -> None:
    assert plan([], FREE) == Schedule(1, ())
    assert bound([], FREE).scale == math.inf
    hosts = [Task(f"cpu{n}", 1000, 1000, 1000) for n in range(50)]
    assert verify(hosts, FREE, plan(hosts, FREE)) == []


def test_a_proof_names_what_is_scarce() -> None:
    tasks = [between(f"t{n}", "a", "d", duration=10, deadline=30) for n in range(4)]
    with pytest.raises(
        Infeasible, match=r"no schedule exists: host . is needed 133\.3% of some 0\.03 s"
    ):
        plan(tasks, FREE)
    assert plan(tasks[:3], FREE)
    short, slow = between("short", "a", "b", period=10, duration=2), between("slow", "a", "c")
    most = bound([short, replace(slow, duration_ms=20)], FREE)
    assert most.load == (20 + 2 * 2) / 20
    assert most.why == "a run of 'slow' has to fit between two of 'short'"


def test_domains_bound_what_runs_at_once() -> None:
    tasks = [
        Task(f"t{n}", 60, 20, 60, frozenset(), frozenset({(f"{n}", "x")}), 2.0) for n in range(7)
    ]
    links = {"all": frozenset(link for task in tasks for link in task.links)}
    for agreement in (Agreement({}, links, {}, {"all": 2}), Agreement({}, links, {"all": 5.0})):
        with pytest.raises(Infeasible, match="domain 'all'"):
            plan(tasks, agreement)
        schedule = plan(tasks[:6], agreement)
        assert verify(tasks[:6], agreement, schedule) == []
        (all_,) = (u for u in usage(tasks[:6], agreement, schedule) if u.kind == "domain")
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
        ({"load_bps": math.nan}, "puts nan b/s on the network"),
    ],
)
def test_tasks_that_cannot_be_meant(wrong: dict[str, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        plan([replace(between("t", "a", "b"), **wrong)], FREE)


def test_periods_that_never_meet_are_named_with_a_way_out() -> None:
    periods = (60_000, 59_999, 61_001)
    tasks = [between(f"t{n}", "a", "b", period=period) for n, period in enumerate(periods)]
    with pytest.raises(InputError) as caught:
        plan(tasks, FREE)
    assert "the periods 59.999 s, 60 s, 61.001 s" in str(caught.value)
    assert f"expected at most {MOST_RUNS:,} runs" in str(caught.value)
    assert "instead of" in str(caught.value)


@given(tasks(), agreements, st.data())
@settings(max_examples=50)
def test_the_earliest_start_is_the_first_instant_with_room(
    tasks: list[Task], agreement: Agreement, data: st.DataObject
) -> None:
    """Against a look at every instant of every start."""
    table, running = Timetable(agreement), [list[Task]() for _ in range(200)]
    for task in tasks * 2:
        release = data.draw(st.integers(0, 60))
        last = release + task.deadline_ms - task.duration_ms

        def fits(at: int, task: Task = task) -> bool:
            return all(
                not any(conflicting(task, other) for other in running[t])
                and within(agreement, [task, *running[t]])
                for t in range(at, at + task.duration_ms)
            )

        first = next((at for at in range(release, last + 1) if fits(at)), None)
        assert table.earliest(task, release, last) == first
        later = data.draw(st.integers(release, last))
        for at in {first, later} - {None}:
            if fits(at):
                table.take(task, at)
                for t in range(at, at + task.duration_ms):
                    running[t].append(task)


@pytest.mark.long
@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_at_80_percent_of_the_bound_no_run_misses_its_deadline(network: str) -> None:
    tasks = measurements(network, 1, (0.25, 0.5, 1.0))
    loaded = scaled(tasks, 0.8, bound(tasks, FREE).scale)
    assert verify(loaded, FREE, plan(loaded, FREE)) == []


def test_a_mesh_at_80_percent_of_the_bound_is_planned() -> None:
    hour_ms, hosts = 3_600_000, [f"h{n}" for n in range(12)]
    tasks = [
        between_sites(a, b, hour_ms * (1 + (n + m) % 2), 5_000 * (1 + n % 3))
        for n, a in enumerate(hosts) for m, b in enumerate(hosts) if a != b
    ]  # fmt: skip
    loaded = scaled(tasks, 0.8, bound(tasks, FREE).scale)
    assert verify(loaded, FREE, plan(loaded, FREE)) == []


def between_sites(a: str, b: str, period: int, duration: int) -> Task:
    """Over a line that half of the hosts share."""
    links = {tuple(sorted((host, "east" if host < "h5" else "west"))) for host in (a, b)}
    links |= {("east", "west")} if (a < "h5") != (b < "h5") else set()
    return Task(f"{a}-{b}", period, duration, period, frozenset({a, b}), frozenset(links))


# -- while it is under way -------------------------------------------------------------------


@given(tasks(), agreements)
@settings(max_examples=50)
def test_arrivals_one_by_one_keep_to_everything(tasks: list[Task], agreement: Agreement) -> None:
    there: list[Task] = []
    schedule = Schedule(1, ())
    for task in tasks:
        try:
            after = arrive(schedule, there, agreement, task)
        except Infeasible as error:
            assert error.tasks == (task.name,)
            continue
        there.append(task)
        assert verify(there, agreement, after) == []
        assert set(moved_tasks(schedule, after)) < {other.name for other in there}
        schedule = after
    for task in there[::2]:
        schedule = leave(schedule, task.name)
    assert verify(there[1::2], agreement, schedule) == []


@given(tasks(), agreements)
@settings(max_examples=50)
def test_nothing_moves_where_the_gaps_are_enough(tasks: list[Task], agreement: Agreement) -> None:
    try:
        schedule = plan(tasks, agreement)
    except Infeasible:
        return
    for task in tasks:
        others = [other for other in tasks if other != task]
        after = arrive(leave(schedule, task.name), others, agreement, task)
        if moved_tasks(schedule, after):  # its own place was there again
            assert moved_tasks(schedule, after) == (task.name,)


def test_a_longer_hyperperiod_repeats_what_was() -> None:
    first, second = between("first", "a", "d", period=20), between("second", "a", "d", period=30)
    before = plan([first], FREE)
    after = arrive(before, [first], FREE, second)
    assert (before.hyperperiod_ms, after.hyperperiod_ms) == (20, 60)
    assert moved_tasks(before, after) == ()
    assert verify([first, second], FREE, after) == []
    assert leave(after, "second") == before.repeated(60)


def test_slots_move_only_where_it_cannot_be_helped() -> None:
    """Two short runs stand where only moving one makes room for a long one."""
    short = [Task(f"short{n}", 30, 5, 30, frozenset("a")) for n in range(2)]
    apart = Schedule(30, (Slot(5, 10, "short0", 0, 0, 30), Slot(15, 20, "short1", 0, 0, 30)))
    long = Task("long", 30, 20, 30, frozenset("a"))
    after = arrive(apart, short, FREE, long)
    assert verify([*short, long], FREE, after) == []
    assert moved_tasks(apart, after)
    with pytest.raises(Infeasible, match="'long' cannot fit beside the others") as caught:
        arrive(apart, short, FREE, replace(long, duration_ms=21))
    assert caught.value.tasks == ("long",)


@given(tasks(), agreements, st.data())
@settings(max_examples=60)
def test_runs_on_demand_disturb_nobody(
    tasks: list[Task], agreement: Agreement, data: st.DataObject
) -> None:
    """Every instant looked at, against the schedule repeated for ever."""
    try:
        schedule = plan(tasks, agreement)
    except Infeasible:
        return
    by_name = {task.name: task for task in tasks}
    taken: list[tuple[Task, Slot]] = []
    for number in range(3):
        links = data.draw(st.sets(st.sampled_from(sorted({x for t in tasks for x in t.links})))
                          if any(t.links for t in tasks) else st.just(set()))  # fmt: skip
        hosts = data.draw(st.sets(st.sampled_from("abcde"), max_size=2))
        duration, now = data.draw(st.integers(1, 8)), data.draw(st.integers(0, 200))
        request = Task(f"t{number}", 1, duration, 1, frozenset(hosts), frozenset(links), 1.25)
        try:
            slot = squeeze(schedule, tasks, agreement, request, now, now + 80, taken)
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
