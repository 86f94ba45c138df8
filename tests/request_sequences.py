"""Random sequences of requests on a broker, and a judge of its own that watches every instant.

The judge knows no ledger and no shares: it adds up, link by link, what the broker has promised (the
rows of its store, each with its paths, minimum and time) and what the switches were told. It is
made to run a hundred thousand sequences, so the network is small, the store is in memory, and the
controller is started again instead of made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from math import inf
from random import Random
from typing import Any, cast

import pytest
from broker_rig import Clock

from network_provisioner.base.controller import Circuit, ControllerError, Part, Queue
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import ENDED, LIVE, ON_SWITCHES, Transit, TransitRequest
from network_provisioner.base.model import TransitState as State
from network_provisioner.broker import Broker
from network_provisioner.controllers.simulated import SimulatedController
from network_provisioner.selection.limits import BrokerLimits
from network_provisioner.selection.terms import is_claim
from network_provisioner.stores.store import ACTIVE, Leader, Store, StoreError
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.graph import Topology
from network_provisioner.transits.standing import STANDING_S

MBPS = 1e6
RESERVABLE = 0.9
KINDS = {
    "low": {"priority": 0, "min": 10, "max": 100, "paths": 1},
    "high": {"priority": 5, "min": 20, "max": 80, "paths": 1},
    "wide": {"priority": 2, "min": 30, "max": 200, "paths": 2},
}
SHARED = "shared"  # the template whose small transfers share a standing circuit
TEMPLATES = templates_from_dict(
    {
        SHARED: {
            "qspec": {"min_throughput": 15 * MBPS},
            "rspec": {"max_throughput": 40 * MBPS},
            "priority": 3,
            "small": "share",
        }
    }
    | {
        name: {
            "qspec": {"min_throughput": kind["min"] * MBPS},
            "rspec": {"max_throughput": kind["max"] * MBPS},
            "priority": kind["priority"],
            "paths": kind["paths"],
            "patience": 40,
            "break_even": 0,
        }
        for name, kind in KINDS.items()
    }
)
PAIRS = (("a", "b"), ("a", "b"), ("b", "a"), ("c", "b"), ("c", "d"))
FLOWS = (
    Flow("tcp", (5000, 5000), None),
    Flow("tcp", (6000, 6010), None),
    Flow("udp", None, (7, 7)),
)
ALLOWED = {
    "impossible_rate", "unknown_transit", "bad_time", "conflict", "controller_unavailable",
    "unknown_site", "store_unavailable",
}  # fmt: skip


def small_network() -> Topology:
    """Two switches with two links between them, and two sites at each, one of them in a DMZ."""
    sites = {"a": "s1", "c": "s1", "b": "s2", "d": "s2"}
    nodes: list[dict[str, Any]] = [
        {
            "name": name,
            "kind": "site",
            "address": f"10.0.0.{number}",
            "mac": f"02:00:00:00:00:0{number}",
            "dmz": name == "d",
        }
        for number, name in enumerate(sites, 1)
    ]
    nodes += [{"name": f"s{n}", "kind": "switch", "dpid": n} for n in (1, 2, 3)]
    ends = [(site, switch, 200) for site, switch in sites.items()]
    ends += [("s1", "s2", 100), ("s1", "s3", 60), ("s3", "s2", 60)]
    links = [
        {
            "a": a,
            "b": b,
            "capacity": f"{rate} Mb/s",
            "layer": "lan" if a in sites else "l2",
            "ports": {end: n for end, n in ((a, i + 1), (b, i + 1)) if end not in sites},
        }
        for i, (a, b, rate) in enumerate(ends)
    ]
    return topology_from_dict({"nodes": nodes, "links": links})


class Rows(dict[str, Transit]):
    """What brokers that share a store have written, and who leads them: the one that started
    last."""

    def __init__(self) -> None:
        super().__init__()
        self.leader: object = None
        self.term = 0


class MemoryStore:
    """As much of a store as a broker needs: rows in a dictionary, as copies.

    Several may share the rows, of whose brokers one leads. On demand it takes only so many writes
    more, until it is mended; and of the first that fails nobody can tell whether it took effect.
    """

    shared = True

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self._in_doubt: set[str] = set()
        self.unreadable: dict[str, str] = {}
        self.mend()

    def mend(self) -> None:
        """All is taken again."""
        self._left, self._secretly = inf, False

    def break_after(self, writes: int, secretly: bool) -> None:
        """``secretly``: the first write that fails takes effect."""
        self._left, self._secretly = writes, secretly

    @property
    def broken(self) -> bool:
        return self._left < inf

    def document(self, kind: str, name: str) -> None:
        """No document was kept."""

    def put_document(self, kind: str, name: str, body: dict[str, Any], keep: int = 0) -> int:
        return 1

    def try_write(self) -> None:
        """It is taken."""

    def elect(self, address: str = "") -> Leader:
        if self.rows.leader is not self:
            self.rows.leader, self.rows.term = self, self.rows.term + 1
        return Leader(term=self.rows.term)

    def leads(self) -> bool:
        return self.rows.leader is self

    def check_leads(self) -> None:
        if not self.leads():
            raise StoreError("another broker leads")

    def doubted(self) -> Sequence[Transit]:
        names, self._in_doubt = self._in_doubt, set()
        return [self.rows[name].copy() for name in names]

    def put_many(self, transits: Sequence[Transit]) -> None:
        self.check_leads()
        self._left -= 1
        if self._left >= 0:
            self._write(transits)
            self._in_doubt -= {transit.id for transit in transits}
            return
        if self._secretly:
            self._secretly = False
            self._write(transits)
            self._in_doubt |= {transit.id for transit in transits}
        raise StoreError("the connection broke")

    def _write(self, transits: Sequence[Transit]) -> None:
        self.rows.update((transit.id, transit.copy()) for transit in transits)

    def get(self, transit_id: str) -> Transit | None:
        row = self.rows.get(transit_id)
        return None if row is None else row.copy()

    def active(self) -> list[Transit]:
        return [t.copy() for t in self.rows.values() if t.state in ACTIVE]

    def find(
        self,
        state: str | None,
        workflow: str | None,
        limit: int,
        before: str = "",
        ended: bool = True,
    ) -> list[Transit]:
        assert state is workflow is None and not before and ended
        return [t.copy() for t in list(self.rows.values())[-limit:]]


class Watched(SimulatedController):
    """Judges what it is told before it takes it, and refuses on demand."""

    def __init__(self, topology: Topology, clock: Clock) -> None:
        super().__init__(topology, clock)
        self.limits = {hop: bps * RESERVABLE for hop, bps in capacities(topology).items()}
        self.down = False  # nothing is taken
        self.cursed = ""  # a circuit that is never taken
        self.told: dict[str, Circuit] = {}

    def apply(self, circuits: Sequence[Circuit], queues: Sequence[Queue] = ()) -> None:
        load: dict[tuple[str, str], float] = {}
        for circuit in circuits:
            parts = circuit.parts or (Part(circuit.path, circuit.min_bps, circuit.max_bps),)
            for part in parts:
                for hop in pairwise(part.path):
                    load[hop] = load.get(hop, 0.0) + part.min_bps
        for hop, bps in load.items():
            if bps > self.limits[hop]:
                raise Oversubscribed(f"{bps} b/s on {hop}: {circuits}")
        if self.down:
            raise ControllerError("switch 1 does not answer")
        if any(circuit.id == self.cursed for circuit in circuits):
            raise ControllerError("switch 2 does not take that rule")
        super().apply(circuits, queues)
        self.told = {circuit.id: circuit for circuit in circuits}


class Oversubscribed(BaseException):
    """What must never be asked of switches. No Exception, so that no broker takes it for theirs."""


def capacities(topology: Topology) -> dict[tuple[str, str], float]:
    """What each direction of each link carries."""
    return {
        hop: link.capacity_bps
        for link in topology.links
        for hop in ((link.a, link.b), (link.b, link.a))
    }


class Sequences:
    """Runs sequences, one after another, on brokers of their own over one network."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.topology = small_network()
        # Every broker looks for the same paths.
        self.topology.candidate_paths = cache(self.topology.candidate_paths)  # type: ignore[method-assign]
        self.controller = Watched(self.topology, self.clock)
        self.steps = 0
        self.states: dict[str, int] = {}  # how many transits were seen to come to each state

    def run(self, rng: Random, length: int, brokers: int = 1) -> None:
        """One sequence of ``length`` steps, judged after each, on so many brokers that share a
        store and the switches: the last one leads, and the others did. Raises AssertionError."""
        sequence = OneSequence(self, rng, brokers)
        for _ in range(length):
            sequence.step()
            sequence.judge()
        sequence.end()
        self.steps += length
        for transit in sequence.rows.values():
            self.states[transit.state] = self.states.get(transit.state, 0) + 1


class OneSequence:
    """Brokers, what they were asked, and what they must keep."""

    doubtful = True  # a write that fails may have taken effect, as over a connection that breaks

    def __init__(self, world: Sequences, rng: Random, brokers: int) -> None:
        self.rng = rng
        self.clock = world.clock
        self.clock.now = 1_000_000.0
        self.topology = world.topology
        self.controller = world.controller
        self.controller.stop()
        self.controller.down, self.controller.cursed = False, ""
        self.rows = Rows()
        self.asked: dict[str, TransitRequest] = {}
        self.accepted: dict[str, Transit] = {}  # as they were when they were accepted
        self.minima: dict[str, set[float]] = {}  # that each may have, since it was changed
        self.released: set[str] = set()
        self.stores: list[MemoryStore] = []
        self.brokers = [self.new_broker() for _ in range(brokers)]

    def new_broker(self) -> Broker:
        store = MemoryStore(self.rows)
        broker = Broker(
            self.topology, TEMPLATES, self.controller, cast(Store, store), None, None, self.clock,
            BrokerLimits(reservable=RESERVABLE, aging_s=30.0),
        )  # fmt: skip
        self.stores.append(store)
        broker.start()
        return broker

    @property
    def broker(self) -> Broker:
        """The one that leads."""
        return self.brokers[-1]

    def step(self) -> None:
        """Something happens."""
        what = self.rng.random()
        try:
            if what < 0.52 or not self.asked:
                self.ask()
            elif what < 0.67:
                self.release(self.rng.choice(list(self.asked)))
            elif what < 0.75:
                renew_or_change = self.renew if self.rng.random() < 0.6 else self.change
                renew_or_change(self.rng.choice(list(self.asked)))
            elif what < 0.78:
                self.shift(self.rng.choice(list(self.asked)))
            elif what < 0.80:
                self.claim(self.rng.choice(list(self.asked)))
            elif what < 0.84:
                self.ask_together()
            elif what < 0.94:
                self.clock.now += self.rng.choice((0.5, 5.0, 20.0, 70.0))
                self.broker.sweep()
            elif what < 0.96:
                self.replace_leader()
            elif what < 0.98:
                self.controller.down = not self.controller.down
            elif what < 0.99:
                self.controller.cursed = self.rng.choice(("", *(str(n) for n in range(8))))
            else:
                self.break_or_mend(self.stores[-1])
        except BrokerError as error:
            assert error.code in ALLOWED, error.code

    def replace_leader(self) -> None:
        """Another broker leads; of two, the one before lives on, and decides nothing."""
        self.mend()
        self.stores.pop(0)
        self.brokers.pop(0)  # it is dead, as by kill -9
        self.brokers.append(self.new_broker())
        for replaced in self.brokers[:-1]:
            for change in (replaced.sweep, partial(replaced.request, self.drawn())):
                with pytest.raises(BrokerError, match="another broker leads"):
                    change()

    def ask(self) -> None:
        """For something new, or for what was asked for before."""
        if self.asked and self.rng.random() < 0.03:
            request = self.rng.choice(list(self.asked.values()))
        else:
            request = self.drawn()
        self.asked[request.id] = request
        self.answered(self.broker.request(request))

    def answered(self, transit: Transit) -> None:
        """Every broker that is asked about it next knows it."""
        assert transit.id in self.rows, transit

    def ask_together(self) -> None:
        """Several at once: new ones, some asked before, which may have ended, and small ones."""
        new = [self.drawn()]
        number = len(self.asked) + 1
        src, dst = self.rng.choice(PAIRS)
        new.append(TransitRequest(str(number), src, dst, 1000, template=SHARED))
        again = [self.rng.choice(list(self.asked.values())) for _ in range(3)]
        self.asked.update((request.id, request) for request in new)
        requests = self.rng.sample([*new, *again], self.rng.randint(2, 5))
        for request, answer in zip(requests, self.broker.ask(requests), strict=True):
            if answer.transit is None:
                assert answer.error is not None and answer.error.code in ALLOWED, answer
            else:
                self.answered(answer.transit)
                transit_id = answer.transit.id
                self.asked.setdefault(transit_id, replace(request, id=transit_id))

    def drawn(self) -> TransitRequest:
        """A new request."""
        rng, name = self.rng, str(len(self.asked))
        src, dst = rng.choice(PAIRS)
        low = rng.choice((None, None, None, None, 1, 33.3, 54, 90, 120))
        start = rng.choice((None, None, None, 3.0, 10.0, 30.0))
        ends = rng.choice((None, None, None, 15.0, 40.0, 100.0))
        return TransitRequest(
            name,
            src,
            dst,
            rng.choice((None, None, 10**7, 10**8)),
            min_bps=None if low is None else low * MBPS,
            template=rng.choice(tuple(KINDS)),
            lease_s=rng.choice((None, 8.0, 30.0)),
            start=None if start is None else self.clock.now + start,
            end=None if ends is None else self.clock.now + ends,
            priority=rng.choice((None, None, 1)),
            flows=rng.choice(((), (), FLOWS[:1], FLOWS[1:2], FLOWS[1:])),
        )

    def renew(self, name: str) -> None:
        """No broker takes it for shorter than it was answered."""
        transit = self.broker.renew(name, self.rng.choice((5.0, 60.0)))
        if transit.state in LIVE:
            assert self.rows[name].grant.lease_until == transit.grant.lease_until

    def change(self, name: str) -> None:
        """To another minimum; where that is refused the store may have taken it all the same."""
        low = self.rng.choice((5, 12, 33.3, 60, 90)) * MBPS
        known = self.rows.get(name)
        if known is None:
            return
        before = self.minima.setdefault(name, {known.request.min_bps})
        before.add(low)
        if self.broker.change(name, min_bps=low).state not in ENDED:
            self.minima[name] = {low}

    def break_or_mend(self, store: MemoryStore) -> None:
        """It takes nothing, or nothing from the middle of a turn on; or all again."""
        if store.broken:
            store.mend()
        else:
            secretly = self.doubtful and self.rng.random() < 0.5
            store.break_after(self.rng.choice((0, 0, 1, 2, 3)), secretly)

    def shift(self, name: str) -> None:
        """To other times, which may be none or have come."""
        start = self.clock.now + self.rng.choice((-10.0, -1.0, 0.0, 2.0, 12.0, 40.0))
        self.broker.shift(name, start, start + self.rng.choice((3.0, 15.0, 60.0)))

    def claim(self, name: str) -> None:
        """The transfer itself asks for what was asked for in advance."""
        now_wanted = replace(self.asked[name], start=None, end=None)
        known = self.rows.get(name)
        if known is None or not is_claim(known, now_wanted):
            return
        (answer,) = self.broker.ask([now_wanted])
        if answer.transit is None:
            assert answer.error is not None and answer.error.code in ALLOWED, answer
        else:
            self.answered(answer.transit)
            self.asked[answer.transit.id] = replace(now_wanted, id=answer.transit.id)

    def release(self, name: str) -> None:
        broker = self.broker
        try:
            broker.release(name, 1000, 1.0)
        except BrokerError:
            late = broker._repository.find(name)
            if broker._repository.is_unsaved(name) and late is not None and late.grant.released_at:
                # It is, and could not be written down.
                self.released.add(name)
            raise
        self.released.add(name)

    def mend(self) -> None:
        self.controller.down, self.controller.cursed = False, ""
        for store in self.stores:
            store.mend()
        self.clock.now += 6.0
        self.broker.sweep()

    def judge(self) -> None:
        """What must hold at every instant."""
        broker = self.broker
        problem = bool(broker.problem() or self.stores[-1]._in_doubt)  # until the next turn
        self.judge_view(self.rows.get, problem)
        live = (t.request.priority for t in broker._active.all.values() if t.state in LIVE)
        assert broker._active.lowest == min(live, default=0)
        if problem:
            self.judge_view(broker._repository.find, problem)

    def judge_view(self, look: Callable[[str], Transit | None], problem: bool) -> None:
        """What must hold in the eyes of one who learns of transits by ``look``."""
        now = self.clock.now
        live: list[Transit] = []
        self.standing()  # one of each pair at most
        for name in self.known():
            transit = look(name)
            if transit is None:
                assert name not in self.accepted
                continue
            if transit.state in LIVE:
                if transit.grant.lease_until <= now:
                    assert problem, transit  # it ended, which could not be written
                    continue
                assert (transit.grant.path[0], transit.grant.path[-1]) == (
                    transit.request.src,
                    transit.request.dst,
                )
                live.append(transit)
                if transit.request.min_bps and name not in self.accepted:
                    self.accepted[name] = transit.copy()
            if name in self.accepted:
                self.kept(transit, self.accepted[name], now)
        self.no_link_is_oversubscribed(live, now)
        if not (self.controller.down or self.controller.cursed or problem):
            ids = {i for i, c in self.controller.told.items() if c.lease_until > now}
            on = {t.id for t in live if t.state in ON_SWITCHES}
            assert ids == on, (ids, on)
            for transit in live:
                if transit.state in ON_SWITCHES:
                    assert self.controller.told[transit.id].min_bps >= transit.request.min_bps

    def known(self) -> dict[str, None]:
        """All ids that were asked for, and those that nobody learned of: they were refused since
        nobody could tell that the store had taken them."""
        return dict.fromkeys((*self.asked, *self.rows))

    def standing(self) -> list[str]:
        """The ids of circuits that the broker asked for itself; of each pair one at most lives."""
        names = [name for name in self.rows if name.startswith("standing:")]
        live = [name.partition(".")[0] for name in names if self.rows[name].state not in ENDED]
        assert len(set(live)) == len(live), live
        return names

    def kept(self, transit: Transit, accepted: Transit, now: float) -> None:
        """Who was accepted has its minimum until it ends, and ends for a reason only."""
        if transit.state in LIVE:
            minima = self.minima.get(transit.id, {accepted.request.min_bps})
            assert transit.request.min_bps in minima, (transit, minima)
            assert transit.grant.granted_bps >= transit.request.min_bps, transit
            assert not transit.grant.parts or transit.request.min_bps <= sum(
                part.min_bps for part in transit.grant.parts
            )
        elif transit.state is State.RELEASED:
            assert transit.id in self.released
        elif transit.state is State.EXPIRED:
            assert now >= transit.grant.lease_until
        elif transit.state is State.FAILED:
            assert "switches refused" in transit.reason, transit
        else:
            # It had waited, and the switches did not answer when its turn came.
            assert transit.state in (State.QUEUED, State.BEST_EFFORT)
            early = accepted.grant.expected_end and now >= accepted.grant.expected_end
            assert early or accepted.state is State.HELD or not accepted.grant.installed_at, transit

    def no_link_is_oversubscribed(self, live: Sequence[Transit], now: float) -> None:
        """Neither by what is given now nor by what is promised for later."""
        limits = self.controller.limits
        for at in {max(now, transit.request.start) for transit in live}:
            load: dict[tuple[str, str], float] = {}
            for transit in live:
                if (
                    max(now, transit.request.start)
                    <= at
                    < (transit.request.end or transit.grant.lease_until)
                ):
                    parts = [(part.path, part.min_bps) for part in transit.grant.parts]
                    for path, min_bps in parts or [(transit.grant.path, transit.request.min_bps)]:
                        for hop in pairwise(path):
                            load[hop] = load.get(hop, 0.0) + min_bps
            for hop, bps in load.items():
                assert bps <= limits[hop], (hop, bps, at, live)

    def end(self) -> None:
        """All is given back, and all is free again."""
        self.mend()
        for name in self.released:
            assert self.rows[name].state in ENDED, self.rows[name]  # whatever broke meanwhile
        for name in self.known():
            if name in self.standing():
                continue
            try:
                self.release(name)
            except BrokerError as error:
                assert error.code == "unknown_transit"
        self.judge()
        if any(self.rows[name].state not in ENDED for name in self.standing()):
            self.clock.now += STANDING_S  # nobody gives them back
        self.broker.sweep()
        assert all(row.state in ENDED for row in self.rows.values())
        assert self.controller.installed() == []
        ledger = self.broker._ledger
        for hop in self.controller.limits:  # now, and at any time after it
            assert not ledger.busy(hop, ledger.capacity(hop), self.clock.now), hop
