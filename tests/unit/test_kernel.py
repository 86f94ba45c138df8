"""Kernels: compiled they give what they give interpreted, and everything works without numba."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problem_world import any_sites, random_problem

from site_selector import kernel
from site_selector.policies import by_level, greedy, one_site
from site_selector.problem import Problem
from site_selector.schedule import VARIANTS, downward_rank, list_schedule, optimistic_costs
from site_selector.sharing import SharingEstimator
from site_selector.simulate import Estimator, upward_rank

ROOT = Path(__file__).resolve().parents[2]
STAGING = st.sampled_from(["per-site", "per-job"])

needs_numba = pytest.mark.skipif(not kernel.available(), reason="numba is not installed")


def everything(problem: Problem, seed: int) -> list[Any]:
    """All that is computed by kernels."""
    run = Estimator(problem)
    sites = any_sites(problem, seed)
    return [
        run(sites),
        run.score(sites),
        SharingEstimator(problem)(sites),
        upward_rank(problem).tolist(),
        downward_rank(problem, 0.4).tolist(),
        optimistic_costs(problem).tolist(),
        greedy(problem),
        by_level(problem),
        one_site(problem, 0),
        *(list_schedule(problem, run.rank, knows) for knows in VARIANTS.values()),
    ]


@needs_numba
@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), STAGING)
def test_compiled_and_interpreted_are_the_same_to_the_last_bit(seed: int, staging: str) -> None:
    with kernel.forced(False):
        interpreted = everything(random_problem(seed, staging), seed)
    with kernel.forced(True):
        compiled = everything(random_problem(seed, staging), seed)
    assert compiled == interpreted


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``code`` in a process of its own, with the helpers of these tests."""
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


SMALL = """
import sys
from problem_world import any_sites, random_problem
from site_selector.simulate import Estimator
problem = random_problem(5, longest=20)
ends = {Estimator(problem).makespan(any_sites(problem, seed)) for seed in range(50)}
print(sum(ends), "numba" in sys.modules)
"""


def test_small_workflows_do_not_wait_for_numba() -> None:
    assert run_python(SMALL).stdout.split()[1] == "False"


def test_without_numba_everything_works() -> None:
    code = """
import sys
sys.modules["numba"] = None
import site_selector.kernel as kernel
with kernel.forced(True):
    from test_kernel import everything
    from problem_world import random_problem
    everything(random_problem(5), 1)
print(kernel.available())
"""
    done = run_python(code)
    assert (done.stdout, done.stderr) == ("False\n", "")


RANK = """
import resource
{limit}
from problem_world import random_problem
from site_selector import kernel
from site_selector.simulate import upward_rank
with kernel.forced(True):
    print(upward_rank(random_problem(5)).sum())
"""


@needs_numba
@pytest.mark.parametrize(
    ("cache", "limit"),
    [
        ("/proc/nothing", ""),
        ("{tmp}", "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"),  # as on a full disk
        ("{tmp}", ""),
    ],
)
def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, cache: str, limit: str
) -> None:
    folder = cache.format(tmp=tmp_path)
    done = run_python(RANK.format(limit=limit), XDG_CACHE_HOME=folder)
    assert done.stderr == ""
    assert float(done.stdout) == upward_rank(random_problem(5)).sum()
    kept = list(tmp_path.glob("adon/kernels/*/*/*.nbc"))
    assert bool(kept) == (cache == "{tmp}" and not limit)


@needs_numba
def test_what_is_kept_is_for_this_source_only(tmp_path: Path) -> None:
    first = tmp_path / "kernel_a.py"
    first.write_text("1")
    before = kernel.cache_directory.__wrapped__(tmp_path)
    assert kernel.cache_directory.__wrapped__(tmp_path) == before
    first.write_text("2")
    assert kernel.cache_directory.__wrapped__(tmp_path) != before


@needs_numba
def test_warm_compiles_all_kernels_and_then_says_nothing() -> None:
    command = [sys.executable, "-m", "site_selector.warm"]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    again = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    assert (again.stdout, again.stderr) == ("", "")


def test_it_is_worthwhile_once_enough_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    state = type(kernel._state)()
    state.warm = True
    monkeypatch.setattr(kernel, "_state", state)
    asked: list[bool] = [kernel.worthwhile(kernel.WARM_STEPS // 2) for _ in range(3)]
    assert asked == [False, *[kernel.available()] * 2]


def test_a_cold_start_is_worthwhile_later(monkeypatch: pytest.MonkeyPatch) -> None:
    state = type(kernel._state)()
    state.warm = False
    monkeypatch.setattr(kernel, "_state", state)
    assert not kernel.worthwhile(kernel.COLD_STEPS - 1)
    assert kernel.worthwhile(1) == kernel.available()


def test_arrays_and_lists_are_taken_alike() -> None:
    problem = random_problem(7)
    sites = any_sites(problem, 7)
    ways: list[Callable[[], Any]] = [
        lambda: Estimator(problem).score(sites),
        lambda: Estimator(problem).score(np.array(sites)),  # type: ignore[arg-type]
        lambda: Estimator(problem).score(tuple(sites)),
    ]
    assert len({way() for way in ways}) == 1
