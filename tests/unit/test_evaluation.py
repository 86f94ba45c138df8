"""The evaluation of mappings: platforms and beliefs, bounds, lost cases, the report."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from site_selector.evaluation import adversary
from site_selector.evaluation.adversary import (
    QUEUE_S,
    RUNTIME_S,
    SIZE_BYTES,
    FileEdge,
    Puzzle,
    changed_puzzle,
    draw_puzzle,
    judge,
    rival,
    search,
)
from site_selector.evaluation.bounds import best_known, lower_bound, search_budget
from site_selector.evaluation.cases import POLICIES, Outcome, Setting
from site_selector.evaluation.report import (
    HEAD,
    Row,
    as_dict,
    geometric_mean,
    ratio,
    summarise,
    tables,
)
from site_selector.evaluation.traces import Task, Trace, TraceFile, build_trace
from site_selector.evaluation.worlds import (
    LINK_BPS,
    LONG_QUEUE_S,
    REGIMES,
    SPEED,
    WORKERS,
    Platform,
    draw_platform,
    draw_worlds,
    simulator,
    true_problem,
)

MBIT = 125_000  # bytes that one megabit per second moves in a second


def task(name: str, seconds: float, reads: Sequence[str] = (), writes: Sequence[str] = ()) -> Task:
    """A task whose parents follow from its files."""
    return Task(name, name.rstrip("0123456789"), (), (), tuple(reads), tuple(writes), seconds)


def platform(
    workers: Sequence[int],
    link_mbps: float = 1.0,
    store: int = 0,
    speed: Sequence[float] | None = None,
    queue_s: Sequence[float] | None = None,
) -> Platform:
    """Sites with equal links between all; the store is a place of its own where it is no site."""
    n = len(workers)
    places = max(n, store + 1)
    links = [[0.0 if a == b else link_mbps * 1e6 for b in range(places)] for a in range(places)]
    return Platform(
        tuple(f"s{i}" for i in range(n)),
        tuple(workers),
        tuple(speed or [1.0] * n),
        tuple(queue_s or [0.0] * n),
        tuple(tuple(row) for row in links),
        store,
    )


def random_trace(rng: Random) -> Trace:
    """Up to twelve tasks in layers, with files of many sizes, some of them empty."""
    tasks: list[Task] = []
    sizes: dict[str, float] = {"raw0": 3.0 * MBIT, "raw1": 0.0}
    made: list[str] = []
    for i in range(rng.randint(1, 12)):
        reads = rng.sample(made, rng.randint(0, min(3, len(made))))
        reads += rng.sample(["raw0", "raw1"], rng.randint(0, 2))
        writes = [f"f{i}.{k}" for k in range(rng.randint(0, 2))]
        for name in writes:
            sizes[name] = float(rng.choice([0, 1, 5, 50]) * MBIT)
        seconds = rng.choice([0.0, 1.0, 7.0, 30.0])
        tasks.append(task(f"k{rng.randint(0, 2)}t{i}", seconds, reads, writes))
        made += writes
    return build_trace("random", tasks, sizes)


def random_platform(rng: Random) -> Platform:
    """Two to four sites; the store is one of them or not."""
    n = rng.randint(2, 4)
    places = n + rng.randint(0, 1)
    links = [[0.0] * places for _ in range(places)]
    for a in range(places):
        for b in range(a):
            links[a][b] = links[b][a] = rng.choice([1e6, 8e6, 1e9])
    return Platform(
        tuple(f"s{i}" for i in range(n)),
        tuple(rng.randint(1, 3) for _ in range(n)),
        tuple(rng.choice([0.5, 1.0, 3.0]) for _ in range(n)),
        tuple(rng.choice([0.0, 2.0, 60.0]) for _ in range(n)),
        tuple(tuple(row) for row in links),
        places - 1 if places > n else rng.randrange(n),
    )


SEEDS = st.integers(0, 10**9)


@given(st.integers(0, 10**9), st.integers(0, 10**4))
def test_platforms_are_as_wide_as_they_are_said_to_be(seed: int, number: int) -> None:
    drawn_platform = draw_platform(seed, number)
    assert drawn_platform == draw_platform(seed, number)
    n = len(drawn_platform.sites)
    assert 2 <= n <= 8
    assert 0 <= drawn_platform.store <= n
    assert (
        len(drawn_platform.link_bps)
        == len(drawn_platform.places)
        == max(n, drawn_platform.store + 1)
    )
    assert all(WORKERS[0] <= workers <= WORKERS[1] for workers in drawn_platform.workers)
    assert all(SPEED[0] <= speed <= SPEED[1] for speed in drawn_platform.speed)
    assert all(0 <= wait <= LONG_QUEUE_S[1] for wait in drawn_platform.queue_s)
    for a, row in enumerate(drawn_platform.link_bps):
        for b, link in enumerate(row):
            assert link == drawn_platform.link_bps[b][a]
            assert link == 0 if a == b else LINK_BPS[0] <= link <= LINK_BPS[1]


def test_a_problem_has_the_trace_scaled_to_the_sites() -> None:
    trace = build_trace("t", [task("a", 12, ["x"], ["y", "z"]), task("b", 3, ["y"])], {"x": 5.0})
    truth = true_problem(trace, platform([1, 2], link_mbps=8, speed=[1, 4], store=2))
    assert truth.compute_s.tolist() == [[12, 3], [3, 0.75]]
    assert truth.seconds_per_byte.tolist() == [[0, 1e-6, 1e-6], [1e-6, 0, 1e-6], [1e-6, 1e-6, 0]]
    files = {name: i for i, name in enumerate(truth.files)}
    assert truth.holders[files["x"]] == (2,)
    assert [truth.returns[files[name]] for name in "xyz"] == [False, False, True]
    assert truth.output == 2
    assert truth.places == ("s0", "s1", "store")


@given(SEEDS, st.floats(0, 0.99))
def test_beliefs_are_off_by_no_more_than_said(seed: int, error: float) -> None:
    rng = Random(seed)
    trace = random_trace(rng)
    truth = true_problem(trace, random_platform(rng))
    exact, errors, waits, unknown = draw_worlds(truth, trace.kinds, error, rng)
    assert exact.truth is exact.estimated is errors.truth is waits.truth is truth
    believed = waits.estimated
    assert unknown.estimated is believed
    assert errors.estimated.queue_s is truth.queue_s
    assert errors.estimated.compute_s is believed.compute_s

    def close(said: object, true: object) -> None:
        said, true = np.asarray(said, dtype=float), np.asarray(true, dtype=float)
        assert (said >= true * (1 - error) * (1 - 1e-9)).all()
        assert (said <= true * (1 + error) * (1 + 1e-9)).all()

    close(believed.compute_s, truth.compute_s)
    close(believed.size, truth.size)
    close(believed.queue_s, truth.queue_s)
    with np.errstate(invalid="ignore"):
        close(np.nan_to_num(truth.seconds_per_byte / believed.seconds_per_byte, nan=1.0), 1.0)
    for site in range(truth.n_sites):
        by_kind: dict[str, set[float]] = {}
        for job, kind in enumerate(trace.kinds):
            if truth.compute_s[job, site] > 0:
                factor = believed.compute_s[job, site] / truth.compute_s[job, site]
                by_kind.setdefault(kind, set()).add(round(float(factor), 9))
        assert all(len(factors) == 1 for factors in by_kind.values())
    assert unknown.truth.compute_s is truth.compute_s


def test_unknown_waits_are_exponential_about_what_is_believed() -> None:
    trace = build_trace("t", [task("a", 1)], {})
    truth = true_problem(trace, platform([1] * 8, queue_s=[100.0] * 8))
    drawn = []
    for seed in range(400):
        unknown = draw_worlds(truth, trace.kinds, 0.5, Random(seed))[3]
        drawn += list(unknown.truth.queue_s / unknown.estimated.queue_s)
    assert np.mean(drawn) == pytest.approx(1, abs=0.06)
    assert np.mean(np.array(drawn) > 1) == pytest.approx(np.exp(-1), abs=0.03)


@settings(max_examples=60)
@given(SEEDS, st.sampled_from(["per-site", "per-job"]))
def test_no_mapping_is_below_the_bound(seed: int, staging: str) -> None:
    rng = Random(seed)
    truth = true_problem(random_trace(rng), random_platform(rng), staging)  # type: ignore[arg-type]
    run = simulator(truth)
    bound = lower_bound(truth)
    for _ in range(10):
        mapping = [rng.choice(allowed) for allowed in truth.allowed]
        assert bound <= run.makespan(mapping) * (1 + 1e-9)


@settings(max_examples=15)
@given(SEEDS)
def test_nor_is_the_best_of_all_mappings(seed: int) -> None:
    rng = Random(seed)
    trace = random_trace(rng)
    while len(trace.tasks) > 6:
        trace = random_trace(rng)
    truth = true_problem(trace, random_platform(rng))
    run = simulator(truth)
    best = min(run.makespan(list(m)) for m in product(*truth.allowed))
    assert lower_bound(truth) <= best * (1 + 1e-9)


def test_a_chain_is_bounded_by_its_best_site_the_queues_and_the_moves() -> None:
    tasks = [task("a", 10, ["x"], ["y"]), task("b", 10, ["y"], ["z"])]
    trace = build_trace("t", tasks, {"x": 4 * MBIT, "y": 2 * MBIT, "z": 6 * MBIT})
    truth = true_problem(trace, platform([1, 1], speed=[1, 5], queue_s=[0, 3]))
    # At site 1: 4 s for x, twice 3 s of queue and 2 s of work, 6 s for z: 20 s. At the store: 20 s.
    assert lower_bound(truth) == pytest.approx(20)
    assert simulator(truth).makespan([0, 0]) == simulator(truth).makespan([1, 1]) == 20


def test_a_bag_of_tasks_is_bounded_by_its_work() -> None:
    truth = true_problem(build_trace("t", [task(f"a{i}", 10) for i in range(12)], {}),
                         platform([2, 1], speed=[1, 2]))  # fmt: skip
    # 120 s of work for 2 workers at speed 1 and one at speed 2.
    assert lower_bound(truth) == pytest.approx(30, rel=0.01)


def test_a_queue_is_no_worker() -> None:
    truth = true_problem(build_trace("t", [task(f"a{i}", 10) for i in range(12)], {}),
                         platform([2, 4], queue_s=[0, 25]))  # fmt: skip
    # Without the second site 60 s; it gives 4 workers from 25 s on: 2·T + 4·(T - 25) = 120.
    assert lower_bound(truth) == pytest.approx(220 / 6, rel=0.01)


@settings(max_examples=20)
@given(SEEDS)
def test_the_best_known_is_none_of_the_candidates_worse(seed: int) -> None:
    rng = Random(seed)
    trace = random_trace(rng)
    truth = true_problem(trace, random_platform(rng))
    run = simulator(truth)
    names = [(f"c{i}", [rng.choice(a) for a in truth.allowed]) for i in range(3)]
    best = best_known(run, trace.kinds, names, str(seed), effort=0.02)
    assert best.makespan_s == run.makespan(best.assignment)
    assert best.makespan_s <= min(run.makespan(mapping) for _, mapping in names)
    assert best.makespan_s >= lower_bound(truth) * (1 - 1e-9)
    again = best_known(run, trace.kinds, names, str(seed), effort=0.02)
    assert again == best


def test_the_search_finds_what_a_policy_did_not() -> None:
    trace = build_trace("t", [task(f"a{i}", 10) for i in range(8)], {})
    truth = true_problem(trace, platform([1, 1, 1, 1]))
    best = best_known(simulator(truth), trace.kinds, [("all at one", [0] * 8)], "s")
    assert (best.makespan_s, best.source) == (20, "all at one+search")


def test_jobs_that_cannot_go_elsewhere_stay() -> None:
    trace = build_trace("t", [task("a", 10), task("b", 5)], {})
    truth = replace(true_problem(trace, platform([1, 1])), allowed=((0,), (0,)))
    assert best_known(simulator(truth), trace.kinds, [("there", [0, 0])], "s").source == "there"
    assert search_budget(truth) == 200


# Searches are chance: what is lost by a percent is not lost to a better idea.
_AS_GOOD = 1.01
LOST = json.loads(Path(__file__).with_name("lost_puzzles.json").read_text())["lost"]


@pytest.mark.parametrize("lost", LOST, ids=lambda lost: f"was {lost['ratio_then']}")
def test_what_was_lost_to_a_built_in_is_lost_no_more(lost: dict[str, Any]) -> None:
    assert lost["ratio_then"] > _AS_GOOD
    assert judge(TypeAdapter(Puzzle).validate_python(lost["puzzle"])).ratio <= _AS_GOOD


def inside(values: tuple[float, ...] | tuple[int, ...], span: tuple[float, float]) -> bool:
    return all(span[0] * (1 - 1e-9) <= value <= span[1] * (1 + 1e-9) for value in values)


@given(st.integers(0, 10**9))
def test_puzzles_stay_within_their_ranges_and_free_of_cycles(seed: int) -> None:
    rng = Random(seed)
    puzzle = draw_puzzle(rng)
    for _ in range(30):
        before, puzzle = puzzle, changed_puzzle(puzzle, rng)
        assert (before.runtime_s == puzzle.runtime_s) + (before.platform == puzzle.platform) >= 1
    at = puzzle.platform
    assert inside(puzzle.runtime_s, RUNTIME_S)
    assert inside((*puzzle.result_bytes, *(e.size_bytes for e in puzzle.edges)), SIZE_BYTES)
    assert inside(at.speed, SPEED)
    assert inside(at.queue_s, QUEUE_S)
    assert inside(at.workers, adversary.WORKERS)
    for a, row in enumerate(at.link_bps):
        assert inside((*row[:a], *row[a + 1 :]), LINK_BPS)
        assert all(at.link_bps[b][a] == link for b, link in enumerate(row))
    assert len({(e.source, e.target) for e in puzzle.edges}) == len(puzzle.edges)
    trace = puzzle.trace()
    assert len(trace.tasks) == len(puzzle.runtime_s)
    assert len(trace.files) == len(puzzle.runtime_s) + len(puzzle.edges)


def test_edges_become_files() -> None:
    drawn = draw_puzzle(Random(0))
    puzzle = Puzzle(
        (5.0, 6.0), (1e6, 2e6), (FileEdge(-1, 0, 3e6), FileEdge(0, 1, 4e6)), drawn.platform
    )
    trace = puzzle.trace()
    assert trace.parents == ((), (0,))
    sizes = dict(zip(trace.files, trace.size_bytes, strict=True))
    assert sizes == {"in0": 3e6, "result0": 1e6, "file0to1": 4e6, "result1": 2e6}


def test_a_search_is_settled_by_its_seed_and_no_better_than_where_it_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adversary, "_DRAWS", 2)
    progress: list[int] = []
    case = search(3, 4, done=progress.append)
    assert progress == [1, 2, 3, 4]
    assert search(3, 4) == case
    name, least = rival(case)
    assert case.makespan_s[name] == least
    assert case.ratio == pytest.approx(case.makespan_s["adon"] / least)


def row(name: str, platform: int, adon: float, best: float = 10.0, bound: float = 5.0) -> Row:
    trace = build_trace(name, [Task("a", "a", (), (), (), (), 1.0)], {})
    makespans = dict.fromkeys(POLICIES, 40.0) | {"adon": adon}
    outcomes = tuple(
        Outcome(regime, makespans, makespans, None, best, "heft", bound) for regime in REGIMES
    )
    return Row(TraceFile(f"{name}.json", "0", trace), platform, outcomes)


ROWS = [row("big-1", 0, 10), row("big-1", 1, 40), row("small-1", 0, 20)]


def test_geometric_mean_and_worst() -> None:
    summary = summarise(ROWS, "errors", "adon", "best_known")
    assert summary.geomean == pytest.approx(2)  # 1, 4 and 2
    assert (summary.worst, summary.cases) == (4, 3)
    assert summary.worst_case == "big-1.json on platform 1"
    assert summarise(ROWS, "exact", "adon", "lower_bound").geomean == pytest.approx(4)
    assert summarise(ROWS, "exact", "heft", "best_known").geomean == pytest.approx(4)
    with pytest.raises(ValueError, match="no values"):
        geometric_mean([])


def test_a_workflow_that_takes_no_time_is_mapped_as_well_as_can_be() -> None:
    outcome = row("none-1", 0, 0, best=0, bound=0).outcomes[0]
    assert ratio(outcome, "adon", "best_known") == 1
    assert ratio(outcome, "heft", "lower_bound") == math.inf


def test_tables_have_every_policy_in_every_family_and_over_all() -> None:
    everything = as_dict(ROWS, [draw_platform(0, 0)], Setting())
    by_regime = tables(everything["summary"])
    assert [regime for regime, _ in by_regime] == list(REGIMES)
    for _, lines in by_regime:
        assert [line[0] for line in lines[:: len(POLICIES)]] == ["big", "small", "all"]
        assert [line[2] for line in lines[-len(POLICIES) :]] == list(POLICIES)
        assert lines[-len(POLICIES)] == [
            "all",
            "3",
            "adon",
            "2.000",
            "4.000",
            "4.000",
            "8.000",
            "2.000",
            "4.000",
        ]
        assert all(len(line) == len(HEAD) for line in lines)


def test_json_has_every_case_and_can_be_read_back() -> None:
    platforms = [draw_platform(0, number) for number in range(2)]
    everything = as_dict(ROWS, platforms, Setting(seed=3), ["schema.json: not a trace"])
    again = json.loads(json.dumps(everything, allow_nan=False))
    assert again["seed"] == 3
    assert [case["trace"] for case in again["cases"]] == [
        "big-1.json",
        "big-1.json",
        "small-1.json",
    ]
    assert again["cases"][1]["regimes"]["errors"]["makespan_s"]["adon"] == 40
    assert [trace["family"] for trace in again["traces"]] == ["big", "small"]
    assert len(again["platforms"]) == 2
