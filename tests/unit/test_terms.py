"""Algorithm 4 over a mapping, against figures worked out by hand.

80 Mb/s is 10 MB/s: sizes in units of 10 MB are seconds on a path.
"""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problem_world import fetches
from site_world import (
    inputs_from,
    inputs_of,
    job,
    resequencing,
    sites_text,
    transformations_text,
    workflow_text,
)

from site_selector.estimates.estimating import estimate_world
from site_selector.inputs import Inputs
from site_selector.mapping.estimator import Estimator
from site_selector.mapping.terms import JobTerms, job_terms
from site_selector.problem import Problem, build_problem

MB = 1_000_000
MU, TACC = 0, 1
SITES: dict[str, dict[str, object]] = {
    "mu": {"adon.workers": 1, "adon.rate": "10 MB/s", "adon.bandwidth.tacc": "80 Mb/s"},
    "tacc": {"adon.workers": 2, "adon.rate": "20 MB/s", "adon.queue_wait": "3 s"},
}


def files_at_mu(jobs: list[dict[str, object]], sizes: dict[str, int]) -> Inputs:
    held = {lfn: ("mu", size) for lfn, size in sizes.items()}
    return inputs_of(jobs, SITES, held, {"a": list(SITES)})


def chain() -> Inputs:
    """f (100 MB, at mu) -> x -> g (50 MB) -> y -> h (10 MB, wanted back)."""
    sizes = {"g": 50 * MB, "h": 10 * MB}
    jobs = [
        job("x", "a", ["f"], ["g"], sizes=sizes, keep=["g"]),
        job("y", "a", ["g"], ["h"], sizes=sizes),
    ]
    return files_at_mu(jobs, {"f": 100 * MB})


def readers(count: int) -> Inputs:
    """Jobs that all read one reference of 100 MB and write nothing that is wanted back."""
    jobs = [job(f"x{i}", "a", ["ref"], [f"g{i}"], keep=[f"g{i}"]) for i in range(count)]
    return files_at_mu(jobs, {"ref": 100 * MB})


def problem_of(inputs: Inputs, output_site: str | None = "mu") -> Problem:
    world = estimate_world(inputs, now=0.0, output_site=output_site)
    return build_problem(inputs, world, output_site)


def terms_of(problem: Problem, assignment: list[int]) -> JobTerms:
    return job_terms(problem, assignment, Estimator(problem)(assignment))


def test_a_chain_by_hand() -> None:
    costs = terms_of(problem_of(chain()), [MU, MU])
    terms = costs.terms
    assert terms.queue.tolist() == [[0, 3], [0, 3]]
    assert terms.compute == pytest.approx(np.array([[10, 5], [5, 2.5]]))
    # x at tacc fetches 100 MB; y there fetches 50 MB and sends 10 MB back.
    assert terms.network == pytest.approx(np.array([[0, 10], [0, 5 + 1]]))
    assert terms.total == pytest.approx(np.array([[10, 18], [5, 11.5]]))
    assert costs.moves(1, TACC) == {(MU, TACC): 50 * MB, (TACC, MU): 10 * MB}
    assert costs.moves(1, MU) == {}


def test_inputs_lie_where_the_mapping_put_their_producers() -> None:
    costs = terms_of(problem_of(chain()), [TACC, TACC])
    # y at mu would fetch g from tacc; at tacc only its result moves.
    assert costs.terms.network[1] == pytest.approx([5, 1])
    assert costs.s_t_bytes[1] == pytest.approx([50 * MB, 10 * MB])


def test_results_that_nobody_declared_are_a_tenth_of_the_raw_data() -> None:
    jobs = [job("x", "a", ["f"], ["h"])]
    costs = terms_of(problem_of(files_at_mu(jobs, {"f": 100 * MB})), [MU])
    # At tacc: 100 MB there, 10 MB back. Near the data nothing moves.
    assert costs.moves(0, TACC) == {(MU, TACC): 100 * MB, (TACC, MU): pytest.approx(10 * MB)}
    assert costs.terms.network[0] == pytest.approx([0, 11])


def test_without_an_output_site_results_stay() -> None:
    assert terms_of(problem_of(chain(), None), [MU, MU]).terms.network[1] == pytest.approx([0, 5])


def test_a_file_that_moves_to_a_site_counts_for_the_first_job_there_only() -> None:
    costs = terms_of(problem_of(readers(3)), [TACC, TACC, TACC])
    assert costs.s_t_bytes[:, TACC].tolist() == [100 * MB, 0, 0]
    assert costs.s_t_bytes[:, MU].tolist() == [0, 0, 0]


def test_with_staging_per_job_it_counts_for_every_job() -> None:
    problem = problem_of(readers(3))
    problem = replace(problem, fetches=fetches(problem.allowed, "per-job"))
    costs = terms_of(problem, [TACC, TACC, TACC])
    assert costs.s_t_bytes[:, TACC].tolist() == [100 * MB] * 3
    assert costs.s_t_bytes[:, MU].tolist() == [0, 0, 0]


def test_jobs_of_a_level_that_outnumber_the_workers_share_them() -> None:
    costs = terms_of(problem_of(readers(3)), [MU, MU, TACC])
    # Two at mu share one worker, and a third would make it three; two of tacc's have one each.
    assert costs.share[:, MU] == pytest.approx([1 / 2, 1 / 2, 1 / 3])
    assert costs.share[:, TACC] == pytest.approx([1, 1, 1])
    assert costs.terms.compute[:, MU] == pytest.approx([20, 20, 30])


def test_a_site_without_resources_has_an_infinite_queue() -> None:
    inputs = inputs_of(
        [job("x", "a", ["f"], ["g"])],
        {**SITES, "tacc": {"adon.workers": 0}},
        {"f": ("mu", 100 * MB)},
        {"a": list(SITES)},
    )
    terms = terms_of(problem_of(inputs), [MU]).terms
    assert math.isinf(terms.queue[0, TACC])
    assert math.isinf(terms.total[0, TACC])
    assert math.isfinite(terms.total[0, MU])


def test_the_nearest_replica_is_taken_and_one_at_the_site_is_free() -> None:
    sites: dict[str, dict[str, object]] = {
        "a": {"adon.bandwidth.c": "8 Mb/s"}, "b": {"adon.bandwidth.c": "80 Mb/s"}, "c": {},
    }  # fmt: skip
    replicas = (
        "pegasus: 5.0.4\nreplicas:\n- lfn: f\n  metadata: {size: 10000000}\n"
        "  pfns: [{site: a, pfn: /f}, {site: b, pfn: /f}]\n"
    )
    inputs = inputs_from(
        workflow_text([job("x", "t", ["f"], ["g"], keep=["g"])]),
        sites_text(sites),
        replicas,
        transformations_text({"t": list(sites)}),
    )
    costs = terms_of(problem_of(inputs, None), [0])
    assert costs.terms.network[0] == pytest.approx([0, 0, 1])
    assert costs.moves(0, 2) == {(1, 2): 10 * MB}


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["per-site", "per-job"]))
def test_s_t_is_what_moves_and_every_file_moves_once_to_a_site(seed: int, staging: str) -> None:
    rng = Random(seed)
    sites = {f"s{i}": {"adon.workers": rng.randint(1, 3)} for i in range(3)}
    inputs = inputs_from(*resequencing(2, 2, sites, "s1"))
    problem = problem_of(inputs, "s2")
    problem = replace(problem, fetches=fetches(problem.allowed, staging))
    assignment = [rng.choice(allowed) for allowed in problem.allowed]
    schedule = Estimator(problem)(assignment)
    costs = job_terms(problem, assignment, schedule)
    for j, allowed in enumerate(problem.allowed):
        for s in allowed:
            assert sum(costs.moves(j, s).values()) == pytest.approx(costs.s_t_bytes[j, s])
    # What the jobs are charged where they are is what the estimator moves.
    charged = sum(costs.s_t_bytes[j, s] for j, s in enumerate(assignment))
    moved = sum(problem.size[move.file] for move in schedule.transfers)
    # A result that a job at the output site reads goes there once for both reasons.
    both = sum(
        problem.size[f]
        for f, producer in enumerate(problem.producer)
        if producer >= 0
        and problem.returns[f]
        and assignment[producer] != problem.output
        and any(assignment[reader] == problem.output for reader in problem.readers[f])
    )
    if staging == "per-site":
        assert charged - both == pytest.approx(moved)
    else:
        assert charged >= moved - 1e-6 - both
