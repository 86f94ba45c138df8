"""Edge optimisation (Algorithm 2): never too much, never in vain, the same with more to give."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from site_world import inputs_of, job

from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.graph import Topology
from site_selector.edge import (
    Decision,
    Edge,
    Leg,
    Needs,
    SiteOption,
    decide,
    edge_of,
    offer,
    residual,
)
from site_selector.estimates.estimating import estimate_world
from site_selector.estimates.running import Holding, Live, bandwidth_of, workers_of
from site_selector.explain.edge_text import decision_dict, decision_text, reason
from site_selector.inputs import Inputs

LINKS = ("near>s1", "s1>s2", "s1>r1")
MB = 1_000_000

# --------------------------------------------------------------------------- by hand

WORKERS = {workers_of("mu"): 4.0, workers_of("tacc"): 8.0}
L2, L3 = bandwidth_of("s1", "s2"), bandwidth_of("s1", "r1")
TOTAL = WORKERS | {L2: 200 * MB, L3: 20 * MB}
LOCAL = SiteOption("mu", True, "", 0.0, 400.0)
OVER_L2 = SiteOption("tacc", False, "l2", 10.0, 200.0, (Leg("mu>tacc", (L2,), 100 * MB),))
OVER_L3 = SiteOption("tacc", False, "l3", 10.0, 200.0, (Leg("mu>tacc", (L3,), 100 * MB),))
WAYS = (LOCAL, OVER_L2, OVER_L3)
NEW = Needs("soykb", 5, 1, 4, 10 * MB, 150 * MB)


def test_the_cheaper_way_is_taken_and_subtracted() -> None:
    decision = decide(NEW, WAYS, TOTAL)
    # mu: 400/4 s. tacc: 10 + 200/4 + 800 Mb over 150 Mb/s; over L3 at 20 Mb/s.
    assert {o.way.name: pytest.approx(o.t_t_s) for o in decision.offers} == {
        "remote at tacc over l2": 10 + 50 + 800 / 150,
        "local at mu": 100,
        "remote at tacc over l3": 10 + 50 + 40,
    }
    assert decision.taken is not None
    assert decision.taken.amounts == {workers_of("tacc"): 4, L2: 150 * MB}
    assert decision.left == TOTAL | {workers_of("tacc"): 4, L2: 50 * MB}
    assert decision.holding() == Holding("soykb", decision.taken.amounts, 5, "l2")


def test_of_equal_ways_the_local_one_is_taken() -> None:
    # Over L3 it takes 100 s as well.
    decision = decide(NEW, (OVER_L3, LOCAL), TOTAL)
    assert decision.taken is not None and decision.taken.way is LOCAL


def test_the_next_application_finds_what_is_left() -> None:
    first = decide(NEW, WAYS, TOTAL).holding()
    assert first is not None
    second = decide(Needs("b", 1, 1, 4, 10 * MB, 150 * MB), WAYS, TOTAL, [first])
    assert second.taken is not None
    # 50 Mb/s of L2 and four workers are left: 10 + 50 + 16 s.
    assert second.taken.way is OVER_L2
    assert second.taken.t_t_s == pytest.approx(76)
    assert second.left[L2] == 0


def test_where_neither_fits_it_waits_and_the_reason_is_told() -> None:
    needs = Needs("soykb", 5, 4, 4, 100 * MB, 150 * MB)
    running = [
        Holding("md", {workers_of("mu"): 2}, 9),
        Holding("neuro", {L2: 80 * MB}, 3, "l2"),
        Holding("video", {L2: 60 * MB}, 8, "l2"),
    ]
    decision = decide(needs, WAYS, TOTAL, running)
    assert decision.taken is None and decision.holding() is None
    lacks = {o.way.name: o.lacks for o in decision.offers}
    (local,) = lacks["local at mu"]
    assert (local.resource, local.needed, local.free, local.holders) == (
        "workers at mu", 4, 2, ("md",),
    )  # fmt: skip
    (over_l2,) = lacks["remote at tacc over l2"]
    assert (over_l2.free, over_l2.holders) == (60 * MB, ("neuro", "video"))
    # Video is more important; without neuro 140 Mb/s are free.
    assert [h.application for h in decision.give_way] == ["neuro"]
    assert decision.lowest_priority == 3


def test_nobody_is_asked_in_vain() -> None:
    small = Holding("small", {L2: 10 * MB}, 1, "l2")
    large = Holding("large", {L2: 150 * MB}, 2, "l2")
    needs = Needs("soykb", 5, 1, 1, 100 * MB, 100 * MB)
    decision = decide(needs, (OVER_L2,), TOTAL, [small, large])
    assert decision.give_way == (large,)
    lesser = Needs("soykb", 2, 1, 1, 100 * MB, 100 * MB)
    assert decide(lesser, (OVER_L2,), TOTAL, [small, large]).give_way == ()


def test_what_tcp_cannot_reach_is_no_way() -> None:
    slow = SiteOption(
        "tacc", False, "l2", 0, 1, (Leg("mu>tacc", (L2,), 100 * MB, gamma_bps=50 * MB),)
    )
    decision = decide(Needs("a", 0, 1, 1, 100 * MB, 150 * MB), (slow,), TOTAL)
    assert decision.taken is None
    (lack,) = decision.offers[0].lacks
    assert (lack.resource, lack.free) == ("throughput mu>tacc", 50 * MB)


def test_a_site_without_resources_is_no_way() -> None:
    gone = SiteOption("mu", True, "", math.inf, 1)
    assert decide(NEW, (gone,), TOTAL).taken is None
    assert decide(NEW, (LOCAL,), {workers_of("mu"): 0.0}).taken is None


def test_inputs_and_results_over_the_same_link_hold_it_once() -> None:
    way = SiteOption("tacc", False, "l2", 0, 1, (Leg("a", (L2,), MB), Leg("b", (L2,), MB)))
    assert offer(NEW, way, TOTAL, TOTAL).amounts[L2] == 150 * MB


def test_the_timeline_of_figure_18() -> None:
    """SoyKB over layer 2 at t1, over layer 3 at t4 beside Neuroblastoma, in the queue at t6."""
    total = {workers_of("tacc"): 99.0, L2: 5500 * MB, L3: 650 * MB}
    neuro = Holding("neuroblastoma", {L2: 5000 * MB}, 9, "l2")
    size = 25e9
    ways = [
        SiteOption("tacc", False, layer, 0.0, 1.0, (Leg("mu>tacc", (link,), size),))
        for layer, link in (("l2", L2), ("l3", L3))
    ]

    def soykb(name: str, least: float) -> Needs:
        return Needs(name, 5, 1, 1, least * MB, 6000 * MB)

    t1 = decide(soykb("t1", 700), ways, total)
    assert t1.taken is not None and t1.taken.way.layer == "l2"
    assert t1.taken.t_n_s == pytest.approx(8 * size / (5500 * MB))
    t4 = decide(soykb("t4", 600), ways, total, [neuro])
    assert t4.taken is not None and t4.taken.way.layer == "l3"
    t6 = decide(soykb("t6", 700), ways, total, [neuro])
    assert t6.taken is None
    assert [lack.free for o in t6.offers for lack in o.lacks] == [500 * MB, 650 * MB]
    assert t6.give_way == ()  # Neuroblastoma is more important
    assert t6.lowest_priority == 9
    urgent = Needs("urgent", 10, 1, 1, 700 * MB, 6000 * MB)
    assert decide(urgent, ways, total, [neuro]).give_way == (neuro,)


# --------------------------------------------------------------------------- laws

amount = st.integers(0, 500).map(float)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Needs, list[SiteOption], dict[str, float], list[Holding]]:
    """Two sites, three links, up to five running applications that fit."""
    total = {workers_of(s): float(draw(st.integers(0, 8))) for s in ("near", "far")}
    total |= {f"bandwidth {link}": draw(amount) for link in LINKS}
    running, free = [], dict(total)
    for i in range(draw(st.integers(0, 5))):
        held = {}
        for name in draw(st.sets(st.sampled_from(sorted(total)), max_size=3)):
            part = draw(st.integers(0, int(free[name])))
            free[name] -= part
            held[name] = float(part)
        layer = draw(st.sampled_from(["", "l2", "l3"]))
        running.append(Holding(f"app{i}", held, draw(st.integers(0, 5)), layer))
    legs = st.builds(
        Leg,
        st.just("leg"),
        st.lists(st.sampled_from(LINKS), min_size=1, max_size=2, unique=True).map(
            lambda links: tuple(f"bandwidth {link}" for link in links)
        ),
        st.floats(0, 1e4),
        st.sampled_from([math.inf, 50.0, 300.0]),
    )
    ways = [
        SiteOption(site, site == "near", layer, draw(st.sampled_from([0.0, 5.0, math.inf])),
            draw(st.floats(0.1, 1e3)), tuple(draw(st.lists(legs, max_size=2))))
        for site, layer in (("near", ""), ("far", "l2"), ("far", "l3"))
    ]  # fmt: skip
    least, more = draw(st.integers(1, 4)), draw(st.integers(0, 4))
    bps = draw(st.integers(0, 200))
    needs = Needs(
        "new", draw(st.integers(0, 5)), least, least + more, float(bps), bps + 1 + draw(amount)
    )
    return needs, ways, total, running


def cost(decision: Decision) -> float:
    return math.inf if decision.taken is None else decision.taken.t_t_s


@settings(max_examples=40)
@given(worlds())
def test_never_more_than_there_is(
    world: tuple[Needs, list[SiteOption], dict[str, float], list[Holding]],
) -> None:
    needs, ways, total, running = world
    decision = decide(needs, ways, total, running)
    mine = decision.holding()
    everyone = [*running, mine] if mine is not None else running
    for name, most in total.items():
        held = sum(h.amounts.get(name, 0.0) for h in everyone)
        assert held <= most + 1e-9
        assert decision.left[name] == pytest.approx(most - held, abs=1e-9)


@settings(max_examples=40)
@given(worlds())
def test_never_more_than_asked_for_nor_less_than_needed_nor_dearer_than_another_way(
    world: tuple[Needs, list[SiteOption], dict[str, float], list[Holding]],
) -> None:
    needs, ways, total, running = world
    decision = decide(needs, ways, total, running)
    if decision.taken is None:
        free = residual(total, running)
        assert not any(offer(needs, way, free, total).fits for way in ways)
        return
    taken, way = decision.taken, decision.taken.way
    assert needs.least_workers <= taken.workers <= needs.most_workers
    used = {name for leg in way.legs if leg.s_t_bytes > 0 for name in leg.resources}
    assert set(taken.amounts) == used | {workers_of(way.site)}
    for name in used:
        assert needs.least_bps <= taken.amounts[name] <= needs.most_bps
    assert all(taken.t_t_s <= other.t_t_s for other in decision.offers)
    assert math.isfinite(taken.t_t_s)


@settings(max_examples=40)
@given(worlds(), st.data())
def test_more_resources_never_make_it_worse(
    world: tuple[Needs, list[SiteOption], dict[str, float], list[Holding]], data: st.DataObject
) -> None:
    needs, ways, total, running = world
    name = data.draw(st.sampled_from(sorted(total)))
    richer = total | {name: total[name] + data.draw(st.integers(1, 100))}
    before = cost(decide(needs, ways, total, running))
    after = cost(decide(needs, ways, richer, running))
    assert after <= before * (1 + 1e-12)


@settings(max_examples=40)
@given(worlds())
def test_who_gives_way_is_less_important_enough_and_needed(
    world: tuple[Needs, list[SiteOption], dict[str, float], list[Holding]],
) -> None:
    needs, ways, total, running = world
    decision = decide(needs, ways, total, running)
    lower = [h for h in running if h.layer == "l2" and h.priority < needs.priority]
    if decision.taken is not None:
        assert decision.give_way == ()
        return
    assert all(h in lower for h in decision.give_way)

    def fits(without: tuple[Holding, ...]) -> bool:
        rest = [h for h in running if not any(h is gone for gone in without)]
        return decide(needs, ways, total, rest).taken is not None

    if not decision.give_way:
        assert not any(fits(tuple(some)) for n in range(1, len(lower) + 1)
                       for some in combinations(lower, n))  # fmt: skip
    else:
        assert fits(decision.give_way)
        for n in range(len(decision.give_way)):
            assert not any(fits(some) for some in combinations(decision.give_way, n))


SITES: dict[str, dict[str, object]] = {
    "mu": {"adon.workers": 2, "adon.rate": "10 MB/s", "adon.bandwidth.tacc": "80 Mb/s"},
    "tacc": {"adon.workers": 8, "adon.rate": "20 MB/s", "adon.queue_wait": "5 s"},
    "data": {"adon.bandwidth.mu": "160 Mb/s", "adon.bandwidth.tacc": "400 Mb/s"},
}


def three_jobs() -> Inputs:
    """Two jobs read 100 MB each at data; a third brings their 50 MB together into 10 MB."""
    sizes = {"g0": 50 * MB, "g1": 50 * MB, "h": 10 * MB}
    jobs = [job(f"x{i}", "a", [f"f{i}"], [f"g{i}"], sizes=sizes, keep=[f"g{i}"]) for i in range(2)]
    jobs.append(job("y", "b", ["g0", "g1"], ["h"], sizes=sizes))
    return inputs_of(
        jobs,
        SITES,
        {f"f{i}": ("data", 100 * MB) for i in range(2)},
        {"a": ["mu", "tacc", "data"], "b": ["mu", "tacc"]},
    )


def network() -> Topology:
    """data and tacc reach mu over a fast layer 2 and a slow layer 3."""
    links = [
        {"a": "mu", "b": "s1", "capacity": "1 Gb/s"},
        {"a": "data", "b": "s2", "capacity": "1 Gb/s"},
        {"a": "tacc", "b": "s2", "capacity": "1 Gb/s"},
        {"a": "s1", "b": "s2", "capacity": "200 Mb/s", "layer": "l2"},
        {"a": "s1", "b": "r1", "capacity": "20 Mb/s", "layer": "l3"},
        {"a": "r1", "b": "s2", "capacity": "20 Mb/s", "layer": "l3"},
    ]
    nodes = [{"name": n, "kind": "site"} for n in ("mu", "tacc", "data")]
    nodes += [{"name": n, "kind": "switch"} for n in ("s1", "s2")]
    nodes.append({"name": "r1", "kind": "router"})
    return topology_from_dict({"nodes": nodes, "links": links})


def edge(topology: Topology | None = None) -> Edge:
    inputs = three_jobs()
    world = estimate_world(inputs, now=0.0, live=Live(topology=topology), output_site="mu")
    return edge_of(inputs, world, "mu", ["mu"], ["tacc", "data"], topology)


def test_the_terms_by_hand() -> None:
    problem = edge()
    mu, tacc = problem.ways
    assert (mu.site, mu.local, tacc.site, tacc.local) == ("mu", True, "tacc", False)
    # 300 MB in all to compute: 30 s for one worker of mu, 15 s for one of tacc.
    assert mu.worker_s == pytest.approx(30)
    assert tacc.worker_s == pytest.approx(15)
    assert (mu.t_q_s, tacc.t_q_s) == (0, 5)
    assert {leg.name: leg.s_t_bytes for leg in mu.legs} == {"data>mu": 200 * MB}
    assert {leg.name: leg.s_t_bytes for leg in tacc.legs} == {
        "data>tacc": 200 * MB, "tacc>mu": 10 * MB,
    }  # fmt: skip
    assert problem.total == {
        workers_of("mu"): 2, workers_of("tacc"): 8, bandwidth_of("data", "mu"): 160e6,
        bandwidth_of("data", "tacc"): 400e6, bandwidth_of("tacc", "mu"): 80e6,
    }  # fmt: skip
    assert problem.width == 2
    assert problem.cannot == {"data": "data cannot run y (t::b:1.0)"}


def test_results_take_the_links_to_every_output_site() -> None:
    inputs = three_jobs()
    world = estimate_world(inputs, now=0.0, output_site="mu,data")
    problem = edge_of(inputs, world, "mu,data", ["mu"], ["tacc"])
    legs = [{leg.name: leg.s_t_bytes for leg in way.legs} for way in problem.ways]
    assert legs == [
        {"data>mu": 200 * MB, "mu>data": 10 * MB},
        {"data>tacc": 200 * MB, "tacc>mu": 10 * MB, "tacc>data": 10 * MB},
    ]


def test_jobs_bring_what_bypasses_their_staging_site() -> None:
    inputs = three_jobs()
    staged = replace(
        inputs,
        configurations={j: ("nonsharedfs",) * len(at) for j, at in inputs.candidates.items()},
        staging={"*": "mu"},
        bypass=frozenset({"f0"}),
    )
    world = estimate_world(staged, now=0.0, output_site="mu")
    tacc = edge_of(staged, world, "mu", [], ["tacc"]).ways[0]
    assert {leg.name: leg.s_t_bytes for leg in tacc.legs} == {
        "data>tacc": 100 * MB, "data>mu": 100 * MB, "mu>tacc": 200 * MB, "tacc>mu": 110 * MB,
    }  # fmt: skip


def test_the_decision_by_hand() -> None:
    problem = edge()
    decision = decide(Needs("w", 0, 1, 2, 1e6, 1e9), problem.ways, problem.total)
    # mu: 30/2 + 1600/160 = 25 s. tacc: 5 + 15/2 + 1600/400 + 80/80 = 17.5 s.
    assert [o.t_t_s for o in decision.offers] == pytest.approx([17.5, 25])
    assert reason(decision, problem) == "T_t 17.5 s against 25 s local at mu"
    text = decision_text(decision, problem, None)
    assert "* remote at tacc" in text
    assert "data cannot run y (t::b:1.0)" in text
    assert decision_dict(decision, problem, None)["taken"]["t_t_s"] == pytest.approx(17.5)


def test_each_layer_is_a_way_of_its_own() -> None:
    problem = edge(network())
    assert [way.name for way in problem.ways] == [
        "local at mu over l2", "local at mu over l3",
        "remote at tacc over l2", "remote at tacc over l3",
    ]  # fmt: skip
    l2, l3 = problem.ways[2:]
    # The data lies beside tacc whatever layer the results take.
    for way in (l2, l3):
        assert way.legs[0].resources == (bandwidth_of("data", "s2"), bandwidth_of("s2", "tacc"))
    assert bandwidth_of("s2", "s1") in l2.legs[1].resources
    assert bandwidth_of("s2", "r1") in l3.legs[1].resources
    assert problem.total[bandwidth_of("s2", "s1")] == 200e6


def test_where_no_site_can_run_all_of_it() -> None:
    inputs = three_jobs()
    world = estimate_world(inputs, now=0.0, output_site="mu")
    problem = edge_of(inputs, world, "mu", [], ["data"])
    decision = decide(Needs("w"), problem.ways, problem.total)
    assert decision.taken is None
    assert reason(decision, problem) == "data cannot run y (t::b:1.0)"
    assert "waits in the scheduler's queue (place 1)" in decision_text(decision, problem, 1)
