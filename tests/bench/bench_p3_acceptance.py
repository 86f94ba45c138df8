"""P3, acceptance: how many requests in time get their rate, held against a linear programme.

Requests come one after the other, some for now and some for later, each with a rate and a time;
a decision is made at once and for good. The bound knows all of them before it accepts the
first, may divide each over all paths that there are, and may accept a part of one: the fractional
multicommodity flow over time. Nobody who decides one by one can reach it. The peers decide for the
same requests in the same order, each with books of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations, islice, pairwise
from random import Random
from typing import Any

import networkx as nx
import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from network_provisioner.base.controller import Capabilities
from network_provisioner.base.model import TransitState
from network_provisioner.selection.limits import BrokerLimits
from network_provisioner.selection.outcomes import Grant
from network_provisioner.selection.path_selector import PathSelector
from network_provisioner.state.ledger import Lane, Ledger, Reservation
from network_provisioner.state.network_state import NetworkState
from network_provisioner.templates.data import template_from_dict
from network_provisioner.templates.template import Template
from network_provisioner.topology.graph import Link, Node, Topology
from tests.bench import Figure, Tell, bench
from tests.made_transit import made_transit

SITES, SWITCHES, CORE_DEGREE = 8, 12, 4
REQUESTS = 240
SLOTS = 40  # of time; a request takes whole ones
SLOT_S = 60.0
WORLDS = 5
CAPACITY = 10e9


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: ``rate_bps`` in the slots from ``start`` to before ``end``, known at ``at``."""

    src: str
    dst: str
    rate_bps: float
    at: int
    start: int
    end: int


def make_network(rng: Random) -> Topology:
    """Sites with two links each into a small world of switches, so that none is cut off by one."""
    core = nx.connected_watts_strogatz_graph(SWITCHES, CORE_DEGREE, 0.3, seed=rng.randrange(2**31))
    nodes = [Node(f"w{i}", "switch", dpid=i + 1) for i in range(SWITCHES)]
    nodes += [Node(f"s{i}", "site", address=f"10.1.{i}.1") for i in range(SITES)]
    ends = [(f"w{a}", f"w{b}") for a, b in core.edges]
    for site in range(SITES):
        ends.append((f"s{site}", f"w{rng.randrange(SWITCHES)}"))
    links = [
        Link(a, b, 4 * CAPACITY if "s" in a + b else CAPACITY, rng.uniform(0.001, 0.01), layer="l2")
        for a, b in ends
    ]
    return Topology(nodes, links)


def make_requests(rng: Random, topology: Topology) -> list[Ask]:
    """For a quarter to all of a link, half of them in advance."""
    asks = []
    for at in sorted(rng.randrange(SLOTS - 12) for _ in range(REQUESTS)):
        src, dst = rng.sample(topology.sites, 2)
        start = at + rng.choice([0, 0, rng.randrange(1, 4), rng.randrange(1, 4)])
        rate = rng.choice([2.5e9, 4e9, 6e9, 10e9])
        asks.append(Ask(src, dst, rate, at, start, start + rng.randrange(2, 9)))
    return asks


def ours(topology: Topology, asks: list[Ask], paths: int) -> int:
    """How many get a grant."""
    ledger = Ledger.of(topology)
    limits = BrokerLimits(reservable=1.0)
    can = Capabilities("none", multipath=True)
    selector = PathSelector(NetworkState(topology, ledger, can=can), limits)
    template = _template(paths)
    accepted = 0
    for number, ask in enumerate(asks):
        transit = made_transit(
            f"t{number}", ask.src, ask.dst, TransitState.QUEUED, requested_bps=ask.rate_bps,
            max_bps=ask.rate_bps, start=ask.start * SLOT_S, end=ask.end * SLOT_S,
        )  # fmt: skip
        verdict = selector.find(transit, template, ask.at * SLOT_S)
        if isinstance(verdict, Grant):
            accepted += ledger.admit(verdict.reservation(transit.id)) is None
    return accepted


def _template(paths: int) -> Template:
    body = {
        "qspec": {"min_throughput": "1 Gb/s", "max_delay": "1 s"},
        "rspec": {"max_throughput": "40 Gb/s"},
        "weights": {"throughput": 0.5, "delay": 0.5},
        "paths": paths,
    }
    return template_from_dict("bench", body)


FindPath = Callable[[Any, Ask, Callable[[str, str], bool]], list[str] | None]


def peer(topology: Topology, asks: list[Ask], find: FindPath) -> int:
    """How many get a path from somebody else's way to find one."""
    ledger, accepted = Ledger.of(topology), 0
    for number, ask in enumerate(asks):
        start, end = ask.start * SLOT_S, ask.end * SLOT_S
        others = [s for s in topology.sites if s not in (ask.src, ask.dst)]
        graph: Any = nx.Graph()
        for link in topology.links:
            if link.a not in others and link.b not in others:
                graph.add_edge(link.a, link.b, delay=link.delay_s)

        def has_room(a: str, b: str, start: float = start, end: float = end) -> bool:
            return ledger.residual((a, b), start, end) >= ask.rate_bps  # noqa: B023

        nodes = find(graph, ask, has_room)
        if nodes is not None:
            lane = Lane(tuple(pairwise(nodes)), ask.rate_bps)
            accepted += ledger.admit(Reservation(str(number), (lane,), start, end)) is None
    return accepted


def shortest_alone(graph: Any, ask: Ask, has_room: Callable[[str, str], bool]) -> list[str] | None:
    """The shortest path or nothing."""
    return _first_fit(graph, ask, has_room, 1)


def first_fit(graph: Any, ask: Ask, has_room: Callable[[str, str], bool]) -> list[str] | None:
    """The first with room of as many shortest paths as ours looks at."""
    return _first_fit(graph, ask, has_room, BrokerLimits().max_paths)


def _first_fit(
    graph: Any, ask: Ask, has_room: Callable[[str, str], bool], most: int
) -> list[str] | None:
    paths = nx.shortest_simple_paths(graph, ask.src, ask.dst, weight="delay")
    fitting = (p for p in islice(paths, most) if all(has_room(a, b) for a, b in pairwise(p)))
    return next(fitting, None)


def with_room(graph: Any, ask: Ask, has_room: Callable[[str, str], bool]) -> list[str] | None:
    """The shortest path of links with room: finds one wherever there is any."""

    def weight(a: str, b: str, edge: dict[str, float]) -> float | None:
        return edge["delay"] if has_room(a, b) else None

    try:
        nodes: list[str] = nx.dijkstra_path(graph, ask.src, ask.dst, weight=weight)
    except nx.NetworkXNoPath:
        return None
    return nodes


def sense(topology: Topology, asks: list[Ask]) -> int:
    """How many have their rate all the time where SENSE's data movement manager divides what there
    is, anew in each slot (github.com/rucio/sense-dmm, its decider).

    It refuses nobody. A linear programme over pairs of sites: within what each site's links and the
    widest path of each pair carry, the highest floor that all pairs can have, and above it the most
    by priority; those of a pair divide theirs. What pairs share inside the network it does not
    look at, so some of it could not be had; that counts in its favour, and so does that its rates
    are not rounded here.
    """
    uplink = {
        site: sum(k.capacity_bps for k in topology.links if site in (k.a, k.b))
        for site in topology.sites
    }
    widest: dict[tuple[str, str], float] = {}
    for a, b in combinations(sorted(topology.sites), 2):
        paths = topology.candidate_paths(a, b, BrokerLimits().max_paths)
        widest[a, b] = max((path.capacity_bps for path in paths), default=0.0)
    kept = set(range(len(asks)))
    for slot in range(SLOTS):
        live = [number for number, ask in enumerate(asks) if ask.start <= slot < ask.end]
        pair_of = {number: _pair(asks[number]) for number in live}
        users = Counter(pair_of.values())
        rates = _divided(users, uplink, widest)
        for number, pair in pair_of.items():
            if rates[pair] / users[pair] < asks[number].rate_bps * (1 - 1e-9):
                kept.discard(number)
    return len(kept)


def _pair(ask: Ask) -> tuple[str, str]:
    return min(ask.src, ask.dst), max(ask.src, ask.dst)


def _divided(
    users: Mapping[tuple[str, str], int],
    uplink: Mapping[str, float],
    widest: Mapping[tuple[str, str], float],
) -> dict[tuple[str, str], float]:
    """Bits per second of each pair with so many requests."""
    pairs = list(users)
    if not pairs:
        return {}
    sites = list(uplink)
    uses = np.array([[float(site in pair) for pair in pairs] for site in sites])
    room = np.array([uplink[site] for site in sites]) / CAPACITY
    most = np.array([widest[pair] for pair in pairs]) / CAPACITY
    degree = uses.sum(axis=1)
    floor = min(most.min(), (room[degree > 0] / degree[degree > 0]).min())
    aim = -np.array([float(users[pair]) for pair in pairs])
    bounds = [(floor * (1 - 1e-9), high) for high in most]
    solution = linprog(aim, uses, room, bounds=bounds, method="highs")
    if solution.status != 0:
        raise AssertionError(f"no optimum: {solution.message}")
    return {pair: CAPACITY * float(rate) for pair, rate in zip(pairs, solution.x, strict=True)}


def bound(topology: Topology, asks: list[Ask]) -> float:
    """The most requests that any way to decide could accept, parts of one counted as parts.

    Variables: how much of each request is accepted, and the part of it on each directed link.
    """
    arcs = [ends for link in topology.links for ends in ((link.a, link.b), (link.b, link.a))]
    carries = [topology.link(a, b).capacity_bps / CAPACITY for a, b in arcs]
    cells: list[tuple[int, int, float]] = []  # of the equalities: row, column, factor
    room: list[tuple[int, int, float]] = []  # of the inequalities
    columns, rows = len(asks), 0
    for number, ask in enumerate(asks):
        nodes = [n for n in topology.nodes if n in (ask.src, ask.dst) or n.startswith("w")]
        row_of = {node: rows + i for i, node in enumerate(nodes)}
        rows += len(nodes)
        for arc, (a, b) in enumerate(arcs):
            if a not in row_of or b not in row_of or b == ask.src or a == ask.dst:
                continue
            cells += [(row_of[a], columns, 1.0), (row_of[b], columns, -1.0)]
            rate = ask.rate_bps / CAPACITY
            room += [(arc * SLOTS + slot, columns, rate) for slot in range(ask.start, ask.end)]
            columns += 1
        cells += [(row_of[ask.src], number, -1.0), (row_of[ask.dst], number, 1.0)]
    limit = np.repeat(carries, SLOTS)
    aim = np.concatenate([-np.ones(len(asks)), np.zeros(columns - len(asks))])
    solution = linprog(
        aim, _sparse(room, len(limit), columns), limit, _sparse(cells, rows, columns),
        np.zeros(rows), bounds=(0, 1), method="highs-ipm",
    )  # fmt: skip
    if solution.status != 0:
        raise AssertionError(f"no optimum: {solution.message}")
    return float(-solution.fun)


def _sparse(cells: list[tuple[int, int, float]], rows: int, columns: int) -> Any:
    where_row, where_column, factor = zip(*cells, strict=True)
    return coo_array((factor, (where_row, where_column)), (rows, columns)).tocsr()


@bench("P3")
def acceptance(tell: Tell) -> Iterable[Figure]:
    """Requests accepted, as a part of what the linear programme accepts."""
    names: dict[str, Callable[[Topology, list[Ask]], float]] = {
        "ours": lambda t, a: ours(t, a, 1),
        "over two paths": lambda t, a: ours(t, a, 2),
        "over three paths": lambda t, a: ours(t, a, 3),
        "shortest path alone": lambda t, a: peer(t, a, shortest_alone),
        "first-fit shortest path": lambda t, a: peer(t, a, first_fit),
        "shortest path with room": lambda t, a: peer(t, a, with_room),
        "SENSE's data movement manager": sense,
    }
    most, accepted = 0.0, dict.fromkeys(names, 0.0)
    for seed in range(WORLDS):
        rng = Random(seed)
        topology = make_network(rng)
        asks = make_requests(rng, topology)
        for name, way in names.items():
            accepted[name] += way(topology, asks)
        tell(f"world {seed}: {REQUESTS} requests; the linear programme of all of them")
        most += bound(topology, asks)
    share = {name: 100 * count / most for name, count in accepted.items()}
    peers = {name: value for name, value in share.items() if name != "ours" and "over" not in name}
    yield Figure(
        "requests accepted, of the bound by linear programming",
        share["ours"],
        "%",
        better="higher",
        peers=peers,
    )
    for name in ("over two paths", "over three paths"):
        yield Figure(
            f"the same, {name} where one has no room",
            share[name],
            "%",
            better="higher",
            peers={"over one": share["ours"], **peers},
        )
    yield Figure(
        "the bound itself, of all requests",
        100 * most / (WORLDS * REQUESTS),
        "%",
        better="higher",
    )
