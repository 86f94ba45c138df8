"""The newest transits of somebody: the store knows states and workflows, the rest is seen to here.

Transits are kept in the order they were asked for, so those of the last hour are at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from network_provisioner.base.model import Transit, TransitState

List = Callable[[int, str], list[Transit]]
"""The newest transits, at most so many, before the one with this id ("": of all), oldest first."""
_FAILED = frozenset({TransitState.FAILED, TransitState.EXPIRED})
MOST_READ = 20_000
_LEAST = 1000  # transits that are read at a time where too few were taken


@dataclass(frozen=True, slots=True)
class Only:
    """What else is asked for; None asks nothing. ``since`` and ``until`` are Unix seconds of the
    request, ``users`` those that the caller acts for, ``site`` one of the two ends, ``text`` a part
    of what names the transit or says what became of it, in lower case; ``failed``: whether it
    failed or expired, or its transfer did not succeed."""

    user: str | None = None
    project: str | None = None
    since: float | None = None
    users: frozenset[str] | None = None
    site: str | None = None
    text: str | None = None
    failed: bool | None = None
    until: float | None = None

    def takes(self, transit: Transit) -> bool:
        """Whether this one is meant."""
        return (
            self.user in (None, transit.request.user)
            and self.project in (None, transit.request.project)
            and (self.since is None or transit.request.requested_at >= self.since)
            and (self.until is None or transit.request.requested_at <= self.until)
            and (self.users is None or transit.request.user in self.users)
            and (self.site is None or self.site in (transit.request.src, transit.request.dst))
            and self.failed in (None, _has_failed(transit))
        )


def _has_failed(transit: Transit) -> bool:
    return transit.state in _FAILED or transit.usage.outcome not in ("", "success")


def _words(transit: Transit) -> str:
    r = transit.request
    who = (r.user, r.project, r.experiment, r.workflow, r.job, r.template)
    return " ".join((transit.id, *who, transit.usage.outcome, transit.reason))


def newest_transits(
    listed: List,
    limit: int,
    only: Only,
    shown: Callable[[list[Transit]], list[Transit]] = list,
    before: str = "",
) -> list[Transit]:
    """The newest ``limit`` transits that are all of this, before the one with the id ``before``,
    oldest first. ``shown`` is what the caller may read of some: a text is looked for in that
    alone. Raises as ``listed``."""
    taken: list[Transit] = []
    for page in _pages(listed, limit, before):
        matching = [transit for transit in page if only.takes(transit)]
        if only.text is not None:
            matching = [
                transit for transit in shown(matching) if only.text in _words(transit).lower()
            ]
        taken = matching + taken
        early = only.since is not None and page[0].request.requested_at < only.since
        if len(taken) >= limit or early:
            break
    return taken[-limit:]


def last(listed: List, limit: int, takes: Callable[[Transit], bool]) -> list[Transit]:
    """The newest ``limit`` transits that ``takes`` wants, newest first, of the newest MOST_READ.
    Raises as ``listed``."""
    taken: list[Transit] = []
    for page in islice(_pages(listed, _LEAST), MOST_READ // _LEAST):
        taken += filter(takes, reversed(page))
        if len(taken) >= limit:
            break
    return taken[:limit]


def _pages(listed: List, look: int, before: str = "") -> Iterator[list[Transit]]:
    """Pages of transits, the newest first, none of them empty; of ``look`` transits the first."""
    while page := listed(look, before):
        yield page
        if len(page) < look:
            return
        before, look = page[0].id, max(look, _LEAST)
