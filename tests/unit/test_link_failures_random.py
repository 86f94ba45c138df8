"""Random sequences of requests while links fail and work again, judged at every instant."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest
from request_sequences import OneSequence, Sequences, Watched

from network_provisioner.base.model import ON_SWITCHES, Transit
from network_provisioner.base.model import TransitState as State
from network_provisioner.broker import Broker

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
