"""Who held how much of which links until now: what no ledger keeps. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from network_provisioner.base.model import LIVE, Transit

Listed = Callable[[int], Sequence[Transit]]
"""The newest this many transits, oldest first."""

_BEFORE_S = 86400.0  # one that was asked for earlier, and held something later, is rare
_FIRST = 2000  # are looked at first, and then, where that is not enough, all of the most
MOST = 20_000


def held_since(
    listed: Listed, since: float, now: float, users: frozenset[str] | None
) -> dict[str, Any]:
    """What was held between Unix second ``since`` and ``now``, JSON-ready: ``since`` is the second
    from which on all of it is known, ``held`` each transit with its paths. ``until`` is 0 if it
    still holds them. With ``users``, what others held has no names. Raises as ``listed``."""
    for look in (_FIRST, MOST):
        transits = listed(look)
        if len(transits) < look or transits[0].request.requested_at < since - _BEFORE_S:
            break
    else:
        since = max(since, transits[0].request.requested_at)
    rows = (_row(transit, now, users) for transit in transits)
    held = [row for row in rows if row and not 0 < row["until"] <= since]
    return {"since": since, "held": held}


def _row(transit: Transit, now: float, users: frozenset[str] | None) -> dict[str, Any] | None:
    grant, request = transit.grant, transit.request
    begun = grant.installed_at or (request.start if transit.state in LIVE else 0.0)
    if not begun:
        return None
    until = grant.released_at or (grant.lease_until if grant.lease_until < now else 0.0)
    parts: list[tuple[list[str], float]] = [(part.path, part.min_bps) for part in grant.parts]
    is_known = users is None or request.user in users
    who = {name: getattr(request, name) for name in ("id", "src", "dst", "user", "workflow", "job")}
    return {
        **{name: value if is_known else "" for name, value in who.items()},
        "from": begun,
        "until": until,
        "parts": [
            {"path": path, "bps": bps} for path, bps in parts or [(grant.path, request.min_bps)]
        ],
    }
