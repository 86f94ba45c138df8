"""What those who wait will have of each link: others must leave it to them. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from network_provisioner.state.ledger import Ledger
from network_provisioner.topology.graph import Hop


@dataclass(frozen=True, slots=True)
class Claim:
    """Somebody who waits will have ``rate_bps`` (infinite: all) of a link during [``start``,
    ``end``): ``start`` is its earliest as far as is known, else when it was to begin. ``likely`` is
    when the first that waits could begin if all that runs ended when it is expected to.

    ``lacks``: the link has no room for it now. ``brief_s``: how long it is expected to take.
    """

    id: str
    start: float
    end: float
    rate_bps: float = math.inf
    brief_s: float = math.inf
    lacks: bool = True
    likely: float = math.inf

    @property
    def comes(self) -> float:
        """When it is to be reckoned with."""
        return min(self.start, self.likely)


NO_CLAIM = Claim("", -math.inf, math.inf)
Claims = Mapping[Hop, Sequence[Claim]]
"""Whom a request must leave their rate on each directed link, while the times overlap."""


def crowded(
    ledger: Ledger, hop: Hop, rate_bps: float, start: float, end: float, claims: Sequence[Claim]
) -> list[Claim]:
    """Who of those with claims on a link would not have its rate there, when it is to, and when it
    likely could, beside one more of ``rate_bps`` during [``start``, ``end``)."""
    here = [c for c in claims if c.rate_bps and c.comes < end and start < c.end]
    found = []
    for c in here:
        beside = rate_bps + sum(o.rate_bps for o in here if o.start < c.end and c.start < o.end)
        until = min(end, c.end)
        if ledger.likely_residual(hop, max(start, c.comes), until) < beside or (
            c.start < end and ledger.residual(hop, max(start, c.start), until) < beside
        ):
            found.append(c)
    return found
