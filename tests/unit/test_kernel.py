"""Kernels: when they are compiled, where that is kept, and that it changes no result."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problem_world import any_sites, random_problem

from site_selector.mapping.estimator import Estimator, upward_rank
from site_selector.mapping.kernels import compiled as kernel
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
    problems = [
        (seed, staging)
        for seed in range(5)
        for staging in ("per-site", "per-job", "staged", "bypassed")
    ]
    fast = [everything(random_problem(*case), case[0]) for case in problems]
    # A process that did nothing yet.
    monkeypatch.setattr(kernel, "_state", type(kernel._state)())
    assert [everything(random_problem(*case), case[0]) for case in problems] == fast


def test_kinds_of_jobs_that_wait_alike_change_nothing(compiled: None) -> None:
    for seed in range(3):
        problem = random_problem(seed)
        alike = np.tile(problem.queue_s, (len(problem.jobs), 1))
        assert everything(replace(problem, queue_s=alike), seed) == everything(problem, seed)


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``code`` in a process of its own, with the helpers of these tests."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
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
from pathlib import Path
from problem_world import random_problem
from site_selector.mapping.kernels import compiled as kernel
kernel._SHARED = Path("{shared}")
from site_selector.mapping.estimator import upward_rank
kernel.compile_from_now_on()
print(upward_rank(random_problem(5)).sum())
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("shared", "limit"),
    [
        ("/proc/nothing", ""),
        ("{tmp}", "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"),
        ("{tmp}", ""),
    ],
)
def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, shared: str, limit: str
) -> None:
    folder = shared.format(tmp=tmp_path)
    done = run_python(RANK.format(limit=limit, shared=folder), XDG_CACHE_HOME="/proc/nothing")
    assert done.stderr == ""
    assert float(done.stdout) == upward_rank(random_problem(5)).sum()
    kept = list(tmp_path.glob("*/*/*.nbc"))
    assert bool(kept) == (shared == "{tmp}" and not limit)


def test_what_is_kept_is_for_this_source_only(tmp_path: Path) -> None:
    first = tmp_path / "kernel_a.py"
    first.write_text("1")
    before = kernel._key.__wrapped__(tmp_path)
    assert kernel._key.__wrapped__(tmp_path) == before
    first.write_text("2")
    assert kernel._key.__wrapped__(tmp_path) != before


def one_more() -> None:
    """No kernel of ours."""


def test_what_was_compiled_beside_the_package_serves_who_may_not_write_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "package" / "kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(kernel, "_SHARED", shared)
    for name in ("cache_directory", "_is_writable"):
        monkeypatch.setattr(kernel, name, getattr(kernel, name).__wrapped__)
    monkeypatch.setattr(kernel, "_state", type(kernel._state)())
    kernel.kernel(one_more)
    folder = kernel.cache_directory()
    assert (folder.parent, kernel.can_keep(), kernel.is_warm()) == (shared, True, False)
    (folder / "mapping").mkdir()
    (folder / "mapping" / "test_kernel.one_more-1.py311.nbi").write_text("code")

    # root may write anywhere
    monkeypatch.setattr(os, "access", lambda _path, mode: not mode & os.W_OK)
    own = kernel.cache_directory()
    assert tmp_path / "user" in own.parents
    assert kernel.is_warm() and not own.exists()
    assert kernel.can_keep()
    [copy] = own.glob("mapping/*.nbi")
    assert copy.read_text() == "code"
    assert own.stat().st_mode & 0o077 == 0
    assert [path.name for path in own.parent.iterdir()] == [own.name]
    copy.unlink()  # one's own, half made, is gone on with
    assert not kernel.is_warm()


def test_code_for_another_processor_is_not_taken(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Some CPU\ncpu MHz\t\t: 2400.1\n")
    assert kernel._processor(cpuinfo) == "Some CPU"
    assert kernel._processor(tmp_path / "absent") == ""


def test_warm_compiles_all_kernels_and_then_says_nothing() -> None:
    command = [sys.executable, "-m", "site_selector.warm"]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    again = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    assert (again.stdout, again.stderr) == ("", "")


def test_set_up_compiles_again_when_they_change() -> None:
    sources = Path(kernel.__file__).parent.relative_to(ROOT) / "*.py"
    assert str(sources) in (ROOT / "examples/testbed/bootstrap.sh").read_text()


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
