"""Kernels: when they are compiled, where that is kept, and that it changes no result."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problem_world import any_sites, random_problem

from site_selector.mapping import kernel
from site_selector.mapping.estimator import Estimator, upward_rank
from site_selector.mapping.policies import (
    VARIANTS,
    by_level,
    downward_rank,
    greedy,
    list_schedule,
    one_site,
    optimistic_costs,
)
from site_selector.problem import Problem

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is to be done runs compiled."""
    monkeypatch.setattr(kernel._state, "running", True)


def everything(problem: Problem, seed: int) -> list[Any]:
    """All that is computed by kernels."""
    run = Estimator(problem)
    sites = any_sites(problem, seed)
    return [
        run(sites),
        run.score(sites),
        upward_rank(problem).tolist(),
        downward_rank(problem, 0.4).tolist(),
        optimistic_costs(problem).tolist(),
        greedy(problem),
        by_level(problem),
        one_site(problem, 0),
        *(list_schedule(problem, run.rank, knows) for knows in VARIANTS.values()),
    ]


def test_compiled_or_as_they_stand_the_results_are_the_same(
    compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = [(seed, staging) for seed in range(5) for staging in ("per-site", "per-job")]
    fast = [everything(random_problem(*one), one[0]) for one in problems]
    monkeypatch.setattr(kernel, "_state", type(kernel._state)())  # a process that did nothing yet
    assert [everything(random_problem(*one), one[0]) for one in problems] == fast


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
from site_selector.mapping.estimator import Estimator
problem = random_problem(5, longest=20)
ends = {Estimator(problem).makespan(any_sites(problem, seed)) for seed in range(50)}
print(sum(ends), "numba" in sys.modules)
"""


def test_small_workflows_do_not_wait_for_numba() -> None:
    assert run_python(SMALL).stdout.split()[1] == "False"


RANK = """
{limit}
from problem_world import random_problem
from site_selector.mapping import kernel
from site_selector.mapping.estimator import upward_rank
kernel.compile_from_now_on()
print(upward_rank(random_problem(5)).sum())
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("cache", "limit"),
    [
        ("/proc/nothing", ""),
        ("{tmp}", "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"),
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


def test_what_is_kept_is_for_this_source_only(tmp_path: Path) -> None:
    first = tmp_path / "kernel_a.py"
    first.write_text("1")
    before = kernel.cache_directory.__wrapped__(tmp_path)
    assert kernel.cache_directory.__wrapped__(tmp_path) == before
    first.write_text("2")
    assert kernel.cache_directory.__wrapped__(tmp_path) != before


def test_warm_compiles_all_kernels_and_then_says_nothing() -> None:
    command = [sys.executable, "-m", "site_selector.warm"]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    again = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    assert (again.stdout, again.stderr) == ("", "")


@pytest.mark.parametrize(("warm", "steps"), [(True, kernel.WARM_STEPS), (False, kernel.COLD_STEPS)])
def test_compiling_is_worthwhile_once_enough_was_done(
    warm: bool, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "_state", type(kernel._state)())
    monkeypatch.setattr(kernel, "_is_warm", lambda: warm)
    assert [kernel._worthwhile(n) for n in (steps - 1, 1, 0)] == [False, True, True]


def test_arrays_and_lists_are_taken_alike() -> None:
    problem = random_problem(7)
    sites = any_sites(problem, 7)
    ways: list[Callable[[], Any]] = [
        lambda: Estimator(problem).score(sites),
        lambda: Estimator(problem).score(np.array(sites)),  # type: ignore[arg-type]
        lambda: Estimator(problem).score(tuple(sites)),
    ]
    assert len({way() for way in ways}) == 1
