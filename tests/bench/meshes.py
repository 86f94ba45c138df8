"""Networks of 500 hosts, and measurements between them as perfSONAR's users set them up.

Nothing here knows how measurements are scheduled: groups of hosts measure each other in full
meshes, each mesh with a tool, a period and a duration that are common for that tool.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from monitors.measurements.tasks import LinkId, Task

HOSTS = 500
TASKS = 10_000
HOUR_MS = 3_600_000

Graph = Mapping[str, Mapping[str, float]]
"""Neighbours of each node, and how far away they are."""


@dataclass(frozen=True, slots=True)
class Tool:
    """How often (weight), how long (ms) and with which periods (h) a tool is used."""

    weight: int
    durations_ms: tuple[int, ...]
    periods_h: tuple[int, ...]
    load_bps: float


TOOLS = {
    "echo": Tool(30, (1_000, 2_000, 5_000), (1, 2, 4), 1e5),
    "trace": Tool(15, (3_000, 5_000), (2, 4, 6), 2e4),
    "udp": Tool(20, (5_000, 10_000), (4, 6, 12), 1e8),
    "tcp": Tool(35, (5_000, 10_000, 20_000), (6, 12, 24), 1e9),
}

# Internet2's Abilene, 11 places and 14 links: https://sndlib.put.poznan.pl (distances in 100 km).
ABILENE = (
    ("Seattle", "Sunnyvale", 11.4), ("Seattle", "Denver", 16.4), ("Sunnyvale", "LosAngeles", 5.0),
    ("Sunnyvale", "Denver", 15.1), ("LosAngeles", "Houston", 22.1), ("Denver", "KansasCity", 9.0),
    ("KansasCity", "Houston", 10.4), ("KansasCity", "Indianapolis", 7.3),
    ("Houston", "Atlanta", 11.3), ("Atlanta", "Indianapolis", 6.9), ("Atlanta", "Washington", 8.7),
    ("Indianapolis", "Chicago", 2.7), ("Chicago", "NewYork", 11.5), ("NewYork", "Washington", 3.3),
)  # fmt: skip


def join(graph: defaultdict[str, dict[str, float]], a: str, b: str, far: float) -> None:
    """A link."""
    graph[a][b] = graph[b][a] = far


def abilene(rng: Random) -> tuple[Graph, list[str]]:
    """A national research network: campuses of very different size at its 11 places, a few of them
    behind a regional network."""
    graph: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for a, b, far in ABILENE:
        join(graph, a, b, far)
    places = sorted(graph)
    hosts: list[str] = []
    for campus in range(10_000):
        if len(hosts) >= HOSTS:
            break
        place, name = rng.choice(places), f"campus{campus}"
        if rng.random() < 0.3:
            join(graph, place, f"regional-{place}", 0.5)
            place = f"regional-{place}"
        join(graph, place, name, 0.5)
        for number in range(min(HOSTS - len(hosts), 30, int(2 * rng.paretovariate(1.1)))):
            hosts.append(f"{name}-host{number}")
            join(graph, name, hosts[-1], 0.01)
    return graph, hosts


def random_net(rng: Random) -> tuple[Graph, list[str]]:
    """Waxman's random network (IEEE JSAC 6(9), 1988) of 100 routers, hosts anywhere."""
    graph: defaultdict[str, dict[str, float]] = defaultdict(dict)
    at = [(rng.random(), rng.random()) for _ in range(100)]
    for b in range(1, len(at)):
        near = min(range(b), key=lambda a: math.dist(at[a], at[b]))  # so that it is one network
        join(graph, f"r{near}", f"r{b}", math.dist(at[near], at[b]))
        for a in range(b):
            far = math.dist(at[a], at[b])
            if rng.random() < 0.4 * math.exp(-far / (0.14 * math.sqrt(2))):
                join(graph, f"r{a}", f"r{b}", far)
    hosts = [f"host{n}" for n in range(HOSTS)]
    for host in hosts:
        join(graph, f"r{rng.randrange(len(at))}", host, 0.001)
    return graph, hosts


def leaf_spine(rng: Random) -> tuple[Graph, list[str]]:
    """A data centre: 25 leaves of 20 hosts, 5 spines; each pair of leaves has its spine."""
    graph: defaultdict[str, dict[str, float]] = defaultdict(dict)
    hosts = []
    for leaf in range(25):
        for spine in range(5):
            join(graph, f"leaf{leaf}", f"spine{spine}", 1 + rng.random() / 100)
        for number in range(HOSTS // 25):
            hosts.append(f"leaf{leaf}-host{number}")
            join(graph, f"leaf{leaf}", hosts[-1], 0.1)
    return graph, hosts


def tree(rng: Random) -> tuple[Graph, list[str]]:
    """A university: a core, 6 faculties of different size, 40 buildings, hosts."""
    graph: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for faculty in range(6):
        join(graph, "core", f"faculty{faculty}", 1.0)
    for building in range(40):
        join(graph, f"faculty{min(rng.randrange(6), rng.randrange(6))}", f"building{building}", 1.0)
    hosts = [f"host{n}" for n in range(HOSTS)]
    for host in hosts:
        join(graph, f"building{min(rng.randrange(40), rng.randrange(40))}", host, 0.1)
    return graph, hosts


NETWORKS: Mapping[str, Callable[[Random], tuple[Graph, list[str]]]] = {
    "abilene": abilene,
    "random": random_net,
    "leaf-spine": leaf_spine,
    "tree": tree,
}


def links_from(graph: Graph, start: str) -> dict[str, frozenset[LinkId]]:
    """The links of the shortest way to every node."""
    by_node: dict[str, frozenset[LinkId]] = {}
    heap: list[tuple[float, str, frozenset[LinkId]]] = [(0.0, start, frozenset())]
    while heap:
        far, node, links = heapq.heappop(heap)
        if node in by_node:
            continue
        by_node[node] = links
        for other, more in graph[node].items():
            if other not in by_node:
                link = (node, other) if node < other else (other, node)
                heapq.heappush(heap, (far + more, other, links | {link}))
    return by_node


def measurements(network: str, seed: int, within: tuple[float, ...] = (1.0,)) -> list[Task]:
    """``TASKS`` tasks on one of ``NETWORKS``. ``within``: the parts of its period within which a
    mesh's measurements are due, one of them for each mesh."""
    rng = Random(f"{network}/{seed}")
    graph, hosts = NETWORKS[network](rng)
    ways: dict[str, dict[str, frozenset[LinkId]]] = {}
    tasks: list[Task] = []
    while len(tasks) < TASKS:
        size = min(30, max(3, int(4 * rng.paretovariate(1.3))))
        mesh = rng.sample(hosts, size)
        tool = rng.choices(sorted(TOOLS), [TOOLS[name].weight for name in sorted(TOOLS)])[0]
        period_ms = HOUR_MS * rng.choice(TOOLS[tool].periods_h)
        duration_ms = rng.choice(TOOLS[tool].durations_ms)
        deadline_ms = int(period_ms * rng.choice(within))
        for src in mesh:
            ways[src] = ways.get(src) or links_from(graph, src)
            for dst in mesh:
                if src != dst and len(tasks) < TASKS:
                    tasks.append(
                        Task(
                            f"{len(tasks)} {tool} {src}>{dst}", period_ms, duration_ms, deadline_ms,
                            frozenset((src, dst)), ways[src][dst], TOOLS[tool].load_bps,
                        )
                    )  # fmt: skip
    return tasks
