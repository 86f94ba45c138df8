"""Whole runs in a time of their own: what is reserved, moved, begun, and given back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Literal

import pytest
from ahead_run import PATIENCE_S, Truth, VirtualRun
from broker_rig import Rig, refusing
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ahead_predict import computes, dag_of, moves

from monitors.workflows.planned.dag import Moving, Node, PlannedDag
from monitors.workflows.planned.submit_dir import JobKind
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import LIVE, TransitRequest, TransitState
from pegasus_hooks.advance.booking import CorrectionRules, WorkflowReservations
from pegasus_hooks.advance.job_estimates import JobEstimates

MB = 10**6
PAIRS = (("mu", "tacc"), ("tacc", "mu"), ("local", "tacc"), ("iplant", "mu"))
RATES = {pair: 90e6 for pair in PAIRS}


def line(size: int = 300 * MB) -> PlannedDag:
    """in ─► run ─► out"""
    return dag_of(
        moves("in", src="mu", dst="tacc", size=size),
        computes("run", "in", site="tacc"),
        moves("out", "run", src="tacc", dst="mu", size=size),
    )


def truth_of(dag: PlannedDag, run_s: dict[str, float], factor: float = 1.0) -> Truth:
    sizes = {
        (n.name, m.pair): m.declared_bytes * factor for n in dag.nodes.values() for m in n.first
    }
    return Truth(run_s, sizes, {})


def run_of(rig: Rig, dag: PlannedDag, estimated: dict[str, float], truth: Truth) -> VirtualRun:
    return VirtualRun(rig, dag, JobEstimates(estimated, {}, {}, RATES), truth)


@pytest.mark.parametrize("true_s", [30.0, 100.0, 170.0])
def test_a_job_that_ends_early_late_or_in_time_finds_its_path_reserved(
    rig: Rig, true_s: float
) -> None:
    dag = line()
    run = run_of(rig, dag, {"run": 100.0}, truth_of(dag, {"run": true_s}))
    run.run()
    assert run.planned == {"w:in:0:mu-tacc": True, "w:out:0:tacc-mu": True}
    out = rig.broker.get("w:out:0:tacc-mu")
    assert out.state is TransitState.RELEASED and out.usage.bytes == 300 * MB
    assert run.left() == [] and rig.reserved() == {} and rig.controller.circuits == {}
    assert run.share > 0.8  # transfers of 13 s, of which 2 s are the transfer tool's own start


def test_a_path_that_others_would_have_taken_is_there(rig: Rig) -> None:
    """What is reserved in advance is not given away meanwhile, and without it there is none."""
    dag = line()

    def others(run: VirtualRun) -> None:
        since = run.rig.clock.now - 1_000_000.0
        if since >= 20:
            request = TransitRequest(f"o{since}", "iplant", "mu", min_bps=170e6, lease_s=80.0)
            run.rig.broker.request(request)

    def waited_s(reserve: Literal["always", "never"], file: Path) -> float:
        estimates, truth = (
            JobEstimates({"run": 100.0}, {}, {}, RATES),
            truth_of(dag, {"run": 100.0}),
        )
        run = VirtualRun(Rig(file), dag, estimates, truth, reserve, template="soykb", watch=others)
        run.run()
        (out,) = [
            t for t in run.rig.broker.list(workflow="w") if t.request.job == "out" and t.usage.bytes
        ]
        return (
            out.grant.installed_at - out.request.requested_at
            if out.grant.installed_at
            else PATIENCE_S
        )

    assert waited_s("always", rig.file.with_name("a.sqlite")) <= 5
    assert waited_s("never", rig.file.with_name("b.sqlite")) == PATIENCE_S


def test_what_a_lost_job_would_have_let_run_is_given_back(rig: Rig) -> None:
    dag = line()
    truth = replace(truth_of(dag, {"run": 60.0}), lost=frozenset({"run"}))
    run = run_of(rig, dag, {"run": 60.0}, truth)
    run.run()
    states = {t.request.job: t.state for t in rig.broker.list()}
    assert states == {"in": TransitState.RELEASED, "out": TransitState.RELEASED}
    assert run.left() == []


def test_a_broker_that_is_away_costs_nothing_but_the_reservation(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = line()
    run = run_of(rig, dag, {"run": 60.0}, truth_of(dag, {"run": 60.0}))

    def away(*_: object) -> None:
        raise BrokerError("the broker cannot be reached", "unreachable")

    monkeypatch.setattr(WorkflowReservations, "observe", away)
    run.run()
    assert run.planned["w:out:0:tacc-mu"] is False
    assert {t.state for t in rig.broker.list()} == {TransitState.RELEASED}


# -- whatever happens ------------------------------------------------------------------------------


@st.composite
def plans(draw: st.DrawFn) -> PlannedDag:
    nodes: list[Node] = []
    for number in range(draw(st.integers(2, 8))):
        names = [node.name for node in nodes]
        parents = draw(st.sets(st.sampled_from(names), max_size=2)) if names else set()
        name = f"j{number}"
        if draw(st.booleans()):
            site = draw(st.sampled_from(("mu", "tacc")))
            nodes.append(computes(name, *sorted(parents), site=site))
            continue
        pairs = draw(st.sets(st.sampled_from(PAIRS), min_size=1, max_size=2))
        first = tuple(Moving(*pair, draw(st.integers(1, 400)) * MB) for pair in sorted(pairs))
        nodes.append(
            Node(name, JobKind.STAGE_IN, "local", parents=tuple(sorted(parents)), first=first)
        )
    return dag_of(*nodes)


class Judge:
    """Looks at every step; at times others ask for what is free, and the switches refuse."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.others: list[str] = []

    def __call__(self, run: VirtualRun) -> None:
        rig, now = run.rig, run.rig.clock.now
        rig.controller.broken = refusing() if self.rng.random() < 0.02 else None
        if self.rng.random() < 0.05:
            self.others.append(f"other-{len(self.others)}")
            run.rig.broker.request(
                TransitRequest(
                    self.others[-1],
                    *self.rng.choice((("iplant", "local"), ("local", "tacc"), ("mu", "tacc"))),
                    min_bps=self.rng.choice((20e6, 90e6, 150e6)),
                    lease_s=self.rng.choice((5.0, 40.0)),
                    start=self.rng.choice((None, now + 30.0)),
                )
            )
        no_link_is_promised_twice(rig, now)


def no_link_is_promised_twice(rig: Rig, now: float) -> None:
    live = [t for t in rig.broker._active.all.values() if t.state in LIVE and t.grant.path]
    limits = {(link.a, link.b): 0.9 * link.capacity_bps for link in rig.topology.links}
    limits |= {(b, a): bps for (a, b), bps in limits.items()}
    for at in {max(now, t.request.start) for t in live}:
        load: dict[tuple[str, str], float] = {}
        for transit in live:
            if (
                max(now, transit.request.start)
                <= at
                < (transit.request.end or transit.grant.lease_until)
            ):
                for hop in zip(transit.grant.path, transit.grant.path[1:], strict=False):
                    load[hop] = load.get(hop, 0.0) + transit.request.min_bps
        assert all(bps <= limits[hop] + 1 for hop, bps in load.items()), (at - now, load)


@settings(max_examples=6, deadline=None)
@given(plans(), st.randoms(use_true_random=False), st.floats(0, 0.7))
def test_no_order_of_things_oversubscribes_a_link_or_leaves_anything(
    tmp_path_factory: pytest.TempPathFactory, dag: PlannedDag, rng: Random, error: float
) -> None:
    rig = Rig(tmp_path_factory.mktemp("run") / "state.sqlite")
    computing = [name for name, node in dag.nodes.items() if node.takes_worker]
    estimated = {name: rng.uniform(1, 60) for name in computing}
    lost = frozenset(name for name in dag.nodes if rng.random() < 0.05)
    truth = replace(
        truth_of(dag, {n: s * rng.uniform(1 - error, 1 + error) for n, s in estimated.items()},
                 rng.uniform(1 - error, 1 + error)),
        lost=lost, workers={"mu": rng.randint(1, 3)},
    )  # fmt: skip
    judge = Judge(rng)
    estimates = JobEstimates(estimated, {}, {}, RATES)
    rules = CorrectionRules(horizon_s=rng.choice((20.0, 3600.0)))
    VirtualRun(rig, dag, estimates, truth, "always", rules, step_s=1.0, watch=judge).run()
    rig.controller.broken = None
    for name in judge.others:
        rig.broker.release(name)
    rig.let_pass(6.0)
    left = [t for t in rig.broker.list() if t.state in LIVE or t.state is TransitState.QUEUED]
    assert left == [], left
    assert rig.reserved() == {} and rig.controller.circuits == {}
    broker = rig.broker
    assert broker._ledger.reservations == {} and len(broker._active.all) == 0
