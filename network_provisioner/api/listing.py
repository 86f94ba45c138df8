"""The newest transits of somebody: the store knows states and workflows, the rest is seen to here.

Transits are kept in the order they were asked for, so those of the last hour are at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from network_provisioner.base.model import Transit

List = Callable[[int, str], list[Transit]]
"""The newest transits, at most so many, before the one with this id ("": of all), oldest first."""
_LEAST = 1000  # transits that are read at a time where not all are taken


@dataclass(frozen=True, slots=True)
class Only:
    """What else is asked for; None asks nothing. ``since`` is the Unix second of the request,
    ``users`` those that the caller acts for."""

    user: str | None = None
    project: str | None = None
    since: float | None = None
    users: frozenset[str] | None = None

    def takes(self, transit: Transit) -> bool:
        """Whether this one is meant."""
        return (
            self.user in (None, transit.request.user)
            and self.project in (None, transit.request.project)
            and (self.since is None or transit.request.requested_at >= self.since)
            and (self.users is None or transit.request.user in self.users)
        )


def newest(listed: List, limit: int, only: Only, before: str = "") -> list[Transit]:
    """The newest ``limit`` transits that are all of this, before the one with the id ``before``,
    oldest first. Raises as ``listed``."""
    look = limit if only == Only() else max(limit, _LEAST)
    taken: list[Transit] = []
    while True:
        found = listed(look, before)
        taken = [transit for transit in found if only.takes(transit)] + taken
        early = only.since is not None and found and found[0].request.requested_at < only.since
        if len(taken) >= limit or len(found) < look or early:
            return taken[-limit:]
        before = found[0].id
