"""What would change a choice: every limit is tried by computing T_t anew on either side of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from network_provisioner.base.units import BITS_PER_BYTE
from site_selector.mapping.placement import Alternative, Move
from site_selector.mapping.reasons import Flip, beyond, flip_text, flips, why_least

PATHS = ("a>b", "a>out", "b>out", "b>a")
seconds = st.floats(0.01, 1e5)
rates = st.floats(1e3, 1e11)


def option(
    site: str, t_q: float, t_c: float, moves: tuple[Move, ...] = (), used: float = 1.0
) -> Alternative:
    t_n = sum(move.seconds for move in moves)
    return Alternative(
        site, t_q, t_c, t_n, t_q + t_c + t_n, "Γ_a", moves[0].path if moves else "", 1e6,
        sum(m.s_t_bytes for m in moves), {"n": {"value": 4.0, "used": used}}, moves,
    )  # fmt: skip


def changed(alternative: Alternative, flip: Flip, value: float) -> float:
    """T_t of ``one`` from its definition, with ``value`` in the place that the flip names."""
    t_q, t_c = alternative.t_q_s, alternative.t_c_s
    used = alternative.inputs["n"]["used"]
    if flip.subject == alternative.site and flip.what == "t_q":
        t_q = value
    if flip.subject == alternative.site and flip.what == "gamma_c":
        t_c = alternative.s_c_bytes / (used * value)
    if flip.subject == alternative.site and flip.what == "n":
        others = alternative.inputs["n"]["value"] / used
        gamma_c = alternative.s_c_bytes / (used * alternative.t_c_s)
        t_c = alternative.s_c_bytes / (min(1.0, value / others) * gamma_c)
    t_n = 0.0
    for move in alternative.moves:
        rate = value if flip.what == "rate" and move.path == flip.subject else move.rate_bps
        t_n += move.s_t_bytes * BITS_PER_BYTE / rate
    return t_q + t_c + t_n


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Alternative, Alternative]:
    """Two options whose moves may share paths."""
    rate = {path: (draw(rates), draw(rates)) for path in PATHS}
    two = []
    for site in "ab":
        used = draw(st.sampled_from(PATHS) | st.none())
        names = sorted({p for p in (used, draw(st.sampled_from(PATHS))) if p})
        moves = tuple(Move(p, draw(st.floats(1, 1e12)), *rate[p]) for p in names)
        share = draw(st.sampled_from([1.0, 0.5, 0.1]))
        two.append(option(site, draw(seconds), draw(seconds), moves, share))
    best, other = sorted(two, key=lambda o: o.t_t_s)
    assume(other.t_t_s - best.t_t_s > 1e-3 * best.t_t_s)
    return best, other


@given(pairs())
def test_on_either_side_of_every_limit_another_site_has_the_lesser_t_t(
    pair: tuple[Alternative, Alternative],
) -> None:
    best, other = pair
    for flip in flips(best, other):
        assert flip.winner == other.site
        assert (flip.limit > flip.now) == flip.rises
        past, short = (1.001, 0.999) if flip.rises else (0.999, 1.001)
        slack = 1e-9 * other.t_t_s
        for factor, wins in ((past, True), (short, False)):
            value = flip.limit * factor
            gap = changed(best, flip, value) - changed(other, flip, value)
            assert gap >= -slack if wins else gap <= slack, flip


@given(pairs())
def test_no_change_is_missed(pair: tuple[Alternative, Alternative]) -> None:
    best, other = pair
    named = {(f.what, f.subject) for f in flips(best, other)}
    for site in (best, other):
        for what, extreme in (("t_q", 0.0), ("t_q", 1e12), ("gamma_c", 1e18), ("gamma_c", 1e-9)):
            flip = Flip(other.site, what, site.site, 0, 0, rises=True)
            if changed(other, flip, extreme) < changed(best, flip, extreme) * (1 - 1e-5):
                assert (what, site.site) in named
    for path in PATHS:
        for extreme in (1e-3, 1e21):
            flip = Flip(other.site, "rate", path, 0, 0, rises=True)
            if changed(other, flip, extreme) < changed(best, flip, extreme) * (1 - 1e-5):
                assert ("rate", path) in named


def test_a_path_that_both_sites_use_counts_for_both() -> None:
    # Local work moves 100 MB in; remote work moves 10 MB back over the same path. At 80 Mb/s the
    # first takes 10 s and the second 1 s.
    near = option("local", 0, 2, (Move("mu>local", 100e6, 80e6, math.inf),))
    far = option("mu", 0, 5, (Move("mu>local", 10e6, 80e6, math.inf),))
    (flip,) = [f for f in flips(far, near) if f.what == "rate"]
    # 2 + 800e6/r = 5 + 80e6/r
    assert flip.limit == pytest.approx(720e6 / 3)
    assert flip.gamma == "Γ_a"


def test_more_than_tuning_allows_is_told() -> None:
    best = option("a", 0, 5)
    other = option("b", 0, 1, (Move("a>b", 100e6, 80e6, 100e6),))
    (flip,) = [f for f in flips(best, other) if f.what == "rate"]
    assert (flip.limit, flip.gamma) == (200e6, "Γ_a and Γ_t")
    assert "a>b carried more than 200 Mb/s (which takes more Γ_a and Γ_t)" in why_least(best, other)
    tuned = option("b", 0, 1, (Move("a>b", 100e6, 1e9, 100e6),))
    (flip,) = [f for f in flips(best, tuned) if f.what == "rate"]
    assert flip.gamma == "Γ_t"


def test_more_workers_for_those_who_take_turns() -> None:
    best, other = option("a", 0, 5), option("b", 0, 8, used=0.5)
    (flip,) = [f for f in flips(best, other) if f.what == "n"]
    # Eight jobs on four workers, 4 s of work each: five workers make 6.4 s, seven make 4.57 s.
    assert flip.now == 4
    assert flip.limit == pytest.approx(6.4)
    assert flip_text(flip, "b") == "it had 7 workers"


def test_workers_and_a_short_queue_for_a_site_without_resources() -> None:
    best, other = option("a", 0, 5), option("b", math.inf, 2)
    assert why_least(best, other) == (
        "a has resources now and b has none (T_q infinite); "
        "b would win if it had workers and a queue wait below 3 s"
    )


def test_a_path_that_carries_nothing() -> None:
    best, other = option("a", 0, 5), option("b", 0, 3, (Move("a>b", 1e6, 0.0, 1e9),))
    assert "no path works now to or from b; b would win if a>b carried more than 4 Mb/s" in (
        why_least(best, other)
    )


def test_where_only_a_worse_winner_helps() -> None:
    best, other = option("a", 1, 1), option("b", 3, 3)
    assert why_least(best, other).endswith(
        "no improvement at b alone makes it win, only if a computed less than 200 kB/s per worker "
        "or a's queue wait rose above 5 s"
    )


@given(st.floats(1e-9, 1e15), st.booleans())
def test_what_is_said_is_enough(value: float, rises: bool) -> None:
    shown = beyond(value, rises)
    assert shown == pytest.approx(value, rel=0.01)
    slack = 1e-8 * value
    assert shown >= value - slack if rises else shown <= value + slack
