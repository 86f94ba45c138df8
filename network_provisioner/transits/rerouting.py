"""Running transits on other paths: away from links that have failed, and to better ones.

Each step is made in the broker's turn; the switches are told in it, or at its end.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from network_provisioner.base.model import LIVE, ON_SWITCHES, Transit, TransitState
from network_provisioner.selection.admission import Admission
from network_provisioner.selection.push import Reroute
from network_provisioner.state import circuits
from network_provisioner.state.network_state import NetworkState
from network_provisioner.topology.link_failures import LinkFailures
from network_provisioner.transits.desired_state import DesiredState
from network_provisioner.transits.lifecycle import Lifecycle
from network_provisioner.transits.placement import Placement

ASKED_AT_ONCE = 20  # transits that one sweep looks for better paths for


@dataclass(eq=False)
class Rerouting:
    """Moves transits. Not thread-safe: the broker's turn is around every call."""

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
            self._placement.do_without(transit, reason, now)
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
                (way,) = circuits.ways(transit, self._state.topology)
                move = Reroute(name, (replace(way, path=best.path),), way.path.hops[0])
                self._lifecycle.try_move([move], f"it scores {best.q:.2f}", now)
