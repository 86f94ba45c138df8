"""What a running HTCondor tells, and what old and uneven measurements are worth now."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from site_world import (
    NOW,
    Measurements,
    estimate_of,
    inputs_from,
    job,
    replicas_text,
    sites_text,
    transformations_text,
    workflow_text,
    world_inputs,
)

from condor_plugins.pool.sitepool import SitePool
from monitors.archive.estimates import Estimate
from site_selector.estimates.beliefs import Belief, ComputeBelief
from site_selector.estimates.believe import DEFAULT_WORKERS, believe, believe_sites
from site_selector.estimates.rates import DEFAULT_RATE

# ------------------------------------------------------------------- a running HTCondor


def pool_of(**sites: SitePool) -> dict[str, SitePool]:
    return sites


def test_a_pool_s_latency_holds_for_a_site_with_idle_slots_that_was_never_measured() -> None:
    inputs = world_inputs({"mu": {}, "tacc": {"adon.queue_wait": "60 s"}})
    source = Measurements({("queue_wait", "mu"): estimate_of(1.5)})

    def tacc(**told: float) -> Belief:
        pool = pool_of(mu=SitePool("mu", NOW, 2), tacc=SitePool("tacc", NOW, 4, **told))  # type: ignore[arg-type]
        return believe(inputs, source, now=NOW, pool=pool).sites["tacc"].queue_wait

    assert tacc() == Belief(60, "catalog")  # slots are known, nobody knows who waits for them
    seen = tacc(idle_slots=4, ahead=0.0)
    assert (seen.value, seen.source, seen.at) == (1.5, "archive", 900.0)
    assert "measured at mu" in seen.note


def test_a_site_s_own_measurement_comes_before_its_neighbours() -> None:
    inputs = world_inputs({"mu": {}, "tacc": {}})
    source = Measurements(
        {("queue_wait", "mu"): estimate_of(1.5), ("queue_wait", "tacc"): estimate_of(20.0)}
    )
    pool = pool_of(
        mu=SitePool("mu", NOW, 2), tacc=SitePool("tacc", NOW, 4, idle_slots=4, ahead=0.0)
    )
    world = believe(inputs, source, now=NOW, pool=pool)
    assert world.sites["tacc"].queue_wait.value == 20.0


def test_the_queue_is_what_the_jobs_ahead_take() -> None:
    source = Measurements({("queue_wait", "mu"): estimate_of(4.0)})

    def wait(**told: object) -> Belief:
        pool = pool_of(mu=SitePool("mu", 995.0, 4, **told))  # type: ignore[arg-type]
        return believe(world_inputs(), source, now=NOW, pool=pool).sites["mu"].queue_wait

    # Five jobs ahead of four busy slots that are held for 60 s: the sixth to fall free is ours.
    found = wait(ahead=5.0, run_s=60.0)
    assert (found.value, found.source, found.at) == (6 * 60 / 4, "schedd", 995.0)
    assert found.note == ("5 jobs ahead, 0 of 4 slots idle, each job holds one for 60 s")
    assert wait(ahead=5.0, run_s=60.0, start_s=2.0).value == 92
    # One slot is idle and one job goes there: the first that falls free is ours.
    assert wait(ahead=1.0, idle_slots=1, run_s=60.0).value == 15
    assert wait(ahead=0.0, idle_slots=1, start_s=2.0) == Belief(
        2.0, "schedd", 995.0, note="0 jobs ahead, 1 of 4 slots idle"
    )
    # Nobody knows how long the jobs ahead take: the archive has seen such queues.
    assert wait(ahead=5.0) == Belief(4.0, "archive", 900.0)


def test_sites_that_are_none_of_the_pool_s_are_believed_as_before() -> None:
    grid = sites_text({"mu": {}, "grid": {"style": "glite", "adon.workers": 16}, "local": {}})
    inputs = inputs_from(
        workflow_text([job("x", "a", ["f"], ["g"])]),
        grid,
        replicas_text({"f": ("mu", 100)}),
        transformations_text({"a": ["mu", "grid", "local"]}),
    )
    sites = believe(inputs, now=NOW, pool={}).sites
    assert math.isinf(sites["mu"].queue_wait.value)
    assert sites["grid"].workers == Belief(16, "catalog")
    assert sites["local"].workers == Belief(DEFAULT_WORKERS, "default")


def test_runtimes_of_the_schedd_come_before_the_archive() -> None:
    source = Measurements({("compute_rate", "t::a:1.0@mu"): estimate_of(5e6)})

    def gamma_c(count: int) -> ComputeBelief:
        pool = pool_of(mu=SitePool("mu", 995.0, 4, runtimes={"t::a:1.0": (12.0, count)}))
        return believe(world_inputs(), source, now=NOW, pool=pool).compute["t::a:1.0", "mu"]

    assert (gamma_c(3).kind, gamma_c(3).belief.value) == ("runtime", 12.0)
    assert (gamma_c(3).belief.source, gamma_c(3).belief.at) == ("schedd", 995.0)
    assert gamma_c(2).belief.source == "archive"  # two jobs are not enough to go by


def test_faster_machines_where_the_catalogs_tell_no_difference() -> None:
    inputs = world_inputs({"mu": {}, "tacc": {}})
    pool = pool_of(
        mu=SitePool("mu", NOW, 4, mips=10_000.0), tacc=SitePool("tacc", NOW, 4, mips=30_000.0)
    )
    guess = believe(inputs, now=NOW, pool=pool).compute
    assert guess["t::a:1.0", "mu"].belief.value == DEFAULT_RATE / 2
    assert guess["t::a:1.0", "tacc"].belief.value == DEFAULT_RATE * 1.5
    assert "30000 Mips (collector)" in guess["t::a:1.0", "tacc"].belief.note
    source = Measurements({("compute_rate", "t::a:1.0@mu"): estimate_of(4e6)})
    carried = believe(inputs, source, now=NOW, pool=pool).compute["t::a:1.0", "tacc"].belief
    assert carried.value == pytest.approx(12e6)
    assert carried.note == "measured at mu, by the machines' speed"


# ------------------------------------------------------------------- age and spread

DAY = 86400.0


def gamma_a(found: Estimate, now: float, hints: dict[str, dict[str, object]]) -> Belief:
    known = Measurements({("throughput", "mu>tacc"): found})
    return believe(world_inputs(hints), known, now=now).paths["mu", "tacc"].gamma_a


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
    assert (old.value, old.note) == (50e6, "old, and nothing else is known")


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
    found = gamma_a(estimate_of(rate, at=0, spread=spread * rate), days * DAY, CATALOG)
    low, high = sorted((rate, 200e6))
    assert low / 2 * (1 - 1e-9) <= found.value <= high * (1 + 1e-9)
    later = gamma_a(estimate_of(rate, at=0, spread=spread * rate), (days + 1) * DAY, CATALOG)
    drawn = 200e6 - rate
    assert (later.value - found.value) * drawn >= -1e-6 * abs(drawn) * rate


def test_an_old_queue_wait_is_weighed_against_the_catalog() -> None:
    inputs = world_inputs({"mu": {"adon.queue_wait": "10 s"}, "tacc": {}})
    known = Measurements({("queue_wait", s): estimate_of(50, at=0) for s in ("mu", "tacc")})
    sites = believe(inputs, known, now=8 * DAY).sites
    assert sites["mu"].queue_wait.value == pytest.approx(30)
    assert sites["tacc"].queue_wait.value == 50
    assert sites["tacc"].queue_wait.note == "old, and nothing else is known"


def test_sites_and_paths_without_a_workflow() -> None:
    inputs = world_inputs()
    alone = believe_sites(inputs.sites, now=NOW)
    whole = believe(inputs, now=NOW)
    assert (alone.sites, alone.compute) == (whole.sites, {})
    assert alone.paths == whole.paths
