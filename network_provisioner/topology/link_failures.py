"""What of the network cannot be used now, as the controller sees it, and the news of it.

A link that has failed carries nothing: nothing new is put on it, and what runs there leaves. A
switch that is away may go on forwarding, so what runs there stays, but nothing new can be set up.
A link that fails again and again is left alone until it has been quiet for a while. One that had
failed when the last broker stopped is taken for dead until something comes through it. What is out
of service for maintenance (:mod:`~.drains`) carries nothing either; that it fails is no news.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from network_provisioner.base.controller import (
    AvoidsLinks,
    Controller,
    ProbesLinks,
    SwitchStatus,
    WatchesLinks,
    WatchesSwitches,
    Way,
)
from network_provisioner.topology.drains import Drains
from network_provisioner.topology.graph import Hop, Link, Topology

log = logging.getLogger(__name__)

# A link that failed so often within so many seconds is unstable, until it was quiet for so many.
_UNSTABLE, _UNSTABLE_S, _QUIET_S = 3, 60.0, 15.0
_HAS_FAILED = "has failed: "


@dataclass(frozen=True, slots=True)
class News:
    """``what``, such as a link, a switch or an agent, is not as it should be since Unix second
    ``since``, for a ``reason``; or it is again ``at`` another, 0 for not yet."""

    what: str
    reason: str
    since: float
    at: float = 0.0
    again: str = "works"

    def __str__(self) -> str:
        if self.at:
            return f"{self.what} {self.again} again after {self.at - self.since:.0f} s"
        return f"{self.what} {self.reason}"


class LinkFailures:
    """What cannot be used of one network. Not thread-safe, but for :meth:`has_news`."""

    def __init__(self, topology: Topology, controller: Controller, drains: Drains) -> None:
        self._topology = topology
        self._drains = drains
        self._avoids = controller if isinstance(controller, AvoidsLinks) else None
        self._links = controller if isinstance(controller, WatchesLinks) else None
        self._probes = controller if isinstance(controller, ProbesLinks) else None
        self._switches = controller if isinstance(controller, WatchesSwitches) else None
        self._failed: dict[str, News] = {}
        self._switches_now: dict[str, News] = {}
        self._drained: dict[str, News] = {}
        self._out: set[str] = set()  # the links that drains take out of service, by their labels
        self.broken: dict[Hop, str] = {}
        """Every directed link that carries nothing, and that in words; always the same mapping."""
        self.unusable: dict[Hop, str] = {}
        """The same, and those of switches that are away: nothing new is to be put on them."""
        self._seen: dict[Hop, str] | None = None  # None: nothing was taken in yet
        self._seen_switches: dict[str, str] = {}
        self._away: dict[str, str] = {}
        self._failed_at: dict[str, deque[float]] = {}
        self._unstable: set[str] = set()
        self._saved: tuple[dict[str, News], Set[Way]] = ({}, set())
        self.news: deque[News] = deque()  # to be told

    def recall(self, remembered: Mapping[str, Any]) -> None:
        """Take over what :meth:`remembered` gave before a restart. A controller that sends no
        probes sees for itself what has failed."""
        if self._probes is not None:
            known = {record["link"]: record for record in remembered["links"]}
            self._failed = {
                link: _failure(link, record["reason"], record["since"])
                for link, record in known.items()
            }
            failed = {
                hop: known[link.label]["reason"]
                for link in self._topology.whole_links
                if link.label in known
                for hop in link.hops
            }
            ways = {(tuple(a), tuple(b)) for a, b in remembered.get("ways", ())}
            self._probes.expect_ways(ways, failed)

    def remembered(self) -> dict[str, Any]:
        """What is to be known after a restart, JSON-ready: the links that have failed, and the
        ways that probes come through."""
        links = _described(list(self._failed.items()))
        return {"links": links, "ways": sorted(self._ways())}

    def save(self, put: Callable[[dict[str, Any]], object]) -> None:
        """Hand what is to be remembered to ``put`` where that has changed since it took it. Raises
        what it raises."""
        state = self._failed, self._ways()
        if state != self._saved:  # to be asked in every cycle: so nothing is put together before
            put(self.remembered())
            self._saved = state

    def _ways(self) -> Set[Way]:
        return set() if self._probes is None else self._probes.known_ways()

    def statuses(self) -> list[SwitchStatus]:
        """Every switch as it is now; none where the controller does not say."""
        return [] if self._switches is None else list(self._switches.switches())

    def has_news(self) -> bool:
        """Whether the controller sees something else than what was taken in."""
        links = {} if self._links is None else dict(self._links.failed_links())
        return links != self._seen or self._problems(self.statuses()) != self._seen_switches

    def observe(self, now: float) -> bool:
        """Take in what the controller sees at Unix second ``now``; whether that is news."""
        drained = self._drains.advance(now)
        if not (drained or self._unstable or self.has_news()):
            return False
        if drained:
            self._report_drains(now)
            if self._avoids is not None:
                self._avoids.avoid_links(frozenset(self._drains.closed_now))
        before = dict(self.unusable)
        self._look_at_switches(now)
        self._look_at_links(now)
        self.unusable.clear()
        for link in self._topology.whole_links:
            for end in (link.a, link.b):
                if end in self._away:
                    self.unusable.update(dict.fromkeys(link.hops, self._away[end]))
        self.unusable.update(self.broken)
        return self.unusable != before

    def _report_drains(self, now: float) -> None:
        was, self._drained = self._drained, {}
        for element, drain in self._drains.active.items():
            known = was.pop(element, None)
            news = News(element, str(drain), known.since if known else now, again="is in service")
            self._drained[element] = news if news == known else self._told(news)
        for known in was.values():
            self._told(replace(known, at=now))

    def _look_at_switches(self, now: float) -> None:
        statuses = self.statuses()
        self._seen_switches = self._problems(statuses)
        self._away = {s.name: f"{s.label} {s.problem}" for s in statuses if not s.connected}
        was = self._switches_now
        wrong: dict[str, News] = {}
        for status in statuses:
            known = was.get(status.name)
            if status.name in self._drains.active:
                wrong |= {} if known is None else {status.name: known}
            elif status.problem and (known is None or known.reason != status.problem):
                news = News(status.label, status.problem, status.since or now)
                wrong[status.name] = self._told(news)
            elif status.problem and known is not None:
                wrong[status.name] = known
            elif known is not None:
                self._told(replace(known, at=now))
        self._switches_now = wrong

    def _look_at_links(self, now: float) -> None:
        self._seen = reasons = {} if self._links is None else dict(self._links.failed_links())
        self.broken.clear()
        was = self._failed
        failed: dict[str, News] = {}
        out: set[str] = set()
        for link in self._topology.whole_links:
            known = was.get(link.label)
            if not self._drains.closed_now.keys().isdisjoint(link.hops):
                out.add(link.label)
                failed |= {} if known is None else {link.label: known}
                continue
            why = next((reasons[hop] for hop in link.hops if hop in reasons), "")
            why = self._damped(link.label, why, now)
            if why:
                failure = _failure(link.label, why, known.since if known else now)
                failed[link.label] = failure if known else self._told(failure)
                self.broken.update(dict.fromkeys(link.hops, str(failure)))
            elif known is not None:
                self._told(replace(known, at=now))
        self._failed, self._out = failed, out
        self.broken.update(self._drains.closed_now)

    def _damped(self, link: str, why: str, now: float) -> str:
        """Why a link is not to be used, "" where it is."""
        times = self._failed_at.setdefault(link, deque(maxlen=_UNSTABLE))
        if why:
            if link in self._unstable and times:
                times[-1] = now
            elif link not in self._failed:
                times.append(now)
                if len(times) == _UNSTABLE and now - times[0] < _UNSTABLE_S:
                    self._unstable.add(link)
            return why
        if link in self._unstable and now - times[-1] < _QUIET_S:
            return f"it has failed {_UNSTABLE} times or more within a minute"
        self._unstable.discard(link)
        return ""

    @staticmethod
    def _problems(statuses: list[SwitchStatus]) -> dict[str, str]:
        return {status.name: status.problem for status in statuses if status.problem}

    def _told(self, news: News) -> News:
        log.warning("%s", news)
        self.news.append(news)
        return news

    def described(self) -> list[dict[str, Any]]:
        """Those that have failed and are in service, JSON-ready: link, reason, since."""
        return _described(self._failed_now())

    def _failed_now(self) -> list[tuple[str, News]]:
        """The links that have failed and are in service, by their labels."""
        return [
            (label, news) for label, news in list(self._failed.items()) if label not in self._out
        ]

    def unknown(self) -> list[Link]:
        """The links that are watched, and of which nobody knows whether they work."""
        hops = set() if self._probes is None else self._probes.unheard_links()
        return [
            link
            for link in self._topology.whole_links
            if not hops.isdisjoint(link.hops) and link.label not in self._failed
        ]

    @property
    def drained(self) -> Set[Hop]:
        """The directed links that are out of service for maintenance."""
        return self._drains.closed_now.keys()

    @property
    def problem(self) -> str:
        """In words, "" where all is well."""
        out = self._drains.active
        wrong = (s for s in self.statuses() if s.problem and s.name not in out)
        switches = [f"{s.label} {s.problem}" for s in wrong]
        return "; ".join([*switches, *(str(news) for _, news in self._failed_now())])


def _described(failed: list[tuple[str, News]]) -> list[dict[str, Any]]:
    return [
        {"link": link, "reason": failure.reason.removeprefix(_HAS_FAILED), "since": failure.since}
        for link, failure in failed
    ]


def _failure(link: str, why: str, since: float) -> News:
    return News(f"link {link}", _HAS_FAILED + why, since)
