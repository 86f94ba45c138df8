"""Why a job goes where it goes: in one sentence the term that decided and what would change it."""

from __future__ import annotations

import math

from network_provisioner.units import BITS_PER_BYTE, format_rate, format_size
from site_selector.placement import Alternative

_NAMES = {
    "t_q_s": "a shorter queue (T_q",
    "t_c_s": "faster computing (S_c/(N·Γ_c)",
    "t_n_s": "less time to move data (T_n",
}


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
            f"no site has resources now; {best.site} is queued for, and any site that gets a "
            "worker first would change this"
        )
    if not math.isfinite(second.t_t_s):
        return f"{best.site} has resources now and {second.site} has none (T_q infinite)"
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
        + _what_would_change(term, second, gap)
    )


def _what_would_change(term: str, second: Alternative, gap: float) -> str:
    limit = getattr(second, term) - gap
    if limit <= 1e-6 * getattr(second, term):
        return f"that term alone cannot make {second.site} win"
    if term == "t_q_s":
        return f"{second.site} would win with a wait below {seconds(limit)}"
    if term == "t_n_s":
        rate = second.s_t_bytes * BITS_PER_BYTE / limit
        return (
            f"{second.site} would win with more than {format_rate(rate)} on {second.path} for its "
            f"{format_size(second.s_t_bytes)}"
        )
    share = float(second.inputs.get("n", {}).get("used") or 1.0)
    rate = second.s_c_bytes / (share * limit)
    return f"{second.site} would win at more than {format_size(rate)}/s per worker"


def why_not_least(
    chosen: Alternative, least: Alternative, makespan_s: float, moved_makespan_s: float | None
) -> str:
    """The sentence for a job that goes elsewhere than its own T_t says.

    ``moved_makespan_s``: when the workflow would end with this job alone at ``least``; None where
    that was not tried.
    """
    own = (
        f"its own T_t is {seconds(chosen.t_t_s)} here and {seconds(least.t_t_s)} at {least.site}, "
    )
    if moved_makespan_s is None:
        return own + "but the mapping as a whole ends soonest this way"
    loss = moved_makespan_s - makespan_s
    if loss > 1e-9 * max(1.0, makespan_s):
        return own + (
            f"but moved there alone it would end the workflow {seconds(loss)} later "
            f"({seconds(moved_makespan_s)} instead of {seconds(makespan_s)})"
        )
    return own + (
        "but moved there alone it would not end the workflow sooner, and cost more computing and "
        "moving in all"
    )
