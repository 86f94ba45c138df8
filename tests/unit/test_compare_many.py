"""The comparison of many workflows: their shapes, what the runs prove, and how they are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from adon.planning.placement import place
from examples.compare import many, shapes, slowed
from examples.compare.crowd import layout_on
from examples.compare.schedule import CrowdRun, Entry, WorkflowRun
from examples.compare.shapes import SHAPES
from examples.compare.ways import LEARNED, WAYS
from examples.testbed.layout import HUB
from examples.workflows.places import Place
from network_provisioner.topology.data import topology_from_dict
from site_selector.inputs import load_inputs


def places_in(folder: Path) -> dict[str, Place]:
    return {
        site.name: Place(
            site.name, f"{folder}/{site.name}/scratch", f"{folder}/{site.name}/storage",
            f"gsiftp://{site.dtn}", site.workers, "/tools",
        )
        for site in layout_on("idle").sites
    }  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_can_be_placed_with_the_catalogs_of_its_user(name: str, tmp_path: Path) -> None:
    layout, where = layout_on("idle"), places_in(tmp_path)
    for number, shape in enumerate(shapes.parts(name)):
        shapes.store_inputs(shape, where)
        file = shapes.write(shape, where, tmp_path / f"{number}", "bob")
        assert "accounting_group_user: bob" in (file.with_name("sites.yml")).read_text()
        stored = tmp_path / "iplant/storage/shapes" / shape.name
        assert {f.name: f.stat().st_size for f in stored.iterdir()} == dict(shape.inputs)
        placed = place(
            load_inputs(file),
            output_site=HUB,
            topology=topology_from_dict(layout.topology()),
            pool={site.name: site.workers for site in layout.sites},
        )
        jobs = shape.document["jobs"]
        assert len(placed.mapping.sites) == len(jobs)
        assert set(placed.mapping.sites.values()) <= {"mu", "tacc"}
        # Ten of them keep four slots busy for minutes.
        assert sum(shape.seconds[job["name"]] for job in jobs) > 60


def test_a_job_is_told_its_seconds_and_the_files_it_writes() -> None:
    (fan,) = shapes.parts("fan")
    split, work, *_ = fan.document["jobs"]
    assert split["arguments"][:2] == ["2.5", "fan-0=2000000"]
    assert work["arguments"] == ["10", "fan-0.out=1000000"]
    assert fan.inputs == {"fan.in": 20_000_000}


def crowd(way: str, *makespans: float, expected: float = 0.0) -> CrowdRun:
    workflows = tuple(
        WorkflowRun(entry.shape, entry.user, "success", entry.at_s or 0.0,
                    (entry.at_s or 0.0) + seconds, expected, {"mu": 1})
        for entry, seconds in zip(many.MANY.entries, makespans, strict=False)
    )  # fmt: skip
    return CrowdRun(way, workflows, 5e6, 4e6, 1e6, 0.3)


ALONE = crowd("alone", 50.0, 50.0, 40.0, 100.0)
RUNS = {
    "alone": ALONE,
    "random": crowd("random", 300.0, 300.0),
    "heft": crowd("heft", 200.0, 100.0),
    LEARNED.name: crowd(LEARNED.name, 90.0, 60.0, expected=80.0),
}


def test_ten_workflows_of_three_users_come_within_ten_minutes() -> None:
    entries = many.MANY.entries
    assert len(entries) == 10 and {e.shape for e in entries} == set(SHAPES)
    assert {e.user for e in entries} == {"ada", "bob", "eve"}
    assert all(e.at_s is not None and e.at_s <= 600 for e in entries)
    assert all(e.at_s is None for e in (*many.ONE_BY_ONE.entries, *slowed.SLOWED.entries))


def test_slow_down_is_against_the_shape_alone() -> None:
    assert many.slowdown(RUNS["heft"], ALONE) == 4.0
    assert many.slowdown(RUNS[LEARNED.name], ALONE) == pytest.approx(1.8)
    assert many.forecast_error(RUNS["heft"]) is None
    assert many.forecast_error(RUNS[LEARNED.name]) == pytest.approx(0.25)
    best = many.best_peer(RUNS)
    assert best is not None and best.way == "heft" and best.mean == 150.0 and best.end == 200.0


def test_rows_and_goals_are_shown() -> None:
    lines = many.text({"busy": RUNS}).split("\n")
    assert lines[0].startswith("busy network; alone: soykb 50 s, montage 50 s")
    assert lines[-1].startswith(
        "adon-learned ÷ heft: mean 0.50, goal ≤ 0.75; goal for its slow-down"
    )
    assert "≤ 4.0" in lines[-1]
    assert "adon-learned" in lines[4] and "25%" in lines[4]
    aware, blind = crowd("adon", 80.0), crowd("adon-blind", 100.0)
    shown = slowed.text({"adon-blind": blind, "adon": aware})
    assert "adon ÷ adon-blind: 0.80, goal ≤ 0.85" in shown and "soykb 80 s 1@mu" in shown


def test_runs_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    RUNS["heft"].save(file)
    assert CrowdRun.load(file) == RUNS["heft"]
    file.write_text("{torn")
    assert CrowdRun.load(file) is None


def test_what_was_run_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def in_box(*args: object) -> CrowdRun:
        way, state, known = args[1], args[3], args[4]
        assert isinstance(way, type(LEARNED)) and isinstance(state, Path)
        assert (known is None) == (way is not LEARNED)
        started.append(way.name)
        state.mkdir(exist_ok=True)
        (state / many.ARCHIVE).touch()
        return replace(ALONE, way=way.name)

    monkeypatch.setattr(many, "in_box", in_box)
    monkeypatch.setattr(many, "check_box", lambda: None)
    many.compare(tmp_path, lambda _: None, ("idle",), only="heft")
    assert started == ["alone", "heft"]
    runs = many.compare(tmp_path, lambda _: None, ("idle",))["idle"]
    assert started[2:] == [way.name for way in WAYS if way.name != "heft"]
    assert list(runs) == ["alone", *(way.name for way in WAYS)]


def test_an_entry_waits_for_the_one_before_it_by_default() -> None:
    assert Entry("fan", "ada").at_s is None
