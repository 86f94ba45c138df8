"""Transfers wait while their destination has no room for them: they would fail half-way.

What is free is what was measured there last, less what running transits have yet to bring. Nobody
waits where nobody measured, or longer than for a path.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from network_provisioner.base.model import Transit
from network_provisioner.base.units import bytes_of, format_size
from network_provisioner.state.active_transits import ActiveTransits

log = logging.getLogger(__name__)

SpaceOf = Callable[[str], tuple[float, float] | None]
"""The free bytes of a site as measured last, and the age of that in seconds; None where nobody
measured it lately."""


@dataclass(eq=False)
class FreeSpace:
    """Not thread-safe: the broker's turn is around every call."""

    _active: ActiveTransits
    _space_of: SpaceOf | None

    def lacks(self, transit: Transit, now: float) -> str:
        """Why a transit has to wait for room at its destination, in words; "" where it has not."""
        request = transit.request
        if not request.size_bytes or self._space_of is None or request.start > now:
            return ""
        try:
            known = self._space_of(request.dst)
        except Exception:  # a foreign archive that fails costs its opinion, never the transfer
            log.exception("the free space of %s is unknown", request.dst)
            return ""
        if known is None:
            return ""
        free_bytes, age_s = known
        coming = [
            to_come(other, now - age_s)
            for other in self._active.on_switches()
            if other.request.dst == request.dst and other.id != transit.id
        ]
        if request.size_bytes + sum(coming) <= free_bytes:
            return ""
        others = f", {format_size(sum(coming))} on their way" if any(coming) else ""
        return (
            f"{request.dst} has no room: {format_size(request.size_bytes)} needed, "
            f"{format_size(free_bytes)} free {age_s:.0f} s ago{others}"
        )


def to_come(transit: Transit, at: float) -> float:
    """Bytes that a running transit had yet to bring at a Unix second, at the rate that it was
    granted; 0 where its size is not known."""
    began, grant = transit.grant.active_at or transit.grant.installed_at, transit.grant
    moved = bytes_of(max(0.0, at - began) * grant.granted_bps)
    return max(0.0, (transit.request.size_bytes or 0) - moved)
