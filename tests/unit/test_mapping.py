"""Mapping whole workflows: the estimator by hand and by its laws, the portfolio, the result."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from site_world import Measurements, estimate_of, inputs_from, inputs_of, job, resequencing

from network_provisioner.base.errors import InputError
from network_provisioner.topology.data import topology_from_dict
from site_selector.estimates.estimating import estimate_world
from site_selector.estimates.running import Live
from site_selector.estimates.world import EstimatedValue
from site_selector.inputs import Inputs
from site_selector.mapping.estimator import Estimator
from site_selector.mapping.mapper import NEARLY, SIMPLE, map_problem, map_workflow
from site_selector.mapping.narrow import narrowed_problem, worthwhile_sites
from site_selector.mapping.placement import Mapping
from site_selector.mapping.policies import VARIANTS, baselines, list_schedule
from site_selector.problem import Problem, build_problem

# 80 Mb/s is 10 MB/s: sizes in units of 10 MB are seconds on a path.
TEN_MB_S = "80 Mb/s"


def two_sites(**mu: object) -> dict[str, dict[str, object]]:
    return {
        "mu": {"adon.workers": 1, "adon.rate": "10 MB/s", "adon.bandwidth.tacc": TEN_MB_S, **mu},
        "tacc": {"adon.workers": 2, "adon.rate": "20 MB/s"},
    }


def fetched_by_each(problem: Problem) -> Problem:
    return replace(problem, fetches=problem.allowed)


def chain(sites: dict[str, dict[str, object]], **sizes: int) -> Inputs:
    """f (at mu) -> x -> g -> y -> h."""
    sizes = {"g": 50_000_000, "h": 10_000_000} | sizes
    return inputs_of(
        [
            job("x", "a", ["f"], ["g"], sizes=sizes, keep=["g"]),
            job("y", "a", ["g"], ["h"], sizes=sizes),
        ],
        sites,
        {"f": ("mu", 100_000_000)},
        {"a": list(sites)},
    )


def estimator(inputs: Inputs, output_site: str | None = None) -> Estimator:
    world = estimate_world(inputs, now=0.0, output_site=output_site)
    return Estimator(build_problem(inputs, world, output_site))


def test_a_chain_by_hand() -> None:
    run = estimator(chain(two_sites()), "mu")
    # mu: 100 MB and then 50 MB at 10 MB/s, nothing moves.
    assert run([0, 0]).makespan_s == pytest.approx(10 + 5)
    # tacc: 10 s to get f there, 5 s and 2.5 s at 20 MB/s, 1 s for the 10 MB back.
    assert run([1, 1]).makespan_s == pytest.approx(10 + 5 + 2.5 + 1)
    # x at mu 10 s, g to tacc 5 s, y 2.5 s, h back 1 s.
    assert run([0, 1]).makespan_s == pytest.approx(10 + 5 + 2.5 + 1)


def test_setting_up_delays_what_moves_and_not_the_path() -> None:
    source = Measurements({("transfer_setup", "mu>tacc"): estimate_of(4.0, at=-1.0)})
    inputs = chain(two_sites())
    world = estimate_world(inputs, source, now=0.0, output_site="mu")
    run = Estimator(build_problem(inputs, world, "mu"))
    assert run([0, 0]).makespan_s == pytest.approx(10 + 5)
    # 4 s more for f to get there and, carried over to the way back, for h.
    assert run([1, 1]).makespan_s == pytest.approx(10 + 4 + 5 + 2.5 + 1 + 4)
    assert world.paths["tacc", "mu"].setup.note == "measured from mu to tacc"


def test_hand_shakes_take_as_long_as_on_the_path_with_the_nearest_rtt() -> None:
    sites: dict[str, dict[str, object]] = {
        name: {"adon.rtt.hub": rtt, "adon.workers": 1}
        for name, rtt in (("near", "1 ms"), ("far", "50 ms"), ("farther", "60 ms"), ("hub", "0 s"))
    }
    inputs = inputs_of(
        [job("x", "a", ["f"], ["h"])], sites, {"f": ("hub", 1)}, {"a": [*sites]}, {"a": 1.0}
    )
    seconds = {"near": 0.5, "far": 6.0}
    known = {("transfer_start", f"{s}>hub"): estimate_of(v, at=-1.0) for s, v in seconds.items()}
    world = estimate_world(inputs, Measurements(known), now=0.0, output_site="hub")
    assert world.paths["farther", "hub"].start_s == 6.0
    assert world.paths["farther", "hub"].first.note == "measured from far to hub"
    assert world.paths["hub", "near"].first.value == 0.5


def test_measured_transfers_overlap_until_the_link_is_full() -> None:
    jobs = [job(f"x{i}", "a", [f"f{i}"], [f"g{i}"], keep=[f"g{i}"]) for i in range(2)]
    inputs = inputs_of(
        jobs,
        {"mu": {"adon.workers": 1}, "tacc": {"adon.workers": 4}},
        {f"f{i}": ("mu", 10_000_000) for i in range(2)},
        {"a": ["mu", "tacc"]},
        {"a": 1.0},
    )
    link = {"a": "mu", "b": "tacc", "capacity": "40 Mb/s"}
    topology = topology_from_dict(
        {"nodes": [{"name": n, "kind": "site"} for n in ("mu", "tacc")], "links": [link]}
    )
    measured = Measurements({("throughput", "mu>tacc"): estimate_of(10e6, at=-1.0)})
    alone = estimate_world(inputs, now=0.0, live=Live(topology=topology))
    seen = estimate_world(inputs, measured, now=0.0, live=Live(topology=topology))
    # An assumed 40 Mb/s is all there is.
    run = Estimator(fetched_by_each(build_problem(inputs, alone)))
    assert sorted(run([1] * 2).end_s) == pytest.approx([5, 5])
    # Each was measured to get 10 Mb/s, and the link carries both.
    run = Estimator(fetched_by_each(build_problem(inputs, seen)))
    assert sorted(run([1] * 2).end_s) == pytest.approx([9, 9])


def test_small_files_stay_where_setting_up_a_move_costs_more_than_it_gains() -> None:
    sites = two_sites()
    sites["tacc"]["adon.rate"] = "11 MB/s"
    inputs = chain(sites, g=1_000_000, h=1_000_000)
    dear = Measurements({("transfer_setup", "mu>tacc"): estimate_of(30.0, at=-1.0)})
    world = estimate_world(inputs, dear, now=0.0, output_site="mu")
    assert set(map_workflow(inputs, world, "mu").sites.values()) == {"mu"}


# -------------------------------------------------------------- any workflow, any world


def test_hand_shakes_of_further_files_are_reckoned_with() -> None:
    inputs = inputs_of(
        [job("x", "a", ["f", "g"], ["h"])],
        two_sites(),
        {"f": ("mu", 10_000_000), "g": ("mu", 10_000_000)},
        {"a": ["mu", "tacc"]},
    )
    world = estimate_world(inputs, now=0.0)
    slow = {
        ends: replace(path, further=EstimatedValue(2.0, "archive"))
        for ends, path in world.paths.items()
    }
    soon, later = (
        Estimator(build_problem(inputs, replace(world, paths=paths))).makespan([1])
        for paths in (world.paths, slow)
    )
    assert later == pytest.approx(soon + 2)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Inputs, str | None]:
    """A random DAG over two to four sites."""
    sites = [f"s{i}" for i in range(draw(st.integers(2, 4)))]
    hints: dict[str, dict[str, object]] = {}
    for i, site in enumerate(sites):
        hints[site] = {
            "adon.workers": draw(st.integers(0 if i else 1, 4)),
            "adon.rate": f"{draw(st.integers(1, 50))} MB/s",
            "adon.queue_wait": draw(st.sampled_from([0, 0, 5, 60])),
        }
        for other in sites[i + 1 :]:
            hints[site][f"adon.bandwidth.{other}"] = f"{draw(st.integers(1, 1000))} Mb/s"
    n = draw(st.integers(1, 9))
    jobs, replicas, files = [], {}, []
    names = [draw(st.sampled_from(["a", "b"])) for _ in range(n)]
    where = {
        "a": sites,
        "b": draw(st.lists(st.sampled_from(sites), min_size=1, unique=True)),
    }
    for i in range(n):
        raw = f"raw{i}"
        reads = draw(st.lists(st.sampled_from(files), max_size=3, unique=True)) if files else []
        if not reads or draw(st.booleans()):
            reads = [*reads, raw]
            replicas[raw] = (draw(st.sampled_from(sites)), draw(st.integers(0, 10**9)))
        profiles = {}
        if draw(st.integers(0, 5)) == 0:
            profiles["selector"] = {"execution.site": draw(st.sampled_from(where[names[i]]))}
        sizes = {f"out{i}": draw(st.integers(0, 10**9))}
        keep = [f"out{i}"] if draw(st.booleans()) else []
        jobs.append(job(f"j{i}", names[i], reads, [f"out{i}"], sizes, keep, **profiles))
        files.append(f"out{i}")
    inputs = inputs_of(jobs, hints, replicas, where)
    return inputs, draw(st.sampled_from([None, *sites]))


any_world = settings(max_examples=20)


@any_world
@given(worlds(), st.integers(0, 5))
def test_no_policy_is_better_than_nearly_and_the_same_for_a_seed(
    made: tuple[Inputs, str | None], seed: int
) -> None:
    """Catalogs are not exact, so ``map_workflow`` hedges; the simple policies are its limit."""
    inputs, output = made
    world = estimate_world(inputs, now=0.0, output_site=output)
    mapping = map_workflow(inputs, world, output, seed, evaluations=200)
    run = Estimator(build_problem(inputs, world, output))
    policies = dict(baselines(run.problem))
    for name in SIMPLE:
        if name in policies:
            sites = policies[name](run.problem, Random(seed))
        else:
            sites = list_schedule(run.problem, run.rank, VARIANTS[name])
        end = run.makespan(sites)
        assert mapping.makespan_s <= end * (1 + NEARLY) or math.isinf(mapping.makespan_s)
    assert {*policies, *VARIANTS} == set(mapping.portfolio)
    assert mapping == map_workflow(inputs, world, output, seed, evaluations=200)


@any_world
@given(worlds(), st.integers(0, 5))
def test_without_uncertainty_nothing_in_the_portfolio_is_better_than_nearly(
    made: tuple[Inputs, str | None], seed: int
) -> None:
    inputs, output = made
    problem = build_problem(inputs, estimate_world(inputs, now=0.0, output_site=output), output)
    kinds = [inputs.workflow.jobs[job].transformation for job in problem.jobs]
    choice = map_problem(problem, kinds, seed, evaluations=60)
    assert (choice.hedge, choice.drawn) == (None, 0)
    assert choice.schedule.makespan_s <= min(choice.portfolio.values()) * (1 + NEARLY)
    assert choice.schedule == Estimator(problem)(choice.assignment)


@any_world
@given(worlds())
def test_every_job_goes_where_it_may_and_hints_hold(made: tuple[Inputs, str | None]) -> None:
    inputs, output = made
    world = estimate_world(inputs, now=0.0, output_site=output)
    mapping = map_workflow(inputs, world, output, evaluations=40)
    assert set(mapping.sites) == set(inputs.workflow.jobs)
    for placement in mapping.placements:
        spec = inputs.workflow.jobs[placement.job]
        assert placement.site in inputs.candidates[placement.job]
        assert spec.site_hint in (None, placement.site)
        assert {a.site for a in placement.alternatives} == set(inputs.candidates[placement.job])
        assert placement.reason
        assert "\n" not in placement.reason
        for option in placement.alternatives:
            assert option.t_t_s == pytest.approx(option.t_q_s + option.t_c_s + option.t_n_s)


# ------------------------------------------------------------------------------ results


def test_data_draws_the_work_when_the_path_is_slow_and_lets_it_go_when_it_is_fast() -> None:
    slow = chain(two_sites())
    mapping = map_workflow(slow, estimate_world(slow, now=0.0), "mu")
    assert mapping.sites == {"x": "mu", "y": "mu"}
    fast = chain(two_sites(**{"adon.bandwidth.tacc": "10 Gb/s"}))
    assert map_workflow(fast, estimate_world(fast, now=0.0), "mu").sites == {
        "x": "tacc",
        "y": "tacc",
    }


def test_search_finds_what_no_policy_has() -> None:
    sites = {
        "mu": {"adon.workers": 2, "adon.rate": "5 MB/s", "adon.bandwidth.tacc": "200 Mb/s"},
        "tacc": {"adon.workers": 3, "adon.rate": "8 MB/s", "adon.queue_wait": 20},
        "isi": {"adon.workers": 4, "adon.rate": "6 MB/s", "adon.bandwidth.mu": "50 Mb/s"},
    }
    inputs = inputs_from(*resequencing(5, 4, sites, "mu"))
    problem = build_problem(inputs, estimate_world(inputs, now=0.0), "mu")
    kinds = [inputs.workflow.jobs[job].transformation for job in problem.jobs]
    choice = map_problem(problem, kinds, seed=3, evaluations=3000)
    assert choice.schedule.makespan_s < min(choice.portfolio.values())
    assert choice.policy.endswith("+search")


def test_no_resources_anywhere_still_gives_a_mapping_that_says_so(tmp_path: Path) -> None:
    inputs = chain({"mu": {"adon.workers": 0}, "tacc": {"adon.workers": 0}})
    mapping = map_workflow(inputs, estimate_world(inputs, now=0.0), "mu")
    assert math.isinf(mapping.makespan_s)
    assert "no site has resources now" in mapping.placements[0].reason
    mapping.save(tmp_path / "m.json")
    text = (tmp_path / "m.json").read_text()
    assert json.loads(text)["makespan_s"] is None
    assert json.loads(text)["placements"][0]["alternatives"][0]["t_q_s"] is None


def test_a_subworkflow_stays_at_the_submit_host() -> None:
    sub = {"type": "pegasusWorkflow", "file": "sub.yml", "id": "s", "uses": []}
    inputs = inputs_of(
        [job("x", "a", ["f"]), sub], {"local": {}, "mu": {}}, {"f": ("mu", 1000)}, {"a": ["mu"]}
    )
    mapping = map_workflow(inputs, estimate_world(inputs, now=0.0))
    assert mapping.sites == {"x": "mu", "s": "local"}


def test_an_unknown_output_site_is_named() -> None:
    inputs = chain(two_sites())
    with pytest.raises(InputError, match="output site 'muu' is not in the site catalog"):
        map_workflow(inputs, estimate_world(inputs, now=0.0), "muu")


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    inputs = chain(two_sites())
    mapping = map_workflow(inputs, estimate_world(inputs, now=0.0), "mu", seed=7)
    mapping.save(tmp_path / "mapping.json")
    assert Mapping.load(tmp_path / "mapping.json").as_dict() == mapping.as_dict()
    assert [p.name for p in tmp_path.iterdir()] == ["mapping.json"]


def test_a_mapping_file_that_is_not_there_or_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        Mapping.load(tmp_path / "none.json")
    with pytest.raises(InputError, match="cannot write the mapping"):
        inputs = chain(two_sites())
        map_workflow(inputs, estimate_world(inputs, now=0.0)).save(tmp_path / "no" / "m.json")


# -------------------------------------------------------------------- hundreds of sites


def many_sites(count: int, jobs: int) -> Inputs:
    """A chain at any of the sites, which differ in speed; the last is the fastest by far."""
    sites: dict[str, dict[str, object]] = {
        f"s{i}": {"adon.workers": 2, "adon.rate": f"{10 + (i == count - 1) * 40} MB/s"}
        for i in range(count)
    }
    chained = [
        job(f"j{i}", "a", [f"f{i}"], [f"f{i + 1}"], sizes={f"f{i + 1}": 10**8}) for i in range(jobs)
    ]
    return inputs_of(chained, {"hub": {}, **sites}, {"f0": ("hub", 10**8)}, {"a": [*sites]})


def test_of_hundreds_of_sites_those_are_searched_that_are_worth_it() -> None:
    inputs = many_sites(200, 3)
    world = estimate_world(inputs, now=0.0, output_site="hub")
    problem = build_problem(inputs, world, "hub")
    best_sites = worthwhile_sites(problem)
    few, places = narrowed_problem(problem, best_sites)
    assert len(best_sites) == 16 and 199 in best_sites and few.n_sites == 16
    assert [problem.places[p] for p in places] == list(few.places) and few.places[-1] == "hub"
    mapping = map_workflow(inputs, world, "hub")
    assert set(mapping.sites.values()) == {"s199"}
    assert all(len(p.alternatives) == 16 for p in mapping.placements)
    # The same as by all of them.
    sites = [list(best_sites).index(199)] * 3
    assert Estimator(few).makespan(sites) == Estimator(problem).makespan([199] * 3)
    assert len(mapping.beliefs["paths"]) == 17 * 16


def test_as_many_sites_are_searched_as_the_widest_level_could_use() -> None:
    jobs = [job(f"j{i}", "a") for i in range(60)]
    sites: dict[str, dict[str, object]] = {f"s{i}": {"adon.workers": 2} for i in range(90)}
    inputs = inputs_of(jobs, sites, {}, {"a": [*sites]}, {"a": 10.0})
    problem = build_problem(inputs, estimate_world(inputs, now=0.0))
    assert len(worthwhile_sites(problem)) == 60
    assert len(worthwhile_sites(replace(problem, workers=(1,) * 90))) == 90


def test_a_job_that_reads_nothing_takes_its_time() -> None:
    inputs = inputs_of([job("x", "a")], two_sites(), {}, {"a": ["mu", "tacc"]})
    problem = build_problem(inputs, estimate_world(inputs, now=0.0))
    assert problem.compute_s.tolist() == [[10.0, 5.0]]
    seen = {
        ("compute_rate", "t::a:1.0@mu"): estimate_of(1.0),
        ("runtime", "t::a:1.0@mu"): estimate_of(7.0),
    }
    problem = build_problem(inputs, estimate_world(inputs, Measurements(seen), now=1000.0))
    assert problem.compute_s[0, 0] == pytest.approx(7.0)


def test_a_small_input_of_a_job_that_nobody_knows_says_no_more_than_none() -> None:
    sites = {"mu": {"adon.workers": 1}}

    def seconds(held: dict[str, tuple[str, int | None]], rate: str = "") -> float:
        known = {"mu": sites["mu"] | ({"adon.rate": rate} if rate else {})}
        inputs = inputs_of([job("x", "a", [*held], ["g"])], known, held, {"a": ["mu"]})
        problem = build_problem(inputs, estimate_world(inputs, now=0.0))
        return float(problem.compute_s[0, 0])

    assert seconds({}) == seconds({"f": ("mu", 19)}) == seconds({"f": ("mu", 10**8)}) == 10
    assert seconds({"f": ("mu", 10**9)}) == 100
    assert seconds({"f": ("mu", 19)}, "19 B/s") == 1


def test_a_file_of_several_writers_is_fetched_from_the_last_of_them() -> None:
    sizes = {"f": 10_000_000, "g": 20_000_000}
    jobs = [
        job("x", "a", [], ["f", "g"], sizes=sizes),
        job("y", "a", [], ["f"], sizes=sizes),
        job("z", "a", ["f", "g"], ["h"], sizes=sizes),
    ]
    inputs = inputs_of(jobs, two_sites(), {}, {"a": ["mu", "tacc"]})
    problem = estimator(inputs).problem
    written = [(problem.jobs[j], problem.files[f]) for j in range(3) for f in problem.writes[j]]
    assert sorted(written) == [("x", "g"), ("y", "f"), ("z", "h")]
    mapping = map_workflow(inputs, estimate_world(inputs, now=0.0))
    placed = {p.job: p for p in mapping.placements}
    assert placed["z"].start_s >= max(placed["x"].end_s, placed["y"].end_s)
