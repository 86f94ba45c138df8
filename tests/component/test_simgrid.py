"""The estimator of mappings beside SimGrid, wherever files are staged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problem_world import any_sites, random_problem

from site_selector.mapping.estimator import Estimator
from tests.bench.simgrid_judge import case, executed, home

pytestmark = pytest.mark.component


def test_simgrid_agrees_wherever_files_are_staged() -> None:
    if not home().is_dir():
        pytest.skip("needs SimGrid in the cache: make bench ONLY=P1")
    cases, seconds = [], []
    for seed in range(6):
        for staging in ("per-site", "per-job", "mixed", "staged", "bypassed"):
            problem = random_problem(seed, staging)
            # SimGrid's links have no set-up times, and one transfer can fill them. One that several
            # paths share bounds them all.
            per_byte = problem.seconds_per_byte.copy()
            if problem.bottleneck is not None:
                for line in {*problem.bottleneck.ravel()} - {-1}:
                    per_byte[(problem.bottleneck == line) & (per_byte > 0)] = 1e-7
            problem = replace(
                problem,
                seconds_per_byte=per_byte,
                occupied_per_byte=per_byte,
                setup_s=np.zeros_like(problem.setup_s),
                first_s=None,
                file_s=None,
            )
            run, site = Estimator(problem), any_sites(problem, seed)
            cases.append(case(run, site, our_turns=True))
            seconds.append(run.makespan(site))
    assert executed(cases, print) == pytest.approx(seconds, rel=1e-6)
