"""When transfers of a planned DAG will begin and end: by hand, and whatever the DAG."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.workflows.planned.dag import Moving, Node, PlannedDag, in_order
from monitors.workflows.planned.submit_dir import JobKind
from network_provisioner.base.errors import InputError
from pegasus_hooks.advance.job_estimates import JobEstimates
from pegasus_hooks.advance.predict import Prediction, Window, demand, predict
from pegasus_hooks.advance.progress import JobPhase, JobProgress

T0 = 1_000_000.0
SITES = ("mu", "tacc", "local")
EVERYWHERE = {(a, b): 8000.0 for a in SITES for b in SITES if a != b}  # 1,000 bytes a second


def computes(name: str, *parents: str, site: str = "mu", priority: int = 0) -> Node:
    return Node(name, JobKind.COMPUTE, site, "t::x:1", name, priority, 0, parents)


def moves(name: str, *parents: str, size: int = 1000, src: str = "local", dst: str = "mu") -> Node:
    return Node(name, JobKind.STAGE_IN, "local", parents=parents, first=(Moving(src, dst, size),))


def dag_of(*nodes: Node) -> PlannedDag:
    return PlannedDag("w", Path("/nowhere"), in_order({node.name: node for node in nodes}))


def estimated(run_s: Mapping[str, float], **more: int) -> JobEstimates:
    return JobEstimates(dict(run_s), more or {"mu": 1}, {}, EVERYWHERE)


def shown(prediction: Prediction) -> dict[str, tuple[float, float]]:
    return {w.job: (w.start - T0, w.end - T0) for w in prediction.windows}


def jobs(prediction: Prediction) -> dict[str, tuple[float, float]]:
    return {name: (start - T0, end - T0) for name, (start, end) in prediction.jobs.items()}


CHAIN = dag_of(
    moves("in", size=4000), computes("run", "in"), moves("out", "run", src="mu", dst="local")
)


def test_a_chain_moves_computes_and_moves() -> None:
    prediction = predict(CHAIN, estimated({"run": 10}), {}, T0)
    assert shown(prediction) == {"in": (0, 4), "out": (14, 15)}
    assert jobs(prediction) == {"in": (0, 4), "run": (4, 14), "out": (14, 15)}
    assert prediction.end == T0 + 15


def test_what_dagman_and_the_tool_take_comes_before_the_bytes() -> None:
    estimates = replace(estimated({"run": 10}), setup_s={("local", "mu"): 3.0})
    prediction = predict(CHAIN, estimates, {}, T0, lag_s=1.0)
    assert shown(prediction) == {"in": (1, 8), "out": (20, 21)}


def test_transfers_of_one_path_share_it() -> None:
    dag = dag_of(moves("a", size=1000), moves("b", size=3000), moves("c", dst="tacc"))
    prediction = predict(dag, estimated({}), {}, T0)
    assert shown(prediction) == {"a": (0, 2), "b": (0, 4), "c": (0, 1)}


def test_jobs_take_turns_at_workers_by_priority_and_wait_in_the_queue() -> None:
    names = {"a": 0, "b": 9, "c": 5}
    dag = dag_of(*(computes(name, priority=p) for name, p in names.items()))
    estimates = replace(estimated({"a": 10, "b": 10, "c": 10}, mu=2), queue_s={"mu": 5.0})
    ends = {name: end for name, (_, end) in jobs(predict(dag, estimates, {}, T0)).items()}
    assert ends == {"b": 15, "c": 15, "a": 25}


def test_what_runs_takes_as_long_as_is_left_and_keeps_its_worker() -> None:
    dag = dag_of(computes("a"), computes("b"), moves("c", "a"))
    estimates = replace(estimated({"a": 30, "b": 10}), queue_s={"mu": 5.0})
    running = {"a": JobProgress(JobPhase.RUNNING, T0 - 10)}
    prediction = predict(dag, estimates, running, T0)
    assert jobs(prediction) == {"a": (0, 20), "b": (0, 30), "c": (20, 21)}


def test_one_that_runs_longer_than_believed_is_not_believed_to_end_at_once() -> None:
    prediction = predict(CHAIN, estimated({"run": 10}), {"in": JobProgress(JobPhase.DONE, 0),
                    "run": JobProgress(JobPhase.RUNNING, T0 - 40)}, T0)  # fmt: skip
    assert shown(prediction) == {"out": (10, 11)}


def test_what_has_begun_has_no_window_and_what_is_done_is_over() -> None:
    moving = {"in": JobProgress(JobPhase.ASKED, T0 - 3)}
    prediction = predict(CHAIN, estimated({"run": 10}), moving, T0)
    assert shown(prediction) == {"out": (11, 12)}
    done = {name: JobProgress(JobPhase.DONE, T0) for name in ("in", "run")}
    assert shown(predict(CHAIN, estimated({}), done, T0)) == {"out": (0, 1)}
    assert (
        predict(CHAIN, estimated({}), {**done, "out": JobProgress(JobPhase.DONE, T0)}, T0).end == 0
    )


def test_what_waits_for_one_that_failed_for_good_never_comes() -> None:
    lost = {"run": JobProgress(JobPhase.NEVER, T0)}
    assert shown(predict(CHAIN, estimated({"run": 10}), lost, T0)) == {"in": (0, 4)}


def test_a_size_that_nobody_knows_gives_no_window() -> None:
    unknown = Node("in", JobKind.STAGE_IN, "local", first=(Moving("local", "mu", 500, ("f", "g")),))
    dag = dag_of(unknown, computes("run", "in"))
    assert shown(predict(dag, estimated({"run": 1}), {}, T0)) == {}
    known = replace(estimated({"run": 1}), sizes={"f": 1000.0, "g": 500.0})
    assert shown(predict(dag, known, {}, T0)) == {"in": (0, 2)}


def test_a_job_that_brings_its_own_files_asks_before_it_waits_for_a_worker() -> None:
    lite = replace(computes("b"), first=(Moving("tacc", "mu", 3000),))
    dag = dag_of(replace(computes("a"), priority=1), lite)
    prediction = predict(dag, estimated({"a": 10, "b": 20}), {}, T0)
    assert shown(prediction) == {"b": (0, 13)} and jobs(prediction)["b"] == (0, 33)


def test_a_site_without_workers_is_never() -> None:
    estimates = replace(estimated({"run": 10}), queue_s={"mu": 1e9})
    assert shown(predict(CHAIN, estimates, {}, T0)) == {"in": (0, 4)}


def test_jobs_that_wait_for_each_other_or_for_nobody_are_refused() -> None:
    with pytest.raises(InputError, match="wait for each other: a - b - a"):
        dag_of(computes("a", "b"), computes("b", "a"))
    with pytest.raises(InputError, match="'a' waits for 'c', which is none"):
        dag_of(computes("a", "c"))


def test_demand_is_a_step_function_of_each_pair() -> None:
    windows = [
        Window("a", ("local", "mu"), T0, T0 + 4, 4000),
        Window("b", ("local", "mu"), T0 + 2, T0 + 6, 8000),
        Window("c", ("mu", "tacc"), T0, T0, 10),
    ]
    steps = [(s.start - T0, s.end - T0, s.transfers, s.size_bytes) for s in demand(windows)]
    assert steps == [(0, 2, 1, 2000), (2, 4, 2, 6000), (4, 6, 1, 4000)]
    assert demand(windows)[1].rate_bps == 24_000


# -- whatever the DAG ------------------------------------------------------------------------------


@st.composite
def dags(draw: st.DrawFn) -> PlannedDag:
    nodes: list[Node] = []
    for number in range(draw(st.integers(1, 14))):
        names = [node.name for node in nodes]
        parents = draw(st.sets(st.sampled_from(names), max_size=3)) if names else set()
        src, dst = draw(st.permutations(SITES))[:2]
        size = draw(st.integers(1, 20_000))
        node = moves(f"j{number}", *sorted(parents), src=src, dst=dst, size=size)
        if draw(st.booleans()):
            brings = node.first if draw(st.integers(0, 4)) == 0 else ()
            node = computes(
                f"j{number}", *sorted(parents), site=src, priority=draw(st.integers(0, 3))
            )
            node = replace(node, first=brings)
        nodes.append(node)
    return dag_of(*nodes)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[PlannedDag, JobEstimates, dict[str, JobProgress], float]:
    dag = draw(dags())
    seconds = st.floats(0, 100)
    run_s = {name: draw(seconds) for name, node in dag.nodes.items() if node.takes_worker}
    workers = {site: draw(st.integers(1, 3)) for site in SITES}
    queue_s = {site: draw(st.sampled_from((0.0, 0.0, 7.0))) for site in SITES}
    setup_s = {pair: draw(st.sampled_from((0.0, 2.5))) for pair in EVERYWHERE}
    stands: dict[str, JobProgress] = {}
    ran: dict[str, int] = {}
    for name, node in dag.nodes.items():  # a run so far: nothing before its parents are done
        if all(stands.get(p, JobProgress()).phase is JobPhase.DONE for p in node.parents):
            phase = draw(
                st.sampled_from((JobPhase.WAITING, JobPhase.RUNNING, JobPhase.DONE, JobPhase.DONE))
            )
            if phase is JobPhase.RUNNING and node.takes_worker:
                ran[node.site] = ran.get(node.site, 0) + 1
                if ran[node.site] > workers[node.site]:
                    phase = JobPhase.WAITING
            stands[name] = JobProgress(phase, T0 - draw(seconds))
    lag = draw(st.sampled_from((0.0, 1.0)))
    return dag, JobEstimates(run_s, workers, queue_s, EVERYWHERE, setup_s), stands, lag


@settings(max_examples=20, deadline=None)
@given(worlds())
def test_predictions_keep_to_the_dag_its_workers_and_its_paths(
    world: tuple[PlannedDag, JobEstimates, dict[str, JobProgress], float],
) -> None:
    dag, estimates, stands, lag = world
    prediction = predict(dag, estimates, stands, T0, lag)
    done = {name for name, stand in stands.items() if stand.phase is JobPhase.DONE}
    assert prediction.jobs.keys() == dag.nodes.keys() - done
    for name, (begin, end) in prediction.jobs.items():
        assert T0 <= begin <= end
        for parent in dag.nodes[name].parents:
            assert parent in done or prediction.jobs[parent][1] <= begin + 1e-6
    waiting = {n for n in prediction.jobs if stands.get(n, JobProgress()).phase is JobPhase.WAITING}
    assert {w.job for w in prediction.windows} == {n for n in waiting if dag.nodes[n].first}
    for window in prediction.windows:
        begin, end = prediction.jobs[window.job]
        alone = window.size_bytes / 1000 + window.setup_s
        assert begin <= window.start <= begin + lag + 1e-6 and window.end <= end + 1e-6
        assert window.end - window.start >= alone - 1e-3
    no_more_jobs_than_workers(dag, estimates, prediction)
    no_more_bytes_than_a_path_carries(dag, prediction)
    assert predict(dag, estimates, stands, T0, lag) == prediction


def no_more_jobs_than_workers(
    dag: PlannedDag, estimates: JobEstimates, prediction: Prediction
) -> None:
    """By how much work must be done: what ends by then fits into the workers' time until then."""
    for site, workers in estimates.workers.items():
        ends = sorted(
            (prediction.jobs[name][1], estimates.run_s[name])
            for name, node in dag.nodes.items()
            if node.takes_worker and node.site == site and name in prediction.jobs
            and prediction.jobs[name][1] - prediction.jobs[name][0] >= estimates.run_s[name]
        )  # fmt: skip
        total = 0.0
        for end, seconds in ends:
            total += seconds
            assert total <= workers * (end - T0) + 1e-6


def no_more_bytes_than_a_path_carries(dag: PlannedDag, prediction: Prediction) -> None:
    staged = [w for w in prediction.windows if not dag.nodes[w.job].takes_worker]
    for pair in EVERYWHERE:
        of = sorted((w.end, w.start, w.size_bytes) for w in staged if w.pair == pair)
        for end, _, _ in of:
            for _, since, _ in of:
                within = sum(size for e, s, size in of if since <= s and e <= end)
                assert within <= 1000 * (end - since) + 1e-3 or end <= since
