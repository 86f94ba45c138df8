"""A workflow's DAG by level and kind: its shape, how far it has come, what ADON saved it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from dashboard_world import job, measured
from hypothesis import given
from hypothesis import strategies as st

from monitors.base.measurement import MOST_DETAILS, Measurement
from monitors.workflows.facts.plan import FILE, plan_of, read_plan
from monitors.workflows.planned.levels import MOST_EACH, DagShape, dag_fact, kind_of, levels_of
from monitors.workflows.progress import Timeline, progress, timeline
from monitors.workflows.savings import by_paths, by_placement

NOW = 1_700_000_000.0


@st.composite
def dags(draw: st.DrawFn) -> dict[str, list[str]]:
    """Up to 200 jobs of some kinds; parents come before children."""
    names = [f"{draw(st.sampled_from('abcd'))}_ID{n:07d}" for n in range(draw(st.integers(0, 200)))]
    return {
        name: draw(st.lists(st.sampled_from(names[:n]), max_size=3)) if n else []
        for n, name in enumerate(names)
    }


@given(dags())
def test_every_job_is_in_one_box_and_edges_go_down(parents: dict[str, list[str]]) -> None:
    levels = levels_of(parents)
    assert levels == {
        name: 1 + max((levels[p] for p in above), default=-1) for name, above in parents.items()
    }
    shape = DagShape.of(parents, levels)
    assert sum(box.count for box in shape.boxes) == shape.jobs == len(parents)
    assert all(shape.boxes[a].band < shape.boxes[b].band for a, b in shape.edges)
    assert all(bool(box.job) == (len(parents) <= MOST_EACH) for box in shape.boxes)
    recorded = dag_fact("w", NOW, shape, {})
    assert DagShape.read(recorded) == shape
    assert progress(shape, []).jobs == len(parents)


@given(dags())
def test_a_level_is_awaited_until_all_its_jobs_are_done(parents: dict[str, list[str]]) -> None:
    levels = levels_of(parents)
    shape = DagShape.of(parents, levels)
    for reached in range(shape.levels + 1):
        ended = [ended_job(n, levels[n]) for n in parents if levels[n] < reached]
        awaits = progress(shape, ended).awaits
        if reached == shape.levels:
            assert awaits is None
        else:
            assert awaits is not None
            assert (awaits.level, awaits.until) == (
                reached // shape.width * shape.width + 1,
                min(shape.levels, (reached // shape.width + 1) * shape.width),
            )


def ended_job(name: str, level: int, start: float = NOW, **more: object) -> Measurement:
    return job("w", name, f"ns::{kind_of(name)}:1.0", "mu", start, 10.0, level=level, **more)


def test_kinds_are_in_names() -> None:
    assert list(map(kind_of, (
        "bwa_mem_ID0000005", "stage_in_remote_tacc_0_0", "merge_bwa_PID1_ID12", "clean_up_x_3",
        "A12", "job.7", "42", "stage_out_local_mu_1_0", "register_local_0_0",
    ))) == [
        "bwa_mem", "stage_in", "merge_bwa", "clean_up", "A", "job", "42", "stage_out", "register",
    ]  # fmt: skip


def test_a_large_dag_is_small_to_record() -> None:
    parents: dict[str, list[str]] = {}
    for n in range(30_000):  # a deep one with more kinds than are told apart
        parents[f"{'k' * 90}{chr(97 + n % 26)}_ID{n}"] = list(parents)[-2:] if n < 500 else []
    shape = DagShape.of(parents, levels_of(parents))
    assert len(json.dumps(dag_fact("w", NOW, shape, {}).details)) < MOST_DETAILS
    assert shape.jobs == 30_000 and sum(box.count for box in shape.boxes) == 30_000


def test_jobs_that_wait_for_each_other_have_no_level() -> None:
    circle = {"a": ["b"], "b": ["a"], "c": ["gone"], "d": ["c", "c"]}
    assert levels_of(circle) == {"c": 0, "d": 1}
    assert DagShape.of(circle, levels_of(circle)).jobs == 2


def test_what_became_of_each_box() -> None:
    parents: dict[str, list[str]] = {f"a_ID{n}": [] for n in range(100)}
    parents |= {f"b_ID{n}": [f"a_ID{n}"] for n in range(100)}
    levels = levels_of(parents)
    shape = DagShape.of(parents, levels)
    ended = [ended_job(f"a_ID{n}", 0, NOW + n) for n in range(100)]
    ended += [
        ended_job("b_ID0", 1, NOW + 200, outcome="failed"),
        ended_job("b_ID0", 1, NOW + 300, attempt=1),  # it was tried again
        ended_job("b_ID1", 1, NOW + 200, outcome="failed"),
        ended_job("stranger_ID1", 7),
        measured("job", "odd", 1.0, NOW, job="b_ID2", level="none"),
    ]
    made = progress(shape, ended)
    first, second = made.boxes
    assert (first.kind, first.count, first.done, first.failed) == ("a", 100, 100, 0)
    assert (second.kind, second.level, second.done, second.failed) == ("b", 2, 1, 1)
    (run,) = second.runs
    assert (run.site, run.attempts, run.failed, run.busy_s) == ("mu", 3, 2, 30.0)
    assert (run.started_at, run.ended_at, run.waited_s) == (NOW + 200, NOW + 310, 7.5)
    assert made.awaits is not None
    assert (made.awaits.left, made.awaits.jobs, made.awaits.kinds) == (99, 100, [("b", 99)])


def test_what_is_forgotten_is_not_shown_as_to_come() -> None:
    parents: dict[str, list[str]] = {f"a_ID{n}": [] for n in range(100)}
    shape = DagShape.of(parents, levels_of(parents))
    ended = [ended_job(f"a_ID{n}", 0) for n in range(50)]
    assert progress(shape, ended, 55).boxes[0].done == 50  # the last are yet to be measured
    for jobs, done in (([], 1), (ended, 70), ([replace(ended[0], details={"job": "a_ID0"})], 1)):
        made = progress(shape, jobs, done)
        assert (made.jobs, made.boxes, made.awaits) == (100, (), None)


def test_what_is_no_shape_is_none() -> None:
    good = dag_fact("w", NOW, DagShape.of({"a": []}, {"a": 0}), {})
    for change in (
        {"boxes": 7}, {"boxes": [[1]]}, {"edges": [[0, 9]]}, {"width": 0}, {"edges": [["x", 1]]},
    ):  # fmt: skip
        bad = measured("dag", "w", 1.0, NOW, **(dict(good.details) | change))
        assert DagShape.read(bad) is None, change


def test_saved_by_places_and_by_paths(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(
        json.dumps(
            {"estimate_s": 800, "policy": "chains", "portfolio": {"random": 1300, "x": None}}
        )
    )
    plan = plan_of(read_plan(tmp_path))
    assert plan == {"policy": "chains", "expected_s": 800.0, "portfolio": {"random": 1300.0}}
    placed = by_placement(dag_fact("w", NOW, DagShape.of({}, {}), plan))
    assert placed is not None and asdict(placed)["saved_s"] == 500.0
    assert by_placement(None) is None
    assert by_placement(dag_fact("w", NOW, DagShape.of({}, {}), {})) is None

    def moved(src: str, rate: float | None, path: list[str] | None, n: int) -> Measurement:
        seconds = None if rate is None else 8e9 / rate
        return measured(
            "job_transfer", f"{src}>mu", 1e9, NOW + n, "dagman", "w", f"t{src}{n}",
            seconds=seconds, goodput_bps=rate, path=path,
        )  # fmt: skip

    own = [moved("tacc", 2e8, ["tacc", "s1", "mu"], 1), moved("iplant", 1e8, ["iplant", "mu"], 2)]
    own += [moved("tacc", 1e8, [], 3), moved("tacc", None, ["tacc", "mu"], 4)]
    others = [moved("tacc", rate, None, 10 + n) for n, rate in enumerate((1e8, 8e7, 1.6e8))]
    (iplant, tacc) = by_paths(own, lambda pair: others if pair == "tacc>mu" else own[1:2])
    assert (iplant.src, iplant.compared, iplant.saved_s) == ("iplant", 0, None)
    assert (tacc.transfers, tacc.compared, tacc.usual_bps, tacc.saved_s) == (1, 3, 1e8, 40.0)


def test_bins_have_means_by_site() -> None:
    jobs = [
        job("w", "a", "k", "mu", 100.0, 50.0, submitted_at=100.0),
        job("w", "b", "k", "mu", 125.0, 75.0, submitted_at=100.0),
        job("w", "c", "k", "tacc", 150.0, 50.0, submitted_at=150.0),
        measured("job", "k@mu", 5.0, 120.0, started_at="soon"),  # anybody may record anything
    ]
    histogram = timeline(jobs, 2)
    assert (histogram.start, histogram.width_s, histogram.attempts) == (100.0, 50.0, 3)
    mu, tacc = histogram.sites
    assert (mu.site, mu.running, mu.waiting) == ("mu", [1.5, 1.0], [0.5, 0.0])
    assert (tacc.running, tacc.waiting) == ([0.0, 1.0], [0.0, 0.0])
    assert timeline([], 5) == Timeline()


@given(
    st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e3), st.floats(0, 1e3)), min_size=1),
    st.integers(1, 50),
)
def test_no_second_is_lost(spans: list[tuple[float, float, float]], bins: int) -> None:
    jobs = [
        job("w", str(n), "k", "mu", at + waited, ran, submitted_at=at)
        for n, (at, waited, ran) in enumerate(spans)
    ]
    histogram = timeline(jobs, bins)
    (mu,) = histogram.sites
    exact = {"abs": 0.002 * bins * histogram.width_s + 1e-6}
    assert sum(mu.running) * histogram.width_s == pytest.approx(sum(r for *_, r in spans), **exact)
    assert sum(mu.waiting) * histogram.width_s == pytest.approx(
        sum(w for _, w, _ in spans), **exact
    )
