"""What the benches hold mappings against: the bound is below every mapping, the best is best."""

from __future__ import annotations

from random import Random

from bench.bounds import best_known, lower_bound
from hypothesis import given, settings
from hypothesis import strategies as st
from site_world import Measured, Measurements, inputs_from, resequencing

from site_selector.estimates import believe
from site_selector.policies import greedy, random_sites
from site_selector.problem import Problem, build_problem
from site_selector.simulate import Estimator


def problem(seed: int, samples: int, chromosomes: int) -> Problem:
    """A workflow on two to four sites of random strength."""
    rng = Random(seed)
    names = [f"s{i}" for i in range(rng.randint(2, 4))]
    hints: dict[str, dict[str, object]] = {
        name: {
            "adon.workers": rng.randint(1, 6),
            "adon.rate": f"{rng.choice([1, 5, 20, 100])} MB/s",
            "adon.queue_wait": f"{rng.choice([0, 30, 600])} s",
            **{f"adon.bandwidth.{o}": f"{rng.choice([5, 100, 10_000])} Mb/s" for o in names},
        }
        for name in names
    }
    setups = {
        ("transfer_setup", f"{a}>{b}"): Measured(rng.choice([0.0, 7.0]))
        for a in names
        for b in names
    }
    inputs = inputs_from(*resequencing(samples, chromosomes, hints, names[0]))
    output = rng.choice([None, names[-1]])
    world = believe(inputs, Measurements(setups), now=1000.0, output_site=output)
    return build_problem(inputs, world, output)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 3))
def test_no_mapping_is_below_the_bound(seed: int, samples: int, chromosomes: int) -> None:
    found = problem(seed, samples, chromosomes)
    estimator, rng = Estimator(found), Random(seed)
    mappings = [greedy(found), *(random_sites(found, rng) for _ in range(20))]
    makespans = [estimator(mapping).makespan_s for mapping in mappings]
    bound = lower_bound(found)
    assert 0 < bound <= min(makespans) * (1 + 1e-9)
    kinds = ["any"] * len(found.jobs)
    best = best_known(found, kinds, mappings, 60, seed)
    assert bound <= best * (1 + 1e-9)
    assert best <= min(makespans)
