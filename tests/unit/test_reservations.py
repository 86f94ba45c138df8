"""The ledger: never oversubscribed, all or nothing, and empty again when everything is released."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from broker_rig import demo_network
from hypothesis import given
from hypothesis import strategies as st

from network_provisioner.errors import InputError
from network_provisioner.reservations import Hop, Ledger, Refusal, Reservation, describe_load

AB, BC, CD = ("a", "b"), ("b", "c"), ("c", "d")
HOPS: list[Hop] = [AB, BC, CD]


def ledger(capacity: float = 100) -> Ledger:
    return Ledger(dict.fromkeys(HOPS, capacity))


def reservation(
    name: str, rate: float, start: float, end: float, hops: tuple[Hop, ...] = (AB, BC)
) -> Reservation:
    return Reservation(name, hops, rate, rate, start, end)


def test_what_is_admitted_is_taken_only_while_it_lasts() -> None:
    book = ledger()
    assert book.admit(reservation("x", 60, 10, 20)) is None
    assert [book.residual(AB, *w) for w in ((0, 10), (5, 11), (10, 20), (19, 30), (20, 30))] == [
        100, 40, 40, 40, 100,
    ]  # fmt: skip
    assert book.residual(CD, 0, 100) == 100
    assert book.path_residual(HOPS, 0, 100) == 40


def test_reservations_that_touch_in_time_do_not_meet() -> None:
    book = ledger()
    assert book.admit(reservation("x", 100, 0, 10)) is None
    assert book.admit(reservation("y", 100, 10, 20)) is None


def test_a_refusal_names_link_and_holders_and_changes_nothing() -> None:
    book = ledger()
    book.admit(reservation("x", 60, 0, 10, (BC,)))
    refusal = book.admit(reservation("y", 50, 5, 15, (AB, BC, CD)))
    assert refusal == Refusal(BC, 50, 40, ("x",))
    assert str(refusal) == "b>c has 40 b/s free, 50 b/s asked, held by x"
    assert [book.residual(hop, 0, 99) for hop in HOPS] == [100, 40, 100]
    assert list(book.reservations) == ["x"]


def test_release_is_idempotent() -> None:
    book = ledger()
    made = reservation("x", 60, 0, 10)
    book.admit(made)
    assert book.release("x") == made
    assert book.release("x") is None
    assert book.path_residual(HOPS, -1, 99) == 100


def test_a_fraction_of_a_bit_is_rounded_so_that_nothing_is_oversubscribed() -> None:
    book = ledger(0.9 * 20)
    assert book.capacity(AB) == 18
    assert book.admit(reservation("x", 0.9 * 20, 0, 1)) is None
    book.release("x")
    assert book.admit(reservation("x", 17.5, 0, 1)) is None
    assert book.residual(AB, 0, 1) == 0


def test_moving_the_end() -> None:
    book = ledger()
    book.admit(reservation("x", 60, 0, 10))
    book.admit(reservation("y", 60, 20, 30))
    assert book.move_end("x", 20) is None
    refused = book.move_end("x", 21)
    assert refused is not None and refused.holders == ("y",)
    assert book.reservations["x"].end == 20
    assert book.move_end("x", 5) is None
    assert book.residual(AB, 5, 20) == 100
    with pytest.raises(InputError, match="no reservation 'z'"):
        book.move_end("z", 5)
    with pytest.raises(InputError, match="expected an end after the start"):
        book.move_end("x", 0)


def test_the_earliest_start_is_where_all_hops_have_room_long_enough() -> None:
    book = ledger()
    book.admit(reservation("x", 60, 0, 10, (AB,)))
    book.admit(reservation("y", 60, 12, 20, (BC,)))
    assert book.earliest_start((AB, BC), 40, 5, 0) == 0
    assert book.earliest_start((AB, BC), 50, 2, 0) == 10
    assert book.earliest_start((AB, BC), 50, 3, 0) == 20
    assert book.earliest_start((AB, BC), 50, 3, 15.5) == 20
    assert book.earliest_start((AB, BC), 101, 1, 0) is None


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (reservation("x", 0, 0, 1), "expected more than 0"),
        (reservation("x", math.nan, 0, 1), "expected more than 0"),
        (Reservation("x", (AB,), 2, 1, 0, 1), "ceiling that is not lower"),
        (reservation("x", 1, 1, 1), "expected an end after the start"),
        (reservation("x", 1, 0, math.inf), "expected an end after the start"),
        (reservation("x", 1, 0, 1, ()), "expected each link once"),
        (reservation("x", 1, 0, 1, (AB, AB)), "expected each link once"),
        (reservation("x", 1, 0, 1, (AB, ("b", "z"))), "no link b>z"),
        (reservation("taken", 1, 0, 1), "exists already"),
    ],
)
def test_bad_reservations(bad: Reservation, words: str) -> None:
    book = ledger()
    book.admit(reservation("taken", 1, 0, 1))
    with pytest.raises(InputError, match=words):
        book.admit(bad)
    assert book.path_residual(HOPS, 0, 1) == 99


def test_both_directions_of_every_link_of_a_topology() -> None:
    book = Ledger.of(demo_network(), 0.9)
    assert book.capacity(("s1", "s2")) == book.capacity(("s2", "s1")) == 180_000_000
    book.admit(Reservation("x", (("s1", "s2"),), 1e6, 1e6, 0, 10))
    loads = {(d["from"], d["to"]): d for link in describe_load(demo_network(), book, 5)["links"]
             for d in link["load"]}  # fmt: skip
    assert loads["s1", "s2"]["reserved_bps"] == 1_000_000
    assert loads["s1", "s2"]["transits"] == ["x"]
    assert loads["s2", "s1"]["reserved_bps"] == 0


times = st.integers(0, 12)
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("admit"),
            st.integers(1, 70).map(float) | st.floats(0.1, 70),
            times,
            times,
            st.sets(st.sampled_from(HOPS), min_size=1),
        ),
        st.tuples(st.just("release"), st.integers(0, 12)),
        st.tuples(st.just("move"), st.integers(0, 12), times),
    ),
    max_size=30,
)


class Slow:
    """The same promises, kept by looking at every half second of every link."""

    def __init__(self) -> None:
        self.held: dict[str, Reservation] = {}

    def load(self, hop: Hop, at: float) -> float:
        held = (r for r in self.held.values() if hop in r.hops and r.start <= at < r.end)
        return sum(math.ceil(round(r.rate_bps, 3)) for r in held)

    def fits(self, r: Reservation) -> bool:
        self.held[r.id] = r
        points = [t / 2 for t in range(26)]
        fits = all(self.load(hop, at) <= 100 for hop in r.hops for at in points)
        del self.held[r.id]
        return fits


def state(book: Ledger) -> list[int]:
    return [book.residual(hop, t / 2, t / 2 + 0.5) for hop in HOPS for t in range(26)]


@given(steps)
def test_against_a_slow_ledger(todo: list[tuple[object, ...]]) -> None:
    book, slow = ledger(), Slow()
    for number, step in enumerate(todo):
        before = state(book)
        if step[0] == "admit":
            _, rate, a, b, hops = step
            if a == b:
                continue
            start, end = sorted((a, b))  # type: ignore[type-var]
            new = reservation(f"r{number}", rate, start, end, tuple(sorted(hops)))  # type: ignore
            fits = slow.fits(new)
            refusal = book.admit(new)
            assert (refusal is None) == fits
            if fits:
                slow.held[new.id] = new
        elif step[0] == "release":
            name = f"r{step[1]}"
            refusal = None
            assert book.release(name) == slow.held.pop(name, None)
        else:
            old = slow.held.get(f"r{step[1]}")
            end = step[2]
            if old is None or end <= old.start:  # type: ignore[operator]
                continue
            del slow.held[old.id]
            new = reservation(old.id, old.rate_bps, old.start, end, old.hops)  # type: ignore
            fits = slow.fits(new)
            refusal = book.move_end(old.id, end)  # type: ignore[arg-type]
            assert (refusal is None) == fits
            slow.held[old.id] = new if fits else old
        if refusal is not None:
            assert state(book) == before
        assert state(book) == [100 - slow.load(hop, t / 2) for hop in HOPS for t in range(26)]
        assert min(state(book)) >= 0
    for name in list(slow.held):
        book.release(name)
    assert state(book) == [100] * len(state(book))
    assert all(len(link.times) == 1 and not link.holders for link in book._links.values())


@given(
    st.lists(st.tuples(st.integers(1, 100), times, times, st.sampled_from(HOPS)), max_size=12),
    st.integers(1, 100),
    st.integers(1, 6),
    times,
)
def test_earliest_start_fits_and_nothing_earlier_does(
    held: list[tuple[int, int, int, Hop]], rate: int, duration: int, not_before: int
) -> None:
    book = ledger()
    for number, (bps, a, b, hop) in enumerate(held):
        if a != b:
            book.admit(reservation(str(number), bps, min(a, b), max(a, b), (hop,)))
    start = book.earliest_start(HOPS, rate, duration, not_before)
    assert start is not None and start >= not_before
    assert book.path_residual(HOPS, start, start + duration) >= rate
    tried = [t / 2 for t in range(2 * not_before, int(2 * start))]
    assert all(book.path_residual(HOPS, t, t + duration) < rate for t in tried)


def test_many_reservations_leave_neighbouring_levels_different() -> None:
    book = ledger(1e9)
    for i in range(200):
        assert book.admit(reservation(str(i), 1000 + i % 7, i, i + 50)) is None
    for link in book._links.values():
        assert all(a != b for a, b in pairwise(link.levels))
        assert link.times == sorted(link.times)
