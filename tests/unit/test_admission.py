"""Admission: where and when a request fits, who is moved for it, and why it has to wait."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from decide_rig import NOW, Desk, network, nodes_of, template
from hypothesis import given, settings
from hypothesis import strategies as st
from made_transit import made_transit

from network_provisioner.base.model import Transit, TransitState
from network_provisioner.selection.admission import is_before
from network_provisioner.selection.outcomes import Grant, Never, Wait
from network_provisioner.selection.push import reroutes
from network_provisioner.selection.split import divisible
from network_provisioner.state.ledger import Reservation
from network_provisioner.state.waitlist import Claim

# Two ways from A and B to C and D, which part at p and join at q.
TWO_WAYS = {"A-p": 100, "B-p": 100, "p-x": 50, "x-q": 50, "p-y": 30, "y-q": 30, "q-C": 100,
            "q-D": 100}  # fmt: skip
X, Y = "ApxqC", "ApyqC"


def desk(**more: Any) -> Desk:
    delays = {"p-y": 0.010}
    return Desk(network(TWO_WAYS, delays), template(**more))


def waits(verdict: Any) -> Wait:
    assert isinstance(verdict, Wait), verdict
    return verdict


def never(verdict: Any) -> Never:
    assert isinstance(verdict, Never), verdict
    return verdict


def test_in_advance_only_its_own_time_counts() -> None:
    admission = desk()
    assert nodes_of(admission.ask("later", "A", "C", 50, start=NOW + 100)) == [X]
    assert nodes_of(admission.ask("now", "A", "C", 50)) == [X]
    assert nodes_of(admission.ask("both", "A", "C", 30, lease_s=101)) == [Y]
    full = waits(admission.ask("too-long", "A", "C", 20, lease_s=101))
    assert full.earliest == NOW + 101


@pytest.mark.parametrize(
    ("asked_at", "priority", "before"),
    [(NOW - 1, 1, True), (NOW, 2, True), (NOW - 1, 0, True), (NOW, 1, False), (NOW + 1, 1, False)],
)
def test_who_asked_earlier_or_has_a_higher_priority_is_before(
    asked_at: float, priority: int, before: bool
) -> None:
    def queued(name: str, **more: Any) -> Transit:
        return made_transit(name, "A", "C", TransitState.QUEUED, **more)

    wanted = queued("wanted", requested_at=NOW, priority=1)
    assert is_before(queued("other", requested_at=asked_at, priority=priority), wanted) == before
    assert not is_before(wanted, wanted)


def test_what_is_likely_is_what_the_roomiest_path_leaves() -> None:
    admission = desk()
    transit = admission.transit("t", "A", "C", 5, max_bps=80)
    assert admission.selector.likely_bps(transit, NOW) == 50
    admission.ask("x", "A", "C", 45)
    assert admission.selector.likely_bps(transit, NOW) == 30
    assert admission.selector.likely_bps(transit, NOW + 20) == 50
    admission.ask("y", "B", "D", 28)
    assert admission.selector.likely_bps(transit, NOW) == 5  # never below what it would be promised
    assert admission.selector.likely_bps(admission.transit("t", "A", "C", 1, max_bps=3), NOW) == 3


def test_a_path_with_room_for_some_leaves_the_next_one_as_it_was() -> None:
    """Both of two transits go to one path; the first that is tried has room for one of them."""
    links = {"A-p": 200, "p-x": 60, "x-q": 60, "p-w": 60, "w-u": 30, "u-q": 30, "w-v": 60,
             "v-q": 60, "q-C": 200}  # fmt: skip
    admission = Desk(network(links, {"w-v": 0.010}))
    admission.hold("m", X, 30)
    admission.hold("n", X, 30)
    admission.together = [{"m", "n"}]
    members = admission.movable("m", admission.transit("new", "A", "C", 1, priority=9))
    moves = reroutes(admission.ledger, members, ("p", "x"), NOW)
    assert [(move.id, "".join(move.ways[0].path.nodes)) for move in moves] == [
        ("m", "ApwvqC"), ("n", "ApwvqC")
    ]  # fmt: skip


def test_a_wait_names_links_holders_and_the_earliest_start() -> None:
    admission = desk()
    admission.ask("x", "A", "C", 45, lease_s=60)
    admission.ask("y", "B", "D", 25, lease_s=30)
    wait = waits(admission.ask("t", "A", "C", 20))
    assert wait.earliest == NOW + 30
    blocked = {(b.hop, b.free_bps, b.holders) for b in wait.blocking}
    assert blocked == {
        (("p", "x"), 5, ("x",)),
        (("x", "q"), 5, ("x",)),
        (("p", "y"), 5, ("y",)),
        (("y", "q"), 5, ("y",)),
    }
    assert wait.blocking[0].as_dict() == {"link": "p>x", "free_bps": 5, "holders": ["x"]}
    assert "held by x" in wait.reason and "held by y" in wait.reason
    assert "earliest start 1970-01-01T00:17:10Z" in wait.reason
    # From its earliest start on, also on what has room now; what lacks it is told apart.
    assert wait.claims()["p", "y"] == Claim("t", NOW + 30, NOW + 40, 20, 10, likely=NOW + 30)
    assert wait.claims()["A", "p"] == replace(wait.claims()["p", "y"], lacks=False)


def test_an_end_that_waiting_only_shortens() -> None:
    admission = desk()
    admission.ask("x", "A", "C", 45, lease_s=60)
    admission.ask("y", "A", "C", 25, lease_s=60)
    assert waits(admission.ask("t", "A", "C", 20, end=NOW + 90)).earliest == NOW + 60
    assert waits(admission.ask("t", "A", "C", 20, end=NOW + 50)).earliest == NOW + 60
    gone = admission.decide(admission.transit("t", "A", "C", 20, end=NOW + 50), NOW + 50)
    assert "has passed" in never(gone).reason


@pytest.mark.parametrize(
    ("ask", "more", "words"),
    [
        (("A", "E", 10), {}, "no path joins A and E"),
        (("A", "C", 51), {}, "free, 51 b/s needed"),
        (("A", "C", 10), {"max_delay": "1 ms"}, "at most 0.001 allowed"),
    ],
)
def test_what_no_waiting_helps(ask: Any, more: dict[str, Any], words: str) -> None:
    admission = Desk(network({**TWO_WAYS, "E-F": 1}), template(qspec={"min_throughput": 1, **more}))
    verdict = never(admission.ask("t", *ask))
    assert words in verdict.reason


# ---------------------------------------------------------------- claims of those who wait before


def test_what_somebody_before_waits_for_is_left_alone_while_the_times_overlap() -> None:
    admission = desk()
    claim = {("p", "x"): [Claim("first", NOW, NOW + 50)]}
    assert nodes_of(admission.decide(admission.transit("t", "A", "C", 20), claimed=claim)) == [Y]
    wait = waits(admission.decide(admission.transit("t", "A", "C", 40), claimed=claim))
    assert wait.earliest == NOW + 50
    assert "first waits for it first" in wait.reason
    assert [(b.hop, b.holders) for b in wait.blocking] == [(("p", "x"), ("first",))]
    later = admission.transit("t", "A", "C", 40, start=NOW + 50)
    assert nodes_of(admission.decide(later, claimed=claim)) == [X]


def test_what_is_done_before_somebody_else_can_start_begins_before_it() -> None:
    admission = desk()
    claim = {("p", "x"): [Claim("first", NOW + 30, NOW + 90, 40)]}
    # 90 s are reserved for 30 s of work, which a claim from then on cuts short.
    brief = admission.transit("t", "A", "C", 40, size_bytes=130, lease_s=90)
    grant = admission.decide(brief, claimed=claim)
    assert nodes_of(grant) == [X] and isinstance(grant, Grant)
    assert (grant.end, grant.done) == (NOW + 30, pytest.approx(NOW + 29.6))
    assert grant.early
    assert "starts ahead of first, with a path until" in grant.reason
    long = admission.transit("t", "A", "C", 40, size_bytes=140, lease_s=90)
    assert waits(admission.decide(long, claimed=claim)).earliest == NOW + 90
    beside = admission.decide(admission.transit("t", "A", "C", 10, lease_s=90), claimed=claim)
    assert nodes_of(beside) == [X] and isinstance(beside, Grant)  # there is room for both
    assert (beside.end, beside.early) == (NOW + 90, False)


def test_a_claim_without_an_end_leaves_the_start_unknown() -> None:
    admission = desk()
    claim = {("p", "x"): [Claim("first", NOW, math.inf)]}
    wait = waits(admission.decide(admission.transit("t", "A", "C", 40), claimed=claim))
    assert wait.earliest is None and "earliest" not in wait.reason


# ---------------------------------------------------------------- several paths


def test_a_request_is_split_where_the_template_allows_it() -> None:
    assert "60 b/s needed" in never(desk().ask("t", "A", "C", 60)).reason
    admission = desk(paths=2)
    grant = admission.ask("t", "A", "C", 60, max_bps=120)
    assert nodes_of(grant) == [X, Y]
    assert isinstance(grant, Grant)
    assert [part.min_bps for part in grant.parts] == [38, 22]
    assert sum(part.max_bps for part in grant.parts) == pytest.approx(120)
    assert grant.reason.startswith("split over LAN A-p-x-q-C with 38 b/s and LAN A-p-y-q-C with 22")
    assert admission.ledger.residual(("A", "p"), NOW, NOW + 1) == 40


def test_a_path_with_room_is_found_where_no_candidate_has_any() -> None:
    admission = Desk(network(TWO_WAYS, {"p-y": 0.01}), template(), max_paths=1)
    assert nodes_of(admission.ask("x", "A", "C", 45)) == [X]
    grant = admission.ask("t", "A", "C", 20)
    assert nodes_of(grant) == [Y]
    assert "LAN A-p-x-q-C: 5 b/s free, 20 b/s needed" in grant.reason
    admission.ask("y", "A", "C", 10)
    assert isinstance(admission.ask("z", "A", "C", 10), Wait)


def test_the_largest_path_is_a_candidate_however_long_it_is() -> None:
    links = {"A-p": 100, "q-C": 100, "p-q": 10, "p-x": 40, "x-q": 40, "p-y": 90, "y-q": 80}
    admission = Desk(network(links, {"p-x": 0.01, "p-y": 0.02}), template(), max_paths=1)
    assert ["".join(p.nodes) for p in admission.selector.paths("A", "C")] == ["ApqC", "ApyqC"]
    assert admission.selector.largest("A", "C") == 80
    assert nodes_of(admission.ask("t", "A", "C", 80)) == ["ApyqC"]
    assert isinstance(admission.ask("u", "A", "C", 50), Wait)
    assert "81 b/s needed" in never(admission.ask("v", "A", "C", 81)).reason


# ---------------------------------------------------------------- moving lower priorities


def test_a_higher_priority_moves_a_lower_one() -> None:
    admission = desk()
    admission.ask("low", "A", "C", 25, priority=1)
    grant = admission.ask("high", "B", "D", 40, priority=5)
    assert nodes_of(grant) == ["BpxqD"]
    assert isinstance(grant, Grant)
    assert [str(move) for move in grant.moves] == ["low moves from p>x to A-p-y-q-C"]
    assert "LAN B-p-x-q-D has room once lower priorities make it: low moves" in grant.reason
    assert admission.ledger.residual(("p", "y"), NOW, NOW + 1) == 5
    assert admission.ledger.reservations["low"].end == NOW + 10


def test_never_below_never_off_never_up() -> None:
    admission = desk()
    admission.ask("low", "A", "C", 40, priority=1)  # fits nowhere else
    admission.ask("peer", "A", "C", 10, priority=5)
    assert waits(admission.ask("high", "B", "D", 40, priority=5)).links == {("p", "x"), ("x", "q")}


def test_the_fewest_are_moved_and_of_those_the_lowest_and_largest() -> None:
    admission = desk()
    for name, bps, priority in (("a", 10, 2), ("b", 10, 1), ("c", 15, 1)):
        admission.hold(name, X, bps, priority=priority)
    admission.hold("filler", Y, 5, priority=9)

    def moved(low: float) -> list[str]:
        grant = admission.decide(admission.transit("high", "B", "D", low, priority=5))
        assert isinstance(grant, Grant)
        return ["".join(grant.path.nodes), *(move.id for move in grant.moves)]

    assert moved(25) == ["BpyqD"]
    assert moved(30) == ["BpxqD", "c"]
    assert moved(36) == ["BpxqD", "c", "b"]
    assert isinstance(admission.decide(admission.transit("high", "B", "D", 41, priority=5)), Wait)


def test_many_small_ones_are_moved_too() -> None:
    admission = desk()
    for number in range(8):
        admission.hold(f"h{number}", X, 5, priority=1)

    def moves(low: float) -> int:
        verdict = admission.decide(admission.transit("high", "B", "D", low, priority=5))
        return len(verdict.moves) if isinstance(verdict, Grant) else 0

    assert [moves(low) for low in (31, 36, 41)] == [5, 6, 0]  # y has room for six of them


def test_transits_of_one_pair_move_together_in_both_directions() -> None:
    admission = desk()
    admission.together = [{"there", "back"}]
    admission.ask("there", "A", "C", 20, priority=1)
    admission.ask("back", "C", "A", 15, priority=1)
    grant = admission.ask("high", "B", "D", 45, priority=5)
    assert isinstance(grant, Grant)
    moved = {move.id: "".join(move.ways[0].path.nodes) for move in grant.moves}
    assert moved == {"there": "ApyqC", "back": "CqypA"}


def test_one_part_of_a_split_transit_moves() -> None:
    links = {**TWO_WAYS, "p-z": 40, "z-q": 40}
    admission = Desk(network(links, {"p-y": 0.01, "p-z": 0.1}), template(paths=2))
    assert nodes_of(admission.ask("low", "A", "C", 60, priority=1)) == [X, Y]
    admission.template = template()
    grant = admission.ask("high", "B", "D", 45, priority=5)
    assert isinstance(grant, Grant) and nodes_of(grant) == ["BpxqD"]
    assert [str(move) for move in grant.moves] == ["low moves from p>x to A-p-z-q-C and A-p-y-q-C"]


# ---------------------------------------------------------------- whatever comes

MESH = {"A-p": 90, "B-p": 60, "p-x": 50, "x-q": 40, "p-y": 30, "y-q": 30, "x-y": 20, "p-q": 15,
        "q-C": 80, "q-D": 60, "D-y": 20}  # fmt: skip
sites = st.permutations("ABCD")
rates = st.integers(1, 60) | st.sampled_from([10, 15, 20, 25, 30])
starts = st.just(0) | st.integers(0, 6)
asks = st.tuples(sites, rates, st.integers(0, 3), starts, st.integers(1, 9))
worlds = st.tuples(st.lists(asks, max_size=12), st.integers(1, 3))


def fill(requests: list[Any], paths: int) -> Desk:
    admission = Desk(network(MESH, {"p-y": 0.002, "p-q": 0.003}), template(paths=paths))
    for number, ask in enumerate(requests):
        request(admission, f"h{number}", ask)
    return admission


def request(made: Desk, name: str, ask: Any) -> Any:
    (src, dst, *_), low, priority, start, lease = ask
    return made.ask(
        name, src, dst, low, priority=priority, start=NOW + start if start else 0, lease_s=lease
    )


@settings(max_examples=60, deadline=None)
@given(worlds, asks)
def test_grants_fit_and_waits_are_as_short_as_can_be(world: Any, ask: Any) -> None:
    made = fill(*world)
    (src, dst, *_), low, priority, start, lease = ask
    before = {r.id: r for r in made.ledger.reservations.values()}
    transit = made.transit(
        "new", src, dst, low, priority=priority, start=NOW + start if start else 0, lease_s=lease
    )
    begin = max(NOW, transit.request.start)
    verdict = made.decide(transit)
    assert made.ledger.reservations == before
    if isinstance(verdict, Grant):
        check_grant(made, transit, verdict, before)
        return
    assert made.decide(transit, push=False) == verdict
    if isinstance(verdict, Never):
        assert low > made.selector.largest(src, dst, made.template.paths)
        return
    assert verdict.blocking and all(
        b.free_bps < low and set(b.holders) <= set(before) for b in verdict.blocking
    )
    assert verdict.earliest is not None and verdict.earliest > begin
    for half in range(1, 2 * int(verdict.earliest - begin) + 1):
        at = begin + half / 2
        transit.request = replace(transit.request, start=at)
        now = made.decide(transit, at, push=False)
        assert isinstance(now, Grant) == (at == verdict.earliest)


def check_grant(made: Desk, transit: Any, grant: Grant, before: dict[str, Reservation]) -> None:
    need = transit.request.min_bps
    assert sum(part.min_bps for part in grant.parts) == need
    assert len(grant.parts) <= made.template.paths
    if len(grant.parts) > 1:
        assert divisible([part.path for part in grant.parts], made.selector.switches)
    for part in grant.parts:
        assert (part.path.nodes[0], part.path.nodes[-1]) == (
            transit.request.src,
            transit.request.dst,
        )
        assert 0 < part.min_bps <= part.max_bps
    for move in grant.moves:
        moved = made.held[move.id][0]
        assert moved.request.priority < transit.request.priority
        assert sum(way.min_bps for way in move.ways) == moved.request.min_bps
        assert all(
            (w.path.nodes[0], w.path.nodes[-1]) == (moved.request.src, moved.request.dst)
            for w in move.ways
        )
    made.carry_out(transit, grant)
    assert made.ledger.reservations.keys() == {*before, "new"}
    assert all(made.ledger.reservations[name].end == r.end for name, r in before.items())
    loads = made.ledger._links.values()
    assert all(0 <= link.fullest(-math.inf, math.inf)[0] <= link.capacity for link in loads)
