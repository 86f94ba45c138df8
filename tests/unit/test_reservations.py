"""The ledger: never oversubscribed, all or nothing, and empty again when everything is released."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from network_provisioner.base.errors import InputError
from network_provisioner.state.ledger import Lane, Ledger, Overlay, Refusal, Reservation
from network_provisioner.state.timeline import first_gap
from network_provisioner.topology.graph import Hop

AB, BC, CD = ("a", "b"), ("b", "c"), ("c", "d")
HOPS: list[Hop] = [AB, BC, CD]


def ledger(capacity: float = 100) -> Ledger:
    return Ledger(dict.fromkeys(HOPS, capacity))


def earliest(
    book: Ledger, hops: Sequence[Hop], rate: float, duration: float, after: float
) -> float:
    busy = [interval for hop in hops for interval in book.busy(hop, rate, after)]
    return first_gap(busy, duration, after)


def least_free(book: Ledger, start: float, end: float) -> int:
    return min(book.residual(hop, start, end) for hop in HOPS)


def reservation(
    name: str, rate: float, start: float, end: float, hops: tuple[Hop, ...] = (AB, BC)
) -> Reservation:
    return Reservation(name, (Lane(hops, rate),), start, end)


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


def test_a_fraction_of_a_bit_is_rounded_so_that_nothing_is_oversubscribed() -> None:
    book = ledger(0.9 * 20)
    assert book.capacity(AB) == 18
    assert book.admit(reservation("x", 0.9 * 20, 0, 1)) is None
    book.release("x")
    assert book.admit(reservation("x", 17.5, 0, 1)) is None
    assert book.residual(AB, 0, 1) == 0


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (reservation("x", 1, 1, 1), "expected an end after the start"),
        (reservation("x", 1, 0, math.inf), "expected an end after the start"),
        (reservation("taken", 1, 0, 1), "exists already"),
    ],
)
def test_bad_reservations(bad: Reservation, words: str) -> None:
    book = ledger()
    book.admit(reservation("taken", 1, 0, 1))
    with pytest.raises(InputError, match=words):
        book.admit(bad)
    assert least_free(book, 0, 1) == 99


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
        st.tuples(st.just("end"), st.integers(0, 12), times),
        st.tuples(
            st.just("move"), st.integers(0, 12), times, st.sets(st.sampled_from(HOPS), min_size=1)
        ),
    ),
    max_size=30,
)


class Slow:
    """The same promises, kept by looking at every half second of every link."""

    def __init__(self) -> None:
        self.held: dict[str, Reservation] = {}

    def load(
        self, hop: Hop, at: float, of: Callable[[str], bool] = bool, likely: bool = False
    ) -> float:
        ends = {r.id: r.likely_end if likely else r.end for r in self.held.values()}
        held = (r for r in self.held.values() if r.start <= at < ends[r.id] and of(r.id))
        lanes = (lane for r in held for lane in r.lanes if hop in lane.hops)
        return sum(math.ceil(round(lane.rate_bps, 3)) for lane in lanes)

    def take(self, new: Sequence[Reservation]) -> bool:
        """Hold these instead of those of the same id if that fits."""
        before = dict(self.held)
        self.held |= {r.id: r for r in new}
        points = [t / 2 for t in range(26)]
        fits = all(self.load(hop, at) <= 100 for hop in HOPS for at in points)
        if not fits:
            self.held = before
        return fits


def is_odd(name: str) -> bool:
    return int(name[1:]) % 2 == 1


def state(book: Ledger) -> list[int]:
    return [book.residual(hop, t / 2, t / 2 + 0.5) for hop in HOPS for t in range(26)]


def likely_state(book: Ledger) -> list[int]:
    return [book.likely_residual(hop, t / 2, t / 2 + 0.5) for hop in HOPS for t in range(26)]


def whole_state(book: Ledger) -> tuple[object, ...]:
    links = [(tuple(link._times), tuple(link._steps)) for link in book._links.values()]
    holders = [book.holders(hop, -math.inf, math.inf) for hop in HOPS]
    return links, holders, dict(book.reservations)


@settings(max_examples=60)
@given(steps)
def test_against_a_slow_ledger(todo: list[tuple[Any, ...]]) -> None:
    book, slow = ledger(), Slow()
    for number, step in enumerate(todo):
        before = whole_state(book)
        refusal: Refusal | None = None
        if step[0] == "admit":
            _, rate, a, b, hops = step
            if a == b:
                continue
            new = reservation(f"r{number}", rate, *sorted((a, b)), tuple(sorted(hops)))
            new = replace(new, done=(a + b) / 2 if number % 2 else math.inf)
            fits = slow.take([new])
            refusal = book.admit(new)
        elif step[0] == "release":
            name = f"r{step[1]}"
            fits = True
            assert book.release(name) == slow.held.pop(name, None)
        elif step[0] == "end":
            old = slow.held.get(f"r{step[1]}")
            if old is None or step[2] <= old.start:
                continue
            fits = slow.take([replace(old, end=step[2])])
            refusal = book.exchange([old.id], [replace(old, end=step[2])])
        else:
            _, which, since, hops = step
            old = slow.held.get(f"r{which}")
            if old is None or since >= old.end:
                continue
            lanes = tuple(Lane((hop,), 7) for hop in sorted(hops))
            fits = slow.take([replace(old, lanes=lanes, start=max(old.start, since))])
            refusal = book.exchange([old.id], [old.on(lanes, since)])
        assert (refusal is None) == fits
        if not fits:
            assert whole_state(book) == before
        assert state(book) == [100 - slow.load(hop, t / 2) for hop in HOPS for t in range(26)]
        assert min(state(book)) >= 0
        likely = [slow.load(hop, t / 2, likely=True) for hop in HOPS for t in range(26)]
        assert likely_state(book) == [100 - load for load in likely]
        assert book.reservations == slow.held
        for hop in HOPS[: number % 4]:  # not at each step, so that changes come together
            odd = [slow.load(hop, t / 2, is_odd) for t in range(4, 20)]
            assert book.held(hop, 2, 10, is_odd) == max(odd)
    for name in list(slow.held):
        book.release(name)
    assert state(book) == [100] * len(state(book))
    assert all(link._steps == [0] for link in (*book._links.values(), *book._likely.values()))
    assert not any(book.holders(hop, -math.inf, math.inf) for hop in HOPS)


lanes = st.lists(
    st.builds(
        lambda hops, rate: Lane(tuple(sorted(hops)), rate),
        st.sets(st.sampled_from(HOPS), min_size=1),
        st.integers(1, 60),
    ),
    min_size=1,
    max_size=3,
).map(tuple)
bookings = st.lists(st.tuples(lanes, times, times), min_size=1, max_size=8)


def booked(entries: list[tuple[tuple[Lane, ...], int, int]]) -> Ledger:
    book = ledger()
    for number, (lane, a, b) in enumerate(entries):
        if a != b:
            book.admit(Reservation(f"r{number}", lane, min(a, b), max(a, b)))
    return book


@given(bookings, bookings, st.data())
def test_an_overlay_is_what_the_ledger_would_be(
    before: list[Any], tried: list[Any], data: st.DataObject
) -> None:
    book, other = booked(before), booked(before)
    as_it_was = whole_state(book)
    overlay = Overlay(book)
    for name in list(book.reservations)[::2]:
        overlay.take(book.reservations[name])
        other.release(name)
    for number, (lane, a, b) in enumerate(tried):
        if a != b:
            new = Reservation(f"t{number}", lane, min(a, b), max(a, b))
            assert overlay.copy().put(new) == (other.admit(new) is None)
            if new.id in other.reservations:
                overlay.put(new)
    start, end = sorted((data.draw(times), data.draw(times)))
    for hop in HOPS:
        assert overlay.free(hop, start, end) == other.residual(hop, start, end)
    assert whole_state(book) == as_it_was


@given(bookings, lanes, lanes, times, times)
def test_moves_and_what_they_make_room_for_happen_together_or_not_at_all(
    before: list[Any], other: tuple[Lane, ...], new_lanes: tuple[Lane, ...], a: int, b: int
) -> None:
    book, slow = booked(before), Slow()
    slow.held = dict(book.reservations)
    if a == b:
        return
    start, end = sorted((a, b))
    new = Reservation("new", new_lanes, start, end)
    moved = [r for r in book.reservations.values() if r.end > start][:3]
    as_it_was = whole_state(book)
    fits = slow.take([*(replace(r, lanes=other, start=max(r.start, start)) for r in moved), new])
    refusal = book.exchange([r.id for r in moved], [*(r.on(other, start) for r in moved), new])
    assert (refusal is None) == fits
    assert book.reservations == slow.held
    if not fits:
        assert whole_state(book) == as_it_was


def test_who_is_of_a_class_is_asked_once() -> None:
    book, names = ledger(), []

    def of(name: str) -> bool:
        names.append(name)
        return name != "b"

    for name, start in (("a", 0), ("b", 0), ("c", 5)):
        book.admit(reservation(name, 10, start, 10))
    assert (book.held(AB, 0, 10, of), book.held(AB, 0, 5, of)) == (20, 10)
    book.release("a")
    book.admit(reservation("d", 10, 0, 10))
    assert book.held(AB, 0, 10, of) == 20
    assert sorted(names) == ["a", "b", "c", "d"]


def test_holders_come_largest_first() -> None:
    book = ledger()
    for name, rate in (("c", 10), ("b", 30), ("a", 30)):
        book.admit(reservation(name, rate, 0, 10))
    assert book.holders(AB, 0, 10) == ("a", "b", "c")
    assert (book.fullest(AB, 0, 10), book.fullest(AB, 10, 11)) == ((30, 3), (100, 0))


@given(bookings, times, times)
def test_the_fullest_instant_has_the_least_room(before: list[Any], a: int, b: int) -> None:
    book, (start, end) = booked(before), sorted((a, b))
    for hop in HOPS:
        instants = [start, *(t / 2 for t in range(2 * start, 2 * end))]
        least = min(book.residual(hop, at, at) for at in instants)
        free, count = book.fullest(hop, start, end)
        assert free == least
        assert count in {
            len(book.holders(hop, at, math.nextafter(at, math.inf)))
            for at in instants
            if book.residual(hop, at, at) == least
        }


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
    start = earliest(book, HOPS, rate, duration, not_before)
    assert not_before <= start < math.inf
    assert least_free(book, start, start + duration) >= rate
    tried = [t / 2 for t in range(2 * not_before, int(2 * start))]
    assert all(least_free(book, t, t + duration) < rate for t in tried)
