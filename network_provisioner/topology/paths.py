"""The k shortest loop-free paths between two sites (Yen, Management Science 17, 1971).

    one tree of shortest ways to the destination ─► guides every search towards it ─► k paths

Yen's algorithm makes a search for every node of every path found. Here a search knows from the
destination's tree how far each node is at least (A*), so it touches little more than the path it
finds. Trees are kept, one for a destination. Lawler's rule leaves out searches that were made
before (Management Science 18, 1972).

Exact: delays are whole nanoseconds, and among equally long paths fewer hops, then names in
alphabetical order, go first; so the answer does not depend on how a network was written down.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import NamedTuple

TREES_KEPT = 1024  # of a number per node each
MOST_LOOKED_AT = 400  # nodes, in one search for an open path

_FAR = 1 << 128
_LONGEST_S = 1e9  # stands for any longer delay
_HOP = 1  # what one hop costs beside its delay: decides between equal delays
_NANOSECOND = 1 << 20  # more than the hops of any path

Nodes = tuple[int, ...]


class _Found(NamedTuple):
    """A path that may be the next: its cost, its nodes, and where it left an earlier one."""

    cost: int
    nodes: Nodes
    left_at: int


class PathFinder:
    """Finds paths in one network that does not change."""

    def __init__(
        self,
        nodes: Iterable[str],
        links: Iterable[tuple[str, str, float]],
        ends: Collection[str],
        routers: Collection[str] = (),
    ) -> None:
        """``links``: two neighbours and the delay between them in seconds. No path leads through a
        node of ``ends``. Of ``routers`` each sends all packets to one end the same way: over the
        fewest hops, then with the least delay."""
        self._names = sorted(nodes)  # so that numbers are in alphabetical order
        self._number = {name: number for number, name in enumerate(self._names)}
        self._next: list[dict[int, int]] = [{} for _ in self._names]
        for a, b, delay_s in links:
            cost = round(min(delay_s, _LONGEST_S) * 1e9) * _NANOSECOND + _HOP
            self._next[self._number[a]][self._number[b]] = cost
            self._next[self._number[b]][self._number[a]] = cost
        self._ends = {self._number[name] for name in ends}
        self._routers = {self._number[name] for name in routers}
        self._tree = lru_cache(TREES_KEPT)(self._grown)
        self._routed_to = lru_cache(TREES_KEPT)(self._routes)

    def k_shortest(self, src: str, dst: str, limit: int) -> list[tuple[str, ...]]:
        """Up to ``limit`` loop-free paths, least delay first; none where nothing joins the two.

        Raises KeyError for an unknown node.
        """
        start, end = self._number[src], self._number[dst]
        far = self._tree(end)
        if start == end:
            return []
        first = self._search((start,), 0, end, frozenset(), far, _FAR)
        waiting: list[_Found] = [] if first is None else [first]  # in order
        taken: list[Nodes] = []
        while waiting and len(taken) < limit:
            path = waiting.pop(0)
            taken.append(path.nodes)
            if len(taken) < limit:
                self._spurs(path, taken, end, far, waiting, limit - len(taken))
        return [tuple(self._names[i] for i in nodes) for nodes in taken]

    def shortest_open(
        self, src: str, dst: str, is_open: Callable[[str, str], bool]
    ) -> tuple[str, ...] | None:
        """The path of least delay over links, from the first node to the second, that are open;
        None where there is none, or the search has gone on for too long.

        Raises KeyError for an unknown node.
        """
        start, end, names = self._number[src], self._number[dst], self._names
        if not any(is_open(names[near], dst) for near in self._next[end]):
            return None  # so that a full last link does not have everything else looked at
        nodes = self._search((start,), 0, end, frozenset(), self._tree(end), _FAR, is_open)
        return None if nodes is None else tuple(names[i] for i in nodes.nodes)

    def _spurs(
        self,
        path: _Found,
        taken: list[Nodes],
        end: int,
        far: list[int],
        waiting: list[_Found],
        wanted: int,
    ) -> None:
        """Adds the shortest paths that leave this one at each of its nodes and are not taken, as
        far as they can be among the ``wanted`` next ones."""
        nodes, cost = path.nodes, 0
        for at in range(len(nodes) - 1):
            if at >= path.left_at:  # before that, they were looked for from an earlier path
                root = nodes[: at + 1]
                closed = frozenset(other[at + 1] for other in taken if other[: at + 1] == root)
                most = waiting[wanted - 1].cost if len(waiting) >= wanted else _FAR
                spur = self._search(root, cost, end, closed, far, most)
                if spur is not None:
                    insort(waiting, spur)
                    del waiting[wanted:]
            cost += self._next[nodes[at]][nodes[at + 1]]

    def _search(
        self,
        root: Nodes,
        cost: int,
        end: int,
        closed: frozenset[int],
        far: list[int],
        most: int,
        is_open: Callable[[str, str], bool] | None = None,
    ) -> _Found | None:
        """The shortest path that begins with ``root``, does not go on to a ``closed`` node, and
        costs ``most`` at most; over links that are open where ``is_open`` says which, as far as it
        is found soon."""
        ends, left_at, names = self._ends, len(root) - 1, self._names
        done = set(root[:-1])
        routed_to = self._routed_to(end) if self._routers else {}
        heap: list[tuple[int, Nodes, int]] = [(cost + far[root[-1]], root, cost)]
        while heap and (is_open is None or len(done) < MOST_LOOKED_AT):
            least, nodes, cost = heapq.heappop(heap)
            here = nodes[-1]
            if here == end:
                return _Found(least, nodes, left_at)
            if here in done:
                continue
            done.add(here)
            for there, step in self._next[here].items():
                if there in done or far[there] >= _FAR or (there in ends and there != end):
                    continue
                if routed_to.get(here, there) != there:
                    continue
                if closed and len(nodes) == left_at + 1 and there in closed:
                    continue
                on = cost + step
                if on + far[there] > most:
                    continue
                if is_open is None or is_open(names[here], names[there]):
                    heapq.heappush(heap, (on + far[there], (*nodes, there), on))
        return None

    def _routes(self, end: int) -> dict[int, int]:
        """Where each router sends packets to ``end``."""
        far = self._grown(end, _FAR >> 32)
        return {
            here: min(self._next[here], key=lambda there: (far[there], there))
            for here in self._routers
            if self._next[here]
        }

    def _grown(self, end: int, hop: int = 0) -> list[int]:
        """The cost from every node to ``end``, with so much more for each hop."""
        far = [_FAR] * len(self._names)
        far[end] = 0
        heap = [(0, end)]
        while heap:
            cost, here = heapq.heappop(heap)
            if cost > far[here] or (here in self._ends and here != end):
                continue  # a site can be where a path begins, and nothing leads through it
            for there, step in self._next[here].items():
                if cost + step + hop < far[there]:
                    far[there] = cost + step + hop
                    heapq.heappush(heap, (far[there], there))
        return far
