"""Montage's example: its sky, its workflow, and the sweep over provisioned bandwidth."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from adon.machine import box, packages, syscalls
from adon.planning.placement import place
from examples.montage import check, fits
from examples.montage import sweep as swept
from examples.montage.fits import image_bytes
from examples.montage.scenario import PAPERS, SCENARIO, TEMPLATE, result
from examples.montage.sky import Frame, Pixels, Recipe, Sky
from examples.montage.sweep_run import SweepRun
from examples.montage.workflow import HEAD, TOOLS, write
from examples.workflows.jobs import SIZE_ESTIMATE
from network_provisioner.base.errors import AdonError, InputError, MissingError
from network_provisioner.templates.data import template_from_dict
from network_provisioner.topology.data import topology_from_dict
from pegasus_hooks.planner.model import Options
from pegasus_hooks.planner.plan import plan
from site_selector.catalogs.sources import Sources
from site_selector.inputs import load_inputs

SEEDS = st.integers(0, 2**31 - 1)
FRAMES = st.builds(
    Frame,
    st.floats(5.0, 355.0),
    st.floats(-80.0, 80.0),
    st.integers(50, 3000),
    st.integers(50, 3000),
    st.floats(-180.0, 180.0),
)


@given(FRAMES, st.floats(0, 1), st.floats(0, 1))
def test_a_pixel_is_found_again_at_its_place(frame: Frame, x: float, y: float) -> None:
    u, v = np.array([x * frame.width]), np.array([y * frame.height])
    assert np.allclose(frame.pixel(*frame.place(u, v)), (u, v), atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.sampled_from([1, 2, 3, 7, 11]))
def test_tiles_leave_no_pixel_out_and_pairs_share_some(seed: int, tiles: int) -> None:
    sky = Sky(Recipe(tiles=tiles, seed=seed))
    axis = np.arange(0.0, sky.mosaic.width, 3)
    ra, dec = sky.mosaic.place(*np.meshgrid(axis, axis))
    inside = []
    for tile in sky.tiles:
        x, y = tile.pixel(ra, dec)
        inside.append((x >= 0) & (x <= tile.width - 1) & (y >= 0) & (y <= tile.height - 1))
    assert np.any(inside, axis=0).all()
    assert all(np.any(inside[i] & inside[j]) for i, j in sky.pairs)
    assert len(sky.pairs) == 4 * tiles**2 - 6 * tiles + 2


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_stars_stand_apart_and_within_the_mosaic(seed: int) -> None:
    sky = Sky(Recipe(seed=seed))
    x, y = sky.mosaic.pixel(*sky.stars[:, :2].T)
    assert min(x.min(), y.min()) >= 18 and max(x.max(), y.max()) <= sky.mosaic.width - 19
    apart = np.hypot(x[:, None] - x, y[:, None] - y) + np.diag(np.full(len(x), 99.0))
    assert apart.min() >= 37


def test_an_image_is_read_as_it_was_written(tmp_path: Path) -> None:
    frame = Frame(210.0, 20.0, 7, 5)
    pixels = np.arange(35.0).reshape(5, 7)
    content = fits.image_bytes(frame.header, pixels)
    assert len(content) == fits.file_bytes(7, 5, 4) == 2 * 2880
    (tmp_path / "a.fits").write_bytes(content)
    assert np.array_equal(fits.read_image(tmp_path / "a.fits"), pixels)
    with pytest.raises(InputError, match="expected a FITS image"):
        fits.read_image(Path(__file__))
    assert all(len(line) == 80 for line in fits.template(frame.header).splitlines())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"degree": 0}, "degree: found 0, expected 1 to 5"),
        ({"bands": 4}, "bands: found 4, expected 1 to 3"),
        ({"tiles": 13}, "tiles: found 13 on 1°, expected 11 at most"),
    ],
)
def test_a_mosaic_that_cannot_be_is_refused(wrong: dict[str, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Recipe(**wrong)


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


RATES = (2e6, 8e6)
WAITS = [0.5, *[0.0] * 8, 0.5]


def a_run(placement: str = "default", rate_bps: float = 2e6, **more: object) -> SweepRun:
    run = SweepRun(placement, rate_bps, 8e6, 1, "success", 100.0, 0.5, WAITS)
    return replace(run, **more)  # type: ignore[arg-type]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[SweepRun]:
    """What was run, each in as many seconds as were before it."""
    runs: list[SweepRun] = []

    def make(run: SweepRun, _state: Path, _programs: object, file: Path) -> None:
        runs.append(replace(run, state="success", seconds=float(len(runs)), io_wait=WAITS))
        file.write_text(json.dumps(asdict(runs[-1])))

    monkeypatch.setattr(swept, "make", make)
    monkeypatch.setattr(box, "can_box", lambda: None)
    for call in ("unshare", "mount"):
        monkeypatch.setattr(syscalls, call, lambda *_, **__: None)
    monkeypatch.setattr(packages, "ensure", lambda name, progress: Path(name))
    return runs


def sweep(
    state: Path, runs: int = 1, say: Callable[[str], None] = lambda _: None
) -> list[SweepRun]:
    return swept.sweep(RATES, 8e6, runs, state, say)


def test_each_rate_and_placement_is_run_and_not_again(tmp_path: Path, made: list[SweepRun]) -> None:
    runs = sweep(tmp_path)
    assert {(run.placement, run.rate_bps) for run in runs} == {
        (placement, rate_bps) for placement in ("default", "isolated") for rate_bps in RATES
    }
    assert sweep(tmp_path) == runs and len(made) == 4
    assert [run.number for run in sweep(tmp_path, runs=2)[4:]] == [2] * 4
    assert len(made) == 8


def test_a_run_that_came_to_no_end_is_told(
    tmp_path: Path, made: list[SweepRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swept, "make", lambda *_: None)
    with pytest.raises(AdonError, match=r"^default-2-8-1 did not come to its end"):
        sweep(tmp_path)


def test_without_a_network_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box, "can_box", lambda: "this is user id 1000")
    with pytest.raises(MissingError, match=r"^sweep: needs a network of its own: this is user"):
        sweep(tmp_path)


def test_what_is_shown() -> None:
    runs = [a_run(), a_run(seconds=120.0), a_run("isolated", 8e6), a_run(state="failed")]
    points = swept.points(runs)
    assert {point: len(of) for point, of in points.items()} == {
        ("default", 2e6): 2, ("isolated", 8e6): 1,
    }  # fmt: skip
    assert swept.text(points).splitlines()[1].split() == [
        "default", "2", "Mb/s", "110.0", "14.1", "50%", "50%", "0%",
    ]  # fmt: skip
    drawn = ElementTree.fromstring(swept.figure(points))
    assert len(drawn.findall(".//{*}circle")) == 2  # a point of each curve
    assert len(drawn.findall(".//{*}rect")) == 1 + 2 * 10
