"""The registry of policies: kept, enforced while it is time, and what links get of them."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from policy_world import L2, L3, NOW, PolicyRig, ended, live

from network_provisioner.base.controller import Queue
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import TransitPart, TransitState
from network_provisioner.policies import queues as policyqueues
from network_provisioner.policies.queues import demand_bps
from network_provisioner.policies.strategies import Situation
from network_provisioner.stores.store import StoreError

HOUR = 3600.0
WIDE = ("s1", "s2")


@pytest.fixture
def rig() -> PolicyRig:
    return PolicyRig()


def rates(queues: list[Queue], hop: tuple[str, str] = WIDE) -> list[tuple[float, float]]:
    return [(q.rate_bps, q.ceil_bps) for q in queues if q.hop == hop]


class TestRepository:
    """Table I, but for HTTP."""

    def test_what_is_refused_changes_nothing(self, rig: PolicyRig) -> None:
        rig.post()
        before = rig.book.listed(), rig.store.documents_stamp("policy")
        for bad in ({"strategy": "8-2"}, {"links": [["s1", "nowhere"]]}, {"time": [1, 2]}):
            with pytest.raises(BrokerError):
                rig.post(**bad)
        assert (rig.book.listed(), rig.store.documents_stamp("policy")) == before

    def test_another_broker_sees_changes(self, rig: PolicyRig) -> None:
        other = rig.reopened()
        made = rig.post()
        assert other.next_change(NOW) == NOW  # at once
        assert other.get(made["id"]) == made
        other.delete(made["id"])
        assert rig.book.listed() == []

    def test_a_document_that_cannot_be_read_costs_only_itself(self, rig: PolicyRig) -> None:
        made = rig.post()
        rig.store.put_document("policy", "broken", {"name": "x"})
        assert [p["id"] for p in rig.reopened().listed()] == [made["id"]]


class TestQueues:
    def test_seven_three_where_the_transfers_are(self, rig: PolicyRig) -> None:
        made = rig.post()
        cms, ligo = live("a", project="cms"), live("b", project="ligo")
        assert rig.book.queue_of(cms, NOW) == made["queues"][0]
        assert rig.book.queue_of(ligo, NOW) == made["queues"][1]
        queues = rig.book.queues([cms, ligo], NOW)
        assert queues == [
            Queue(made["queues"][0], WIDE, 140e6, 140e6),
            Queue(made["queues"][1], WIDE, 60e6, 60e6),
        ]

    def test_access_links_are_governed_where_they_are_named(self, rig: PolicyRig) -> None:
        rig.post(links=[["mu", "s1"]])
        queues = rig.book.queues([live("a", project="cms")], NOW)
        assert {q.hop for q in queues} == {("mu", "s1")}

    def test_a_path_around_the_links_has_no_queue(self, rig: PolicyRig) -> None:
        rig.post(links=[["s1", "s2"]])
        transit = live("a", L3, project="cms")
        assert rig.book.queue_of(transit, NOW) == ""
        assert rig.book.queues([transit], NOW) == []

    def test_both_directions(self, rig: PolicyRig) -> None:
        rig.post()
        back = live("a", L2[::-1], project="cms")
        assert {q.hop for q in rig.book.queues([back], NOW)} == {("s2", "s1")}

    def test_parts_on_several_paths(self, rig: PolicyRig) -> None:
        rig.post()
        parts = [
            TransitPart(list(L2), "l2", 150_000_000, 150e6, 150e6).as_dict(),
            TransitPart(list(L3), "l3", 8_000_000, 8e6, 8e6).as_dict(),
        ]
        transit = live("a", project="ligo", requested_bps=158e6, parts=parts)
        queues = rig.book.queues([transit], NOW)
        assert rates(queues) == [(pytest.approx(50e6),) * 2, (150e6, 150e6)]
        assert rates(queues, ("s1", "r1"))[1] == (8e6, 8e6)

    def test_minima_of_all_are_kept(self, rig: PolicyRig) -> None:
        rig.post(strategy="10-3")
        others = live("c", project="atlas", requested_bps=30e6)
        ligo = live("b", project="ligo", requested_bps=90e6)
        first, second = rig.book.queues([live("a", project="cms"), ligo, others], NOW)
        assert first.rate_bps == pytest.approx(170e6)
        assert second.rate_bps == 90e6

    def test_a_strategy_that_fails_costs_its_queues_only(
        self, rig: PolicyRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(_: Situation) -> list[Queue]:
            raise ZeroDivisionError

        rig.post()
        monkeypatch.setattr(policyqueues, "strategies", lambda: {"7-3": fails})
        assert rig.book.queues([live("a", project="cms")], NOW) == []


class TestTime:
    def test_who_looks_late_is_told_that_it_is_due(self, rig: PolicyRig) -> None:
        rig.post(time=[NOW + 60, NOW + 120])
        for at, due in ((0, 60), (61, 120)):
            rig.book.queues([], NOW + at)
            late = rig.book.next_change(NOW + due + 0.7)
            assert late is not None
            assert late <= NOW + due + 0.7
        rig.book.queues([], NOW + 121)
        assert rig.book.next_change(NOW + 122) is None

    def test_changes_are_due_at_once_until_they_were_asked_for(self, rig: PolicyRig) -> None:
        made = rig.post(time=None)
        assert rig.book.next_change(NOW) == NOW
        rig.book.queues([], NOW)
        assert rig.book.next_change(NOW) is None
        rig.book.delete(made["id"])
        assert rig.book.next_change(NOW) == NOW

    def test_computed_rates_are_looked_at_again(self, rig: PolicyRig) -> None:
        rig.post(strategy="computed", time=None)
        rig.book.queues([], NOW)
        due = rig.book.next_change(NOW)
        assert due is not None
        assert NOW < due <= NOW + 10


class TestOverlap:
    def test_the_most_specific_type_governs(self, rig: PolicyRig) -> None:
        experiment = rig.post(name="e", type="experiment", specs=["run3", "*"])
        project = rig.post(name="p")
        user = rig.post(name="u", type="user", specs=["ada", "*"], time=[None, NOW + 60])
        transit = live("a", user="ada", project="cms", experiment="run3")
        assert rig.book.queue_of(transit, NOW) == user["queues"][0]
        assert {q.name for q in rig.book.queues([transit], NOW)} == set(user["queues"])
        assert rig.book.get("p")["links"] == []
        assert {r["for"] for r in rig.book.get("p")["resting"]} == {user["id"]}
        # When it has ended, the next one governs again.
        assert rig.book.queue_of(transit, NOW + 60) == project["queues"][0]
        rig.book.delete("p")
        assert rig.book.queue_of(transit, NOW + 60) == experiment["queues"][0]

    def test_among_equals_the_one_that_started_last(self, rig: PolicyRig) -> None:
        rig.post(name="z")
        rig.now += 1
        latest = rig.post(name="a", time=None)
        transit = live("a", project="cms")
        assert rig.book.queue_of(transit, rig.now) == latest["queues"][0]

    def test_on_other_links_each_governs_its_own(self, rig: PolicyRig) -> None:
        wide = rig.post(name="wide", links=[["s1", "s2"]])
        user = rig.post(name="u", type="user", specs=["ada", "*"], links=[["s1", "r1"]])
        transit = live("a", project="cms", user="ada")
        assert rig.book.queue_of(transit, NOW) == wide["queues"][0]
        over = live("a", L3, project="cms", user="ada")
        assert rig.book.queue_of(over, NOW) == user["queues"][0]


class TestHistory:
    def first_rate(self, rig: PolicyRig, *transits: Any) -> float:
        both = transits or (live("a", project="cms"), live("b", project="ligo"))
        return rig.book.queues(both, rig.now)[0].rate_bps

    def test_who_had_more_gets_less_and_it_is_forgotten(self, rig: PolicyRig) -> None:
        rig.post(strategy="computed", time=None)
        assert self.first_rate(rig) == pytest.approx(140e6)
        done = ended("old", project="cms", bytes=10**12)
        rig.book.ended(done)
        less = self.first_rate(rig)
        assert less < 110e6
        rig.book.ended(done)  # known already
        assert self.first_rate(rig) == less
        rig.now += 24 * HOUR
        fresh = [live(n, project=p, installed_at=rig.now) for n, p in (("a", "cms"), ("b", "ligo"))]
        assert self.first_rate(rig, *fresh) == pytest.approx(140e6)

    def test_what_ended_before_or_at_another_broker(self, rig: PolicyRig) -> None:
        rig.post(strategy="computed", time=None)
        fair = self.first_rate(rig)
        rig.store.put(ended("old", project="cms", bytes=10**12))
        both = [live("a", project="cms"), live("b", project="ligo")]
        assert rig.reopened().queues(both, rig.now)[0].rate_bps < fair
        rig.now += 60
        assert self.first_rate(rig) < fair

    def test_everybody_else_is_counted_together(self, rig: PolicyRig) -> None:
        rig.post(strategy="computed", specs=["cms", "*"], time=None)
        both = (live("a", project="cms"), live("b", project="atlas"))
        before = self.first_rate(rig, *both)
        for name in ("atlas", "ligo"):
            rig.book.ended(ended(name, project=name, bytes=10**12))
        rig.now += 10  # history is looked at now and then
        assert self.first_rate(rig, *both) > before

    def test_demand(self) -> None:
        assert demand_bps(live("a"), NOW) == 200e6
        assert demand_bps(live("a", size_bytes=10**12), NOW) == 200e6
        assert demand_bps(live("a", size_bytes=25 * 10**6), NOW) == 20e6
        # 10 Mb/s for 16 s: 20 of 25 MB are done, and 4 Mb/s would do; never below its minimum.
        assert demand_bps(live("a", size_bytes=25 * 10**6), NOW + 16) == 10e6


def test_a_store_that_cannot_be_read_keeps_no_transfer(
    rig: PolicyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker goes on with the policies it knows; who asks for changes is told."""

    def fails(*_: object) -> Any:
        raise StoreError("the disk is gone")

    rig.post(strategy="computed", time=None)
    for name in ("documents_stamp", "documents", "find", "put_document"):
        monkeypatch.setattr(rig.store, name, fails)
    transit = live("a", project="cms")
    assert rig.book.next_change(NOW) == NOW
    assert len(rig.book.queues([transit], NOW)) == 2
    assert rig.book.queue_of(transit, NOW)
    with pytest.raises(StoreError):
        rig.post(name="another")
    assert rig.book.next_change(NOW + 1) is not None


def test_threads(rig: PolicyRig) -> None:
    """Operators and the broker at once."""
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(50):
                made = rig.post(name=f"p{number}")
                rig.book.queues([live("a", project="cms")], NOW)
                rig.book.next_change(NOW)
                rig.book.delete(made["id"])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert rig.book.listed(ended=True) == []


def test_best_effort_has_no_links(rig: PolicyRig) -> None:
    rig.post()
    transit = live("a", project="cms")
    transit.state, transit.grant.path = TransitState.BEST_EFFORT, []
    assert rig.book.queue_of(transit, NOW) == ""
