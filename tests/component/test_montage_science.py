"""Montage's jobs make a mosaic that is right, with Debian's programs, and a wrong one is seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from adon.machine import packages
from examples.montage import check
from examples.montage.sky import Recipe
from examples.montage.workflow import TOOLS, write

pytestmark = pytest.mark.component

RECIPE = Recipe(bands=1, tiles=3, seed=2)
RUN_LOCAL = TOOLS.parents[1] / "soykb" / "run_local.py"


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    wrap = packages.ensure("montage", progress=lambda line: None) / "wrap"
    return {**os.environ, "PATH": f"{wrap}:/usr/bin:/bin"}


def ran(recipe: Recipe, jobs: int, out: Path, environment: dict[str, str]) -> Path:
    """Where all jobs of a workflow have run, one by one."""
    write(recipe, out)
    words = ["--workflow", out / "workflow.yml", "--inputs", out / "inputs", "--work", out / "work"]
    done = subprocess.run(
        [sys.executable, RUN_LOCAL, "--tools", TOOLS, *words],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"{jobs} jobs" in done.stdout
    return out / "work"


@pytest.fixture(scope="module")
def work(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ran(RECIPE, 44, tmp_path_factory.mktemp("montage"), environment)


def run(work: Path, environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=work, env=environment, capture_output=True, text=True, check=False
    )


def test_the_light_of_all_stars_is_kept_and_no_seam_is_left(work: Path) -> None:
    numbers = check.figures(RECIPE, work)
    assert check.held(numbers), numbers
    assert numbers["stars"] == 64
    for picture in ("red.png", "mosaic-color.png"):
        assert (work / picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_so_it_is_of_2002_jobs(environment: dict[str, str], tmp_path: Path) -> None:
    recipe = Recipe(tiles=11)
    numbers = check.figures(recipe, ran(recipe, 2002, tmp_path, environment))
    assert check.held(numbers), numbers


def test_without_common_backgrounds_there_are_seams(
    work: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    images = str(tmp_path / "images.tbl")
    mosaic = str(tmp_path / "red-mosaic.fits")
    for command in (
        ("mImgtbl", "-t", "red-projected.tbl", ".", images),
        ("mAdd", "-e", images, "region.hdr", mosaic),
    ):
        done = run(work, environment, *command)
        assert done.returncode == 0, done.stdout
    assert check.figures(RECIPE, tmp_path)["largest_background_step"] > 5


def test_tiles_that_do_not_overlap_fail_their_job_in_words(
    work: Path, environment: dict[str, str]
) -> None:
    apart = ("p-red-000.fits", "p-red-008.fits")
    done = run(work, environment, str(TOOLS / "mDiffFit"), "0", "8", *apart, "region.hdr", "no.txt")
    assert done.returncode == 1 and "Images don't overlap" in done.stdout
    assert not list(work.glob("no*"))
