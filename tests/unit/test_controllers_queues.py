"""Queues: what a device's tree of classes promises, and what changes do to it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from controller_worlds import MBPS, two_switches
from hypothesis import given
from hypothesis import strategies as st

from network_provisioner.base.controller import Circuit, Queue
from network_provisioner.base.errors import InputError
from network_provisioner.base.flows import Flow
from network_provisioner.controllers.plan import Planner, make_plan
from network_provisioner.controllers.shaping.shapes import (
    MIN_CLASS_BPS,
    ClassDemand,
    DeviceShape,
    ShapeClass,
    share_out,
)

NOW = 1000.0
L2 = ("mu", "s1", "s2", "tacc")
HOP = ("s1", "s2")
C = 200 * MBPS
SEVEN = Queue("seven", HOP, 0.7 * C, 0.7 * C)
THREE = Queue("three", HOP, 0.3 * C, 0.3 * C)
TEN = Queue("ten", HOP, C, C, prio=0)
REST = Queue("rest", HOP, 0.0, 0.3 * C, prio=1, parent="ten")


def member(name: str, port: int, queue: str, min_bps: float = 0.0) -> Circuit:
    flows = (Flow("tcp", None, (port, port)),)
    return Circuit(name, L2, min_bps, C, NOW + 60, flows=flows, queue=queue)


def shape(circuits: list[Circuit], queues: list[Queue]) -> DeviceShape:
    plan = make_plan(two_switches(), circuits, NOW, queues)
    return next(s for s in plan.shapes if s.device == "s1-a")


def by_queue(device: DeviceShape) -> dict[str, list[ShapeClass]]:
    return {q.name: [c for c in device.classes if c.queue == q.name] for q in device.queues}


def test_seven_three_shares_a_link() -> None:
    device = shape([member(f"a{i}", 1000 + i, "seven") for i in range(5)]
                  + [member("b", 2000, "three")], [SEVEN, THREE])  # fmt: skip
    rates = {q.name: (q.rate_bps, q.ceil_bps) for q in device.queues}
    assert rates["seven"] == (pytest.approx(0.693 * C), 0.7 * C)
    assert rates["three"] == (pytest.approx(0.297 * C), 0.3 * C)
    # Members that are guaranteed nothing share one class.
    assert {name: len(there) for name, there in by_queue(device).items()} == {
        "seven": 1,
        "three": 1,
    }
    assert device.best_effort_bps == pytest.approx(0.01 * C)


def test_ten_three_serves_the_rest_out_of_the_first() -> None:
    device = shape([member("a", 1, "ten"), member("b", 2, "rest")], [REST, TEN])
    assert [(q.name, q.parent) for q in device.queues] == [("ten", ""), ("rest", "ten")]
    (first,), (rest,) = by_queue(device)["ten"], by_queue(device)["rest"]
    assert first.prio < rest.prio
    assert first.ceil_bps == C and rest.ceil_bps == pytest.approx(0.3 * C)
    assert first.rate_bps == pytest.approx(0.99 * C) and rest.rate_bps == MIN_CLASS_BPS


def test_guaranteed_rates_are_kept_within_their_queue() -> None:
    device = shape([member("a", 1, "three", 50 * MBPS), member("b", 2, "three")], [SEVEN, THREE])
    sure, shared = sorted(by_queue(device)["three"], key=lambda c: -c.rate_bps)
    assert sure.rate_bps == pytest.approx(50 * MBPS, rel=0.001) and sure.ceil_bps == 60 * MBPS
    (three,) = [q for q in device.queues if q.name == "three"]
    assert sure.rate_bps + shared.rate_bps == pytest.approx(three.rate_bps)


def test_a_queue_grows_to_what_its_members_are_guaranteed() -> None:
    device = shape([member("a", 1, "three", 100 * MBPS)], [SEVEN, THREE])
    rates = {q.name: q for q in device.queues}
    assert rates["three"].rate_bps >= 100 * MBPS and rates["three"].ceil_bps >= 100 * MBPS
    assert rates["seven"].rate_bps < 0.5 * C


def test_a_member_is_best_effort_on_links_without_its_queue() -> None:
    circuits = [replace(member("a", 1, "seven"), path=("mu", "s1", "r1", "s2", "tacc"))]
    plan = make_plan(two_switches(), circuits, NOW, [SEVEN])
    assert next(s for s in plan.shapes if s.device == "s1-b").classes == ()


def test_what_the_switches_cannot_tell_apart_is_in_no_queue() -> None:
    first, second = member("a", 1, "seven", MBPS), member("b", 1, "three", MBPS)
    device = shape([first, second], [SEVEN, THREE])
    assert [c.queue for c in device.classes] == [""]


def test_members_come_and_go_without_new_marks() -> None:
    planner = Planner(two_switches())
    marks = {}
    for count in (1, 40, 100, 3):
        circuits = [member(f"m{i}", 1000 + i, "seven") for i in range(count)]
        circuits += [member(f"g{i}", 9000 + i, "seven", MBPS / 10) for i in range(count)]
        plan = planner.plan(circuits, NOW, [SEVEN, THREE])
        now = {g.data[0]: g.branches[0].mark for g in plan.groups if g.data}
        assert len({now[f"m{i}"] for i in range(count)}) == 1
        assert all(now[name] == mark for name, mark in marks.items() if name in now)
        marks |= now


rates = st.floats(0, 1)


@st.composite
def trees(draw: st.DrawFn) -> list[Queue]:
    queues: list[Queue] = []
    for i in range(draw(st.integers(0, 6))):
        rate = draw(rates) * C
        ceil = max(1.0, rate + draw(rates) * C)
        parent = draw(st.sampled_from(["", *(q.name for q in queues)]))
        queues.append(Queue(f"q{i}", HOP, rate, ceil, draw(st.integers(-3, 9)), parent))
    return queues


@given(trees(), st.lists(st.tuples(rates, rates, st.integers(0, 6), st.booleans()), max_size=63))
def test_no_class_promises_more_than_what_it_is_served_from(
    queues: list[Queue], parts: list[tuple[float, float, int, bool]]
) -> None:
    total = max(1.0, sum(p[0] for p in parts))
    names = ["", *(q.name for q in queues)]
    shared: set[str] = set()
    demands = []
    for i, (data, ack, which, is_shared) in enumerate(parts):
        queue = names[which % len(names)]
        alone = is_shared and queue and queue not in shared
        shared |= {queue} if alone else set()
        data_bps = 0.0 if alone else data / total * C
        demands.append(ClassDemand(i + 1, data_bps, ack * C, C, queue, shared=bool(alone)))
    classes, tree = share_out(C, demands, queues)
    floor = MIN_CLASS_BPS * (len(classes) + len(tree))
    inside: dict[str, float] = dict.fromkeys(names, 0.0)
    for c in classes:
        inside[c.queue] += c.rate_bps
    for q in tree:
        inside[q.parent] += q.rate_bps
    ceilings = {"": C} | {q.name: q.ceil_bps for q in tree}
    assert inside[""] <= 0.99 * C + floor
    for q in tree:
        assert inside[q.name] <= q.rate_bps + floor
        assert q.rate_bps <= q.ceil_bps
        assert tree.index(q) > max([tree.index(p) for p in tree if p.name == q.parent], default=-1)
    for c, want in zip(classes, demands, strict=True):
        assert c.rate_bps >= 0.99 * want.data_bps * (1 - 1e-9)
        assert c.rate_bps <= c.ceil_bps <= max(ceilings[c.queue], c.rate_bps) * (1 + 1e-9)
        assert 0 <= c.prio <= 7


@pytest.mark.parametrize(
    ("queues", "message"),
    [
        ([SEVEN, SEVEN], "queue 'seven' on link s1>s2 is listed twice"),
        ([REST], "is inside 'ten', which is no queue of that link"),
        ([replace(TEN, parent="rest"), REST], "is inside more than 5 others"),
        ([replace(TEN, name="")], "has no name"),
        ([replace(TEN, rate_bps=-1.0)], "rate_bps -1.0, expected 0 b/s or more"),
        ([replace(TEN, ceil_bps=1.0)], "no less than its rate_bps"),
        ([replace(TEN, hop=("mu", "tacc"))], "no link between 'mu' and 'tacc'"),
    ],
)
def test_queues_that_make_no_sense_are_refused(queues: list[Queue], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_plan(two_switches(), [], NOW, queues)
