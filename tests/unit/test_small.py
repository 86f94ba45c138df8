"""Transfers too small for a circuit: left to best effort, or together on a standing one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from broker_rig import BIG, Clock, FakeController, Rig, demo_network, fill, refusing
from hypothesis import given, settings
from hypothesis import strategies as st

from network_provisioner.base.controller import Circuit, Queue
from network_provisioner.base.model import ENDED, LIVE, Transit, TransitRequest, TransitState
from network_provisioner.selection.breakeven import HOOK_S
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.transits.standing import STANDING_S

FIGURES = {"qspec": {"min_throughput": "5 Mb/s"}, "rspec": {"max_throughput": "80 Mb/s"}}
SHARED = {"shared": {**FIGURES, "small": "share"}}
NAME = "standing:shared:mu-tacc"


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "state.sqlite", templates=SHARED)


def small(rig: Rig, name: str, src: str = "mu", dst: str = "tacc", **more: Any) -> Transit:
    return rig.ask(name, src, dst, template="shared", **{"size_bytes": 1000, **more})


def standing(rig: Rig) -> list[Transit]:
    return [t for t in rig.broker.list() if t.id.startswith("standing:")]


# -- the break-even --------------------------------------------------------------------------


def test_what_a_set_up_takes_decides(tmp_path: Path) -> None:
    clock = Clock()

    class Slow(FakeController):
        def apply(self, circuits: Sequence[Circuit], queues: Sequence[Queue] = ()) -> None:
            clock.now += 0.4
            super().apply(circuits, queues)

    slow = Slow(demo_network())
    rig = Rig(tmp_path / "s.sqlite", templates={"mine": FIGURES}, clock=clock, controller=slow)
    # 0.1 s of hooks: 80 Mb/s against half of it is worth it from 1 MB on.
    least = HOOK_S * 80e6 / 8
    first = rig.ask("first", "mu", "tacc", template="mine", size_bytes=int(least) + 1)
    assert first.state is TransitState.INSTALLED
    rig.broker.release("first")
    # Now 0.5 s: from 5 MB on.
    for name, size, state in (("b", 4_900_000, "best_effort"), ("c", 5_100_000, "installed")):
        assert rig.ask(name, "mu", "tacc", template="mine", size_bytes=size).state == state
    assert "4.9 MB is below 5 MB" in rig.broker.get("b").reason
    assert "0.5 s of set-up" in rig.broker.get("b").reason


def test_the_circuit_is_as_fast_as_there_is_room(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s.sqlite", templates={"mine": FIGURES})
    rig.ask("other", "local", "iplant", min_bps=160e6, max_bps=160e6)
    # 20 Mb/s are left: worth it from 0.1 s at 20 Mb/s, 250 kB, on.
    assert rig.ask("a", "mu", "tacc", template="mine", size_bytes=240_000).state == "best_effort"
    assert rig.ask("b", "mu", "tacc", template="mine", size_bytes=260_000).state == "installed"


def test_measured_best_effort_counts_while_it_is_fresh(tmp_path: Path) -> None:
    known: list[tuple[float, float] | None] = [None]
    rig = Rig(
        tmp_path / "s.sqlite", templates={"mine": FIGURES}, best_effort_of=lambda *_: known[0]
    )

    def state(name: str) -> str:
        return rig.ask(name, "mu", "tacc", template="mine", size_bytes=1_500_000).state

    assert state("unknown") == "installed"
    rig.broker.release("unknown")
    known[0] = (70e6, 10.0)  # worth it from 0.1 / (8/70e6 - 8/80e6) = 7 MB on
    assert state("fast") == "best_effort"
    assert "(measured)" in rig.broker.get("fast").reason
    known[0] = (70e6, 10_000.0)
    assert state("old") == "installed"


def test_an_archive_that_fails_costs_its_opinion(tmp_path: Path) -> None:
    def broken(*_: str) -> None:
        raise OSError("disk full")

    rig = Rig(tmp_path / "s.sqlite", templates={"mine": FIGURES}, best_effort_of=broken)
    got = rig.ask("a", "mu", "tacc", template="mine", size_bytes=1000)
    assert "(taken for best effort)" in got.reason


@pytest.mark.parametrize(("least", "state"), [(0, "installed"), ("2 kB", "best_effort")])
def test_a_templates_own_figure_goes_before(tmp_path: Path, least: object, state: str) -> None:
    templates = {"mine": {**FIGURES, "break_even": least}}
    rig = Rig(tmp_path / "s.sqlite", templates=templates)
    assert rig.ask("a", "mu", "tacc", template="mine", size_bytes=1500).state == state


# -- standing circuits -----------------------------------------------------------------------


def test_small_ones_share_a_standing_circuit(rig: Rig) -> None:
    first = small(rig, "a")
    assert first.state is TransitState.BEST_EFFORT
    assert first.reason.startswith(f"shares standing circuit {NAME}: 1 kB is below 1 MB")
    rig.clock.now += 20
    small(rig, "b")
    (circuit,) = standing(rig)
    assert (circuit.id, circuit.state, circuit.request.min_bps) == (NAME, "installed", 5e6)
    assert circuit.grant.lease_until == rig.clock.now + STANDING_S
    assert list(rig.controller.circuits) == [NAME]
    rig.let_pass(STANDING_S - 1)
    assert rig.broker.get(NAME).state in LIVE
    rig.let_pass(1)
    assert rig.broker.get(NAME).state is TransitState.EXPIRED
    assert rig.reserved() == {} and rig.controller.circuits == {}


def test_large_ones_and_other_templates_have_none(rig: Rig) -> None:
    assert small(rig, "large", size_bytes=BIG).state is TransitState.INSTALLED
    rig.ask("other", "mu", "tacc", size_bytes=1000)
    assert standing(rig) == []


def test_where_there_is_no_room_nothing_is_left_behind(rig: Rig) -> None:
    fill(rig)
    held = rig.reserved()
    got = small(rig, "a", "local", "tacc")
    assert got.state is TransitState.BEST_EFFORT
    assert "there is no standing circuit to share: " in got.reason
    assert standing(rig) == [] and rig.reserved() == held


def test_switches_that_refuse_it_cost_nothing(rig: Rig) -> None:
    rig.controller.cursed = {NAME}
    assert small(rig, "a").state is TransitState.BEST_EFFORT
    assert rig.broker.get(NAME).state is TransitState.FAILED and rig.reserved() == {}
    assert small(rig, "b").reason.startswith(f"shares standing circuit {NAME}.2")


def test_a_restart_keeps_it_and_its_lease(rig: Rig) -> None:
    small(rig, "a")
    again = Rig(rig.file, templates=SHARED, clock=rig.clock)
    rig.clock.now += 10
    small(again, "b")
    assert [t.id for t in standing(again)] == [NAME]
    again.let_pass(STANDING_S)
    assert again.reserved() == {}


def test_names_that_no_id_may_have_are_spelt_out(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s.sqlite", templates={"my gönes": {**FIGURES, "small": "share"}})
    rig.ask("a", "mu", "tacc", template="my gönes", size_bytes=1)
    assert [t.id for t in standing(rig)] == ["standing:my%20g%C3%B6nes:mu-tacc"]


steps = st.lists(
    st.tuples(
        st.sampled_from(["mu", "local"]),
        st.sampled_from(["tacc", "iplant", "mu"]),
        st.sampled_from([0, 1000, 500_000, BIG]),
    )
    | st.sampled_from([0.4, 5.0, 29.0, 31.0])
    | st.sampled_from(["refuse", "take", "release", "together"]),
    max_size=25,
)


@settings(max_examples=50, deadline=None)
@given(steps)
def test_never_more_than_one_and_none_after_its_lease(course: list[Any]) -> None:
    rig = Rig(Path("unused"), templates=SHARED, store=SqliteStore(":memory:"), clock=Clock())
    for number, step in enumerate(course):
        name = f"t{number}"
        if isinstance(step, tuple):
            small(rig, name, step[0], step[1], size_bytes=step[2])
        elif isinstance(step, float):
            rig.let_pass(step)
        elif step == "release":
            for transit in rig.broker.list():
                if not transit.id.startswith("standing:"):
                    rig.broker.release(transit.id)
        elif step == "together":
            requests = [
                TransitRequest(f"{name}-{n}", "mu", "tacc", 1000, template="shared")
                for n in range(3)
            ]
            reasons = {a.transit.reason for a in rig.broker.ask(requests) if a.transit}
            assert len(reasons) == 1
        else:
            rig.controller.broken = refusing() if step == "refuse" else None
        live = [t for t in standing(rig) if t.state not in ENDED]
        assert len({t.id.partition(".")[0] for t in live}) == len(live)
        for transit in live:
            assert rig.clock.now < transit.grant.lease_until <= rig.clock.now + STANDING_S
    rig.controller.broken = None
    for transit in rig.broker.list():
        if not transit.id.startswith("standing:"):
            rig.broker.release(transit.id)
    rig.let_pass(STANDING_S)
    assert rig.reserved() == {} and rig.controller.circuits == {}
    assert all(transit.state in ENDED for transit in rig.broker.list())
