"""The k shortest paths: the same as NetworkX finds, in an order that does not depend on chance."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from network_provisioner.topology.paths import PathFinder

NODES = "abcdefgh"
edges = st.dictionaries(
    st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)).filter(lambda e: e[0] < e[1]),
    st.integers(0, 4),
    max_size=20,
)


def slow(
    delays_ms: dict[tuple[str, str], int], ends: set[str], limit: int
) -> list[tuple[str, ...]]:
    """All simple paths, sorted."""
    graph: Any = nx.Graph()
    graph.add_nodes_from(n for n in NODES if n not in ends or n in "ah")
    graph.add_weighted_edges_from(
        (a, b, ms) for (a, b), ms in delays_ms.items() if a in graph and b in graph
    )
    paths = [tuple(p) for p in nx.all_simple_paths(graph, "a", "h")]

    def rank(path: tuple[str, ...]) -> tuple[int, int, tuple[str, ...]]:
        return sum(graph.edges[e]["weight"] for e in pairwise(path)), len(path), path

    return sorted(paths, key=rank)[:limit]


@given(edges, st.sets(st.sampled_from(NODES)), st.integers(0, 12), st.randoms())
def test_the_first_of_all_paths(
    delays_ms: dict[tuple[str, str], int], ends: set[str], limit: int, rng: Any
) -> None:
    links = [(a, b, ms / 1000) for (a, b), ms in delays_ms.items()]
    rng.shuffle(links)
    finder = PathFinder(rng.sample(NODES, len(NODES)), links, ends)
    expected = slow(delays_ms, ends, limit)
    assert finder.k_shortest("a", "h", limit) == expected
    assert finder.k_shortest("a", "h", limit) == expected  # from trees that are kept


def test_no_path_to_oneself_and_none_where_nothing_leads() -> None:
    finder = PathFinder("abc", [("a", "b", 0.1)], "abc")
    assert finder.k_shortest("a", "a", 3) == []
    assert finder.k_shortest("a", "c", 3) == []
    with pytest.raises(KeyError):
        finder.k_shortest("a", "z", 3)


def test_delays_that_differ_by_less_than_a_nanosecond_are_equal() -> None:
    links = [("a", "b", 0.1), ("b", "z", 0.2), ("a", "z", 0.3), ("a", "c", 0.15), ("c", "z", 0.15)]
    finder = PathFinder("abcz", links, "az")
    assert finder.k_shortest("a", "z", 8) == [("a", "z"), ("a", "b", "z"), ("a", "c", "z")]


@given(edges, st.sets(st.sampled_from(NODES)), st.sets(st.sampled_from(NODES)))
def test_the_first_path_over_open_links(
    delays_ms: dict[tuple[str, str], int], ends: set[str], closed: set[str]
) -> None:
    finder = PathFinder(NODES, [(a, b, ms / 1000) for (a, b), ms in delays_ms.items()], ends)
    expected = [
        path
        for path in slow(delays_ms, ends, 10_000)
        if not any(a in closed and a < b for a, b in pairwise(path))
    ]
    best = finder.shortest_open("a", "h", lambda a, b: not (a in closed and a < b))
    assert best == (expected[0] if expected else None)


def test_a_delay_of_centuries_is_still_a_path() -> None:
    finder = PathFinder("abc", [("a", "b", 1e300), ("b", "c", 1e12)], "ac")
    assert finder.k_shortest("a", "c", 3) == [("a", "b", "c")]


def test_a_router_sends_all_packets_to_one_end_the_same_way() -> None:
    """Three switches in a ring, each joined to one router: what comes from the first two leaves
    the router to the third, though over the second it would be there sooner."""
    ring = [("s1", "s2", 0.1), ("s2", "s3", 0.001), ("s1", "s3", 0.1)]
    spokes = [("s1", "r", 0.001), ("s2", "r", 0.001), ("s3", "r", 0.01)]
    sites = [("a", "s1", 0.0), ("b", "s2", 0.0), ("c", "s3", 0.0)]
    finder = PathFinder(
        ["a", "b", "c", "s1", "s2", "s3", "r"], [*ring, *spokes, *sites], "abc", ["r"]
    )
    for src in "ab":
        through = [p for p in finder.k_shortest(src, "c", 20) if "r" in p]
        assert through and {p[p.index("r") + 1] for p in through} == {"s3"}
