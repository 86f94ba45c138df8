"""Splitting: paths that one switch can divide packets over, rates that add up and fit."""

from __future__ import annotations

from itertools import combinations

import pytest
from decide_rig import network
from hypothesis import assume, given
from hypothesis import strategies as st

from network_provisioner.selection.split import divisible, largest_split, split
from network_provisioner.topology.graph import Hop, Path, Topology

SWITCHES = frozenset("pqrxyz")
NET = network(
    {"A-p": 90, "p-x": 9, "p-y": 9, "p-z": 9, "x-q": 9, "y-q": 9, "z-q": 9, "x-y": 9, "q-r": 9,
     "y-r": 9, "r-B": 90, "A-x": 9}
)  # fmt: skip


def paths(*words: str, topology: Topology = NET) -> list[Path]:
    return [topology.path(word) for word in words]


@pytest.mark.parametrize(
    ("words", "can"),
    [
        (("ApxqrB", "ApyqrB"), True),  # part at p, join at q
        (("ApxqrB", "ApyrB"), True),  # join at r
        (("ApxqrB", "ApyqrB", "ApzqrB"), True),
        (("ApxqrB", "ApxyrB"), True),  # part at x
        (("ApxqrB", "ApxyrB", "ApzqrB"), False),  # at p and at x: two switches
        (("ApxyqrB", "ApyqrB"), True),  # y is where they join
        (("ApxyqrB", "ApyrB"), False),  # meet at y, and part again
        (("ApxqrB", "AxqrB"), False),  # only the site could divide
        (("ApxqrB", "ApxqrB"), False),  # the same
    ],
)
def test_which_paths_one_switch_can_divide(words: tuple[str, ...], can: bool) -> None:
    for order in (words, words[::-1]):
        assert divisible(paths(*order), SWITCHES) == can
    assert not divisible(paths(*words), SWITCHES - {"p", "x"})


def test_shares_are_in_proportion_to_what_each_carries() -> None:
    room = {("p", "x"): 60, ("p", "y"): 20}
    ways = split(paths("ApxqrB", "ApyqrB"), lambda hop: room.get(hop, 100), 40, 120, 2, SWITCHES)
    assert ways is not None
    assert [(way.min_bps, way.max_bps) for way in ways] == [(30, 90), (10, 30)]


def test_a_link_of_both_counts_for_both() -> None:
    both = paths("ApxqrB", "ApyqrB")
    for shared, enough in ((50, True), (49, False)):
        room = {("q", "r"): shared, ("p", "x"): 30, ("p", "y"): 30}
        ways = split(both, lambda hop, room=room: room.get(hop, 100), 50, 50, 2, SWITCHES)
        assert (ways is not None) == enough
        assert largest_split(both, lambda hop, room=room: room.get(hop, 100), 2, SWITCHES) == shared


def test_the_fewest_paths_and_of_those_the_first() -> None:
    three = paths("ApxqrB", "ApyqrB", "ApzqrB")

    def taken(need: int, most: int) -> list[str]:
        ways = split(three, lambda hop: 10 if hop[0] == "p" else 100, need, need, most, SWITCHES)
        return ["".join(way.path.nodes) for way in ways or ()]

    assert taken(20, 3) == ["ApxqrB", "ApyqrB"]
    assert taken(21, 3) == ["ApxqrB", "ApyqrB", "ApzqrB"]
    assert taken(21, 2) == []
    assert taken(31, 3) == []


CANDIDATES = NET.candidate_paths("A", "B", 20)
rooms = st.fixed_dictionaries({hop: st.integers(0, 40) for path in CANDIDATES for hop in path.hops})


@given(rooms, st.integers(1, 80), st.integers(2, 4), st.integers(0, 100))
def test_what_is_split_fits_and_adds_up(
    room: dict[Hop, int], need: int, most: int, more: int
) -> None:
    ways = split(CANDIDATES, room.__getitem__, need, need + more, most, SWITCHES)
    if ways is None:
        return
    assert 2 <= len(ways) <= most
    assert sum(way.min_bps for way in ways) == need
    assert sum(way.max_bps for way in ways) == pytest.approx(need + more)
    assert all(0 < way.min_bps <= way.max_bps for way in ways)
    assert divisible([way.path for way in ways], SWITCHES)
    load: dict[Hop, int] = {}
    for way in ways:
        for hop in way.path.hops:
            load[hop] = load.get(hop, 0) + way.min_bps
    assert all(bps <= room[hop] for hop, bps in load.items())


@given(rooms, st.integers(2, 80))
def test_two_paths_are_found_wherever_two_carry_what_one_does_not(
    room: dict[Hop, int], need: int
) -> None:
    free = {path.nodes: min(room[hop] for hop in path.hops) for path in CANDIDATES}
    assume(max(free.values()) < need)

    def together(first: Path, second: Path) -> int:
        shared = set(first.hops) & set(second.hops)
        return min([free[first.nodes] + free[second.nodes], *(room[hop] for hop in shared)])

    pairs = [pair for pair in combinations(CANDIDATES, 2) if divisible(pair, SWITCHES)]
    ways = split(CANDIDATES, room.__getitem__, need, need, 2, SWITCHES)
    assert (ways is not None) == any(together(*pair) >= need for pair in pairs)
