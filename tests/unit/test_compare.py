"""What a comparison is made of: the order of its runs, where their time went, what they prove."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from adon.planning.placement import place
from adon.report.run_facts import Bar
from examples.compare import many, shapes, slowed
from examples.compare.crowd import layout_on
from examples.compare.judge import best_peer, curve, forecast_errors, ratio, verdicts
from examples.compare.record import Run
from examples.compare.report import html, text
from examples.compare.schedule import CrowdRun, Entry, WorkflowRun
from examples.compare.shapes import SHAPES
from examples.compare.split import Split, split
from examples.compare.ways import ADON, FIRST, LEARNED, PARTS, PEERS, WAYS, in_round, way_of
from examples.scenario import CURVE, NETWORKS, load
from examples.testbed.layout import HUB
from examples.workflows.places import Place
from network_provisioner.base.errors import InputError
from network_provisioner.controllers.routes import default_paths
from network_provisioner.templates.data import template_from_dict
from network_provisioner.topology.data import topology_from_dict
from site_selector.inputs import load_inputs


def bar(job: str, kind: str, submit: float, start: float, end: float, ok: bool = True) -> Bar:
    return Bar(job, kind, "mu", submit, start, end, ok)


def test_the_chain_that_the_end_waited_for_adds_up_to_the_makespan() -> None:
    bars = [
        bar("in", "transfer", 2, 3, 9),
        bar("short", "compute", 2, 3, 4),
        bar("work", "compute", 11, 12, 15, ok=False),
        bar("work", "compute", 16, 18, 28),
        bar("out", "transfer", 30, 31, 40),
    ]
    times = split(bars, {"work": ["in", "short"], "out": ["work"]}, 0.0, 41.0)
    assert times == Split(queue=1 + 2 + 1, computing=10, moving=6 + 9, between=2 + 7 + 2 + 1)


def test_nothing_that_ran_is_all_in_between() -> None:
    assert split([], {}, 5.0, 8.0) == Split(between=3.0)


@pytest.mark.parametrize("number", [1, 2])
def test_a_round_has_every_way_once_and_adon_learns_in_order(number: int) -> None:
    order = in_round(number)
    assert sorted(way.name for way in order) == sorted(way.name for way in WAYS)
    assert [way for way in order if way.learns] == list(ADON)
    assert order[0] is PEERS[number % 2 - 1] and order[2] is PARTS[number % 2 - 1]


def test_a_way_is_named_or_refused() -> None:
    assert way_of("heft-network").hooks and not way_of("adon-mapping").hooks
    with pytest.raises(InputError, match="found 'pegasus-heft', expected one of random, heft, "):
        way_of("pegasus-heft")


def run(
    way: str, makespan: float, number: int = 1, busy: float = 0.0, expected: float = 0.0
) -> Run:
    parts = Split(1.0, 2.0, makespan - 4.0, 1.0)
    return Run(way, number, "success", makespan, expected, parts, (0.3, busy), {}, (), "embedded")


RANDOM, HEFT = (way.name for way in PEERS)
ROUNDS = {
    n: {
        RANDOM: run(RANDOM, 300.0, n),
        HEFT: run(HEFT, 200.0 + n, n),
        FIRST.name: run(FIRST.name, 120.0 + n, n, expected=60.0),
        LEARNED.name: run(LEARNED.name, (200.0 + n) / 2, n, expected=(200.0 + n) / 2.2),
    }
    for n in range(1, 6)
}


def test_a_ratio_is_the_geometric_mean_of_rounds_with_its_bounds() -> None:
    assert best_peer(ROUNDS) == HEFT
    comparison = ratio(ROUNDS, LEARNED.name, HEFT)
    assert comparison is not None
    assert (comparison.rounds, comparison.mean) == (5, pytest.approx(0.5))
    assert comparison.low == pytest.approx(comparison.high) == pytest.approx(0.5)
    assert comparison.p == pytest.approx(1 / 32)  # of all exchanges of five signs this one alone
    inverse = ratio(ROUNDS, HEFT, LEARNED.name)
    assert inverse is not None and inverse.mean == pytest.approx(2.0) and inverse.p == 1.0


def test_one_round_has_no_bounds_and_none_no_ratio() -> None:
    comparison = ratio({1: ROUNDS[1]}, LEARNED.name, HEFT)
    assert comparison is not None and (comparison.low, comparison.high) == (0.0, math.inf)
    assert ratio({}, LEARNED.name, HEFT) is None


def test_a_run_that_waited_for_cores_is_told_and_not_counted() -> None:
    rounds = {1: {**ROUNDS[1], LEARNED.name: run(LEARNED.name, 500.0, busy=0.5)}, 2: ROUNDS[2]}
    comparison = ratio(rounds, LEARNED.name, HEFT)
    assert comparison is not None and comparison.rounds == 1
    assert "not counted: adon-learned of round 1, 500 s: cores busy for 50% of it" in text(
        {"idle": rounds}
    )


def test_a_run_that_was_stopped_counts_as_ended_then() -> None:
    stopped = replace(run(RANDOM, 300.0), state="stopped")
    assert "≥300" in text({"busy": {1: {**ROUNDS[1], RANDOM: stopped}}})
    assert best_peer({1: {**ROUNDS[1], RANDOM: stopped}}) == HEFT


def test_forecasts_count_where_adon_has_learned() -> None:
    assert forecast_errors(ROUNDS) == (pytest.approx(0.1), pytest.approx(0.1))
    assert forecast_errors({1: {FIRST.name: ROUNDS[1][FIRST.name]}}) is None


def test_goals_are_told_as_met_or_missed() -> None:
    met = "\n".join(verdicts("busy", ROUNDS))
    assert f"{LEARNED.name} ÷ {HEFT}: 0.50" in met and "goal ≤ 0.80: met" in met
    assert "off by 10% (median)" in met
    slower = {
        n: {**r, LEARNED.name: run(LEARNED.name, 199.0, n, expected=50.0)}
        for n, r in ROUNDS.items()
    }
    assert "\n".join(verdicts("busy", slower)).count("MISSED") == 3


def test_the_curve_is_by_the_share_of_moving() -> None:
    assert curve({"idle": ROUNDS}) == curve({"idle": ROUNDS, "busy": ROUNDS}) == []
    faster = {1: {HEFT: run(HEFT, 8.0), LEARNED.name: run(LEARNED.name, 8.0)}}
    assert curve({"x5": faster, "idle": ROUNDS, "busy": ROUNDS}) == [
        "moving 98% of heft (idle): 0.50",
        "moving 50% of heft (x5): 1.00",
    ]
    assert "goal" not in "".join(verdicts("x5", faster))


def test_runs_are_kept_and_shown(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    ROUNDS[1][LEARNED.name].save(file)
    assert Run.load(file) == ROUNDS[1][LEARNED.name]
    file.write_text("{torn")
    assert Run.load(file) is None
    page = html({"busy": ROUNDS})
    assert "Every run on the busy network" in page and "adon-learned 5" in page


def test_the_examples_network_can_be_idle_busy_or_faster() -> None:
    soykb = load("soykb")
    assert soykb.on("") == soykb
    idle, busy, faster = soykb.on("idle").layout, soykb.on("busy").layout, soykb.on("x2.5")
    assert {t.udp for t in busy.traffic} == {True, False} and busy.links == idle.links
    assert [k.rate_bps for k in idle.links] == [k.rate_bps for k in soykb.layout.links]
    assert [k.rate_bps for k in faster.layout.links[:2]] == [80e6, 8e6]
    assert template_from_dict("soykb", faster.templates["soykb"]).qspec.min_bps == 10e6
    assert template_from_dict("soykb", faster.templates["soykb"]).rspec.max_bps is None
    for unknown in ("full", "x0", "x"):
        with pytest.raises(InputError, match=f"found no '{unknown}' network"):
            soykb.on(unknown)


@pytest.mark.parametrize("name", ["soykb", "montage"])
def test_best_effort_takes_layer_2_on_the_networks_of_the_comparison(name: str) -> None:
    example = load(name)
    for network in (*NETWORKS, *CURVE):
        topology = topology_from_dict(example.on(network).layout.topology())
        wide = [path for path in default_paths(topology) if path.layer != "lan"]
        assert wide and {path.layer for path in wide} == {"l2"}


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
