"""Links that fail: nothing new on them, what ran there elsewhere, and told once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from broker_rig import L2, Rig, demo_network, refusing
from request_sequences import OneSequence, Sequences, Watched
from test_broker_ways import guarded, port

from network_provisioner.base.controller import SwitchStatus
from network_provisioner.base.model import ON_SWITCHES, Transit, TransitState
from network_provisioner.base.model import TransitState as State
from network_provisioner.broker import Broker
from network_provisioner.selection.transit import Metric
from network_provisioner.stores.store import StoreError
from network_provisioner.topology.link_failures import News

L3 = ["mu", "s1", "r1", "s2", "tacc"]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "s", demo_network(l3="100 Mb/s"))


def fail_l2(rig: Rig) -> None:
    rig.controller.fail("s1", "s2")


def test_nothing_new_is_put_on_a_link_that_has_failed(rig: Rig) -> None:
    fail_l2(rig)
    got = rig.ask("a", "mu", "tacc")
    assert (got.state, got.grant.path) == (TransitState.INSTALLED, L3)
    (refused,) = [c for c in got.grant.candidates if c["path"] == L2]
    assert refused["rejected"] == "link s1-s2 has failed: port 10 of s1 is down"
    rig.controller.failed = {}
    assert rig.ask("b", "mu", "iplant").grant.path == ["mu", "s1", "s2", "iplant"]


def test_what_runs_there_moves_and_keeps_its_state_and_its_minimum(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", min_bps=50e6, max_bps=60e6)
    rig.controller.bytes["a"] = 7
    rig.let_pass(1)
    fail_l2(rig)
    assert rig.broker.has_news()
    rig.let_pass(1)
    moved = rig.broker.get("a")
    assert (moved.state, moved.grant.path, moved.grant.moves) == (TransitState.ACTIVE, L3, 1)
    assert moved.reason.endswith(
        "; moved to mu-s1-r1-s2-tacc: link s1-s2 has failed: port 10 of s1 is down"
    )
    assert rig.controller.circuits["a"].path == tuple(L3)
    assert rig.reserved()["s1>r1"] == 50e6 and "s1>s2" not in rig.reserved()
    assert not rig.broker.has_news()


def test_what_has_no_room_elsewhere_waits_for_its_path_the_lowest_first(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s", demo_network(l3="100 Mb/s"), matches=True)
    soykb = {"template": "soykb", "min_bps": 60e6}
    until = rig.ask("low", "mu", "tacc", min_bps=60e6, flows=port(1)).grant.lease_until
    high = rig.ask("high", "mu", "tacc", **soykb, flows=port(2))
    assert rig.broker.get("low").grant.path == high.grant.path == L2 and high.request.priority > 0
    fail_l2(rig)
    rig.let_pass(1)
    assert rig.broker.get("high").grant.path == L3
    left = rig.broker.get("low")
    assert (left.state, left.grant.path, left.grant.granted_bps) == (TransitState.QUEUED, [], 0)
    assert "link s1-s2 has failed" in str(left.reason) + str(left.grant.candidates)
    assert list(rig.controller.circuits) == ["high"]
    rig.controller.failed = {}
    rig.let_pass(1)
    back = rig.broker.get("low")
    assert (back.state, back.grant.path, back.grant.lease_until) == (
        TransitState.INSTALLED,
        L2,
        until,
    )
    assert back.grant.granted_bps >= 60e6


def test_of_those_that_take_one_path_the_lowest_stays_behind(tmp_path: Path) -> None:
    """They have the same packets, and there is room for one of them alone."""
    rig = Rig(tmp_path / "s", demo_network(l3="100 Mb/s"), matches=True)
    rig.ask("low", "mu", "tacc", min_bps=60e6)
    rig.ask("high", "mu", "tacc", min_bps=60e6, template="soykb")
    fail_l2(rig)
    rig.let_pass(1)
    assert rig.broker.get("high").grant.path == L3
    assert rig.broker.get("low").state is TransitState.QUEUED


@pytest.mark.parametrize("hop", [("s1", "s2"), ("s1", "r1")])
def test_both_parts_come_back_where_one_has_failed(tmp_path: Path, hop: tuple[str, str]) -> None:
    wide = {"wide": {"qspec": {"min_throughput": "50 Mb/s"}, "paths": 2}}
    topology = demo_network(l3="150 Mb/s")
    rig = Rig(tmp_path / "s", topology, wide, multipath=True, matches=True)
    before = rig.ask("a", "mu", "tacc", template="wide", min_bps=205e6)
    rig.controller.fail(*hop, "a port is down")
    rig.let_pass(1)
    assert rig.broker.get("a").state is TransitState.QUEUED
    rig.controller.failed = {}
    rig.let_pass(1)
    back = rig.broker.get("a")
    assert back.state is TransitState.INSTALLED and len(back.grant.parts) == 2
    assert [(p.path, p.min_bps) for p in back.grant.parts] == [
        (p.path, p.min_bps) for p in before.grant.parts
    ]


def test_a_move_that_the_switches_refuse_waits_for_a_path_and_keeps_no_other_back(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path / "s", demo_network(l3="100 Mb/s"), matches=True)
    until = rig.ask("a", "mu", "tacc", min_bps=20e6, flows=port(1)).grant.lease_until
    rig.ask("b", "mu", "tacc", min_bps=20e6, flows=port(2))
    fail_l2(rig)
    rig.controller.cursed = {"a"}
    for _ in range(20):
        rig.let_pass(1)
        left = rig.broker.get("a")
        assert (left.state, left.grant.path, left.grant.lease_until) == (
            TransitState.QUEUED,
            [],
            until,
        )
        assert left.reason == "the switches refused: switch 2 does not take that rule"
        assert rig.broker.get("b").grant.path == L3 and list(rig.controller.circuits) == ["b"]
        assert "switches" not in rig.broker.problem()
    rig.ask("c", "mu", "tacc", min_bps=20e6, flows=port(3))
    assert rig.broker.get("c").state is TransitState.INSTALLED
    tried = len(rig.controller.applied)
    rig.let_pass(1)
    assert len(rig.controller.applied) - tried <= 1  # it is not tried with each sweep
    rig.controller.cursed = set()
    rig.let_pass(6)
    back = rig.broker.get("a")
    assert (back.state, back.grant.path, back.grant.lease_until) == (
        TransitState.INSTALLED,
        L3,
        until,
    )


def test_who_starts_with_a_move_that_is_refused_starts_all_the_same(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s", demo_network(l3="100 Mb/s"), matches=True)
    rig.ask("a", "mu", "tacc", min_bps=20e6, flows=port(1))
    start = rig.clock.now + 10
    rig.ask("b", "mu", "tacc", min_bps=20e6, flows=port(2), start=start, end=start + 60)
    rig.controller.cursed = {"a"}
    fail_l2(rig)
    rig.let_pass(10)
    assert rig.broker.get("a").lost_path
    assert rig.broker.get("b").state is TransitState.INSTALLED


def test_who_waits_for_a_path_again_ends_with_its_lease_unless_it_is_renewed(rig: Rig) -> None:
    for name in ("ends", "renewed", "released"):
        rig.ask(name, "mu", "tacc", lease_s=30.0, min_bps=30e6)
    rig.controller.fail("tacc", "s2", "port 2 of s2 is down")
    rig.let_pass(25)
    assert {t.state for t in rig.broker.list()} == {TransitState.QUEUED}
    rig.broker.renew("renewed", 60.0)
    rig.broker.release("released", 10**9, 8.0)  # nothing is learned of a path that it left
    assert rig.recorder.transits[-1].grant.path == []
    rig.let_pass(10)
    ended = rig.broker.get("ends")
    assert ended.state is TransitState.EXPIRED
    assert ended.reason.endswith("; its lease ended without another path")
    rig.controller.failed = {}
    rig.let_pass(1)
    assert rig.broker.get("renewed").state is TransitState.INSTALLED


def test_nothing_new_is_put_on_a_switch_that_is_away_and_what_runs_there_stays(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc")
    away = SwitchStatus("s2", "switch s2 (dpid 0x2)", False, rig.clock.now, "is not connected", {})
    rig.controller.statuses = [away]
    assert rig.broker.problem() == "switch s2 (dpid 0x2) is not connected"  # whoever has the turn
    rig.let_pass(1)
    assert rig.broker.get("a").state is TransitState.INSTALLED
    waits = rig.ask("b", "iplant", "tacc")
    assert waits.state is TransitState.QUEUED
    assert "switch s2 (dpid 0x2) is not connected" in waits.reason
    assert rig.ask("c", "mu", "tacc").state is TransitState.QUEUED  # though it could share
    health = rig.broker.health()
    assert (health["status"], health["problem"]) == (
        "degraded",
        "switch s2 (dpid 0x2) is not connected",
    )
    assert health["switches"][0]["connected"] is False
    rig.controller.statuses = []
    rig.let_pass(1)
    assert {rig.broker.get(name).state for name in "bc"} == {TransitState.INSTALLED}
    assert rig.broker.health()["status"] == "ok"


def test_a_link_that_fails_again_and_again_is_left_alone_until_it_is_quiet(rig: Rig) -> None:
    news: list[object] = []
    rig.broker.link_listeners.append(news.append)
    for _ in range(10):
        fail_l2(rig)
        rig.let_pass(1)
        rig.controller.failed = {}
        rig.let_pass(1)
    (failed,) = rig.broker.health()["links_failed"]
    assert failed["reason"] == "it has failed 3 times or more within a minute"
    assert len(news) == 5  # it failed and came back twice, and failed for good
    assert rig.ask("a", "mu", "tacc").grant.path == L3
    rig.let_pass(16)
    assert len(news) == 6
    assert rig.ask("b", "iplant", "tacc").grant.path == ["iplant", "s2", "tacc"]


def test_what_leaves_a_link_is_written_down_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = {"throughput": Metric(90e6, "measured", 1.0)}  # of layer 3, which takes no promise
    rig = Rig(
        tmp_path / "s",
        demo_network(l3="100 Mb/s"),
        matches=True,
        metrics_of=lambda path, _: rates if path.layer == "l3" else {},
    )
    for number in range(1, 4):
        rig.ask(f"t{number}", "mu", "tacc", min_bps=40e6, flows=port(number))
    fail_l2(rig)
    written: list[list[str]] = []
    put = rig.store.put_many
    monkeypatch.setattr(
        rig.store, "put_many", lambda ts: (written.append(sorted(t.id for t in ts)), put(ts))[1]
    )
    rig.let_pass(1)
    assert [rig.broker.get(f"t{n}").grant.path for n in (1, 2)] == [L3, []]  # the third was on L3
    assert written[0] == ["t1", "t2"]


def test_those_whose_packets_are_alike_move_together_or_stay_behind(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", min_bps=60e6)
    rig.ask("b", "tacc", "mu", min_bps=60e6)
    rig.ask("c", "mu", "tacc", min_bps=60e6)
    fail_l2(rig)
    rig.let_pass(1)
    assert rig.broker.get("a").grant.path == L3 and rig.broker.get("b").grant.path == L3[::-1]
    assert rig.broker.get("c").state is TransitState.QUEUED


def test_a_reservation_in_advance_is_kept_and_moved_when_it_is_to_start(rig: Rig) -> None:
    start = rig.clock.now + 100
    rig.ask("a", "mu", "tacc", start=start, end=start + 50)
    fail_l2(rig)
    rig.let_pass(50)
    assert rig.broker.get("a").grant.path == L2
    rig.let_pass(50)
    assert (rig.broker.get("a").state, rig.broker.get("a").grant.path) == (
        TransitState.INSTALLED,
        L3,
    )


def test_one_whose_only_path_failed_waits_and_starts_when_it_works_again(rig: Rig) -> None:
    rig.controller.fail("tacc", "s2", "port 2 of s2 is down")
    waits = rig.ask("a", "mu", "tacc")
    assert waits.state is TransitState.QUEUED and "link tacc-s2 has failed" in waits.reason
    rig.controller.failed = {}
    rig.let_pass(0.2)
    assert rig.broker.get("a").grant.path == L2


def test_at_a_science_dmz_the_way_stays_open_without_a_rate(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s", guarded())
    rig.ask("a", "mu", "tacc", min_bps=100e6)
    fail_l2(rig)
    rig.let_pass(1)
    opened = rig.broker.get("a")
    assert (opened.state, opened.grant.path, opened.request.min_bps) == (
        TransitState.INSTALLED,
        L3,
        0,
    )
    assert rig.controller.circuits["a"].path == tuple(L3) and rig.reserved() == {}


def test_a_failure_is_told_once_and_so_is_its_end(rig: Rig) -> None:
    news_items: list[News] = []
    rig.broker.link_listeners.append(news_items.append)
    rig.broker.link_listeners.insert(0, lambda news: 1 / 0)  # another's failure is not ours
    fail_l2(rig)
    for _ in range(3):
        rig.let_pass(1)
    at = rig.clock.now - 2
    assert news_items == [News("link s1-s2", "has failed: port 10 of s1 is down", at)]
    health = rig.broker.health()
    assert (health["status"], health["problem"]) == ("degraded", str(news_items[0]))
    expected = {"link": "s1-s2", "reason": "port 10 of s1 is down", "since": at}
    assert health["links_failed"] == [expected]
    links = rig.broker.describe_topology()["links"]
    assert [link["a"] for link in links if link["failed"]] == ["s1"]
    rig.controller.failed = {}
    rig.let_pass(1)
    assert str(news_items[-1]) == "link s1-s2 works again after 3 s" and len(news_items) == 2
    assert rig.broker.health()["status"] == "ok"


def test_switches_that_refuse_the_move_are_told_again_and_the_dead_link_stays_empty(
    rig: Rig,
) -> None:
    rig.ask("a", "mu", "tacc")
    fail_l2(rig)
    rig.controller.broken = refusing()
    rig.let_pass(1)
    assert rig.broker.get("a").grant.path == L3 and "s1>s2" not in rig.reserved()
    rig.controller.broken = None
    rig.let_pass(6)
    assert rig.controller.circuits["a"].path == tuple(L3)


def test_a_dead_link_stays_dead_over_a_restart_until_something_comes_through(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path / "s", demo_network(l3="100 Mb/s"))
    fail_l2(rig)
    rig.let_pass(1)
    rig.controller.ways = {((1, 11), (2, 11))}
    rig.let_pass(1)
    again = Rig(tmp_path / "s", demo_network(l3="100 Mb/s"), clock=rig.clock)
    assert again.controller.ways == rig.controller.ways
    assert again.broker.health()["links_failed"][0]["reason"] == "port 10 of s1 is down"
    assert again.ask("a", "mu", "tacc").grant.path == L3
    news: list[News] = []
    again.broker.link_listeners.append(news.append)
    again.controller.failed = {}
    again.let_pass(1)
    assert again.broker.health()["status"] == "ok"
    assert [str(item) for item in news] == ["link s1-s2 works again after 2 s"]
    assert again.ask("b", "iplant", "tacc").grant.path == ["iplant", "s2", "tacc"]


def test_what_the_store_did_not_take_of_failed_links_is_written_later(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full = StoreError("the disk is full")

    def refuse(*_: object, **__: object) -> int:
        raise full

    rig.controller.ways = {((1, 11), (2, 11))}
    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "put_document", refuse)
        for _ in range(3):
            rig.let_pass(1)
    assert caplog.text.count("failed links are not saved: the disk is full") == 1
    rig.let_pass(1)
    saved = rig.store.document("network", "failed_links")
    assert saved is not None and saved.body["ways"] == [[[1, 11], [2, 11]]]


SEQUENCES = 120
SWITCHES = ("s1", "s2", "s3")


class Failing(Watched):
    """Some of its links carry nothing."""

    failed: dict[tuple[str, str], str]

    def failed_links(self) -> dict[tuple[str, str], str]:
        return self.failed


class LinksFail(OneSequence):
    """Between switches, one at a time, and for a while."""

    def __init__(self, world: Sequences, rng: Random, brokers: int) -> None:
        assert isinstance(world.controller, Failing)
        self.failing = world.controller
        self.failing.failed = {}
        super().__init__(world, rng, brokers)

    def new_broker(self) -> Broker:
        """To the judge a failed link is no reason for anything to be late."""
        broker = super().new_broker()
        said = broker.problem

        def problem() -> str:
            return "" if said() == broker._failures.problem else said()

        broker.problem = problem  # type: ignore[method-assign]
        return broker

    def step(self) -> None:
        if self.rng.random() < 0.2:
            links = [k for k in self.topology.links if k.a in SWITCHES and k.b in SWITCHES]
            hops = self.rng.choice(links).hops if not self.failing.failed else ()
            self.failing.failed = dict.fromkeys(hops, "its port is down")
            self.broker.sweep()
        else:
            super().step()

    def judge(self) -> None:
        super().judge()
        if self.controller.down or self.controller.cursed:
            return
        if self.broker.problem():
            return  # of several, some have not taken their turn yet
        for row in self.rows.values():
            if row.state in ON_SWITCHES:
                for path in (row.grant.path, *(part.path for part in row.grant.parts)):
                    assert self.failing.failed.keys().isdisjoint(pairwise(path)), row

    def kept(self, transit: Transit, accepted: Transit, now: float) -> None:
        if transit.lost_path or transit.reason.endswith("without another path"):
            return
        if "has failed" in transit.reason:
            if transit.state is State.BEST_EFFORT or not transit.request.min_bps:
                return  # no other path had room; at a Science DMZ the way stays open
            if transit.state is State.QUEUED:
                assert transit.request.start > now or not accepted.grant.installed_at
                return
        super().kept(transit, accepted, now)

    def mend(self) -> None:
        self.failing.failed = {}
        super().mend()


@pytest.fixture
def world() -> Iterator[Sequences]:
    logging.disable(logging.WARNING)
    made = Sequences()
    made.controller = Failing(made.topology, made.clock)
    yield made
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("brokers", [1, 2])
def test_promises_hold_while_links_fail(world: Sequences, brokers: int) -> None:
    moved = 0
    for seed in range(SEQUENCES // brokers):
        rng = Random(seed)
        sequence = LinksFail(world, rng, brokers)
        try:
            for _ in range(rng.randint(4, 14)):
                sequence.step()
                sequence.judge()
            moved += sum(row.grant.moves for row in sequence.rows.values())
            sequence.end()
        except BaseException as error:
            error.add_note(f"sequence {seed} of {brokers} brokers")
            raise
    assert moved > 10
