"""What is changed of what is reserved, and what is left alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pegasus_hooks.advance.booking import (
    AdvanceReservation,
    CorrectionRules,
    Corrections,
    NewReservation,
    corrections,
)
from pegasus_hooks.advance.predict import Window

T0 = 1_000_000.0
PAIR = ("local", "mu")
RULES = CorrectionRules(margin=0.0, margin_s=5.0)


def window(job: str, start: float, end: float, size: float = 1e6) -> Window:
    return Window(job, PAIR, T0 + start, T0 + end, size)


def held(job: str, start: float, end: float, min_bps: float = 1e9) -> AdvanceReservation:
    return AdvanceReservation(f"w:{job}", job, PAIR, T0 + start, T0 + end, min_bps)


def changes(windows: list[Window], has: list[AdvanceReservation], *begun: str) -> Corrections:
    return corrections(windows, has, begun, (), T0, RULES, {})


def test_what_is_not_reserved_is_asked_for_with_a_margin() -> None:
    result = changes([window("b", 20, 40), window("a", 10, 30)], [])
    assert result == Corrections(
        ask=[
            NewReservation("a", PAIR, T0 + 10, T0 + 35, 10**6),
            NewReservation("b", PAIR, T0 + 20, T0 + 45, 10**6),
        ]
    )


def test_what_ends_at_once_or_is_far_off_or_declined_is_not_asked_for() -> None:
    far = [window("a", 10, 11), window("b", 3700, 3800)]
    assert changes(far, []) == Corrections()
    only = corrections([window("c", 10, 60)], [], (), {("c", PAIR)}, T0, RULES, {})
    assert only == Corrections()


def test_it_is_asked_for_as_long_as_it_takes_with_what_is_kept() -> None:
    slow = corrections([window("a", 10, 30)], [], (), (), T0, RULES, {PAIR: 80_000.0})
    assert (slow.ask[0].start, slow.ask[0].end) == (T0 + 10, T0 + 115)


def test_near_ones_follow_closely_and_far_ones_loosely() -> None:
    assert changes([window("a", 13, 33)], [held("a", 10, 38)]).later != []
    assert changes([window("a", 11, 33)], [held("a", 10, 38)]) == Corrections()
    assert changes([window("a", 550, 570)], [held("a", 500, 525)]) == Corrections()
    assert changes([window("a", 570, 590)], [held("a", 500, 525)]).later != []


def test_what_frees_room_comes_first() -> None:
    windows = [
        window(job, start, start + 20)
        for job, start in zip("abcde", (90, 80, 5, 8, 40), strict=True)
    ]
    has = [
        held("a", 10, 35),
        held("b", 10, 35),
        held("c", 60, 85),
        held("d", 60, 85),
        held("x", 1, 2),
    ]
    result = changes(windows, has)
    assert [back.job for back in result.back] == ["x"]
    assert [shift.held.job for shift in result.later] == ["a", "b"]
    assert [shift.held.job for shift in result.sooner] == ["c", "d"]
    assert [ask.job for ask in result.ask] == ["e"]


def test_one_whose_time_has_come_without_its_job_is_put_off() -> None:
    (late,) = changes([window("a", 3, 30)], [held("a", -10, 20)]).later
    assert (late.start, late.end) == (T0 + 3, T0 + 35)
    assert changes([window("a", 1, 30)], [held("a", 0, 35)]) == Corrections()


def test_one_that_is_too_short_is_made_longer() -> None:
    (longer,) = changes([window("a", 10, 60)], [held("a", 10, 40)]).sooner
    assert (longer.start, longer.end) == (T0 + 10, T0 + 65)
    (longer,) = changes([window("a", 10, 30)], [held("a", 10, 35, min_bps=80_000.0)]).sooner
    assert longer.end == T0 + 115


def test_what_has_begun_is_left_alone_and_what_will_not_run_goes_back() -> None:
    assert changes([window("a", 50, 60)], [held("a", 10, 20)], "a") == Corrections()
    assert changes([], [held("a", 10, 20)], "a") == Corrections()
    assert [back.job for back in changes([], [held("a", 10, 20)]).back] == ["a"]


TIMES = st.floats(0, 5000)


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(TIMES, st.floats(0.1, 900))),
    st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(TIMES, st.floats(0.1, 900))),
    st.sets(st.sampled_from("abcdefgh")),
)
def test_once_corrected_nothing_is_left_to_correct(
    wanted: dict[str, tuple[float, float]], has: dict[str, tuple[float, float]], begun: set[str]
) -> None:
    windows = [window(job, at, at + length) for job, (at, length) in wanted.items()]
    before = [held(job, at, at + length) for job, (at, length) in has.items()]
    result = changes(windows, before, *begun)
    after = {reservation.job: reservation for reservation in before}
    for back in result.back:
        del after[back.job]
    for shift in (*result.later, *result.sooner):
        after[shift.held.job] = held(shift.held.job, shift.start - T0, shift.end - T0)
    for ask in result.ask:
        assert ask.job not in after
        after[ask.job] = held(ask.job, ask.start - T0, ask.end - T0)
    assert {job: reservation for job, reservation in after.items() if job in begun} == {
        reservation.job: reservation for reservation in before if reservation.job in begun
    }
    assert changes(windows, list(after.values()), *begun) == Corrections()
    for job in after.keys() - begun:
        (its,) = [w for w in windows if w.job == job]
        off = max(RULES.close_s, RULES.part * (its.start - T0))
        assert abs(after[job].start - its.start) <= off + 1e-6
        assert after[job].end >= its.end - off - 1e-6
