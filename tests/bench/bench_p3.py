"""P3: how long the broker decides about one request when a thousand links are busy.

Measured is the decision with its reservation: candidate paths, room on each of their links, scores,
grant or earliest start. The candidate paths of a pair of sites are searched once and kept; requests
that are the first of their pair are told apart. The peers search for every request, and answer
less: a path with room for the minimum, or none. They keep no books, so only their search is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from random import Random
from statistics import mean
from typing import Any

import networkx as nx

from network_provisioner.admission import Admission, Grant, Limits
from network_provisioner.model import Transit, TransitState
from network_provisioner.reservations import Ledger, Reservation
from network_provisioner.template import templates_from_dict
from network_provisioner.topology import Link, Node, Topology
from tests.bench import Figure, Tell, bench

SITES, SWITCHES, CORE_DEGREE = 120, 280, 6
LINKS = 1000
LIVE = 10_000
PAIRS = 1000
REQUESTS = 4000
PEERS_EVERY = 8  # they are slow
FIRST = 300
GOAL_MS = 10.0
OURS = "ours"
EVERY_S = 0.01  # between requests, on the ledger's clock
HORIZON_S = 60.0  # for which the peers want room
TEMPLATE = templates_from_dict(None)["soykb"]


def make_network(rng: Random) -> Topology:
    """A small world of switches with sites at one or two of them; a link in four is narrow."""
    core = nx.connected_watts_strogatz_graph(SWITCHES, CORE_DEGREE, 0.1, seed=rng.randrange(2**31))
    nodes = [Node(f"w{i}", "switch", dpid=i + 1) for i in range(SWITCHES)]
    nodes += [Node(f"s{i}", "site", address=f"10.1.{i}.1") for i in range(SITES)]
    ends = {(f"w{a}", f"w{b}"): rng.choice([20e9, 100e9, 100e9, 100e9]) for a, b in core.edges}
    for site in range(SITES):
        ends[f"s{site}", f"w{rng.randrange(SWITCHES)}"] = 20e9
    while len(ends) < LINKS:
        ends[f"s{rng.randrange(SITES)}", f"w{rng.randrange(SWITCHES)}"] = 20e9
    links = [
        Link(a, b, bps, rng.uniform(0.0005, 0.008), layer="l2") for (a, b), bps in ends.items()
    ]
    return Topology(nodes, links)


@dataclass
class World:
    """A network with live reservations, and requests that keep coming and going."""

    topology: Topology
    ledger: Ledger
    admission: Admission
    rng: Random
    pairs: list[tuple[str, str]]
    count: int = 0

    @property
    def now(self) -> float:
        """Seconds on the ledger's clock."""
        return self.count * EVERY_S

    def request(self, pair: tuple[str, str] | None = None) -> Transit:
        """The next one, for 100 MB to 100 GB."""
        self.count += 1
        src, dst = pair or self.rng.choice(self.pairs)
        return Transit(
            f"t{self.count}",
            src,
            dst,
            TransitState.QUEUED,
            requested_bps=TEMPLATE.qspec.min_bps,
            max_bps=TEMPLATE.rspec.max_bps,
            size_bytes=round(10 ** self.rng.uniform(8, 11)),
        )

    def decide(self, transit: Transit) -> bool:
        """Ours: decide, and reserve what was granted. Whether there was a grant."""
        now = self.now
        verdict = self.admission.decide(transit, TEMPLATE, now)
        if not isinstance(verdict, Grant):
            return False
        rate, until = verdict.granted_bps, now + verdict.lease_s
        held = Reservation(transit.id, verdict.path.hops, rate, transit.max_bps, now, until)
        refusal = self.ledger.admit(held)
        if refusal is not None:
            raise AssertionError(f"granted more than is free: {refusal}")
        return True

    def release_one(self) -> None:
        """Gives back the reservation that was made first."""
        self.ledger.release(next(iter(self.ledger.reservations)))


def make_world(tell: Tell) -> World:
    """A world with LIVE reservations, made by the broker's own decisions."""
    rng = Random(3)
    topology = make_network(rng)
    ledger = Ledger.of(topology, Limits().reservable)
    admission = Admission(topology, ledger, lambda _: None, Limits())
    # Some sites are asked for more than others, so that some links are full.
    weights = [1 / (1 + i) ** 0.5 for i in range(SITES)]
    pairs: dict[tuple[str, str], None] = {}
    while len(pairs) < PAIRS:
        src, dst = rng.choices(topology.sites, weights, k=2)
        if src != dst:
            pairs[src, dst] = None
    world = World(topology, ledger, admission, rng, list(pairs))
    while len(ledger.reservations) < LIVE:
        world.decide(world.request())
        if world.count % 5000 == 0:
            tell(f"{len(ledger.reservations)} of {LIVE} live reservations")
    return world


# ---------------------------------------------------------------- the peers


class Peers:
    """Two plain ways to find a path with room, on the same network and ledger."""

    def __init__(self, world: World) -> None:
        self.ledger = world.ledger
        self.graph: Any = nx.Graph()
        for link in world.topology.links:
            self.graph.add_edge(link.a, link.b, delay=link.delay_s)
        self.sites = set(world.topology.sites)

    def first_fit(self, transit: Transit, now: float) -> bool:
        """The paths one by one, shortest first, until one of the first k has room."""
        return any(self._has_room(path, transit, now) for path in self._shortest(transit))

    def k_shortest(self, transit: Transit, now: float) -> bool:
        """All of the k shortest, so that there is something to choose from; one with room."""
        fits = [self._has_room(path, transit, now) for path in list(self._shortest(transit))]
        return any(fits)

    def with_room(self, transit: Transit, now: float) -> bool:
        """The shortest path of links with room: finds one wherever there is any."""
        low, until, ends = transit.requested_bps, now + HORIZON_S, (transit.src, transit.dst)

        def weight(a: str, b: str, edge: dict[str, float]) -> float | None:
            transits = b in self.sites and b not in ends
            if transits or self.ledger.residual((a, b), now, until) < low:
                return None
            return edge["delay"]

        try:
            nx.dijkstra_path(self.graph, *ends, weight=weight)
        except nx.NetworkXNoPath:
            return False
        return True

    def _shortest(self, transit: Transit) -> Iterator[list[str]]:
        paths = nx.shortest_simple_paths(self.graph, transit.src, transit.dst, weight="delay")
        return islice(paths, Limits().max_paths)

    def _has_room(self, path: list[str], transit: Transit, now: float) -> bool:
        room = self.ledger.path_residual(pairwise(path), now, now + HORIZON_S)
        return room >= transit.requested_bps


@bench("P3")
def broker_decision(tell: Tell) -> Iterable[Figure]:
    """Milliseconds per decision, and how many requests get a path at once."""
    tell(f"{LINKS} links, {LIVE} reservations are made")
    world = make_world(tell)
    peers = Peers(world)
    names = {
        "first-fit shortest path": peers.first_fit,
        "NetworkX k-shortest": peers.k_shortest,
        "shortest path with room": peers.with_room,
    }
    spent: dict[str, list[float]] = {OURS: []} | {name: [] for name in names}
    placed: dict[str, list[bool]] = {OURS: []} | {name: [] for name in names}
    known = [pair for pair in world.pairs if pair in world.admission._paths]
    tell(f"{REQUESTS} requests between {len(known)} pairs that asked before")
    for number in range(REQUESTS):
        transit = world.request(world.rng.choice(known))
        ways: dict[str, Callable[[], bool]] = {OURS: partial(world.decide, transit)}
        if number % PEERS_EVERY == 0:  # in the state that ours will find
            asked = {name: partial(way, transit, world.now) for name, way in names.items()}
            ways = asked | ways
        answers = {name: _timed(way) for name, way in ways.items()}
        for name, (found, milliseconds) in answers.items():
            spent[name].append(milliseconds)
            if len(answers) > 1:
                placed[name].append(found)
        while len(world.ledger.reservations) > LIVE:
            world.release_one()
    tell(f"{FIRST} requests that are the first of their pair")
    first: list[float] = []
    while len(first) < FIRST:
        src, dst = world.rng.sample(world.topology.sites, 2)
        if (src, dst) not in world.admission._paths:
            first.append(_timed(partial(world.decide, world.request((src, dst))))[1])
    state = f"{LINKS:,} links, {LIVE:,} reservations"
    for what, ours in ((f"decision at {state}", spent[OURS]), ("first request of a pair", first)):
        for words, share in (("median", 0.5), ("99th percentile", 0.99)):
            yield Figure(
                f"{what}, {words}",
                percentile(ours, share),
                "ms",
                better="lower",
                goal=GOAL_MS if share == 0.99 else None,
                peers={name: percentile(spent[name], share) for name in names},
            )
    yield Figure(
        "requests that get a path at once",
        100 * mean(placed[OURS]),
        "%",
        better="higher",
        peers={name: 100 * mean(placed[name]) for name in names},
    )


def _timed(work: Callable[[], bool]) -> tuple[bool, float]:
    """What it says, and milliseconds."""
    began = time.perf_counter()
    found = work()
    return found, 1e3 * (time.perf_counter() - began)


def percentile(values: list[float], share: float) -> float:
    """The value below which that share of the list lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
