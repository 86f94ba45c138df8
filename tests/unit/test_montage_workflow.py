"""Montage's workflow has the shape of the original, its catalogs say where all is, and it plans."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from adon.planning.placement import place
from examples.montage import check
from examples.montage.fits import image_bytes
from examples.montage.scenario import PAPERS, SCENARIO, TEMPLATE, result
from examples.montage.sky import Pixels, Recipe, Sky
from examples.montage.workflow import HEAD, TOOLS, write
from examples.workflows.jobs import SIZE_ESTIMATE
from network_provisioner.templates.data import template_from_dict
from network_provisioner.topology.data import topology_from_dict
from pegasus_hooks.planner.model import Options
from pegasus_hooks.planner.plan import plan
from site_selector.catalogs.sources import Sources
from site_selector.inputs import load_inputs

EXAMPLE = TOOLS.parent
ROOT = EXAMPLE.parents[1]
# Which transformation feeds which in montage-workflow-v3, and mViewer, which reads three mosaics.
SHAPE = {
    ("mProject", "mDiffFit"),
    ("mProject", "mBackground"),
    ("mDiffFit", "mConcatFit"),
    ("mConcatFit", "mBgModel"),
    ("mBgModel", "mBackground"),
    ("mBackground", "mImgtbl"),
    ("mBackground", "mAdd"),
    ("mImgtbl", "mAdd"),
    ("mAdd", "mViewer"),
}


def read(out: Path) -> dict[str, Any]:
    return {p.name: yaml.safe_load(p.read_text()) for p in out.glob("*.yml")}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("montage")
    assert "87 jobs over 2 bands of 9 tiles" in write(Recipe(bands=2, tiles=3), out)
    return out


def test_edges_and_fan_out_are_those_of_the_original(written: Path) -> None:
    flow = read(written)["workflow.yml"]
    jobs = {job["id"]: job for job in flow["jobs"]}
    edges = [(link["id"], child) for link in flow["jobDependencies"] for child in link["children"]]
    assert {(jobs[a]["name"], jobs[b]["name"]) for a, b in edges} == SHAPE
    assert Counter(job["name"] for job in jobs.values()) == Counter(
        {"mProject": 18, "mDiffFit": 40, "mBackground": 18, "mViewer": 3}
        | dict.fromkeys(("mConcatFit", "mBgModel", "mImgtbl", "mAdd"), 2)
    )


def test_jobs_name_only_files_they_use_and_every_file_is_made_once(written: Path) -> None:
    documents = read(written)
    jobs = documents["workflow.yml"]["jobs"]
    made = Counter(u["lfn"] for j in jobs for u in j["uses"] if u["type"] == "output")
    used = {use["lfn"] for job in jobs for use in job["uses"]}
    assert set(made.values()) == {1}
    for job in jobs:
        uses = {use["lfn"] for use in job["uses"]}
        assert {str(word) for word in job["arguments"]} & used <= uses
    given = {r["lfn"]: r for r in documents["replicas.yml"]["replicas"]}
    assert given.keys() == used - made.keys()
    for lfn, replica in given.items():
        file = written / "inputs" / lfn
        assert int(replica["metadata"]["size"]) == file.stat().st_size
        assert replica["pfns"][0]["site"] == HEAD and "sha256" in replica["checksum"]
    for use in (use for job in jobs for use in job["uses"] if use["lfn"] in made):
        assert int(use["metadata"][SIZE_ESTIMATE]) > 0
    published = {u["lfn"] for j in jobs for u in j["uses"] if u.get("stageOut") is True}
    assert {"mosaic-color.png", "red-mosaic.fits", "green.png"} <= published


@pytest.mark.parametrize(
    ("recipe", "jobs"),
    [(Recipe(bands=1), 44), pytest.param(Recipe(tiles=11), 2002, marks=pytest.mark.long)],
)
def test_it_is_placed_and_planned(tmp_path: Path, recipe: Recipe, jobs: int) -> None:
    assert f"{jobs:,} jobs" in write(recipe, tmp_path)
    readme = (EXAMPLE / "README.md").read_text()
    assert f"| {recipe.degree} | {recipe.bands} | {recipe.tiles} | {jobs:,} |" in readme
    inputs = load_inputs(tmp_path / "workflow.yml")
    layout = SCENARIO.layout
    placed = place(
        inputs,
        output_site=HEAD,
        topology=topology_from_dict(layout.topology()),
        pool={site.name: site.workers for site in layout.sites},
        alternatives=False,
    )
    assert Counter(placed.mapping.sites.values()).keys() <= {"fiu", "nicta"}
    planned = plan(
        inputs, Sources(tmp_path / "workflow.yml"), placed.mapping.sites, tmp_path / "submit",
        HEAD, None, Options(user="ada", check="/bin/true"),
    )  # fmt: skip
    assert planned.dag.read_text().count("\nJOB m") == jobs


def test_all_tiles_are_wanted_back_from_one_rack_where_that_is_asked_for(tmp_path: Path) -> None:
    write(Recipe(bands=1, tiles=2), tmp_path, racks=("fiu",), keep_all=True)
    documents = read(tmp_path)
    assert [site["name"] for site in documents["sites.yml"]["sites"]] == [HEAD, "fiu"]
    back = {
        use["lfn"]
        for job in documents["workflow.yml"]["jobs"]
        for use in job["uses"]
        if use["type"] == "output" and use["stageOut"]
    }
    tiles = {f"{kind}-red-{n:03d}{area}.fits" for kind in "pc" for n in range(4)
             for area in ("", "_area")}  # fmt: skip
    assert tiles < back


def test_rates_of_the_template_are_the_papers_scaled_alike() -> None:
    paper, ours = (template_from_dict("montage", document) for document in (PAPERS, TEMPLATE))
    scale = paper.rspec.max_bps / ours.rspec.max_bps
    assert ours.qspec.min_bps * scale == paper.qspec.min_bps
    least, most = ours.qspec.min_bps, ours.rspec.max_bps
    assert all(least < link.rate_bps <= most for link in SCENARIO.layout.links)


def mosaics(folder: Path, sky: Sky, spoil: Callable[[Pixels], None]) -> Path:
    """Mosaics as they have to be, but for a slope, which nobody can tell; the last is spoilt."""
    survey = Sky(sky.recipe)
    survey.tiles = [sky.mosaic]
    for band, name in enumerate(sky.bands):
        image = survey.image(0, band)
        if band == len(sky.bands) - 1:
            spoil(image)
        (folder / f"{name}-mosaic.fits").write_bytes(image_bytes(sky.mosaic.header, image))
    return folder


def lost_star(image: Pixels) -> None:
    image[:75, :75] = np.minimum(image[:75, :75], np.median(image[:75, :75]) + 3)


def seam(image: Pixels) -> None:
    image[:, 300:] += 1.5


def hole(image: Pixels) -> None:
    image[:, 149:151] = np.nan  # between stars


@pytest.mark.parametrize(
    ("spoil", "flux_held", "seam_held"),
    [
        (lost_star, False, True),
        (seam, True, False),
        (hole, True, False),
    ],
)
def test_the_check_sees_what_is_wrong_with_a_mosaic(
    tmp_path: Path, spoil: Callable[[Pixels], None], flux_held: bool, seam_held: bool
) -> None:
    sky = Sky(Recipe(bands=2, seed=3))
    numbers = check.figures(sky.recipe, mosaics(tmp_path, sky, spoil))
    assert (numbers["worst_flux_error"] <= check.FLUX_GOAL) is flux_held, numbers
    assert (numbers["largest_background_step"] <= check.SEAM_GOAL) is seam_held, numbers
    assert check.held(numbers) is (flux_held and seam_held)
    met = [row.goal.rpartition(" ")[2] for row in result(numbers, b"").rows if row.goal]
    assert met == [("missed", "met")[held] for held in (flux_held, seam_held)]
    documentation = (ROOT / "docs/report.md").read_text()
    assert not [key for key in numbers if f"`{key}`" not in documentation]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("workflow.py", ("--tiles", "0")),
        ("workflow.py", ("--testbed", "/nonexistent/testbed.json")),
        ("check.py", ("--truth", "/nonexistent", "--mosaics", "/")),
    ],
)
def test_what_scripts_refuse_is_one_line_and_status_2(
    tmp_path: Path, name: str, args: tuple[str, ...]
) -> None:
    where = ("--out", str(tmp_path / "out")) if name == "workflow.py" else ()
    done = subprocess.run(
        [sys.executable, EXAMPLE / name, *where, *args], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{name}: ") and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
