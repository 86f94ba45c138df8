"""Running transits on other paths: away from links that have failed or are taken out of service for
maintenance (drains), and to better ones.

Once a drain begins, its links count as failed: transits leave them.
Reservations in advance move when the drain is ordered, so that their users know early.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.instants import iso
from network_provisioner.base.model import LIVE, ON_SWITCHES, Transit, TransitState
from network_provisioner.selection.admission import Admission
from network_provisioner.state import circuits
from network_provisioner.state.network_state import NetworkState
from network_provisioner.stores.store import Store, StoreError
from network_provisioner.topology.drains import Drain, Drains
from network_provisioner.topology.graph import Hop
from network_provisioner.topology.link_failures import LinkFailures, News
from network_provisioner.transits.desired_state import DesiredState
from network_provisioner.transits.lifecycle import Lifecycle
from network_provisioner.transits.placement import Placement

ASKED_AT_ONCE = 20  # transits that one sweep looks for better paths for
log = logging.getLogger(__name__)

_DOCUMENT = ("network", "drains")


@dataclass(eq=False)
class Rerouting:
    """Moves transits. Not thread-safe: the broker holds its lock in every call."""

    _state: NetworkState
    _failures: LinkFailures
    _admission: Admission
    _lifecycle: Lifecycle
    _desired: DesiredState
    _placement: Placement
    # Transits beside whose paths room was given back.
    _near: dict[str, None] = field(default_factory=dict)

    def take_in(self, now: float) -> bool:
        """Take in which links have failed, or work again; whether that is news.

        What is over a link that has failed moves to other paths; what has no room there goes on as
        best effort until it has. The queue is to be served then, and the switches to be told.
        """
        news = self._failures.observe(now)
        if news:
            self._desired.dirty = True  # best effort may go another way as well
            self._state.active.waitlist.unsettle()
            hops = (hop for link in self._state.topology.links for hop in link.hops)
            self._lifecycle.freed.update(hops)
        if self._failures.broken:
            self._leave_failed(now, news)
        return news

    def _leave_failed(self, now: float, news: bool) -> None:
        """Without ``news`` only who is to start is looked at: the others were before."""
        there = self._lifecycle.starting
        if news:
            there += self._state.active.on_switches()
        for transit in sorted(there, key=lambda t: -t.request.priority):
            failed = circuits.first_of(transit, self._failures.broken)
            if failed is None or transit.state not in LIVE:  # it went along with another, or ended
                continue
            # The lowest of several that must go together is the first to stay behind.
            together = [transit, *self._state.active.pairs.mates(transit)]
            together.sort(key=lambda t: (-t.request.priority, t.request.requested_at))
            while together:
                moves = self._admission.reroutes(together, failed[0], now)
                if moves:
                    self._lifecycle.move(moves, failed[1], now)
                    break
                self._stay_behind(together.pop(), f"no other path has room: {failed[1]}", now)

    def _stay_behind(self, transit: Transit, reason: str, now: float) -> None:
        if transit.request.start > now:
            self._lifecycle.not_started(transit, TransitState.QUEUED, reason, now)
        elif self._admission.open_path(transit) is not None:  # only what has a path passes there
            self._placement.use_best_effort(transit, reason, now)
        else:
            self._lifecycle.requeue(transit, reason, now)

    def improve(self, now: float) -> None:
        """Move transits whose templates say so to better paths that room was given back on. Who
        waits is to be served before."""
        freed, self._lifecycle.freed = self._lifecycle.freed, set()
        if freed:
            live = sorted(self._state.active.on_switches(), key=lambda t: -t.request.priority)
            self._near.update((t.id, None) for t in live if self._admission.may_move(t, freed))
        self._lifecycle.apply(now)  # so that a move that is refused takes nothing with it
        for name in list(self._near)[:ASKED_AT_ONCE]:
            if self._desired.out_of_step:
                return
            del self._near[name]
            transit = self._state.active.all.get(name)
            if transit is None or transit.state not in ON_SWITCHES:
                continue
            best = self._admission.better(transit, now)
            if best is not None:
                self._lifecycle.try_path(transit, best.path, f"it scores {best.q:.2f}", now)


@dataclass(eq=False)
class Draining:
    """Not thread-safe: the broker holds its lock in every call. ``news`` are of reservations that
    lose their paths."""

    _state: NetworkState
    _drains: Drains
    _admission: Admission
    _lifecycle: Lifecycle
    _store: Store
    news: deque[News] = field(default_factory=deque)

    def recall(self) -> None:
        """Take over the drains that the store has. Raises StoreError."""
        known = self._store.document(*_DOCUMENT)
        self._drains.replace(Drain(**drain) for drain in (known.body["drains"] if known else ()))

    def order(self, drain: Drain, now: float) -> Drain:
        """Take an element out of service, or change when. Raises BrokerError ``bad_request``,
        ``bad_time``, ``store_unavailable``, with nothing changed."""
        drain = replace(drain, element=self._drains.check(drain.element), at=drain.at or now)
        if drain.until and drain.until <= max(drain.at, now):
            raise BrokerError(
                f"the drain of {drain.element} ends at {iso(drain.until)}, expected an end after "
                f"its start, {iso(drain.at)}, and after now",
                "bad_time",
            )
        self._write([*(d for d in self._drains if d.element != drain.element), drain])
        self._relocate(drain, now)
        return drain

    def cancel(self, element: str) -> Drain:
        """Put an element back into service. Raises BrokerError ``bad_request`` for one without a
        drain, ``store_unavailable``."""
        drain = self._drains.get(element) or self._drains.get(self._drains.check(element))
        if drain is None:
            raise BrokerError(f"{element} is in service, expected one with a drain", "bad_request")
        self._write([d for d in self._drains if d is not drain])
        return drain

    def listed(self) -> list[dict[str, Any]]:
        """All drains as :meth:`described`, the next first."""
        return [self.described(drain) for drain in self._drains]

    def described(self, drain: Drain) -> dict[str, Any]:
        """A drain, JSON-ready, with the ids of transits that are ``on`` its links now and of those
        that have ``reserved`` them while it lasts."""
        affected = [transit for transit, _ in self._affected(drain)]
        on = [transit.id for transit in affected if transit.state in ON_SWITCHES]
        later = [transit.id for transit in affected if transit.state not in ON_SWITCHES]
        active = drain.element in self._drains.active
        return asdict(drain) | {"active": active, "on": on, "reserved": later}

    def _affected(self, drain: Drain) -> Iterator[tuple[Transit, Hop]]:
        """The transits on its links, now or while it lasts, each with the first of these links."""
        hops = dict.fromkeys(self._drains.hops(drain.element), "")
        for transit in list(self._state.active.all.values()):
            start, end = transit.request.start, transit.grant.lease_until
            concerned = transit.state in ON_SWITCHES or drain.overlaps(start, end)
            if concerned and transit.state in LIVE and (link := circuits.first_of(transit, hops)):
                yield transit, link[0]

    def _relocate(self, drain: Drain, now: float) -> None:
        """Move the reservations in advance that the drain would take the path of."""
        reason = f"{drain.element} {drain}"
        for transit, hop in self._affected(drain):  # one that went along with another is on no more
            if transit.request.start <= now:
                continue
            together = [transit, *self._state.active.pairs.mates(transit)]
            moves = self._admission.reroutes(together, hop, now)
            if moves:
                self._lifecycle.move(moves, reason, now)
                continue
            warning = f"{reason}; no other path has room at the reserved time"
            wanted = transit.copy()
            wanted.grant.warnings = [*transit.grant.warnings, warning]
            self._lifecycle.amend(transit, wanted, now)
            self.news.append(News(f"reservation {transit.id}", f"loses its path: {warning}", now))

    def _write(self, drains: list[Drain]) -> None:
        try:
            body = {"drains": [asdict(drain) for drain in drains]}
            self._store.put_document(*_DOCUMENT, body, keep=1)
        except StoreError as error:
            raise BrokerError(str(error), "store_unavailable") from error
        self._drains.replace(drains)
