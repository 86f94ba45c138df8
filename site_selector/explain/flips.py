"""What would have to be different for another site to have the lesser T_t.

Each flip changes one quantity and leaves all others as they are. It is exact under Algorithm 4: on
one side of ``limit`` the one site has the lesser T_t, on the other side the other.

    T_t(best) = T_t(other) is solved for T_q of either, Γ_c of either, N of the other, and the rate
    of every path that either moves data over. A path that both use counts for both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from network_provisioner.units import BITS_PER_BYTE
from site_selector.mapping.placement import Alternative

# Nearer to zero than this fraction of T_t a time is rounding and no limit that could be met.
_LEAST = 1e-9


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
    better = [*_queue(best, other), *_compute(best, other)]
    worse = [*_queue_worse(best, other), *_compute_worse(best, other)]
    for path in dict.fromkeys(move.path for move in (*other.moves, *best.moves)):
        for flip in _rate(best, other, path):
            (better if flip.rises else worse).append(flip)
    return (*sorted(better, key=_by_factor), *sorted(worse, key=_by_factor))


def _by_factor(flip: Flip) -> tuple[float, str, str]:
    return round(flip.factor, 9), flip.what, flip.subject


def _queue(best: Alternative, other: Alternative) -> list[Flip]:
    limit = best.t_t_s - other.t_c_s - other.t_n_s
    if not math.isfinite(limit) or limit <= _LEAST * best.t_t_s:
        return []
    return [Flip(other.site, "t_q", other.site, other.t_q_s, limit, rises=False)]


def _compute(best: Alternative, other: Alternative) -> list[Flip]:
    limit = best.t_t_s - other.t_q_s - other.t_n_s  # of S_c/(N·Γ_c)
    used = other.inputs.get("n", {}).get("used") or 1.0
    if not math.isfinite(limit) or limit <= _LEAST * best.t_t_s or not 0 < other.t_c_s < math.inf:
        return []
    now = other.s_c_bytes / (used * other.t_c_s)
    out = [Flip(other.site, "gamma_c", other.site, now, other.s_c_bytes / (used * limit), True)]
    workers = other.inputs.get("n", {}).get("value")
    needed = used * other.t_c_s / limit
    if workers and used < 1 and needed < 1:
        # The share of a worker is N over those who take turns, whose number stays.
        out.append(Flip(other.site, "n", other.site, workers, workers * needed / used, True))
    return out


def _queue_worse(best: Alternative, other: Alternative) -> list[Flip]:
    limit = other.t_t_s - best.t_c_s - best.t_n_s
    if not math.isfinite(limit):
        return []
    return [Flip(other.site, "t_q", best.site, best.t_q_s, limit, rises=True)]


def _compute_worse(best: Alternative, other: Alternative) -> list[Flip]:
    limit = other.t_t_s - best.t_q_s - best.t_n_s
    used = best.inputs.get("n", {}).get("used") or 1.0
    if not math.isfinite(limit) or limit <= 0 or best.t_c_s <= 0:
        return []
    now, least = (best.s_c_bytes / (used * t) for t in (best.t_c_s, limit))
    return [Flip(other.site, "gamma_c", best.site, now, least, rises=False)]


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
