"""The simulator that judges mappings, held against cases worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evaluation_rig import MBIT, platform, task

from site_selector.evaluation.simulator import Simulator, urgency_of
from site_selector.evaluation.traces import build_trace
from site_selector.evaluation.worlds import true_problem

# All links carry one megabit per second, 125,000 bytes.


def test_a_job_alone_waits_for_its_input_the_queue_and_itself() -> None:
    trace = build_trace("t", [task("a", 10, ["in"])], {"in": 8 * MBIT})
    truth = true_problem(trace, platform([1, 1], queue_s=[0, 5]))
    simulate = Simulator(truth)
    assert simulate.makespan([0]) == 10  # the input is there already
    found = simulate([1])
    assert found.moves[0].end_s == 8
    assert (found.ready_s, found.start_s, found.end_s) == ([8], [13], [23])
    assert found.makespan_s == 23


def test_a_faster_machine_takes_less() -> None:
    truth = true_problem(build_trace("t", [task("a", 10)], {}), platform([1, 1], speed=[1, 4]))
    assert Simulator(truth).makespan([1]) == 2.5


def test_two_transfers_share_a_link_and_the_second_speeds_up() -> None:
    # 2 and 6 Mbit at once: at 4 s both have 2, the first is there; the other has 4 left, alone.
    tasks = [task("a", 1, ["x"]), task("b", 1, ["y"])]
    trace = build_trace("t", tasks, {"x": 2 * MBIT, "y": 6 * MBIT})
    found = Simulator(true_problem(trace, platform([1, 2])))([1, 1])
    assert [move.end_s for move in found.moves] == [4, 8]
    assert found.start_s == [4, 8]
    assert found.makespan_s == 9


def test_a_transfer_that_joins_later_slows_what_is_under_way() -> None:
    # x: 6 Mbit from 0 s. At 2 s, p has written y: 2 Mbit. x has 4 left; both at half speed until
    # y is there at 6 s; x has 2 left, alone: 8 s.
    tasks = [task("a", 1, ["x"]), task("p", 2, (), ["y"]), task("b", 0, ["y"])]
    trace = build_trace("t", tasks, {"x": 6 * MBIT, "y": 2 * MBIT})
    truth = true_problem(trace, platform([1, 2]))
    mapping = {"a": 1, "p": 0, "b": 1}
    found = Simulator(truth)([mapping[job] for job in truth.jobs])
    ends = {truth.files[move.file]: move.end_s for move in found.moves}
    assert ends == {"x": 8, "y": 6}
    assert found.makespan_s == 9


def test_links_of_other_pairs_and_of_the_other_direction_are_their_own() -> None:
    tasks = [task("a", 0, ["x"], ["back"]), task("b", 0, ["y"])]
    trace = build_trace("t", tasks, {"x": 4 * MBIT, "y": 4 * MBIT, "back": 4 * MBIT})
    found = Simulator(true_problem(trace, platform([1, 1, 1])))([1, 2])
    # x and y go to different sites, 4 s each; a's result goes back the way that x came.
    assert sorted(move.end_s for move in found.moves) == [4, 4, 8]


def test_workers_are_given_to_the_most_urgent() -> None:
    # c is on the longest chain (c, d), so it goes before a and b although it is named last.
    tasks = [task("a", 3), task("b", 4), task("c", 2, (), ["x"]), task("d", 9, ["x"])]
    truth = true_problem(build_trace("t", tasks, {"x": 0.0}), platform([1, 1]))
    assert list(urgency_of(truth)) == [3, 4, 11, 9]
    found = Simulator(truth)([0, 0, 0, 0])
    start = dict(zip(truth.jobs, found.start_s, strict=True))
    assert start == {"c": 0, "d": 2, "b": 11, "a": 15}
    assert found.makespan_s == 18


def test_no_more_than_n_at_once() -> None:
    tasks = [task(f"a{i}", 10) for i in range(5)]
    truth = true_problem(build_trace("t", tasks, {}), platform([2, 1]))
    found = Simulator(truth)([0] * 5)
    assert sorted(found.start_s) == [0, 0, 10, 10, 20]
    assert found.makespan_s == 30


def test_the_queue_is_waited_for_before_a_worker_is_taken() -> None:
    # Both wait 5 s at the same time; then they take turns at the only worker.
    truth = true_problem(
        build_trace("t", [task("a", 10), task("b", 10)], {}), platform([1, 1], queue_s=[5, 0])
    )
    assert sorted(Simulator(truth)([0, 0]).start_s) == [5, 15]


def test_staging_per_site_moves_a_file_once_and_per_job_again_and_again() -> None:
    tasks = [task(f"a{i}", 1, ["x"]) for i in range(3)]
    trace = build_trace("t", tasks, {"x": 2 * MBIT})
    once = Simulator(true_problem(trace, platform([1, 3]), "per-site"))([1, 1, 1])
    assert [(move.job, move.end_s) for move in once.moves] == [(None, 2)]
    assert once.makespan_s == 3
    again = Simulator(true_problem(trace, platform([1, 3]), "per-job"))([1, 1, 0])
    assert [(move.job, move.end_s) for move in again.moves] == [(0, 4), (1, 4)]
    assert again.makespan_s == 5


def test_results_go_back_and_what_others_read_does_not() -> None:
    tasks = [task("a", 1, (), ["x", "log"]), task("b", 1, ["x"], ["out"])]
    trace = build_trace("t", tasks, {"x": 9 * MBIT, "log": 1 * MBIT, "out": 3 * MBIT})
    truth = true_problem(trace, platform([1, 1]))
    found = Simulator(truth)([1, 1])
    moved = {truth.files[move.file]: (move.start_s, move.end_s) for move in found.moves}
    assert moved == {"log": (1, 2), "out": (2, 5)}
    assert found.makespan_s == 5
    assert Simulator(replace(truth, output=-1)).makespan([1, 1]) == 2


def test_a_store_that_runs_no_jobs() -> None:
    trace = build_trace("t", [task("a", 1, ["x"], ["y"])], {"x": 2 * MBIT, "y": 3 * MBIT})
    truth = true_problem(trace, platform([1, 1], store=2))
    assert truth.places == ("s0", "s1", "store")
    assert Simulator(truth).makespan([0]) == 2 + 1 + 3


def test_empty_files_and_instant_jobs_take_no_time_but_keep_their_order() -> None:
    tasks = [task("a", 0, ["x"], ["y"]), task("b", 0, ["y"], ["z"])]
    truth = true_problem(build_trace("t", tasks, {"x": 0, "y": 0, "z": 0}), platform([1, 1]))
    found = Simulator(truth)([1, 0])
    assert found.makespan_s == 0
    assert len(found.moves) == 2


def test_of_several_replicas_the_nearest_is_taken() -> None:
    trace = build_trace("t", [task("a", 1, ["x"])], {"x": 4 * MBIT})
    truth = true_problem(trace, platform([1, 1, 1]))
    near = truth.seconds_per_byte.copy()
    near[1, 2] /= 4
    truth = replace(truth, holders=((0, 1),), seconds_per_byte=near)
    move = Simulator(truth)([2]).moves[0]
    assert (move.src, move.end_s) == (1, pytest.approx(1))


def test_a_run_leaves_nothing_to_the_next() -> None:
    tasks = [task("a", 5, ["x"], ["y"]), task("b", 5, ["x", "y"])]
    simulate = Simulator(
        true_problem(build_trace("t", tasks, {"x": MBIT, "y": MBIT}), platform([1, 1]))
    )
    first = simulate([1, 0])
    simulate([0, 1])
    assert simulate([1, 0]) == first
