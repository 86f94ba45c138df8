"""What a measurement is worth now: its age and its spread, told and taken into account.

Fresh and steady measurements are taken as they are. Three things are not:

- An **old** one (more than a day) is weighed against what the topology or the catalog says now: its
  weight halves every week. It is not thrown away, for what a host's disk or TCP could do then is
  mostly what it can do now; nor is it believed for ever, for networks are rebuilt. Between rates
  the mean is geometric, so that half as fast and twice as fast weigh alike.
- A **widely spread** rate (deviation above 30 % of it) is planned with less than its median. A
  transfer takes S/Γ seconds, and the mean of 1/Γ over rates with a relative deviation c is about
  (1 + c²)/Γ: slow transfers lose more time than fast ones gain.
- Where nothing else is known an old measurement stays, and is told to be old.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from network_provisioner.units import format_rate
from site_selector.estimates.beliefs import Belief, Measured

DAY_S = 86400.0
FRESH_S = DAY_S
HALF_LIFE_S = 7 * DAY_S
WIDE = 0.3  # relative deviation above which a rate is planned with less than its median
_MOST_SPREAD = 1.0  # beyond it the measurements disagree too much to say by how much less


def weight(age_s: float) -> float:
    """What a measurement of this age in seconds counts for, 1 down to 0."""
    return float(0.5 ** (max(0.0, age_s - FRESH_S) / HALF_LIFE_S))


def archived(found: Measured, note: str = "") -> Belief:
    """A measurement as it is."""
    return Belief(found.value, "archive", found.at, found.spread, note, found.count)


def seconds_now(found: Measured, other: Belief | None, now: float, note: str = "") -> Belief:
    """A measured time in seconds, weighed by its age against what else is known (None: nothing)."""
    return _aged(archived(found, note), other, now, _seconds, lambda a, b, w: w * a + (1 - w) * b)


def rate_now(found: Measured, other: Belief | None, now: float, note: str = "") -> Belief:
    """A measured rate in bit/s, weighed by its age against what else is known, and less where it
    is widely spread. ``other`` is None where nothing else is known."""
    known = other if other is not None and other.value > 0 else None
    aged = _aged(
        archived(found, note), known, now, format_rate, lambda a, b, w: a**w * b ** (1 - w)
    )
    return _cautious(aged, found)


def _aged(
    belief: Belief,
    other: Belief | None,
    now: float,
    show: Callable[[float], str],
    mean: Callable[[float, float, float], float],
) -> Belief:
    age = 0.0 if belief.at is None else now - belief.at
    if age <= FRESH_S:
        return belief
    if other is None or other.source == "default" or not math.isfinite(other.value):
        return _noted(belief, belief.value, "old, and nothing else is known")
    w = weight(age)
    return _noted(
        belief,
        mean(belief.value, other.value, w),
        f"old: measured {show(belief.value)} weighs {w:.2g} beside {show(other.value)} "
        f"({other.source})",
    )


def _cautious(belief: Belief, found: Measured) -> Belief:
    spread = found.spread / found.value if found.value > 0 else 0.0
    if spread <= WIDE:
        return belief
    c = min(spread, _MOST_SPREAD)
    return _noted(
        belief,
        belief.value / (1 + c * c),
        f"widely spread: {format_rate(found.value)} ± {format_rate(found.spread)}, planned with "
        "what takes as long as such transfers do on average",
    )


def _noted(belief: Belief, value: float, note: str) -> Belief:
    joined = f"{belief.note}; {note}" if belief.note else note
    return Belief(value, belief.source, belief.at, belief.spread, joined, belief.count)


def _seconds(value: float) -> str:
    return f"{value:.3g} s"
