"""What is believed, from which source, how age and spread count, and how far off it may be."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problem_world import problem_of
from site_world import (
    NOW,
    Measurements,
    estimate_of,
    inputs_from,
    inputs_of,
    job,
    replicas_text,
    sites_text,
    transformations_text,
    workflow_text,
    world_inputs,
)

from condor_plugins.pool.sitepool import SitePool
from monitors.base.estimates import Estimate
from network_provisioner.templates.data import template_from_dict
from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.graph import Topology
from site_selector.estimates.estimating import (
    DAGMAN_S,
    DEFAULT_WORKERS,
    estimate_sites,
    estimate_world,
    subjects,
)
from site_selector.estimates.rates import DEFAULT_BANDWIDTH_BPS, DEFAULT_RATE
from site_selector.estimates.running import Holding, Live, bandwidth_of, workers_of
from site_selector.estimates.world import ComputeEstimate, EstimatedValue, SiteEstimate, World
from site_selector.inputs import Inputs
from site_selector.mapping.estimator import Estimator
from site_selector.mapping.mapper import map_workflow
from site_selector.mapping.uncertainty import Uncertainty, relative_error, scenarios, uncertainty_of
from site_selector.problem import NEVER_S, Problem, build_problem, file_sizes


def test_without_measurements_the_catalog_then_defaults() -> None:
    world = estimate_world(world_inputs(), now=NOW)
    assert world.sites["mu"].workers == EstimatedValue(8, "catalog")
    assert world.sites["mu"].queue_wait == EstimatedValue(30, "catalog")
    assert world.sites["tacc"].workers == EstimatedValue(DEFAULT_WORKERS, "default")
    assert world.sites["tacc"].queue_wait == EstimatedValue(
        DAGMAN_S, "default", note="DAGMan's cycles"
    )
    assert world.paths["mu", "tacc"].setup == world.sites["tacc"].queue_wait
    assert world.dag_overhead.value == 2 * DAGMAN_S
    assert world.paths["mu", "tacc"].gamma_a == EstimatedValue(200e6, "catalog")
    assert world.paths["tacc", "mu"].gamma_a == EstimatedValue(200e6, "catalog")
    assert world.paths["mu", "local"].gamma_a == EstimatedValue(DEFAULT_BANDWIDTH_BPS, "default")
    assert world.compute["t::a:1.0", "tacc"].estimated.value == 40e6
    assert world.compute["t::a:1.0", "mu"].estimated == EstimatedValue(DEFAULT_RATE, "default")


def test_a_site_without_workers_has_an_infinite_queue() -> None:
    world = estimate_world(world_inputs(), now=NOW)
    assert math.isinf(world.sites["local"].queue_wait.value)
    pool = {"mu": SitePool("mu", 990.0, 3, 3, ahead=0.0), "tacc": SitePool("tacc", 990.0, 0)}
    gone = estimate_world(world_inputs(), now=NOW, live=Live(pool))
    assert gone.sites["mu"].workers == EstimatedValue(3, "collector", 990.0)
    assert math.isinf(gone.sites["tacc"].queue_wait.value)


def test_measurements_beat_the_catalog_and_keep_their_age() -> None:
    known = Measurements(
        {
            ("throughput", "mu>tacc"): estimate_of(150e6, at=940, spread=5e6),
            ("queue_wait", "mu"): estimate_of(4, at=990),
            ("compute_rate", "t::a:1.0@tacc"): estimate_of(33e6),
            ("runtime", "t::a:1.0@mu"): estimate_of(12.0),
        }
    )
    world = estimate_world(world_inputs(), known, now=NOW)
    path = world.paths["mu", "tacc"]
    assert path.gamma_a == EstimatedValue(150e6, "archive", 940, 5e6)
    assert path.gamma_a.as_dict(NOW)["age_s"] == 60
    assert world.paths["tacc", "mu"].gamma_a.source == "catalog"
    assert world.sites["mu"].queue_wait == EstimatedValue(4, "archive", 990)
    assert world.compute["t::a:1.0", "tacc"].estimated.value == 33e6
    assert world.compute["t::a:1.0", "mu"].kind == "runtime"


def test_nothing_from_the_future_is_used() -> None:
    known = Measurements({("queue_wait", "mu"): estimate_of(4, at=NOW + 1)})
    assert estimate_world(world_inputs(), known, now=NOW).sites["mu"].queue_wait.source == "catalog"


def test_a_measurement_elsewhere_is_carried_over_by_the_ratio_of_the_catalogs() -> None:
    hints: dict[str, dict[str, object]] = {
        "mu": {"adon.rate": "40 MB/s"},
        "tacc": {"adon.rate": "10 MB/s"},
    }
    known = Measurements({("compute_rate", "t::a:1.0@mu"): estimate_of(20e6, at=800)})
    estimate = (
        estimate_world(world_inputs(hints), known, now=NOW).compute["t::a:1.0", "tacc"].estimated
    )
    assert estimate.value == pytest.approx(5e6)  # tacc is a quarter of mu, and mu is half as fast
    assert (estimate.source, estimate.at, estimate.note) == ("archive", 800, "measured at mu")
    # No entry makes a site that nobody tried faster than one that was.
    known = Measurements({("compute_rate", "t::a:1.0@tacc"): estimate_of(5e6, at=800)})
    estimate = (
        estimate_world(world_inputs(hints), known, now=NOW).compute["t::a:1.0", "mu"].estimated
    )
    assert estimate.value == pytest.approx(5e6)


def test_the_best_path_of_a_topology_minus_its_use() -> None:
    topology = topology_from_dict(
        {
            "nodes": [
                {"name": "mu", "kind": "site"},
                {"name": "tacc", "kind": "site"},
                {"name": "s1", "kind": "switch", "dpid": 1},
                {"name": "r1", "kind": "router"},
            ],
            "links": [
                {"a": "mu", "b": "s1", "capacity": "1 Gb/s"},
                {"a": "s1", "b": "tacc", "capacity": "200 Mb/s", "delay": "26.5 ms"},
                {"a": "mu", "b": "r1", "capacity": "20 Mb/s", "delay": "26.5 ms"},
                {"a": "r1", "b": "tacc", "capacity": "20 Mb/s"},
            ],
        }
    )
    path = estimate_world(world_inputs(), now=NOW, live=Live(topology=topology)).paths["mu", "tacc"]
    assert path.gamma_a == EstimatedValue(200e6, "topology", NOW, note="mu-s1-tacc")
    assert path.link_bps == 200e6
    assert path.rtt_s == pytest.approx(0.053)
    busy = {("s1", "tacc"): 190e6}
    path = estimate_world(world_inputs(), now=NOW, live=Live(None, topology, busy)).paths[
        "mu", "tacc"
    ]
    assert path.gamma_a.value == 20e6
    assert path.gamma_a.note == "mu-r1-tacc"


def test_paths_know_the_link_that_they_share() -> None:
    """The narrow link that all ways have in common, without a topology the submit host's; not where
    something else bounds a path."""
    star = topology_from_dict(
        {
            "nodes": [
                *({"name": name, "kind": "site"} for name in ("mu", "tacc", "local")),
                {"name": "s1", "kind": "switch", "dpid": 1},
                {"name": "s2", "kind": "switch", "dpid": 2},
            ],
            "links": [
                {"a": "local", "b": "s1", "capacity": "1 Gb/s"},
                {"a": "mu", "b": "s1", "capacity": "10 Gb/s"},
                {"a": "s1", "b": "s2", "capacity": "2 Gb/s"},
                {"a": "s1", "b": "s2", "capacity": "2 Gb/s"},
                {"a": "s2", "b": "tacc", "capacity": "10 Gb/s"},
            ],
        }
    )
    inputs = world_inputs({name: {"adon.buffer": 1 << 30} for name in ("mu", "tacc", "local")})
    paths = estimate_world(inputs, now=NOW, live=Live(topology=star)).paths
    assert {paths["local", site].bottleneck for site in ("mu", "tacc")} == {("local", "s1")}
    assert paths["tacc", "local"].bottleneck == ("s1", "local")
    paths = estimate_world(inputs, now=NOW).paths
    assert {paths["local", site].bottleneck for site in ("mu", "tacc")} == {("local", "")}
    assert paths["mu", "tacc"].bottleneck is None
    known = Measurements({("transfer_rate", "local>mu"): estimate_of(50e6, at=NOW)})
    world = estimate_world(inputs, known, now=NOW)
    assert world.paths["local", "mu"].bottleneck is None
    problem = build_problem(inputs, estimate_world(inputs, now=NOW), "local")
    mu, tacc, local = (problem.places.index(place) for place in ("mu", "tacc", "local"))
    assert problem.bottleneck is not None
    assert problem.bottleneck[mu, local] == problem.bottleneck[tacc, local] >= 0
    assert problem.bottleneck[mu, tacc] == -1


def test_gamma_t_binds_where_buffers_are_small() -> None:
    hints = {
        "mu": {"adon.bandwidth.tacc": "1 Gb/s", "adon.rtt.tacc": "53 ms", "adon.streams": 1,
               "adon.buffer": 65536},
        "tacc": {},
    }  # fmt: skip
    path = estimate_world(world_inputs(hints), now=NOW).paths["mu", "tacc"]
    assert path.bound == "Γ_t"
    assert path.rate_bps == pytest.approx(65536 * 8 / 0.053)


def test_the_loss_that_is_written_down_counts() -> None:
    hints: dict[str, dict[str, object]] = {
        "mu": {"adon.rtt.tacc": "100 ms", "adon.loss.tacc": "0.0001"}, "tacc": {},
    }  # fmt: skip
    path = estimate_world(world_inputs(hints), now=NOW).paths["mu", "tacc"]
    assert path.loss == 1e-4
    assert path.gamma_t.value == pytest.approx(4 * 1460 * 8 / 0.1 * 1.5**0.5 / 0.01)


def test_sites_that_differ_in_their_buffers_alone_have_paths_of_their_own() -> None:
    hints: dict[str, dict[str, object]] = {"mu": {}, "tacc": {}, "iplant": {"adon.buffer": 65536}}
    paths = estimate_world(world_inputs(hints), now=NOW).paths
    assert paths["mu", "iplant"].buffer_bytes == 65536 < paths["mu", "tacc"].buffer_bytes


def test_measured_loss_and_round_trips_come_before_what_was_written_down() -> None:
    hints: dict[str, dict[str, object]] = {
        "mu": {"adon.rtt.tacc": "10 ms", "adon.bandwidth.tacc": "10 Gb/s"}, "tacc": {},
    }  # fmt: skip
    written = estimate_world(world_inputs(hints), now=NOW).paths["mu", "tacc"].gamma_t
    assert (written.source, written.at) == ("catalog", None)
    known = {
        ("rtt", "mu>tacc"): estimate_of(0.1, at=950),
        ("loss", "mu>tacc"): estimate_of(1e-4, at=960),
    }
    path = estimate_world(world_inputs(hints), Measurements(known), now=NOW).paths["mu", "tacc"]
    # Four streams of 1460 B · 8 / 0.1 s · 1.2247 / 0.01: Mathis et al.
    assert path.gamma_t.value == pytest.approx(4 * 1460 * 8 / 0.1 * 1.5**0.5 / 0.01)
    assert (path.gamma_t.source, path.gamma_t.at, path.bound) == ("archive", 960, "Γ_t")
    assert (path.rtt_s, path.loss) == (0.1, 1e-4)


def test_a_runtime_of_the_job_beats_that_of_the_transformation_but_no_measurement() -> None:
    flow = workflow_text([job("x", "a", ["f"], pegasus={"runtime": 7}), job("y", "a", ["f"])])
    texts = (
        sites_text({"mu": {}}),
        replicas_text({"f": ("mu", 1000)}),
        transformations_text({"a": ["mu"]}, {"a": 60}),
    )
    inputs = inputs_from(flow, *texts)
    problem = build_problem(inputs, estimate_world(inputs, now=NOW))
    assert problem.compute_s[:, 0].tolist() == pytest.approx([7, 60])
    known = Measurements({("runtime", "t::a:1.0@mu"): estimate_of(12.0)})
    problem = build_problem(inputs, estimate_world(inputs, known, now=NOW))
    assert problem.compute_s[:, 0].tolist() == pytest.approx([12, 12])


def _sizes(inputs: Inputs, world: World | None = None) -> dict[str, float]:
    return file_sizes(inputs, world or estimate_world(inputs, now=NOW))[0]


def test_undeclared_outputs_final_ones_are_a_tenth() -> None:
    sizes = _sizes(world_inputs())
    assert sizes == {"f": 100e6, "g": 100e6, "h": pytest.approx(10e6)}


def test_shared_inputs_are_not_written_again_by_every_reader() -> None:
    jobs = [job(f"x{i}", "a", ["ref", f"f{i}"], [f"g{i}"]) for i in range(4)]
    jobs.append(job("end", "a", [f"g{i}" for i in range(4)], ["out"]))
    replicas = {"ref": ("mu", 400)} | {f"f{i}": ("mu", 10) for i in range(4)}
    inputs = inputs_of(jobs, {"mu": {}}, replicas, {"a": ["mu"]})
    sizes = _sizes(inputs)
    assert sizes["g0"] == 110  # its own 10 and a quarter of the reference
    assert sizes["out"] == pytest.approx(44)


def test_a_learnt_ratio_and_declared_sizes_come_first() -> None:
    inputs = world_inputs()
    known = Measurements({("output_ratio", "t::a:1.0"): estimate_of(0.5)})
    assert _sizes(inputs, estimate_world(inputs, known, now=NOW))["h"] == pytest.approx(25e6)
    flow = workflow_text(
        [job("x", "a", ["f"], ["g"], sizes={"g": 77}), job("y", "a", ["g"], ["h"])]
    )
    declared = inputs_from(
        flow,
        sites_text({"mu": {}}),
        replicas_text({"f": ("mu", 1000)}),
        transformations_text({"a": ["mu"]}),
    )
    assert _sizes(declared)["g"] == 77


@given(st.floats(0.01, 1e7), st.floats(0.01, 1e6), st.sampled_from(["rate", "runtime"]))
def test_carrying_over_between_like_sites_changes_nothing(
    value: float, default: float, kind: str
) -> None:
    metric = "compute_rate" if kind == "rate" else "runtime"
    known = Measurements({(metric, "t::a:1.0@mu"): estimate_of(value)})
    inputs = world_inputs({"mu": {}, "tacc": {}}, {"a": default})
    compute = estimate_world(inputs, known, now=NOW).compute
    assert compute["t::a:1.0", "tacc"].kind == kind
    assert compute["t::a:1.0", "tacc"].estimated.value == pytest.approx(value)


# ------------------------------------------------------------------- a running HTCondor


def pool_of(**sites: SitePool) -> dict[str, SitePool]:
    return sites


def test_a_pool_s_latency_holds_for_a_site_with_idle_slots_that_was_never_measured() -> None:
    inputs = world_inputs({"mu": {}, "tacc": {"adon.queue_wait": "60 s"}})
    source = Measurements({("queue_wait", "mu"): estimate_of(1.5)})

    def tacc(**fields: float) -> EstimatedValue:
        pool = pool_of(mu=SitePool("mu", NOW, 2), tacc=SitePool("tacc", NOW, 4, **fields))  # type: ignore[arg-type]
        return estimate_world(inputs, source, now=NOW, live=Live(pool)).sites["tacc"].queue_wait

    assert tacc() == EstimatedValue(
        60, "catalog"
    )  # slots are known, nobody knows who waits for them
    estimate = tacc(idle_slots=4, ahead=0.0)
    assert (estimate.value, estimate.source, estimate.at) == (1.5, "archive", 900.0)
    assert "measured at mu" in estimate.note


def test_a_site_s_own_measurement_comes_before_its_neighbours() -> None:
    inputs = world_inputs({"mu": {}, "tacc": {}})
    source = Measurements(
        {("queue_wait", "mu"): estimate_of(1.5), ("queue_wait", "tacc"): estimate_of(20.0)}
    )
    pool = pool_of(
        mu=SitePool("mu", NOW, 2), tacc=SitePool("tacc", NOW, 4, idle_slots=4, ahead=0.0)
    )
    world = estimate_world(inputs, source, now=NOW, live=Live(pool))
    assert world.sites["tacc"].queue_wait.value == 20.0


@pytest.mark.parametrize(
    ("stalled", "n", "note"),
    [
        (0.9, 8, ""),
        (3.2, 5, "of 8 slots, 3 wait for disks (I/O wait)"),
        (64.0, 4, "of 8 slots, 4 wait for disks (I/O wait)"),
    ],
)
def test_cores_that_stand_still_for_disks_are_no_workers(stalled: float, n: int, note: str) -> None:
    pool = pool_of(mu=SitePool("mu", 995.0, 8, idle_slots=8, ahead=0.0, stalled=stalled))
    workers = (
        estimate_world(world_inputs(), Measurements({}), now=NOW, live=Live(pool))
        .sites["mu"]
        .workers
    )
    assert workers == EstimatedValue(n, "collector", 995.0, note=note)


def test_the_queue_is_what_the_jobs_ahead_take() -> None:
    source = Measurements({("queue_wait", "mu"): estimate_of(4.0)})

    def wait(**fields: object) -> EstimatedValue:
        pool = pool_of(mu=SitePool("mu", 995.0, 4, **fields))  # type: ignore[arg-type]
        return (
            estimate_world(world_inputs(), source, now=NOW, live=Live(pool)).sites["mu"].queue_wait
        )

    # Five jobs ahead of four busy slots that are held for 60 s: the sixth to fall free is ours.
    estimate = wait(ahead=5.0, run_s=60.0)
    assert (estimate.value, estimate.source, estimate.at) == (6 * 60 / 4, "schedd", 995.0)
    assert estimate.note == ("5 jobs ahead, 0 of 4 slots idle, each job holds one for 60 s")
    assert wait(ahead=5.0, run_s=60.0, start_s=2.0).value == 92
    assert estimate.spread == pytest.approx(6**0.5 * 60 / 4)
    # Ours comes first by users' shares, but others keep their slots for 20 min.
    few = wait(ahead=300.0, before=0.0, run_s=60.0)
    assert few.value == (1200 + 60 / 2) / 4
    assert few.note.endswith(
        "each job holds one for 60 s; by users' priorities 0 of them start before"
    )
    assert wait(ahead=300.0, before=0.0, run_s=4000.0).value == 1000
    assert wait(ahead=300.0, before=0.0, run_s=60.0, claim_s=-1.0).value == 301 * 60 / 4
    assert wait(ahead=5.0, before=0.0, run_s=60.0).value == estimate.value
    # Of one slot to fall free it is known how soon on average, and not when.
    assert relative_error(few, NOW) > relative_error(estimate, NOW) > 0.3
    # One slot is idle and one job goes there: the first that falls free is ours.
    assert wait(ahead=1.0, idle_slots=1, run_s=60.0).value == 15
    # From submission to start is not all of it: DAGMan and the hooks come before.
    idle = wait(ahead=0.0, idle_slots=1, start_s=2.0)
    assert (idle.value, idle.source) == (4.0, "archive")
    source = Measurements({})
    assert wait(ahead=0.0, idle_slots=1, start_s=2.0).value == DAGMAN_S
    assert wait(ahead=0.0, idle_slots=1, start_s=20.0) == EstimatedValue(
        20.0, "schedd", 995.0, note="0 jobs ahead, 1 of 4 slots idle"
    )
    source = Measurements({("queue_wait", "mu"): estimate_of(4.0)})
    # Nobody knows how long the jobs ahead take: the archive has seen such queues.
    assert wait(ahead=5.0) == EstimatedValue(4.0, "archive", 900.0)


def busy(site: str, slots: int, idle: int, **fields: object) -> SitePool:
    return SitePool(site, NOW, slots, idle, ahead=0.0, **fields)  # type: ignore[arg-type]


def test_a_template_selects_sites_cores_and_memory() -> None:
    template = template_from_dict(
        "w",
        {
            "qspec": {"min_throughput": "1 Mb/s"},
            "rspec": {"sites": ["mu"], "cores": 6, "memory": "4 GB"},
        },
    )
    within = world_inputs().within(template)
    assert set(within.candidates.values()) == {("mu",)}
    assert within.notes == ("template 'w' has jobs run at mu alone",)
    pool = pool_of(mu=busy("mu", 8, 8, memory_bytes=80 * 10**9), tacc=busy("tacc", 4, 4))
    sites = estimate_world(within, now=NOW, live=Live(pool)).sites
    assert (sites["mu"].workers.value, sites["tacc"].workers.value) == (6, 4)
    pool = pool_of(mu=busy("mu", 8, 8, memory_bytes=16 * 10**9))
    mu = estimate_world(within, now=NOW, live=Live(pool)).sites["mu"].workers
    assert (mu.value, "of memory" in mu.note) == (4, True)
    elsewhere = template_from_dict(
        "w", {"qspec": {"min_throughput": 1e6}, "rspec": {"sites": ["mars"]}}
    )
    stays = world_inputs().within(elsewhere)
    assert stays.candidates == world_inputs().candidates
    assert within.configurations.keys() == world_inputs().configurations.keys()


def test_a_transfer_gets_no_more_than_its_templates_ceiling() -> None:
    spec = {"qspec": {"min_throughput": 1e6}, "rspec": {"max_throughput": 150e6}}
    inputs = world_inputs().within(template_from_dict("w", spec))
    path = estimate_world(inputs, now=NOW).paths["mu", "tacc"]
    assert path.gamma_a == EstimatedValue(150e6, "catalog", note="the template's ceiling")
    world = estimate_world(inputs, now=NOW)
    problem = build_problem(inputs, world, "local")
    mu, tacc, local = (problem.places.index(place) for place in ("mu", "tacc", "local"))
    assert problem.seconds_per_byte[mu, tacc] == pytest.approx(8 / 150e6)
    assert problem.occupied_per_byte[mu, tacc] == pytest.approx(8 / 200e6)  # room for another
    assert problem.seconds_per_byte[mu, local] == pytest.approx(8 / DEFAULT_BANDWIDTH_BPS)
    known = Measurements({("throughput", "mu>tacc"): estimate_of(190e6, at=NOW)})
    path = estimate_world(inputs, known, now=NOW).paths["mu", "tacc"]
    assert path.gamma_a.value == 150e6  # measured under another template


def test_jobs_that_need_much_memory_have_fewer_workers() -> None:
    needs = {"pegasus": {"memory": "4000"}}
    jobs = [job("x", "a", ["f"], **needs), job("y", "a", ["f"], **needs), job("z", "a", ["f"])]
    inputs = inputs_of(jobs, {"mu": {}}, {"f": ("mu", 1000)}, {"a": ["mu"]}, {"a": 10.0})
    pool = pool_of(mu=busy("mu", 8, 8, memory_bytes=9000 * 2**20))
    world = estimate_world(inputs, now=NOW, live=Live(pool))
    assert world.sites["mu"].workers.note == "of 8: what there is of memory"
    assert build_problem(inputs, world).workers == (2,)


def test_what_running_applications_hold_is_taken_off_a_site() -> None:
    def mu(pool: SitePool, *held: Holding) -> SiteEstimate:
        live = Live(pool_of(mu=pool)).with_held(held)
        return estimate_world(world_inputs(), now=NOW, live=live).sites["mu"]

    some = mu(busy("mu", 8, 6, start_s=20.0))
    assert (some.workers.value, some.queue_wait.value, some.lacks) == (6, 20, "")
    assert some.workers.note == "of 8, less 2 jobs that run"
    assert mu(busy("mu", 8, 0, run_s=60.0)).workers.value == 4  # HTCondor shares
    assert mu(busy("mu", 8, 0, run_s=60.0, share=0.3)).workers.value == 3
    assert mu(busy("mu", 8, 0, run_s=60.0, kept=6)).workers.value == 1
    assert mu(busy("mu", 8, 1, run_s=60.0, kept=6)).workers.value == 1
    assert mu(busy("mu", 8, 0, run_s=240.0)).queue_wait.value == 240 / 8
    assert mu(busy("mu", 8, 0, run_s=240.0, kept=6)).queue_wait.value == 240 / 2
    assert mu(busy("mu", 8, 0, run_s=60.0, kept=8)).queue_wait.value == 1200 / 8
    part = mu(busy("mu", 8, 8), Holding("big", {workers_of("mu"): 5.0}))
    assert (part.workers.value, part.workers.note) == (3, "of 8, less big")
    # Of what a file says nobody knows the end.
    never = mu(busy("mu", 8, 8), Holding("big", {workers_of("mu"): 8.0}))
    assert (never.workers.value, never.queue_wait.value) == (8, math.inf)
    assert never.lacks == "workers at mu: 1 needed, 0 of 8 free, held by big"
    # Edge optimisation takes it off itself.
    live = Live(pool_of(mu=busy("mu", 8, 6)))
    assert estimate_world(world_inputs(), now=NOW, live=live.idle()).sites["mu"].workers.value == 8
    assert live.in_pool() == (Holding("jobs that run", {workers_of("mu"): 2.0}),)


def test_a_measured_path_carries_no_more_than_is_left_of_it() -> None:
    source = Measurements({("throughput", "mu>tacc"): estimate_of(150e6)})

    def gamma(*held: Holding) -> EstimatedValue:
        live = Live().with_held(held)
        return (
            estimate_world(world_inputs(), source, now=NOW, live=live).paths["mu", "tacc"].gamma_a
        )

    held = Holding("big", {bandwidth_of("mu", "tacc"): 120e6})
    assert gamma().value == 150e6
    assert gamma(held).value == 80e6  # of 200 Mb/s
    assert "what applications hold" in gamma(held).note


def flattered() -> dict[str, dict[str, object]]:
    """mu and tacc, and one of which its catalog entry promises more than anybody has seen."""
    far = {"adon.bandwidth.far": "800 Mb/s"}
    return {
        "mu": {"adon.queue_wait": "1 s", "adon.bandwidth.tacc": "200 Mb/s", **far},
        "tacc": {"adon.queue_wait": "1 s", **far},
        "far": {"adon.queue_wait": "0 s", "adon.rate": "20 MB/s"},
    }


def test_what_nobody_measured_is_not_believed_better_than_what_was() -> None:
    measured = {
        ("throughput", "mu>tacc"): estimate_of(50e6),
        ("throughput", "tacc>mu"): estimate_of(50e6),
        ("queue_wait", "mu"): estimate_of(4.0),
    }
    world = estimate_world(world_inputs(flattered()), Measurements(measured), now=NOW)
    path = world.paths["mu", "far"].gamma_a
    assert (path.value, path.source) == (pytest.approx(200e6), "catalog")
    assert path.note == "times 0.25, as 2 measured paths were"
    assert world.sites["far"].queue_wait.value == 4.0
    assert world.sites["far"].queue_wait.note == "measured at mu"
    plain = estimate_world(world_inputs(flattered()), now=NOW)
    assert plain.paths["mu", "far"].gamma_a == EstimatedValue(800e6, "catalog")


@pytest.mark.parametrize(("n_bytes", "rate"), [(25e6, 200e6), (24e6, 800e6)])
def test_a_transfer_that_would_have_taken_less_than_a_second_tells_nothing_of_other_paths(
    n_bytes: float, rate: float
) -> None:
    measured = {
        ("throughput", "mu>tacc"): estimate_of(50e6),
        ("transfer_bytes", "mu>tacc"): estimate_of(n_bytes),
    }
    world = estimate_world(world_inputs(flattered()), Measurements(measured), now=NOW)
    assert world.paths["mu", "far"].gamma_a.value == pytest.approx(rate)


def test_what_a_workflow_takes_beside_its_jobs_is_reckoned_with() -> None:
    known = Measurements({("dag_overhead", "local"): estimate_of(9.0)})
    inputs = world_inputs({"mu": {}, "tacc": {}})
    ends = []
    for source in (None, known):
        problem = build_problem(inputs, estimate_world(inputs, source, now=NOW))
        ends.append(Estimator(problem).makespan([0, 0]))
    assert ends[1] == pytest.approx(ends[0] + 9.0)


def test_programs_that_nobody_ran_are_as_far_off_their_entry_as_others() -> None:
    jobs = [job("x", "a", ["f"], ["g"]), job("y", "b", ["g"], ["h"])]
    sites: dict[str, dict[str, object]] = {"mu": {}, "tacc": {}}
    where = {"a": list(sites), "b": list(sites)}
    inputs = inputs_of(jobs, sites, {"f": ("mu", 1000)}, where, {"a": 10.0, "b": 30.0})
    source = Measurements({("runtime", "t::a:1.0@mu"): estimate_of(5.0)})
    compute = estimate_world(inputs, source, now=NOW).compute["t::b:1.0", "tacc"]
    assert (compute.kind, compute.estimated.value) == ("runtime", pytest.approx(15.0))
    assert compute.estimated.note.endswith("times 0.5, as 1 measured programs were")


def test_how_far_catalogs_were_off_is_learned_where_enough_was_measured() -> None:
    measured = {
        ("throughput", f"{a}>{b}"): estimate_of(value)
        for a, b, value in (("mu", "tacc", 40e6), ("tacc", "mu", 50e6), ("mu", "far", 240e6))
    }
    world = estimate_world(world_inputs(flattered()), Measurements(measured), now=NOW)
    learned = world.paths["far", "tacc"].gamma_a
    assert learned.value == pytest.approx(0.25 * 800e6)
    assert 0.1 < relative_error(learned, NOW) < 0.9
    assert relative_error(learned, NOW) == pytest.approx(2 * learned.spread / learned.value)


def test_sites_that_are_none_of_the_pool_s_are_believed_as_before() -> None:
    grid = sites_text({"mu": {}, "grid": {"style": "glite", "adon.workers": 16}, "local": {}})
    inputs = inputs_from(
        workflow_text([job("x", "a", ["f"], ["g"])]),
        grid,
        replicas_text({"f": ("mu", 100)}),
        transformations_text({"a": ["mu", "grid", "local"]}),
    )
    sites = estimate_world(inputs, now=NOW, live=Live({})).sites
    assert math.isinf(sites["mu"].queue_wait.value)
    assert sites["grid"].workers == EstimatedValue(16, "catalog")
    assert sites["local"].workers == EstimatedValue(DEFAULT_WORKERS, "default")


def test_runtimes_of_the_schedd_come_before_the_archive() -> None:
    source = Measurements({("compute_rate", "t::a:1.0@mu"): estimate_of(5e6)})

    def gamma_c(count: int) -> ComputeEstimate:
        pool = pool_of(mu=SitePool("mu", 995.0, 4, runtimes={"t::a:1.0": (12.0, count)}))
        return estimate_world(world_inputs(), source, now=NOW, live=Live(pool)).compute[
            "t::a:1.0", "mu"
        ]

    assert (gamma_c(3).kind, gamma_c(3).estimated.value) == ("runtime", 12.0)
    assert (gamma_c(3).estimated.source, gamma_c(3).estimated.at) == ("schedd", 995.0)
    assert gamma_c(2).estimated.source == "archive"  # two jobs are not enough to go by


def test_faster_machines_where_the_catalogs_tell_no_difference() -> None:
    inputs = world_inputs({"mu": {}, "tacc": {}})
    pool = pool_of(
        mu=SitePool("mu", NOW, 4, mips=10_000.0), tacc=SitePool("tacc", NOW, 4, mips=30_000.0)
    )
    guess = estimate_world(inputs, now=NOW, live=Live(pool)).compute
    assert guess["t::a:1.0", "mu"].estimated.value == DEFAULT_RATE / 2
    assert guess["t::a:1.0", "tacc"].estimated.value == DEFAULT_RATE * 1.5
    assert "30000 Mips (collector)" in guess["t::a:1.0", "tacc"].estimated.note
    source = Measurements({("compute_rate", "t::a:1.0@mu"): estimate_of(4e6)})
    carried = (
        estimate_world(inputs, source, now=NOW, live=Live(pool))
        .compute["t::a:1.0", "tacc"]
        .estimated
    )
    assert carried.value == pytest.approx(12e6)
    assert carried.note == "measured at mu, by the machines' speed"


def test_a_kind_of_job_waits_as_such_jobs_did() -> None:
    """A job waits without holding a worker, whatever its kind."""
    jobs = [job(f"x{i}", "a", ["f"]) for i in range(2)] + [job("y", "b", ["f"])]
    sites: dict[str, dict[str, object]] = {"mu": {"adon.workers": 1, "adon.queue_wait": "1 s"}}
    inputs = inputs_of(
        jobs, sites, {"f": ("mu", 1000)}, {"a": ["mu"], "b": ["mu"]}, {"a": 10.0, "b": 5.0}
    )
    known = {
        ("queue_wait", "mu"): estimate_of(2.0),
        ("queue_wait", "t::a:1.0@mu"): estimate_of(1.0, count=2),  # too few to tell
        ("queue_wait", "t::b:1.0@mu"): estimate_of(40.0),
    }

    def waits(pool: dict[str, SitePool] | None = None) -> tuple[Problem, EstimatedValue]:
        world = estimate_world(inputs, Measurements(known), now=NOW, live=Live(pool))
        return build_problem(inputs, world), world.wait("t::b:1.0", "mu")

    problem, wait = waits()
    assert problem.queue_s.tolist() == [[2.0], [2.0], [40.0]]
    assert (wait.source, wait.note) == ("archive", "+38 s for such jobs")
    assert Estimator(problem).makespan([0, 0, 0]) == pytest.approx(40 + 5 + problem.overhead_s)
    queue = {"mu": SitePool("mu", NOW, 1, ahead=0.0, run_s=60.0)}
    assert waits(queue)[1].value == 60 + 38
    placed = map_workflow(inputs, estimate_world(inputs, Measurements(known), now=NOW)).placements
    shown = {placement.job: placement.alternatives[0] for placement in placed}
    assert (shown["y"].t_q_s, shown["y"].inputs["t_q"]["value"]) == (40.0, 40.0)
    assert (shown["x0"].t_q_s, shown["x0"].inputs["t_q"]["value"]) == (2.0, 2.0)


def test_many_jobs_at_once_wait_as_so_many_did() -> None:
    """Where nobody saw such jobs wait."""
    jobs = [job(f"x{i}", "a", ["f"]) for i in range(5)] + [job("y", "b", ["f"])]
    sites: dict[str, dict[str, object]] = {"mu": {"adon.workers": 1, "adon.queue_wait": "1 s"}}
    inputs = inputs_of(
        jobs, sites, {"f": ("mu", 1000)}, {"a": ["mu"], "b": ["mu"]}, {"a": 10.0, "b": 5.0}
    )
    known = {
        ("queue_wait", "mu"): estimate_of(2.0),
        ("queue_wait", "width:8@mu"): estimate_of(40.0),
    }
    world = estimate_world(inputs, Measurements(known), now=NOW)
    waits = [world.wait(name, "mu") for name in ("t::a:1.0", "t::b:1.0")]
    assert [estimate.value for estimate in waits] == [40.0, 2.0]
    assert waits[0].note == "+38 s for 5 jobs at once"
    assert "width:8" in subjects(inputs)[1]


def test_a_site_that_a_kind_never_tried_is_not_believed_the_quicker_for_it() -> None:
    known = {
        ("queue_wait", "mu"): estimate_of(2.0),
        ("queue_wait", "t::a:1.0@mu"): estimate_of(9.0),
    }
    world = estimate_world(world_inputs({"mu": {}, "tacc": {}}), Measurements(known), now=NOW)
    assert [world.wait("t::a:1.0", site).value for site in ("mu", "tacc")] == [9.0, 9.0]
    assert world.wait("t::a:1.0", "tacc").note == "measured at mu; +7 s for such jobs elsewhere"


# ------------------------------------------------------------------- what cannot be


def linked() -> Topology:
    ends = [{"name": name, "kind": "site"} for name in ("mu", "tacc")]
    return topology_from_dict(
        {"nodes": ends, "links": [{"a": "mu", "b": "tacc", "capacity": "200 Mb/s"}]}
    )


@pytest.mark.parametrize(
    ("metric", "subject", "value", "at", "why"),
    [
        ("throughput", "mu>tacc", 9e9, 900, "found 9 Gb/s, expected at most 400 Mb/s"),
        ("throughput", "mu>tacc", 0.0, 900, "expected at least"),
        ("throughput", "mu>tacc", 90e6, NOW + 9000, "measured 9000 s from now"),
        ("queue_wait", "mu", -40.0, 900, "found -40"),
        ("queue_wait", "mu", 4.0, NOW + 9000, "measured 9000 s from now"),
        ("queue_wait", "mu", 1.7e9, 900, "expected at most"),
        ("runtime", "t::a:1.0@mu", 0.0, 900, "found 0"),
        ("compute_rate", "t::a:1.0@mu", 1e15, 900, "expected at most 1e+11"),
        ("transfer_setup", "mu>tacc", -3.0, 900, "found -3"),
        ("dag_overhead", "local", -9.0, 900, "found -9"),
    ],
)
def test_what_cannot_be_is_left_out_and_told(
    metric: str, subject: str, value: float, at: float, why: str
) -> None:
    unit = "bit/s" if metric == "throughput" else "s"
    known = {(metric, subject): Estimate(value, 0.0, 3, at, "test", unit)}

    class Asked(Measurements):
        def estimate(self, metric: str, subject: str, now: float) -> Estimate | None:
            return self.known.get((metric, subject))

    world, plain = (
        estimate_world(world_inputs(), source, now=NOW, live=Live(topology=linked()))
        for source in (Asked(known), None)
    )
    assert world.note.startswith(f"ignored, and the catalogs used: {metric} of {subject}: ")
    assert why in world.note
    assert replace(world, note="") == plain


def test_what_rests_on_transfers_that_cannot_be_is_left_out_too() -> None:
    names = {"throughput": 9e12, "transfer_rate": 1e12, "transfer_start": 2.0}
    known = {(metric, "mu>tacc"): estimate_of(value) for metric, value in names.items()}
    path = estimate_world(
        world_inputs(), Measurements(known), now=NOW, live=Live(topology=linked())
    )
    assert path.paths["mu", "tacc"].gamma_a.source == "topology"


def test_an_archive_without_a_measurement_and_with_one() -> None:
    empty = estimate_world(world_inputs(), Measurements({}), now=NOW)
    assert empty.note == "no measurements yet; the catalogs are used"
    assert estimate_world(world_inputs(), now=NOW).note == ""
    once = Measurements({("queue_wait", "mu"): estimate_of(4.0, at=NOW, count=1)})
    wait = estimate_world(world_inputs(), once, now=NOW).sites["mu"].queue_wait
    often = replace(wait, count=9)
    assert (relative_error(wait, NOW), relative_error(often, NOW)) == (0.3, 0.1)


# ------------------------------------------------------------------- age and spread

DAY = 86400.0


def gamma_a(estimate: Estimate, now: float, hints: dict[str, dict[str, object]]) -> EstimatedValue:
    known = Measurements({("throughput", "mu>tacc"): estimate})
    return estimate_world(world_inputs(hints), known, now=now).paths["mu", "tacc"].gamma_a


CATALOG: dict[str, dict[str, object]] = {"mu": {"adon.bandwidth.tacc": "200 Mb/s"}, "tacc": {}}
BARE: dict[str, dict[str, object]] = {"mu": {}, "tacc": {}}


def test_an_old_measurement_loses_half_its_weight_every_week() -> None:
    fresh = gamma_a(estimate_of(50e6, at=0), DAY, CATALOG)
    assert (fresh.value, fresh.note) == (50e6, "")
    old = gamma_a(estimate_of(50e6, at=0), 8 * DAY, CATALOG)
    assert old.value == pytest.approx(100e6)  # between 50 and 200 Mb/s, each half
    assert (old.source, old.at) == ("archive", 0)
    assert old.note == "old: measured 50 Mb/s weighs 0.5 beside 200 Mb/s (catalog)"
    ancient = gamma_a(estimate_of(50e6, at=0), 400 * DAY, CATALOG)
    assert ancient.value == pytest.approx(200e6)


def test_an_old_measurement_stays_where_nothing_else_is_known() -> None:
    old = gamma_a(estimate_of(50e6, at=0), 80 * DAY, BARE)
    assert (old.value, old.note) == (50e6, "old, and there is no other")


def test_a_widely_spread_rate_is_planned_with_less() -> None:
    steady = gamma_a(estimate_of(100e6, spread=30e6), NOW, CATALOG)
    assert (steady.value, steady.spread) == (100e6, 30e6)
    wide = gamma_a(estimate_of(100e6, spread=50e6), NOW, CATALOG)
    assert wide.value == pytest.approx(80e6)  # 1/(1 + 0.5 squared)
    assert wide.note.startswith("widely spread: 100 Mb/s ± 50 Mb/s, planned with")
    assert gamma_a(estimate_of(100e6, spread=900e6), NOW, CATALOG).value == pytest.approx(50e6)


@given(st.floats(0, 400), st.floats(1e5, 1e10), st.floats(0, 2))
def test_age_and_spread_only_ever_lead_towards_what_else_is_known_and_below(
    days: float, rate: float, spread: float
) -> None:
    estimate = gamma_a(estimate_of(rate, at=0, spread=spread * rate), days * DAY, CATALOG)
    low, high = sorted((rate, 200e6))
    assert low / 2 * (1 - 1e-9) <= estimate.value <= high * (1 + 1e-9)
    later = gamma_a(estimate_of(rate, at=0, spread=spread * rate), (days + 1) * DAY, CATALOG)
    drawn = 200e6 - rate
    assert (later.value - estimate.value) * drawn >= -1e-6 * abs(drawn) * rate


def test_an_old_queue_wait_is_weighed_against_the_catalog() -> None:
    inputs = world_inputs({"mu": {"adon.queue_wait": "10 s"}, "tacc": {"adon.queue_wait": None}})
    known = Measurements({("queue_wait", s): estimate_of(50, at=0) for s in ("mu", "tacc")})
    sites = estimate_world(inputs, known, now=8 * DAY).sites
    assert sites["mu"].queue_wait.value == pytest.approx(30)
    assert sites["tacc"].queue_wait.value == 50
    assert sites["tacc"].queue_wait.note == "old, and there is no other"


def test_sites_and_paths_without_a_workflow() -> None:
    inputs = world_inputs()
    alone = estimate_sites(inputs.sites, now=NOW)
    whole = estimate_world(inputs, now=NOW)
    assert (alone.sites, alone.compute) == (whole.sites, {})
    assert alone.paths == whole.paths


KINDS = ("a", "a", "b")


def problem(measured: Measurements | None = None) -> Problem:
    return build_problem(*made(measured))


def made(measured: Measurements | None = None):  # type: ignore[no-untyped-def]
    inputs = inputs_of(
        [
            job("x", "a", ["f"], ["g"], sizes={"g": 1000}),
            job("y", "a", ["f"], ["h"], sizes={}),
            job("z", "b", ["g", "h"], ["i"], sizes={"i": 10}),
        ],
        {"mu": {"adon.queue_wait": "60 s"}, "tacc": {"adon.workers": 0}},
        {"f": ("mu", 100_000_000)},
        {"a": ["mu", "tacc"], "b": ["mu"]},
    )
    return inputs, estimate_world(inputs, measured, now=1000.0)


@settings(max_examples=30)
@given(st.floats(0, 0.9), st.booleans(), st.integers(1, 20), st.integers(0, 1000))
def test_worlds_stay_within_the_errors_and_share_the_structure(
    error: float, random_waits: bool, count: int, seed: int
) -> None:
    base = problem()
    doubt = Uncertainty.everywhere(error, random_waits=random_waits)
    rng = np.random.default_rng(seed)
    for world in scenarios(base, KINDS, doubt, count, rng):
        assert world.parents is base.parents
        assert world.kept is base.kept
        low, high = 1 / (1 + error) - 1e-12, 1 / (1 - error) + 1e-12
        slower = world.compute_s[:2] / base.compute_s[:2]
        assert ((low <= slower) & (slower <= high)).all()
        assert slower[0] == pytest.approx(slower[1])  # one factor for all jobs of a kind at a site
        sizes = np.array(world.size) / np.array(base.size)
        assert ((low <= sizes) & (sizes <= high)).all()
        assert world.queue_s[1] == NEVER_S  # no workers is no guess
        if not random_waits:
            assert 60 * low <= world.queue_s[0] <= 60 * high
        # Faster links are faster in both ways of counting.
        ratio = world.seconds_per_byte[0, 1] / base.seconds_per_byte[0, 1]
        assert world.occupied_per_byte[0, 1] == pytest.approx(base.occupied_per_byte[0, 1] * ratio)


def test_a_run_time_that_fits_with_no_other_is_drawn_towards_the_speed_of_its_site() -> None:
    kinds, speed = np.array([10.0, 70.0, 300.0, 5.0]), np.array([1.0, 2.0, 0.5])
    fits = kinds[:, None] * speed
    jobs: list[tuple[list[str], list[str]]] = [([], [])] * 4
    doubt = Uncertainty.everywhere(0.5)

    def middle(compute_s: np.ndarray) -> np.ndarray:
        base = problem_of(jobs, {}, {}, compute_s.tolist(), np.zeros((3, 3)).tolist())
        drawn = scenarios(base, tuple("abcd"), doubt, 200, np.random.default_rng(1))
        return np.median([world.compute_s for world in drawn], axis=0) / compute_s

    assert middle(fits) == pytest.approx(np.ones((4, 3)), rel=0.02)
    stands_out = fits * np.array([[0.6, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1]])
    assert middle(stands_out)[0, 0] > 1.1
    # What is farther off than anybody errs is how the program is there.
    far_off = middle(fits * np.array([[0.01, 1, 1], *[[1, 1, 1]] * 3]))
    assert far_off[0, 0] < 1 + (middle(stands_out)[0, 0] - 1) / 2
    assert middle(fits[:, :1].repeat(3, axis=1)) == pytest.approx(np.ones((4, 3)), rel=0.02)


def test_paths_that_share_a_link_are_misjudged_alike() -> None:
    base = problem_of([([], [])], {}, {}, [[1.0, 1.0, 1.0]], np.ones((3, 3)).tolist())
    link = np.full((3, 3), -1)
    link[0, 1] = link[0, 2] = 0
    doubt = Uncertainty.everywhere(0.5)
    drawn = scenarios(replace(base, bottleneck=link), "a", doubt, 5, np.random.default_rng(1))
    for world in drawn:
        rate = world.seconds_per_byte
        assert rate[0, 1] == rate[0, 2] != rate[1, 2]


def test_random_waits_are_spread_as_an_exponential_is_and_evenly() -> None:
    doubt = Uncertainty.everywhere(0.5, random_waits=True)
    drawn = scenarios(problem(), KINDS, doubt, 100, np.random.default_rng(1))
    waits = sorted(world.queue_s[0] for world in drawn)
    assert np.mean(waits) == pytest.approx(60, rel=0.05)
    # A Latin hypercube has one wait in each hundredth.
    hundredths = [int(100 * (1 - np.exp(-wait / 60))) for wait in waits]
    assert hundredths == list(range(100))


def test_the_same_seed_draws_the_same_worlds() -> None:
    doubt = Uncertainty.everywhere(0.5)
    first, second = (scenarios(problem(), KINDS, doubt, 5, np.random.default_rng(3)) for _ in "ab")
    assert all((a.compute_s == b.compute_s).all() for a, b in zip(first, second, strict=True))
    assert [a.size for a in first] == [b.size for b in second]


def test_what_was_measured_is_known_better_than_what_was_written_down_or_assumed() -> None:
    measured, written = EstimatedValue(10.0, "archive", at=1000.0), EstimatedValue(10.0, "catalog")
    assumed = EstimatedValue(10.0, "default")
    errors = [relative_error(estimate, 1000.0) for estimate in (measured, written, assumed)]
    assert errors == sorted(errors)
    assert len(set(errors)) == 3
    wide = EstimatedValue(10.0, "archive", at=1000.0, spread=4.0)
    assert relative_error(wide, 1000.0) > relative_error(measured, 1000.0)
    old = relative_error(measured, 1000.0 + 30 * 86400)
    assert relative_error(measured, 1000.0) < old <= relative_error(written, 1000.0)


def test_how_far_off_beliefs_of_a_source_are_is_learned() -> None:
    known = {
        ("belief_error", "runtime:archive"): estimate_of(0.3, count=9),
        ("belief_error", "queue_wait:catalog"): estimate_of(0.05, count=9),
        ("belief_error", "throughput:catalog"): estimate_of(0.05, count=4),  # too few
        ("runtime", "t::a:1.0@mu"): estimate_of(10.0, at=999.0),
    }
    world = estimate_world(world_inputs(), Measurements(known), now=NOW)
    assert world.errors == {"runtime": {"archive": 0.6}, "queue_wait": {"catalog": 0.1}}
    measured, written = (
        EstimatedValue(10.0, "archive", at=NOW),
        EstimatedValue(10.0, "catalog", spread=1.0),
    )
    assert relative_error(measured, NOW, world.errors["runtime"]) == pytest.approx(0.6)
    assert relative_error(measured, NOW) == pytest.approx(0.1)
    assert relative_error(written, NOW, world.errors["queue_wait"]) == pytest.approx(0.1)
    assert relative_error(written, NOW) == pytest.approx(0.2)
    inputs = world_inputs()
    uncertainty = uncertainty_of(inputs, world, build_problem(inputs, world))
    assert uncertainty.compute[0, 0] == pytest.approx(0.6, abs=0.01)
    assert uncertainty.wait[0] == pytest.approx(0.1)


def test_uncertainty_follows_the_beliefs() -> None:
    measured = Measurements(
        {
            ("queue_wait", "mu"): estimate_of(60.0, spread=1.0, at=999.0),
            ("runtime", "t::a:1.0@mu"): estimate_of(10.0, spread=0.1, at=999.0),
        }
    )
    inputs, world = made(measured)
    uncertainty = uncertainty_of(inputs, world, build_problem(inputs, world))
    assert uncertainty.matters
    assert not uncertainty.random_wait[0]
    assert uncertainty.compute[0, 0] < uncertainty.compute[2, 0]
    guessed = build_problem(inputs, world).files.index("h")
    assert uncertainty.size[guessed] == max(uncertainty.size)
    inputs, world = made(None)
    assert uncertainty_of(inputs, world, build_problem(inputs, world)).random_wait[0]


@pytest.mark.parametrize("error", [-0.1, 1.0, float("nan")])
def test_errors_that_are_none(error: float) -> None:
    with pytest.raises(ValueError, match="expected 0 to below 1"):
        Uncertainty.everywhere(error)
    assert not Uncertainty.everywhere(0.0).matters
