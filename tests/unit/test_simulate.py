"""The estimator of mappings: by hand, and by its laws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problem_world import any_sites, problem_of, random_problem

from network_provisioner.base.errors import InputError
from site_selector.mapping.estimator import Estimator, SharingEstimator, Transfer
from site_selector.problem import Problem

MB = 1e6
SECOND_PER_MB = 1e-6
BETWEEN = [[0.0, SECOND_PER_MB], [SECOND_PER_MB, 0.0]]  # 1 MB takes 1 s from site to site
STAGING = st.sampled_from(["per-site", "per-job"])


def three_readers(staging: str) -> Problem:
    """Three jobs read the same 10 MB that lie at site 0; each takes 5 s, three at a time."""
    return problem_of(
        [(["ref"], []) for _ in range(3)],
        {"ref": 10 * MB},
        {"ref": [0]},
        [[5.0, 5.0]] * 3,
        BETWEEN,
        workers=[3, 3],
        staging=staging,
    )


def test_per_site_a_file_moves_once() -> None:
    found = Estimator(three_readers("per-site"))([1, 1, 1])
    assert list(found.transfers) == [Transfer(0, 0, 1, 0.0, 10.0)]
    assert found.end_s == [15.0] * 3


def test_per_job_it_moves_for_each() -> None:
    found = Estimator(three_readers("per-job"))([1, 1, 0])
    assert [t.end_s for t in found.transfers] == [10.0, 20.0]
    assert found.end_s == [15.0, 25.0, 5.0]
    assert found.makespan_s == 25
    assert found.work_s == 2 * 10 + 3 * 5


def test_per_job_a_result_moves_for_each_reader_and_back() -> None:
    jobs = [([], ["out"]), (["out"], []), (["out"], [])]
    problem = problem_of(
        jobs,
        {"out": 4 * MB},
        {},
        [[1.0, 1.0]] * 3,
        BETWEEN,
        wanted=["out"],
        output=1,
    )
    # Per site the reader's copy at the output site is also the result's.
    assert len(Estimator(problem)([0, 1, 0]).transfers) == 1
    found = Estimator(replace(problem, staging="per-job"))([0, 1, 0])
    assert [(t.src, t.dst, t.end_s) for t in found.transfers] == [(0, 1, 5.0), (0, 1, 9.0)]


def test_the_last_transfer_can_be_the_end() -> None:
    problem = problem_of(
        [([], ["out"])], {"out": 7 * MB}, {}, [[2.0, 2.0]], BETWEEN, wanted=["out"], output=1
    )
    found = Estimator(problem)([0])
    assert (found.makespan_s, found.end_s) == (9.0, [2.0])
    assert found.transfers.last() == Transfer(0, 0, 1, 2.0, 9.0)


def test_shared_evenly_all_end_when_the_last_does_in_turn() -> None:
    jobs = [([f"f{i}"], []) for i in range(3)]
    sizes = {f"f{i}": 10 * MB for i in range(3)}
    problem = problem_of(
        jobs, sizes, {f: [0] for f in sizes}, [[1.0, 1.0]] * 3, BETWEEN, workers=[1, 3]
    )
    assert Estimator(problem)([1, 1, 1]).end_s == [11.0, 21.0, 31.0]
    shared = SharingEstimator(problem)([1, 1, 1])
    assert shared.end_s == pytest.approx([31.0] * 3)
    # Half of what one gets fills the link: two at full speed, three at two thirds.
    wider = replace(problem, occupied_per_byte=problem.seconds_per_byte / 2)
    assert SharingEstimator(wider)([1, 1, 0]).end_s[:2] == pytest.approx([11.0] * 2)
    assert SharingEstimator(wider)([1, 1, 1]).end_s == pytest.approx([16.0] * 3)


def test_a_late_comer_takes_half() -> None:
    jobs = [(["a"], []), ([], ["b"]), (["b"], [])]
    sizes = {"a": 10 * MB, "b": 2 * MB}
    problem = problem_of(jobs, sizes, {"a": [0]}, [[1.0, 1.0], [4.0, 4.0], [1.0, 1.0]], BETWEEN)
    found = SharingEstimator(problem)([1, 0, 1])
    # a alone until 4 s, both until b's 2 MB have moved at half speed, then a alone again.
    assert {t.file: t.end_s for t in found.transfers} == pytest.approx({0: 12.0, 1: 8.0})


def test_the_urgent_go_first_and_wait_in_the_queue() -> None:
    # Two jobs of which one has a long child; one worker; 3 s in the queue.
    problem = problem_of(
        [([], []), ([], ["x"]), (["x"], [])],
        {"x": 0.0},
        {},
        [[5.0], [5.0], [50.0]],
        [[0.0]],
        queue_s=[3.0],
    )
    found = Estimator(problem)([0, 0, 0])
    assert found.start_s == [8.0, 3.0, 13.0]
    assert found.ready_s == [0.0, 0.0, 8.0]


def test_the_fastest_replica_is_taken() -> None:
    per_byte = [[0.0, 3e-6, 0.0], [3e-6, 0.0, 0.0], [9e-6, 1e-6, 0.0]]
    problem = problem_of([(["f"], [])], {"f": MB}, {"f": [0, 2]}, [[0.0, 0.0]], per_byte)
    assert [(t.src, t.end_s) for t in Estimator(problem)([1]).transfers] == [(2, 1.0)]


def test_an_input_that_lies_nowhere_is_refused() -> None:
    problem = problem_of([(["f"], [])], {"f": MB}, {"f": []}, [[1.0]], [[0.0]])
    with pytest.raises(InputError, match="'f' lies nowhere"):
        Estimator(problem)


any_problem = settings(max_examples=40)


@any_problem
@given(st.integers(0, 10**6), STAGING, st.sampled_from([Estimator, SharingEstimator]))
def test_bytes_and_core_seconds_are_conserved(seed: int, staging: str, kind: type) -> None:
    problem = random_problem(seed, staging)
    sites = any_sites(problem, seed)
    found = kind(problem)(sites)
    computing = sum(problem.compute_s[j, s] for j, s in enumerate(sites))
    moving = sum(
        problem.size[t.file] * problem.seconds_per_byte[t.src, t.dst] for t in found.transfers
    )
    assert found.work_s == pytest.approx(computing + moving)
    assert sum(found.end_s) - sum(found.start_s) == pytest.approx(computing)
    # What is moved is what is needed and is not there, once for each place or for each job.
    needs: list[tuple[int, int, int]] = []
    for j, (site, files) in enumerate(zip(sites, problem.reads, strict=True)):
        for f in files:
            producer = problem.producer[f]
            if site not in (problem.holders[f] if producer < 0 else (sites[producer],)):
                needs.append((f, site, j if staging == "per-job" else -1))
    for f, producer in enumerate(problem.producer):
        back = producer >= 0 and problem.returns[f] and 0 <= problem.output != sites[producer]
        if back:
            needs.append((f, problem.output, -2 if staging == "per-job" else -1))
    assert sorted((t.file, t.dst) for t in found.transfers) == sorted(n[:2] for n in set(needs))


@any_problem
@given(st.integers(0, 10**6), STAGING, st.sampled_from([Estimator, SharingEstimator]))
def test_other_numbers_in_the_same_structure(seed: int, staging: str, kind: type) -> None:
    problem = random_problem(seed, staging)
    sites = any_sites(problem, seed)
    run = kind(problem)
    slower = replace(problem, compute_s=problem.compute_s * 2, queue_s=problem.queue_s + 1)
    worlds = [run.with_numbers(p) for p in (problem, slower, problem)]
    same, later, again = run.makespans(np.array(sites), worlds)
    assert same == again == run.makespan(sites) == run(sites).makespan_s == run.score(sites)[0]
    assert later >= same or problem.n_sites > 1 or max(problem.workers) > 1
    assert run.evaluations == 3


def test_another_structure_is_not_taken_for_the_same() -> None:
    run = Estimator(random_problem(1))
    with pytest.raises(ValueError, match="another structure"):
        run.with_numbers(random_problem(2))
    changed = replace(run.problem, returns=tuple(not r for r in run.problem.returns))
    with pytest.raises(ValueError, match="another structure"):
        run.with_numbers(changed)
