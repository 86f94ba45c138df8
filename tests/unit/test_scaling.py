"""How large a pool should be: one test per rule, values in and out."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_plugins.pool import scaling
from condor_plugins.pool.scaling import (
    Flavour,
    JobDemand,
    Limits,
    Machine,
    MachineState,
    RunningJob,
    ScalingPlan,
    expected_arrivals,
    plan,
)
from condor_plugins.pool.schedule import Job, Supply, play

NOW = 1_000_000.0
SMALL = Flavour("small", 1, 4096, 1.0, boot_s=300, boot_spread_s=0)
LARGE = Flavour("large", 8, 32768, 8.0, boot_s=300, boot_spread_s=0)
BOOTING, RUNNING, DRAINING = list(MachineState)[:3]


def jobs(count: int, ready_s: float = 0.0, run_s: float = 600.0, **more: object) -> JobDemand:
    return replace(JobDemand(count, 1, 0, NOW + ready_s, run_s), **more)  # type: ignore[arg-type]


def machine(
    name: str, state: MachineState = RUNNING, left_s: float | None = None, age_s: float = 100.0
) -> Machine:
    runs = () if left_s is None else (RunningJob(1, NOW + left_s),)
    return Machine(name, SMALL, state, NOW - age_s, runs)


def planned(
    demand: list[JobDemand],
    *machines: Machine,
    flavours: tuple[Flavour, ...] = (SMALL, LARGE),
    limits: Limits | None = None,
) -> ScalingPlan:
    return plan(demand, machines, flavours, limits or Limits(), NOW)


def test_from_nothing_each_waiting_job_gets_a_core() -> None:
    scaling_plan = planned([jobs(5)])
    assert scaling_plan.start == {"small": 5}
    assert "5 jobs" in scaling_plan.why["small"]


def test_more_jobs_than_can_be_played_forward_are_a_part_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scaling, "_MOST_JOBS", 50)
    assert planned([jobs(2**40)], limits=Limits(machines=9)).start == {"large": 7}
    past = [jobs(20, ready_s=-8.0 + 2 * i) for i in range(4)]
    assert sum(d.count for d in expected_arrivals(past, NOW, 900.0, NOW + 600)) == 40


def test_nothing_is_started_for_nothing() -> None:
    assert planned([]) == ScalingPlan()


def test_no_machine_for_what_the_present_ones_finish_first() -> None:
    """The first is free before a new one would be up."""
    assert planned([jobs(1)], machine("a", left_s=250)).start == {}


def test_a_machine_for_what_the_present_ones_finish_too_late() -> None:
    assert planned([jobs(1)], machine("a", left_s=2000)).start == {"small": 1}


def test_booting_machines_count() -> None:
    assert planned([jobs(3)], machine("a", BOOTING), machine("b", BOOTING)).start == {"small": 1}


def test_marginal_value_falls_until_a_machine_more_is_not_worth_its_boot() -> None:
    """100 jobs of 10 s: with k machines the last waits for 1000 s / k more than a boot."""
    few = planned([jobs(100, run_s=10)], limits=Limits(worth=1)).start["small"]
    some = planned([jobs(100, run_s=10)], limits=Limits(worth=10)).start["small"]
    many = planned([jobs(100, run_s=10)], limits=Limits(worth=1000)).start["small"]
    # d/dk (worth * 100 * 1000 / 2k + 300 k) = 0
    assert few == pytest.approx(math.sqrt(50_000 / 300), rel=0.35)
    assert some == pytest.approx(math.sqrt(500_000 / 300), rel=0.35)
    assert few < some < many <= 100


def test_started_ahead_of_a_level_but_no_sooner_than_one_boot() -> None:
    assert planned([jobs(9, ready_s=299)]).start == {"small": 9}
    assert planned([jobs(9, ready_s=301)]).start == {}


def test_the_less_sure_the_later() -> None:
    doubtful = jobs(9, ready_s=250, ready_spread_s=100)
    assert planned([doubtful]).start == {}
    assert planned([replace(doubtful, ready_spread_s=10.0)]).start == {"small": 9}


def test_short_jobs_do_not_each_get_a_machine_where_boot_times_spread() -> None:
    """The first machines to come have done all before the last would come."""
    spread = replace(SMALL, boot_spread_s=60.0)
    started = planned([jobs(40, run_s=10)], flavours=(spread,), limits=Limits(worth=1e6)).start
    assert started["small"] < 20


def test_500_wide_then_1() -> None:
    """The level gets its width; when it ends, all machines but one are let go."""
    level = [jobs(500, ready_s=100), jobs(1, ready_s=650)]
    assert planned(level).start == {"small": 500}
    there = [machine(f"m{i}", left_s=i % 7) for i in range(500)]
    scaling_plan = planned([jobs(1, ready_s=10)], *there)
    assert scaling_plan.start == {}
    assert len(scaling_plan.drain) == 499


def test_kept_through_a_narrow_level() -> None:
    """Both are wanted again sooner than a new one would be up."""
    assert planned([jobs(2, ready_s=170)], machine("a"), machine("b")).drain == ()


def test_drained_where_its_next_use_is_far() -> None:
    scaling_plan = planned([jobs(1, ready_s=170), jobs(1, ready_s=900)], machine("a"), machine("b"))
    assert len(scaling_plan.drain) == 1
    assert "a boot takes 300 s" in scaling_plan.why[scaling_plan.drain[0]]


def test_drained_ahead_while_its_last_job_runs() -> None:
    assert planned([], machine("a", left_s=60)).drain == ("a",)
    assert planned([], machine("a", left_s=5000)).drain == ()


def test_a_draining_machine_is_taken_back_before_one_is_started() -> None:
    scaling_plan = planned([jobs(1)], machine("a", DRAINING, left_s=5))
    assert (scaling_plan.keep, scaling_plan.start) == (("a",), {})


def test_a_draining_machine_goes_on_draining_without_a_use() -> None:
    assert planned([jobs(1)], machine("a"), machine("b", DRAINING)).keep == ()


def test_what_may_come_keeps_machines_and_starts_none() -> None:
    maybe = jobs(2, ready_s=50, sure=False)
    assert planned([maybe], machine("a")).drain == ()
    assert planned([maybe]).start == {}


def test_caps_count_draining_machines_too() -> None:
    there = (machine("a", DRAINING, left_s=9000), machine("b", left_s=9000))
    by_cores = planned([jobs(9)], *there, flavours=(SMALL,), limits=Limits(cores=5))
    by_count = planned([jobs(9)], *there, flavours=(SMALL,), limits=Limits(machines=4))
    assert by_cores.start == {"small": 3}
    assert by_count.start == {"small": 2}
    assert by_count.why["limits"] == "cores and machines: enough for 2 of 9 small"


def test_where_machines_are_few_they_are_larger() -> None:
    assert planned([jobs(16)], limits=Limits(machines=3)).start == {"large": 2}


def test_budget() -> None:
    """Each costs its price for the 300 s of its boot and 600 s of its job: 0.25."""
    rich = planned([jobs(9)], limits=Limits(money_per_day=10, spent_today=9))
    assert rich.start == {"small": 4}
    none = planned([jobs(9)], limits=Limits(money_per_day=0))
    assert none.start == {}
    assert none.why["limits"] == "money: enough for 0 of 9 small"


def test_back_off_takes_another_flavour_until_it_is_over() -> None:
    assert planned([jobs(8)], limits=Limits(back_off={"small": NOW + 1})).start == {"large": 1}
    assert planned([jobs(8)], limits=Limits(back_off={"small": NOW})).start == {"small": 8}
    none = Limits(back_off={"small": NOW + 1, "large": NOW + 1})
    assert planned([jobs(1)], machine("comes", BOOTING), limits=none) == ScalingPlan()
    assert "no flavour" in str(planned([jobs(1)], limits=none).why)


def test_memory_and_cores_choose_the_flavour() -> None:
    assert planned([jobs(4, memory_mb=8000)]).start == {"large": 1}
    assert planned([jobs(2, cores=4)]).start == {"large": 1}
    nowhere = planned([jobs(2, cores=16)])
    assert nowhere.start == {}
    assert "16 cores" in next(iter(nowhere.why))


def test_jobs_choose_among_the_flavours_that_they_match() -> None:
    assert planned([jobs(5, only=frozenset({"large"}))]).start == {"large": 1}
    scaling_plan = planned([jobs(5, whose="ann", only=frozenset())])
    assert not scaling_plan.start
    assert scaling_plan.why == {
        "ann: a job of 1 cores and 0 MB": "no flavour that may be started now takes it"
    }


def test_what_the_pool_has_without_us_is_used_and_left_alone() -> None:
    own = Flavour("own", 4, 16384, boot_s=0, boot_spread_s=0)
    fixed = [Machine(f"own{n}", own, RUNNING, NOW - 100, fixed=True) for n in range(2)]
    assert planned([jobs(8)], *fixed) == ScalingPlan()
    assert planned([], *fixed) == ScalingPlan()
    limits = Limits(machines=2)  # of ours
    assert planned([jobs(16, run_s=1e4)], *fixed, limits=limits).start == {"large": 1}
    # Of a site whose jobs it does not take it is none.
    elsewhere = jobs(8, only=frozenset({"small"}))
    assert planned([elsewhere], *fixed).start == {"small": 8}


def test_one_that_boots_far_too_long_is_given_up_and_replaced() -> None:
    slow = replace(SMALL, boot_spread_s=50.0)
    old = Machine("a", slow, BOOTING, NOW - 501)
    scaling_plan = planned([jobs(1)], old, flavours=(slow,))
    assert (scaling_plan.give_up, scaling_plan.start) == (("a",), {"small": 1})


def test_booting_machines_are_given_up_when_all_is_over() -> None:
    there = [machine(f"m{i}", BOOTING) for i in range(9)]
    assert len(planned([], *there).give_up) == 9
    assert planned([jobs(6)], *there).give_up == ()


def test_who_submits_one_after_the_other_is_expected_to_go_on() -> None:
    past = [jobs(1, ready_s=-100.0 * i) for i in range(1, 9)]
    arrivals = expected_arrivals(past, NOW, 800, NOW + 400)
    assert [round(d.ready_at - NOW) for d in arrivals] == [100, 200, 300, 400]
    assert not any(d.sure for d in arrivals)
    assert expected_arrivals([jobs(500, ready_s=-5)], NOW, 800, NOW + 400) == []


@given(
    st.lists(st.tuples(st.integers(0, 900), st.integers(1, 900), st.integers(1, 4)), max_size=12),
    st.lists(st.sampled_from([BOOTING, RUNNING, DRAINING]), max_size=6),
    st.integers(0, 12),
)
def test_a_plan_keeps_limits_and_speaks_of_machines_there_are(
    demand: list[tuple[int, int, int]], states: list[MachineState], most: int
) -> None:
    there = [machine(f"m{i}", state) for i, state in enumerate(states)]
    wanted = [jobs(1, ready, run, cores=cores) for ready, run, cores in demand]
    scaling_plan = planned(wanted, *there, limits=Limits(cores=most))
    sizes = {"small": 1, "large": 8}
    assert sum(sizes[name] * n for name, n in scaling_plan.start.items()) <= max(
        0, most - len(there)
    )
    by_state = {state: {m.name for m in there if m.state is state} for state in MachineState}
    assert set(scaling_plan.drain) <= by_state[RUNNING]
    assert set(scaling_plan.keep) <= by_state[DRAINING]
    assert set(scaling_plan.give_up) <= by_state[BOOTING]


# -- the schedule played forward -----------------------------------------------------------------


def test_the_fullest_machine_is_taken_first() -> None:
    supply = [Supply(0, 4, 0.0), Supply(0, 4, 0.0, [(3, 50.0, -1)])]
    assert play([Job(1, 10, 0)], [[1]], [""], supply).first_s == [math.inf, 1]


def test_a_job_that_fits_nowhere_lets_others_pass() -> None:
    schedule = play([Job(0, 10, 0), Job(0, 10, 1)], [[4], [1]], ["", ""], [Supply(0, 2, 0.0)])
    assert schedule.start_s == [math.inf, 0]


def test_a_claim_goes_to_the_same_user() -> None:
    """Ann's job leaves its core to her younger job, not to Bob's older one."""
    supply = [Supply(0, 1, 0.0, [(1, 100.0, 1)])]
    schedule = play([Job(0, 10, 0), Job(5, 10, 1)], [[1], [1]], ["bob", "ann"], supply)
    assert schedule.start_s == [110, 100]
