"""P3: how long the broker decides about one request when a thousand links are busy.

Measured is the decision with its reservation: candidate paths, room on each of their links during
the time asked for, scores, who could be moved, the earliest start, and the ledger's entries. A
third of what is live was booked in advance. The candidate paths of a pair of sites are searched
once and kept; requests that are the first of their pair are told apart. The peers search for every
request, and answer less: a path with room for the minimum, or none. They keep no books, so only
their search is timed. All times are of the processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise
from random import Random
from statistics import mean
from typing import Any, TypeVar

import networkx as nx

from network_provisioner.base.controller import Capabilities
from network_provisioner.base.model import Transit, TransitState
from network_provisioner.selection.limits import BrokerLimits
from network_provisioner.selection.outcomes import Grant
from network_provisioner.selection.path_selector import PathSelector
from network_provisioner.selection.push import Movable
from network_provisioner.state.ledger import Ledger, PathPart
from network_provisioner.state.network_state import NetworkState
from network_provisioner.templates.data import template_from_dict
from network_provisioner.topology.graph import Link, Node, Topology
from tests.bench import Figure, Tell, bench, percentiles
from tests.made_transit import made_transit

SITES, SWITCHES, CORE_DEGREE = 120, 280, 6
LINKS = 1000
LIVE = 10_000
PAIRS = 1000
REQUESTS = 4000
PEERS_EVERY = 8  # they are slow
FIRST = 300
GOAL_MS = 10.0
OURS = "ours"
Answer = TypeVar("Answer")
EVERY_S = 0.01  # between requests, on the ledger's clock
HORIZON_S = 60.0  # for which the peers want room
AHEAD_S = 3600.0  # requests in advance start within that
MINIMA_BPS = (25e6, 100e6, 400e6, 1e9)
PRIORITIES = (0, 0, 0, 5, 5, 9)
TEMPLATE = template_from_dict(
    "bulk",
    {
        "qspec": {"min_throughput": "25 Mb/s", "max_delay": "200 ms", "max_loss": 0.01},
        "rspec": {"max_throughput": "10 Gb/s"},
        "weights": {"throughput": 0.8, "delay": 0.1, "loss": 0.1},
        "paths": 2,
    },
)


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
    selector: PathSelector
    rng: Random
    pairs: list[tuple[str, str]]
    count: int = 0
    moved: int = 0
    held: dict[str, tuple[Transit, tuple[PathPart, ...]]] = field(default_factory=dict)

    @property
    def now(self) -> float:
        """Seconds on the ledger's clock."""
        return self.count * EVERY_S

    def request(self, pair: tuple[str, str] | None = None) -> Transit:
        """The next one, for 100 MB to 100 GB; one in three in advance."""
        self.count += 1
        src, dst = pair or self.rng.choice(self.pairs)
        ahead = self.rng.uniform(1, AHEAD_S) if self.rng.random() < 1 / 3 else None
        return made_transit(
            f"t{self.count}",
            src,
            dst,
            TransitState.QUEUED,
            requested_bps=self.rng.choice(MINIMA_BPS),
            max_bps=TEMPLATE.rspec.max_bps,
            size_bytes=round(10 ** self.rng.uniform(8, 11)),
            start=0.0 if ahead is None else self.now + ahead,
            priority=self.rng.choice(PRIORITIES),
        )

    def decide(self, transit: Transit) -> bool:
        """Ours: decide, and reserve what was granted. Whether there was a grant."""
        movable_of = partial(self._movable, transit.request.priority)
        verdict = self.selector.find(transit, TEMPLATE, self.now, movable_of=movable_of)
        if not isinstance(verdict, Grant):
            return False
        known = self.ledger.reservations
        moved = [known[m.id].on(tuple(w.lane for w in m.ways), self.now) for m in verdict.moves]
        new = (*moved, verdict.reservation(transit.id))
        refusal = self.ledger.exchange([r.id for r in moved], new)
        if refusal is not None:
            raise AssertionError(f"granted more than is free: {refusal}")
        for move in verdict.moves:
            self.held[move.id] = (self.held[move.id][0], move.ways)
        self.moved += len(moved)
        self.held[transit.id] = (transit, verdict.parts)
        return True

    def _movable(self, priority: int, name: str) -> list[Movable]:
        transit, ways = self.held[name]
        if transit.request.priority >= priority:
            return []
        low = max(way.min_bps for way in ways)
        paths = self.selector.usable(transit, TEMPLATE, low)
        return [Movable(name, transit.request.priority, paths, ways)]

    def release_one(self) -> None:
        """Gives back the reservation that was made first."""
        first = next(iter(self.held))
        self.ledger.release(first)
        del self.held[first]


def make_world(tell: Tell) -> World:
    """A world with LIVE reservations, made by the broker's own decisions."""
    rng = Random(3)
    topology = make_network(rng)
    ledger = Ledger.of(topology, BrokerLimits().reservable)
    can = Capabilities("none", multipath=True)
    selector = PathSelector(NetworkState(topology, ledger, can=can), BrokerLimits())
    # Some sites are asked for more than others, so that some links are full.
    weights = [1 / (1 + i) ** 0.5 for i in range(SITES)]
    pairs: dict[tuple[str, str], None] = {}
    while len(pairs) < PAIRS:
        src, dst = rng.choices(topology.sites, weights, k=2)
        if src != dst:
            pairs[src, dst] = None
    world = World(topology, ledger, selector, rng, list(pairs))
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
        request = transit.request
        begin = max(now, request.start)
        low, until, ends = request.min_bps, begin + HORIZON_S, (request.src, request.dst)

        def weight(a: str, b: str, edge: dict[str, float]) -> float | None:
            transits = b in self.sites and b not in ends
            if transits or self.ledger.residual((a, b), begin, until) < low:
                return None
            return edge["delay"]

        try:
            nx.dijkstra_path(self.graph, *ends, weight=weight)
        except nx.NetworkXNoPath:
            return False
        return True

    def _shortest(self, transit: Transit) -> Iterator[list[str]]:
        paths = nx.shortest_simple_paths(
            self.graph, transit.request.src, transit.request.dst, weight="delay"
        )
        return islice(paths, BrokerLimits().max_paths)

    def _has_room(self, path: list[str], transit: Transit, now: float) -> bool:
        begin = max(now, transit.request.start)
        room = min(self.ledger.residual(h, begin, begin + HORIZON_S) for h in pairwise(path))
        return room >= transit.request.min_bps


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
    known = [pair for pair in world.pairs if pair in world.selector._paths]
    tell(f"{REQUESTS} requests between {len(known)} pairs that asked before")
    for number in range(REQUESTS):
        transit = world.request(world.rng.choice(known))
        ways: dict[str, Callable[[], bool]] = {OURS: partial(world.decide, transit)}
        if number % PEERS_EVERY == 0:  # in the state that ours will find
            calls = {name: partial(way, transit, world.now) for name, way in names.items()}
            ways = calls | ways
        answers = {name: timed(way) for name, way in ways.items()}
        for name, (answer, milliseconds) in answers.items():
            spent[name].append(milliseconds)
            if len(answers) > 1:
                placed[name].append(answer)
        while len(world.ledger.reservations) > LIVE:
            world.release_one()
    tell(f"{FIRST} requests that are the first of their pair")
    first: list[float] = []
    while len(first) < FIRST:
        src, dst = world.rng.sample(world.topology.sites, 2)
        if (src, dst) not in world.selector._paths:
            first.append(timed(partial(world.decide, world.request((src, dst))))[1])
    state = f"{LINKS:,} links, {LIVE:,} reservations"
    for what, ours in ((f"decision at {state}", spent[OURS]), ("first request of a pair", first)):
        beside = {name: spent[name] for name in names}
        yield from percentiles(what, "ms", ours, beside, goal=GOAL_MS)
    yield Figure(
        "requests that get a path at once",
        100 * mean(placed[OURS]),
        "%",
        better="higher",
        peers={name: 100 * mean(placed[name]) for name in names},
    )


def timed(work: Callable[[], Answer]) -> tuple[Answer, float]:
    """What it says, and milliseconds of processor time: a decision waits for nothing, and what else
    runs on the machine is not in question."""
    began = time.thread_time()
    result = work()
    return result, 1e3 * (time.thread_time() - began)
