"""Links that carry nothing now, as the controller sees them, and the news of them.

Nothing new is put on them; what becomes of what runs there is the broker's business.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

from network_provisioner.controllers.base import Controller, WatchesLinks
from network_provisioner.topology.graph import Topology

log = logging.getLogger(__name__)

Hop = tuple[str, str]


@dataclass(frozen=True, slots=True)
class LinkNews:
    """A link has failed at Unix second ``since``, for a ``reason``; or works again ``at`` another,
    0 for not yet."""

    link: str
    reason: str
    since: float
    at: float = 0.0

    def __str__(self) -> str:
        if self.at:
            return f"link {self.link} works again after {self.at - self.since:.0f} s"
        return f"link {self.link} has failed: {self.reason}"


class LinkFailures:
    """What has failed of one network. Not thread-safe, but for :meth:`stirs`."""

    def __init__(self, topology: Topology, controller: Controller) -> None:
        self._topology = topology
        self._watched = controller if isinstance(controller, WatchesLinks) else None
        self._now: dict[str, LinkNews] = {}
        self.hops: dict[Hop, str] = {}
        """Every directed link that carries nothing, and that in words; always the same mapping."""
        self._seen: dict[Hop, str] = {}
        self.news: deque[LinkNews] = deque()  # to be told

    def stirs(self) -> bool:
        """Whether the controller sees something else than what was taken in."""
        return self._watched is not None and dict(self._watched.failed_links()) != self._seen

    def look(self, now: float) -> bool:
        """Take in what the controller sees at Unix second ``now``; whether that is news."""
        if not self.stirs() or self._watched is None:
            return False
        self._seen = found = dict(self._watched.failed_links())
        self.hops.clear()
        was, failed = self._now, {}
        for link in self._topology.whole_links:
            why = next((found[hop] for hop in link.hops if hop in found), "")
            known = was.get(link.label)
            if why:
                failed[link.label] = one = known or self._told(LinkNews(link.label, why, now))
                self.hops.update(dict.fromkeys(link.hops, str(one)))
            elif known is not None:
                self._told(replace(known, at=now))
        self._now = failed
        return True

    def _told(self, news: LinkNews) -> LinkNews:
        log.warning("%s", news)
        self.news.append(news)
        return news

    def described(self) -> list[dict[str, Any]]:
        """JSON-ready: link, reason, since."""
        known = list(self._now.values())
        return [{"link": one.link, "reason": one.reason, "since": one.since} for one in known]

    @property
    def problem(self) -> str:
        """In words, "" where nothing has failed."""
        return "; ".join(map(str, list(self._now.values())))
