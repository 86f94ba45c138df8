"""What is believed, in which order of sources, and how sizes are estimated."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
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
from monitors.archive.archive import Archive
from monitors.archive.measurement import Measurement
from network_provisioner.topology.data import topology_from_dict
from site_selector.estimates.beliefs import Belief, MeasurementSource, World
from site_selector.estimates.believe import DEFAULT_WORKERS, believe
from site_selector.estimates.rates import DEFAULT_BANDWIDTH_BPS, DEFAULT_RATE
from site_selector.inputs import Inputs
from site_selector.problem import build_problem, file_sizes


def test_without_measurements_the_catalog_then_defaults() -> None:
    world = believe(world_inputs(), now=NOW)
    assert world.sites["mu"].workers == Belief(8, "catalog")
    assert world.sites["mu"].queue_wait == Belief(30, "catalog")
    assert world.sites["tacc"].workers == Belief(DEFAULT_WORKERS, "default")
    assert world.sites["tacc"].queue_wait == Belief(0, "default")
    assert world.paths["mu", "tacc"].gamma_a == Belief(200e6, "catalog")
    assert world.paths["tacc", "mu"].gamma_a == Belief(200e6, "catalog")
    assert world.paths["mu", "local"].gamma_a == Belief(DEFAULT_BANDWIDTH_BPS, "default")
    assert world.compute["t::a:1.0", "tacc"].belief.value == 40e6
    assert world.compute["t::a:1.0", "mu"].belief == Belief(DEFAULT_RATE, "default")


def test_a_site_without_workers_has_an_infinite_queue() -> None:
    world = believe(world_inputs(), now=NOW)
    assert math.isinf(world.sites["local"].queue_wait.value)
    pool = {"mu": SitePool("mu", 990.0, 3, ahead=0.0), "tacc": SitePool("tacc", 990.0, 0)}
    gone = believe(world_inputs(), now=NOW, pool=pool)
    assert gone.sites["mu"].workers == Belief(3, "collector", 990.0)
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
    world = believe(world_inputs(), known, now=NOW)
    path = world.paths["mu", "tacc"]
    assert path.gamma_a == Belief(150e6, "archive", 940, 5e6)
    assert path.gamma_a.as_dict(NOW)["age_s"] == 60
    assert world.paths["tacc", "mu"].gamma_a.source == "catalog"
    assert world.sites["mu"].queue_wait == Belief(4, "archive", 990)
    assert world.compute["t::a:1.0", "tacc"].belief.value == 33e6
    assert world.compute["t::a:1.0", "mu"].kind == "runtime"


def test_nothing_from_the_future_is_used() -> None:
    known = Measurements({("queue_wait", "mu"): estimate_of(4, at=NOW + 1)})
    assert believe(world_inputs(), known, now=NOW).sites["mu"].queue_wait.source == "catalog"


def test_a_measurement_elsewhere_is_carried_over_by_the_ratio_of_the_catalogs() -> None:
    hints: dict[str, dict[str, object]] = {
        "mu": {"adon.rate": "10 MB/s"},
        "tacc": {"adon.rate": "40 MB/s"},
    }
    known = Measurements({("compute_rate", "t::a:1.0@mu"): estimate_of(5e6, at=800)})
    belief = believe(world_inputs(hints), known, now=NOW).compute["t::a:1.0", "tacc"].belief
    assert belief.value == pytest.approx(20e6)  # tacc is four times mu, and mu is half as fast
    assert (belief.source, belief.at, belief.note) == ("archive", 800, "measured at mu")


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
    path = believe(world_inputs(), now=NOW, topology=topology).paths["mu", "tacc"]
    assert path.gamma_a == Belief(200e6, "topology", NOW, note="mu-s1-tacc")
    assert path.link_bps == 200e6
    assert path.rtt_s == pytest.approx(0.053)
    busy = {("s1", "tacc"): 190e6}
    path = believe(world_inputs(), now=NOW, topology=topology, in_use_bps=busy).paths["mu", "tacc"]
    assert path.gamma_a.value == 20e6
    assert path.gamma_a.note == "mu-r1-tacc"


def test_gamma_t_binds_where_buffers_are_small() -> None:
    hints = {
        "mu": {"adon.bandwidth.tacc": "1 Gb/s", "adon.rtt.tacc": "53 ms", "adon.streams": 1,
               "adon.buffer": 65536},
        "tacc": {},
    }  # fmt: skip
    path = believe(world_inputs(hints), now=NOW).paths["mu", "tacc"]
    assert path.bound == "Γ_t"
    assert path.rate_bps == pytest.approx(65536 * 8 / 0.053)


def test_measured_loss_and_round_trips_come_before_what_was_written_down() -> None:
    hints: dict[str, dict[str, object]] = {
        "mu": {"adon.rtt.tacc": "10 ms", "adon.bandwidth.tacc": "10 Gb/s"}, "tacc": {},
    }  # fmt: skip
    written = believe(world_inputs(hints), now=NOW).paths["mu", "tacc"].gamma_t
    assert (written.source, written.at) == ("catalog", None)
    known = {
        ("rtt", "mu>tacc"): estimate_of(0.1, at=950),
        ("loss", "mu>tacc"): estimate_of(1e-4, at=960),
    }
    path = believe(world_inputs(hints), Measurements(known), now=NOW).paths["mu", "tacc"]
    # Four streams of 1460 B · 8 / 0.1 s · 1.2247 / 0.01: Mathis et al.
    assert path.gamma_t.value == pytest.approx(4 * 1460 * 8 / 0.1 * 1.5**0.5 / 0.01)
    assert (path.gamma_t.source, path.gamma_t.at, path.bound) == ("archive", 960, "Γ_t")
    assert (path.rtt_s, path.loss) == (0.1, 1e-4)


def test_the_real_archive_is_a_source(tmp_path: Path) -> None:
    with Archive(tmp_path / "archive.sqlite") as archive:
        archive.record(Measurement("1", "throughput", "mu>tacc", 120e6, "bit/s", 900.0, "hook"))
        source: MeasurementSource = archive
        path = believe(world_inputs(), source, now=NOW).paths["mu", "tacc"]
    assert path.gamma_a == Belief(120e6, "archive", 900.0)


def test_a_runtime_of_the_job_beats_that_of_the_transformation_but_no_measurement() -> None:
    flow = workflow_text([job("x", "a", ["f"], pegasus={"runtime": 7}), job("y", "a", ["f"])])
    texts = (
        sites_text({"mu": {}}),
        replicas_text({"f": ("mu", 1000)}),
        transformations_text({"a": ["mu"]}, {"a": 60}),
    )
    inputs = inputs_from(flow, *texts)
    problem = build_problem(inputs, believe(inputs, now=NOW))
    assert problem.compute_s[:, 0].tolist() == pytest.approx([7, 60])
    known = Measurements({("runtime", "t::a:1.0@mu"): estimate_of(12.0)})
    problem = build_problem(inputs, believe(inputs, known, now=NOW))
    assert problem.compute_s[:, 0].tolist() == pytest.approx([12, 12])


def _sizes(inputs: Inputs, world: World | None = None) -> dict[str, float]:
    return file_sizes(inputs, world or believe(inputs, now=NOW))[0]


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
    assert _sizes(inputs, believe(inputs, known, now=NOW))["h"] == pytest.approx(25e6)
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


@given(st.floats(0.01, 1e12), st.floats(0.01, 1e6), st.sampled_from(["rate", "runtime"]))
def test_carrying_over_between_like_sites_changes_nothing(
    value: float, default: float, kind: str
) -> None:
    metric = "compute_rate" if kind == "rate" else "runtime"
    known = Measurements({(metric, "t::a:1.0@mu"): estimate_of(value)})
    inputs = world_inputs({"mu": {}, "tacc": {}}, {"a": default})
    found = believe(inputs, known, now=NOW).compute
    assert found["t::a:1.0", "tacc"].kind == kind
    assert found["t::a:1.0", "tacc"].belief.value == pytest.approx(value)
