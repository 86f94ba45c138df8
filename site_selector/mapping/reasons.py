"""Why a job goes where it goes: in one sentence the term that decided, and what would have to be
different for another site to have the lesser T_t.

Each flip changes one quantity and leaves all others as they are. It is exact under Algorithm 4: on
one side of ``limit`` the one site has the lesser T_t, on the other side the other.

    T_t(best) = T_t(other) is solved for T_q of either, Γ_c of either, N of the other, and the rate
    of every path that either moves data over. A path that both use counts for both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from network_provisioner.base.units import BITS_PER_BYTE, format_rate, format_size
from site_selector.mapping.placement import Alternative, Forecast

# Nearer to zero than this fraction of T_t a time is rounding and no limit that could be met.
_LEAST = 1e-9
_NAMES = {
    "t_q_s": "a shorter queue (T_q",
    "t_c_s": "faster computing (S_c/(N·Γ_c)",
    "t_n_s": "less time to move data (T_n",
}
# Changes by more than this factor are left out: true, and no help to anyone.
_ABSURD = 100.0


@dataclass(frozen=True, slots=True)
class Flip:
    """``winner`` would have the lesser T_t if ``what`` of ``subject`` went past ``limit``.

    ``what``: "t_q" (seconds), "gamma_c" (bytes/s of one worker), "n" (workers), all of the site
    ``subject``; or "rate" (bits/s, min(Γ_t, Γ_a)) of the path ``subject``. ``rises`` tells the
    direction. ``gamma`` names what of a rate must change: Γ_a, Γ_t or both.
    """

    winner: str
    what: str
    subject: str
    now: float
    limit: float
    rises: bool
    gamma: str = ""

    @property
    def factor(self) -> float:
        """By how much it must change, one or more; infinite from or to nothing."""
        if self.now <= 0 or self.limit <= 0:
            return math.inf
        return max(self.now / self.limit, self.limit / self.now)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; an infinite present value is null."""
        out = {
            "winner": self.winner,
            "what": self.what,
            "of": self.subject,
            "now": self.now if math.isfinite(self.now) else None,
            "above" if self.rises else "below": self.limit,
        }
        return out | ({"gamma": self.gamma} if self.gamma else {})


def flips(best: Alternative, other: Alternative) -> tuple[Flip, ...]:
    """Every single change that would give ``other`` a lesser T_t than ``best`` has.

    Those that better ``other`` come before those that worsen ``best``; among each, the one that
    must change least comes first.
    """
    better = _of_site(other, best.t_t_s, other.site, better=True)
    worse = _of_site(best, other.t_t_s, other.site, better=False)
    for path in dict.fromkeys(move.path for move in (*other.moves, *best.moves)):
        for flip in _rate(best, other, path):
            (better if flip.rises else worse).append(flip)
    return (*sorted(better, key=_by_factor), *sorted(worse, key=_by_factor))


def _by_factor(flip: Flip) -> tuple[float, str, str]:
    return round(flip.factor, 9), flip.what, flip.subject


def _of_site(option: Alternative, total_s: float, winner: str, better: bool) -> list[Flip]:
    """T_q, Γ_c and N of ``option``'s site with which its T_t would be ``total_s``: less than it is
    (``better``) or more."""
    queue_s = total_s - option.t_c_s - option.t_n_s
    compute_s = total_s - option.t_q_s - option.t_n_s  # S_c/(N·Γ_c)
    least = _LEAST * total_s if better else 0.0
    out = []
    if math.isfinite(queue_s) and (not better or queue_s > least):
        out.append(Flip(winner, "t_q", option.site, option.t_q_s, queue_s, not better))
    if not (math.isfinite(compute_s) and compute_s > least and 0 < option.t_c_s < math.inf):
        return out
    used = option.inputs.get("n", {}).get("used") or 1.0
    now, limit = (option.s_c_bytes / (used * t) for t in (option.t_c_s, compute_s))
    out.append(Flip(winner, "gamma_c", option.site, now, limit, better))
    workers = option.inputs.get("n", {}).get("value")
    needed = used * option.t_c_s / compute_s
    if better and workers and used < 1 and needed < 1:
        # The share of a worker is N over those who take turns, whose number stays.
        out.append(Flip(winner, "n", option.site, workers, workers * needed / used, rises=True))
    return out


def _rate(best: Alternative, other: Alternative, path: str) -> list[Flip]:
    """a + 8b/r of both are equal at one r: b bytes on this path, a seconds for all else."""
    used = [m for option in (best, other) for m in option.moves if m.path == path]
    now = used[0].rate_bps
    (a1, b1), (a2, b2) = (_apart(option, path) for option in (best, other))
    if not (math.isfinite(a1) and math.isfinite(a2)) or a1 == a2 or b1 == b2:
        return []
    limit = BITS_PER_BYTE * (b2 - b1) / (a1 - a2)
    rises = b2 > b1
    if limit <= 0 or (limit < now if rises else limit > now):
        return []
    bounds = {"Γ_a": used[0].gamma_a_bps, "Γ_t": used[0].gamma_t_bps}
    short = [name for name, rate in bounds.items() if rate < limit]
    gamma = " and ".join(short) if rises else "Γ_a"
    return [Flip(other.site, "rate", path, now, limit, rises, gamma)]


def _apart(option: Alternative, path: str) -> tuple[float, float]:
    """Seconds that do not depend on ``path``, and bytes that move over it."""
    seconds = option.t_q_s + option.t_c_s
    seconds += sum(move.seconds for move in option.moves if move.path != path)
    return seconds, sum(move.s_t_bytes for move in option.moves if move.path == path)


def range_text(forecast: Forecast | None) -> str:
    """``, with 90 % probability 11.2 min to 15.0 min``; "" without a forecast."""
    if forecast is None:
        return ""
    return f", with 90 % probability {seconds(forecast.low_s)} to {seconds(forecast.high_s)}"


def seconds(value: float) -> str:
    """Seconds for people: ``0.03 s``, ``12 s``, ``5.2 h``; ``never`` where infinite."""
    if not math.isfinite(value):
        return "never"
    if value >= 7200:
        return f"{value / 3600:.1f} h"
    if value >= 600:
        return f"{value / 60:.1f} min"
    return f"{value:.3g} s"


def why_least(best: Alternative, second: Alternative) -> str:
    """The sentence for a job that goes where its own T_t is least."""
    if not math.isfinite(best.t_t_s):
        return (
            f"no site has resources now; jobs wait for {best.site}, and any site that gets a "
            "worker first would change this"
        )
    if not math.isfinite(second.t_t_s):
        return f"{_why_never(best, second)}; {would_change(best, second)}"
    gap = second.t_t_s - best.t_t_s
    if gap <= 1e-9 * max(1.0, best.t_t_s):
        return (
            f"T_t is {seconds(best.t_t_s)} here and at {second.site} alike; any difference in "
            "load, speed or path would decide"
        )
    term = max(_NAMES, key=lambda t: getattr(second, t) - getattr(best, t))
    return (
        f"T_t {seconds(best.t_t_s)} against {seconds(second.t_t_s)} at {second.site}, by "
        f"{_NAMES[term]} {seconds(getattr(best, term))} against {seconds(getattr(second, term))}); "
        + would_change(best, second)
    )


def _why_never(best: Alternative, second: Alternative) -> str:
    if not math.isfinite(second.t_q_s):
        return f"{best.site} has resources now and {second.site} has none (T_q infinite)"
    if not math.isfinite(second.t_n_s):
        return f"data reaches {best.site}, and no path works now to or from {second.site}"
    return f"{best.site} computes it in {seconds(best.t_c_s)}, {second.site} never would"


def would_change(best: Alternative, other: Alternative) -> str:
    """Which changes would give ``other`` the lesser T_t, as text: the two that take least."""
    likely = [f for f in flips(best, other) if f.factor < _ABSURD or math.isinf(f.factor)]
    better = [f for f in likely if f.subject != best.site and f.rises == (f.what != "t_q")]
    if better:
        condition = " or ".join(flip_text(f, other.site) for f in better[:2])
        return f"{other.site} would win if {condition}"
    if likely:
        condition = " or ".join(flip_text(f, other.site) for f in likely[:2])
        return f"no improvement at {other.site} alone makes it win, only if {condition}"
    return f"no single change makes {other.site} win"


def flip_text(flip: Flip, its_site: str = "") -> str:
    """``its queue wait fell below 40 s``: one flip, with ``its`` in place of ``its_site``.

    The figure is rounded to the far side, so that what is said is enough.
    """
    its = flip.subject == its_site
    if flip.what == "t_q":
        limit = _seconds_beyond(flip.limit, flip.rises)
        if not math.isfinite(flip.now):
            return f"{'it' if its else flip.subject} had workers and a queue wait below {limit}"
        whose = "its" if its else f"{flip.subject}'s"
        change = "rose above" if flip.rises else "fell below"
        return f"{whose} queue wait {change} {limit}"
    if flip.what == "n":
        return f"{'it' if its else flip.subject} had {math.floor(flip.limit) + 1:d} workers"
    rate, than = beyond(flip.limit, flip.rises), "more than" if flip.rises else "less than"
    if flip.what == "gamma_c":
        name = "it" if its else flip.subject
        return f"{name} computed {than} {format_size(rate)}/s per worker"
    tuned = f" (which takes more {flip.gamma})" if flip.gamma != "Γ_a" else ""
    return f"{flip.subject} carried {than} {format_rate(rate)}{tuned}"


def beyond(value: float, rises: bool, digits: int = 3) -> float:
    """``value`` to a few digits, never on this side of it: up where it must rise, else down."""
    if value <= 0 or not math.isfinite(value):
        return value
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    scaled = value * scale
    # What is a whole number but for rounding errors stays what it is.
    whole = round(scaled)
    if abs(scaled - whole) > 1e-9 * scaled:
        whole = math.ceil(scaled) if rises else math.floor(scaled)
    return whole / scale


def _seconds_beyond(value: float, rises: bool) -> str:
    unit, name = next(((u, n) for u, n in ((3600, "h"), (60, "min")) if value >= 2 * u), (1, "s"))
    if unit == 60 and value < 600:
        unit, name = 1, "s"
    return f"{beyond(value / unit, rises):.3g} {name}"


def no_room_sentence(chosen: Alternative, least: Alternative, lacks: str) -> str:
    """The sentence for a job whose files would not fit where its own T_t is least."""
    return f"{_own(chosen, least)}but its files would not fit there ({lacks})"


def _own(chosen: Alternative, least: Alternative) -> str:
    here, there = seconds(chosen.t_t_s), seconds(least.t_t_s)
    return f"its own T_t is {here} here and {there} at {least.site}, "


def why_not_least(
    chosen: Alternative,
    least: Alternative,
    makespan_s: float,
    moved_makespan_s: float | None,
    later: int | None = None,
    worlds: int = 0,
) -> str:
    """The sentence for a job that goes elsewhere than its own T_t says.

    ``moved_makespan_s``: when the workflow would end with this job alone at ``least``; None if
    that was not tried. Where that is sooner, ``later``: in how many of ``worlds`` that were drawn
    around the estimates it ends later.
    """
    own = _own(chosen, least)
    if moved_makespan_s is None:
        best = (
            f"does best over {worlds} worlds drawn around the estimates"
            if worlds
            else "ends soonest"
        )
        return own + f"but the mapping as a whole {best} this way"
    loss = moved_makespan_s - makespan_s
    slack = 1e-9 * max(1.0, makespan_s)
    if loss > slack:
        return own + (
            f"but moved there alone it would end the workflow {seconds(loss)} later "
            f"({seconds(moved_makespan_s)} instead of {seconds(makespan_s)})"
        )
    if loss < -slack:
        sooner = f"moved there alone it would end the workflow {seconds(-loss)} sooner"
        if later is None:
            return own + f"and {sooner}, too little for what it would move"
        return own + (
            f"and {sooner} if all estimates were right, but not over the {worlds} worlds drawn "
            f"around them: in {later} it ends later"
        )
    return own + (
        "but moved there alone it would not end the workflow sooner, and cost more computing and "
        "moving in all"
    )
