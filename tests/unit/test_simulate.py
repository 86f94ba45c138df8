"""The estimator of mappings: by hand, beside a plain simulator, and by its laws."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problem_world import (
    any_sites,
    fetches,
    jobs_that_fetch,
    plain_makespan,
    problem_of,
    random_problem,
    shared_by,
    staged_at,
)
from site_world import inputs_from, resequencing

from network_provisioner.base.errors import InputError
from site_selector.estimates.estimating import estimate_world
from site_selector.evaluation.worlds import urgency_of
from site_selector.explain.gantt import gantt_of, title_of
from site_selector.mapping.estimator import Estimator, Transfer
from site_selector.mapping.kernels.data import busy_seconds
from site_selector.mapping.mapper import map_workflow
from site_selector.problem import Problem, build_problem

MB = 1e6
BETWEEN = [[0.0, 1e-6], [1e-6, 0.0]]  # 1 MB takes 1 s from site to site
STAGING = st.sampled_from(["per-site", "per-job", "mixed", "staged", "bypassed"])
CLOSE = 1e-6


def readers(sizes_mb: Sequence[float], seconds: float = 1.0, **given: object) -> Problem:
    """One job for each file, which lies at site 0; three workers at either site."""
    sizes = {f"f{i}": size * MB for i, size in enumerate(sizes_mb)}
    known = {"workers": [3, 3], **given}
    return problem_of(
        [([name], []) for name in sizes],
        sizes,
        {name: [0] for name in sizes},
        [[seconds, seconds]] * len(sizes),
        BETWEEN,
        **known,  # type: ignore[arg-type]
    )


def three_readers(staging: str) -> Problem:
    """Three jobs read the same 10 MB that lie at site 0; each takes 5 s, three at a time."""
    return problem_of(
        [(["ref"], []) for _ in range(3)],
        {"ref": 10 * MB},
        {"ref": [0]},
        [[5.0, 5.0]] * 3,
        BETWEEN,
        workers=[3, 3],
        staging=staging,
    )


def test_a_job_alone_waits_for_its_input_the_queue_and_itself() -> None:
    run = Estimator(readers([8], 10.0, queue_s=[0.0, 5.0]))
    assert run.makespan([0]) == 10  # the input is there already
    schedule = run([1])
    assert (schedule.ready_s, schedule.start_s, schedule.end_s) == ([8], [13], [23])
    assert (schedule.makespan_s, schedule.work_s) == (23, 18)
    run([0])
    assert run([1]) == schedule  # a run leaves nothing to the next


def test_per_site_a_file_moves_once_and_per_job_for_each() -> None:
    schedule = Estimator(three_readers("per-site"))([1, 1, 1])
    assert schedule.transfers == [Transfer(0, 0, 1, 0.0, 10.0)]
    assert schedule.end_s == [15.0] * 3
    schedule = Estimator(three_readers("per-job"))([1, 1, 0])
    assert [t.end_s for t in schedule.transfers] == [20.0, 20.0]
    assert schedule.end_s == [25.0, 25.0, 5.0]
    assert schedule.work_s == 2 * 10 + 3 * 5


def test_a_result_moves_to_its_readers_and_back() -> None:
    jobs = [([], ["out", "log"]), (["out"], []), (["out"], [])]
    problem = problem_of(
        jobs,
        {"out": 4 * MB, "log": MB},
        {},
        [[1.0, 1.0]] * 3,
        BETWEEN,
        wanted=["out"],
        output=1,
    )
    # The reader's copy at the output site is scratch, which is cleaned up: the result moves for
    # itself. Nobody wants the log.
    for staging in ("per-site", "per-job"):
        schedule = Estimator(replace(problem, fetches=fetches(problem.allowed, staging)))([0, 1, 0])
        assert [(t.src, t.dst, t.end_s) for t in schedule.transfers] == [(0, 1, 9.0), (0, 1, 9.0)]
    schedule = Estimator(problem)([0, 0, 0])
    assert (schedule.makespan_s, schedule.end_s) == (5.0, [1.0, 2.0, 3.0])
    assert schedule.last_transfer() == Transfer(0, 0, 1, 1.0, 5.0)
    assert Estimator(replace(problem, output=-1)).makespan([0, 0, 0]) == 3


def test_transfers_share_a_path_until_it_is_full() -> None:
    # At 4 s both have 2 MB, the first is there; the other has 4 MB left, alone.
    assert Estimator(readers([2, 6], staging="per-job"))([1, 1]).start_s == [4, 8]
    same = readers([10, 10, 10], staging="per-job")
    assert Estimator(same)([1, 1, 1]).end_s == pytest.approx([31.0] * 3)
    # Half of what one gets fills the link: two at full speed, three at two thirds.
    wider = replace(same, occupied_per_byte=same.seconds_per_byte / 2)
    assert Estimator(wider)([1, 1, 0]).end_s[:2] == pytest.approx([11.0] * 2)
    assert Estimator(wider)([1, 1, 1]).end_s == pytest.approx([16.0] * 3)


def test_paths_share_the_link_that_bounds_them() -> None:
    rates = [[0.0, 1e-6, 1e-6], [1e-6, 0.0, 1e-6], [1e-6, 1e-6, 0.0]]
    jobs: list[tuple[list[str], list[str]]] = [(["a"], []), (["b"], [])]
    sizes = {"a": 4 * MB, "b": 4 * MB}
    apart = problem_of(jobs, sizes, {"a": [2], "b": [2]}, [[1.0, 1.0]] * 2, rates)
    assert Estimator(apart)([0, 1]).start_s == [4, 4]
    one_link = replace(apart, bottleneck=np.array([[-1] * 3, [-1] * 3, [0, 0, -1]]))
    assert Estimator(one_link)([0, 1]).start_s == [8, 8]
    assert Estimator(one_link).makespan([0, 0]) == Estimator(apart).makespan([0, 0])
    # A transfer of the second path takes half of the link: 1.5 times what it carries.
    slower = replace(one_link, seconds_per_byte=np.array([*rates[:2], [1e-6, 2e-6, 0.0]]))
    assert Estimator(slower)([0, 1]).start_s == pytest.approx([6, 10])


def test_a_job_fetches_the_inputs_that_bypass_staging_with_its_worker() -> None:
    rates = [[0.0, 1e-6, 1e-6], [1e-6, 0.0, 1e-6], [1e-6, 1e-6, 0.0]]
    jobs: list[tuple[list[str], list[str]]] = [(["a"], []), (["a"], [])]
    staged = problem_of(jobs, {"a": 4 * MB}, {"a": [2]}, [[1.0, 1.0]] * 2, rates, workers=[2, 1])
    assert Estimator(staged)([0, 0]).end_s == [5, 5]  # once for both
    own = replace(staged, bypassed=((0,), (0,)))
    assert Estimator(own)([0, 0]).end_s == [9, 9]  # twice over one path
    assert (Estimator(own)([1, 1]).start_s, Estimator(own)([1, 1]).end_s) == ([0, 5], [5, 10])
    near = replace(own, holders=((0, 2),))
    assert Estimator(near)([0, 1]).end_s == [1, 5]
    assert busy_seconds(near).tolist() == [[1, 5], [1, 5]]
    # Beside what is staged at another place, here results of others, over two paths at once.
    chain = problem_of(
        [([], ["b"]), (["a", "b"], [])], {"a": 4 * MB, "b": 2 * MB}, {"a": [2]},
        [[1.0, 1.0]] * 2, rates,
    )  # fmt: skip
    through = replace(chain, staged=staged_at(chain.allowed, 1), bypassed=((), (1,)))
    first, second = Estimator(through)([0, 0]).end_s
    assert (first, second) == (3, 8)


SETUP = [[0.0, 3.0], [3.0, 0.0]]


def test_inputs_of_a_level_come_by_one_stage_job_for_ten_jobs() -> None:
    # Together, and set up once: 2 + 6 s and 3 s.
    assert Estimator(readers([2, 6], setup_s=SETUP))([1, 1]).start_s == [11, 11]
    slow = readers([2, 6], setup_s=SETUP, file_s=0.5)  # for each further file
    assert Estimator(slow)([1, 1]).start_s == [11.5, 11.5]
    # The link carries two at once. Twelve jobs have two stage jobs, in turn; those that are not
    # there count too.
    many = readers([1] * 12, setup_s=SETUP, workers=[20, 20])
    wider = replace(many, occupied_per_byte=many.seconds_per_byte / 2)
    schedule = Estimator(wider)([1] * 12)
    assert schedule.start_s == pytest.approx([9.0] * 12)
    assert sorted({t.end_s for t in schedule.transfers}) == [6.0]
    assert [t.end_s for t in Estimator(wider)([1, 0, 1] + [0] * 9).transfers] == [2.0, 2.0]


def test_results_of_others_come_by_one_stage_job_when_the_last_is_written() -> None:
    jobs = [([], ["a"]), ([], ["b"]), (["a", "b"], []), (["a"], [])]
    compute = [[1.0, 1.0], [9.0, 9.0], [1.0, 1.0], [0.5, 0.5]]
    problem = problem_of(
        jobs, {"a": 2 * MB, "b": 4 * MB}, {}, compute, BETWEEN, workers=[9, 9], setup_s=SETUP
    )
    schedule = Estimator(problem)([0, 0, 1, 0])
    assert [(t.start_s, t.end_s) for t in schedule.transfers] == [(9.0, 15.0)] * 2
    assert schedule.start_s[2] == 18.0
    # Who reads a file that another's stage job brings waits for that; what is written at the
    # reader's own site is not waited for.
    assert Estimator(problem)([0, 0, 1, 1]).start_s == [0.0, 0.0, 18.0, 18.0]
    assert Estimator(problem)([0, 1, 1, 0]).transfers == [Transfer(0, 0, 1, 1.0, 3.0)]


def test_results_that_are_wanted_go_back_when_the_level_has_ended_at_a_site() -> None:
    compute = [[1.0, 1.0], [9.0, 9.0], [20.0, 20.0]]
    problem = problem_of(
        [([], ["a"]), ([], ["b"]), ([], ["c"])],
        {"a": 2 * MB, "b": 4 * MB, "c": MB},
        {},
        compute,
        BETWEEN,
        workers=[9, 9],
        wanted=["a", "b", "c"],
        output=1,
    )
    schedule = Estimator(problem)([0, 0, 1])
    assert [(t.start_s, t.end_s) for t in schedule.transfers] == [(9.0, 15.0)] * 2


def test_a_file_stays_at_a_site_until_its_last_reader_there() -> None:
    # What Pegasus cleans up at a site waits for all who read it there; who comes later finds it.
    jobs = [(["ref"], ["x"]), (["x"], ["y"]), (["y", "ref"], [])]
    sizes = {"ref": 5 * MB, "x": MB, "y": MB}
    problem = problem_of(jobs, sizes, {"ref": [0]}, [[1.0, 1.0]] * 3, BETWEEN)
    assert [t.file for t in Estimator(problem)([1, 1, 1]).transfers] == [0]
    # A result comes from where it was made, not from where a reader's copy may be gone.
    assert [(t.file, t.src, t.dst) for t in Estimator(problem)([0, 1, 0]).transfers] == [
        (1, 0, 1),
        (2, 1, 0),
    ]


def test_a_late_comer_takes_half_and_other_ways_are_their_own() -> None:
    jobs = [(["a"], []), ([], ["b"]), (["b"], []), ([], ["c"]), (["c"], [])]
    sizes = {"a": 10 * MB, "b": 2 * MB, "c": 9 * MB}
    compute = [[1.0, 1.0], [4.0, 4.0], [1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    problem = problem_of(jobs, sizes, {"a": [0]}, compute, BETWEEN, workers=[9, 9])
    schedule = Estimator(problem)([1, 0, 1, 1, 0])
    # a alone until 4 s, both until b's 2 MB have moved at half speed, then a alone again; c goes
    # the other way.
    assert {t.file: t.end_s for t in schedule.transfers} == pytest.approx({0: 12.0, 1: 8.0, 2: 9.0})


def test_setting_up_delays_a_file_and_does_not_occupy_the_path() -> None:
    schedule = Estimator(readers([2, 2], setup_s=SETUP, staging="per-job"))([1, 1])
    assert [t.end_s for t in schedule.transfers] == [4, 4]
    assert schedule.start_s == [7, 7]


def test_no_more_than_n_at_once_and_the_queue_comes_first() -> None:
    jobs = [([], [])] * 5
    free = problem_of(jobs, {}, {}, [[10.0]] * 5, [[0.0]], workers=[2])
    assert sorted(Estimator(free)([0] * 5).start_s) == [0, 0, 10, 10, 20]
    waits = problem_of(jobs[:2], {}, {}, [[10.0]] * 2, [[0.0]], queue_s=[5.0])
    assert sorted(Estimator(waits)([0, 0]).start_s) == [5, 15]


def test_the_most_urgent_goes_first() -> None:
    # Two jobs of which one has a long child; one worker; 3 s in the queue.
    problem = problem_of(
        [([], []), ([], ["x"]), (["x"], [])],
        {"x": 0.0},
        {},
        [[5.0], [5.0], [50.0]],
        [[0.0]],
        queue_s=[3.0],
    )
    schedule = Estimator(problem)([0, 0, 0])
    assert schedule.start_s == [8.0, 3.0, 13.0]
    assert schedule.ready_s == [0.0, 0.0, 8.0]
    assert urgency_of(problem).tolist() == [5, 55, 50]
    assert Estimator(problem, np.array([2.0, 1.0, 0.0]))([0, 0, 0]).start_s == [3.0, 8.0, 16.0]


def test_the_fastest_replica_is_taken() -> None:
    per_byte = [[0.0, 3e-6, 0.0], [3e-6, 0.0, 0.0], [9e-6, 1e-6, 0.0]]
    problem = problem_of([(["f"], [])], {"f": MB}, {"f": [0, 2]}, [[0.0, 0.0]], per_byte)
    assert [(t.src, t.end_s) for t in Estimator(problem)([1]).transfers] == [(2, 1.0)]


def test_an_input_that_lies_nowhere_is_refused() -> None:
    problem = problem_of([(["f"], [])], {"f": MB}, {"f": []}, [[1.0]], [[0.0]])
    with pytest.raises(InputError, match="'f' has no replica"):
        Estimator(problem)


def test_a_job_brings_and_takes_back_what_is_staged_elsewhere_with_its_worker() -> None:
    jobs = [(["raw"], ["a"]), (["a"], ["b"])]
    sizes = {"raw": 4 * MB, "a": 2 * MB, "b": 1 * MB}
    problem = problem_of(
        jobs, sizes, {"raw": [1]}, [[5.0], [5.0]], BETWEEN, wanted=["b"], output=1
    )  # fmt: skip
    problem = replace(problem, setup_s=np.full((2, 2), 3.0), first_s=np.zeros((2, 2)))
    schedule = Estimator(replace(problem, staged=staged_at(problem.allowed, 1)))([0, 0])
    assert list(zip(schedule.start_s, schedule.end_s, strict=True)) == [(0, 11), (11, 19)]
    assert [(t.src, t.dst) for t in schedule.transfers] == [(1, 0), (0, 1), (1, 0), (0, 1)]
    # Where both share the site's files: two stage jobs.
    assert Estimator(problem)([0, 0]).makespan_s == 15 + 2 * 3


def test_a_job_alone_is_busy_for_as_long_as_it_has_its_worker() -> None:
    sizes = {"x": 4 * MB, "y": 2 * MB, "a": 1 * MB, "b": 1 * MB}
    problem = problem_of(
        [(["x", "y"], ["a", "b"])], sizes, {"x": [1], "y": [1]}, [[5.0]], BETWEEN, file_s=0.5
    )
    staged = replace(problem, staged=staged_at(problem.allowed, 1))
    schedule = Estimator(staged)([0])
    (busy_s,) = busy_seconds(staged)[:, 0]
    assert busy_s == schedule.end_s[0] - schedule.start_s[0] > 5.0 + 8.0


@settings(max_examples=150)
@given(st.integers(0, 10**6), STAGING)
def test_as_a_plain_simulator_has_it(seed: int, staging: str) -> None:
    problem = random_problem(seed, staging, longest=15)
    sites = any_sites(problem, seed)
    urgency = urgency_of(problem)
    plain = plain_makespan(problem, sites, urgency.tolist())
    assert Estimator(problem, urgency).makespan(sites) == pytest.approx(plain, rel=CLOSE, abs=CLOSE)


@settings(max_examples=60)
@given(st.integers(0, 10**6), STAGING)
def test_bytes_and_core_seconds_are_conserved(seed: int, staging: str) -> None:
    problem = random_problem(seed, staging)
    sites = any_sites(problem, seed)
    schedule = Estimator(problem)(sites)
    computing = sum(problem.compute_s[j, s] for j, s in enumerate(sites))
    moving = sum(
        problem.size[t.file] * problem.seconds_per_byte[t.src, t.dst] for t in schedule.transfers
    )
    assert schedule.work_s == pytest.approx(computing + moving)
    with_worker = sum(schedule.end_s) - sum(schedule.start_s)
    assert with_worker == pytest.approx(computing) or (
        (problem.staged or problem.bypassed) and with_worker > computing
    )
    # What is moved is what is needed and is not there, once for each place or for each job.
    alone, shared = jobs_that_fetch(problem, sites), shared_by(problem, sites)
    needs: list[tuple[int, int, int]] = []
    for j, (site, files) in enumerate(zip(sites, problem.reads, strict=True)):
        for f in files:
            producer = problem.producer[f]
            if problem.bypassed and f in problem.bypassed[j]:
                needs += [(f, site, j)] if site not in problem.holders[f] else []
                continue
            if shared[j] not in (problem.holders[f] if producer < 0 else (shared[producer],)):
                needs.append((f, shared[j], j if alone[j] else -1))
            if shared[j] != site:
                needs.append((f, site, j))
        if shared[j] != site:
            needs += [(f, shared[j], j) for f in problem.writes[j]]
    for f, producer in enumerate(problem.producer):
        back = producer >= 0 and problem.returns[f] and 0 <= problem.output != shared[producer]
        if back:
            needs.append((f, problem.output, -2))
    assert sorted((t.file, t.dst) for t in schedule.transfers) == sorted(n[:2] for n in set(needs))


@settings(max_examples=60)
@given(st.integers(0, 10**6))
def test_nothing_starts_before_it_can_and_no_site_is_overbooked(seed: int) -> None:
    problem = random_problem(seed)
    sites = any_sites(problem, seed)
    schedule = Estimator(problem)(sites)
    setup = problem.setup_s
    arrived: dict[tuple[int, int], float] = {}
    for t in schedule.transfers:  # that for a reader comes before that of the result
        arrived.setdefault((t.file, t.dst), t.end_s + float(setup[t.src, t.dst]))
    for j, site in enumerate(sites):
        start = schedule.start_s[j]
        assert start >= schedule.ready_s[j] + problem.queue_s[site] - CLOSE
        assert all(schedule.end_s[p] <= schedule.ready_s[j] for p in problem.parents[j])
        for f in problem.reads[j]:
            producer = problem.producer[f]
            there = (sites[producer],) if producer >= 0 else problem.holders[f]
            assert site in there or arrived[f, site] <= schedule.ready_s[j]
        mine = [k for k, at in enumerate(sites) if at == site]
        running = sum(schedule.start_s[k] <= start < schedule.end_s[k] - CLOSE for k in mine)
        assert running <= problem.workers[site]


@settings(max_examples=40)
@given(st.integers(0, 10**6), STAGING)
def test_other_numbers_in_the_same_structure(seed: int, staging: str) -> None:
    problem = random_problem(seed, staging)
    sites = any_sites(problem, seed)
    run = Estimator(problem)
    slower = replace(problem, compute_s=problem.compute_s * 2, queue_s=problem.queue_s + 1)
    worlds = [run.with_numbers(p) for p in (problem, slower, problem)]
    same, later, again = run.makespans(np.array(sites), worlds)
    assert same == again == run.makespan(sites) == run(sites).makespan_s == run.score(sites)[0]
    assert later >= same or problem.n_sites > 1 or max(problem.workers) > 1
    assert run.evaluations == 3


def test_another_structure_is_not_taken_for_the_same() -> None:
    run = Estimator(random_problem(1))
    with pytest.raises(ValueError, match="another structure"):
        run.with_numbers(random_problem(2))
    changed = replace(run.problem, returns=tuple(not r for r in run.problem.returns))
    with pytest.raises(ValueError, match="another structure"):
        run.with_numbers(changed)


def test_a_mapped_workflow() -> None:
    sites: dict[str, dict[str, object]] = {
        name: {"adon.workers": 2, "adon.queue_wait": "1 s"} for name in ("mu", "tacc")
    }
    inputs = inputs_from(*resequencing(2, 2, sites, "mu"))
    world = estimate_world(inputs, now=0.0, output_site="tacc")
    mapping = map_workflow(inputs, world, "tacc")
    problem = build_problem(inputs, world, "tacc")
    names = [inputs.workflow.jobs[job].transformation for job in problem.jobs]
    chart = json.loads(json.dumps(gantt_of(problem, names, mapping), allow_nan=False))
    groups = dict(chart["groups"])
    jobs = {bar["label"]: site for site in mapping.sites.values() for bar in groups[site]}
    assert jobs == mapping.sites
    assert chart["end"] == pytest.approx(mapping.makespan_s - problem.overhead_s)
    assert all(
        0 <= bar["start"] <= bar["end"] <= chart["end"] for g in groups.values() for bar in g
    )
    for site in set(mapping.sites.values()):  # of two workers no more than two are busy at once
        for bar in groups[site]:
            at = bar["start"]
            assert sum(b["start"] <= at < b["end"] - 1e-9 for b in groups[site]) <= 2
    moved = {
        label for path in groups if " > " in path for label in (b["label"] for b in groups[path])
    }
    assert moved and moved <= set(problem.files)
    labels = {words for _, words in chart["key"]}
    assert {"t::align:1.0", "transfer"} <= labels
    assert title_of(mapping).startswith(
        f"{mapping.workflow}: {len(mapping.placements)} jobs, expected"
    )
