"""What a broker does when the wall clock was set: see :mod:`~network_provisioner.clock`.

Transits that run keep what they have, for as long as they had it. Those in advance stay where the
wall clock says, which may be in other company than before: one that no longer fits waits in the
queue, like one that asks anew. Not thread-safe: the broker's turn is around every call.
"""

from __future__ import annotations

from network_provisioner import circuits
from network_provisioner.clock import has_begun, move_times
from network_provisioner.decisions.reservations import Ledger
from network_provisioner.keeper import Keeper
from network_provisioner.model import LIVE, ON_SWITCHES, Transit, TransitState
from network_provisioner.roster import Roster
from network_provisioner.switchboard import Switchboard
from network_provisioner.topology import Topology


class TimeShift:
    """Brings roster, ledger, store and switches to another time."""

    def __init__(
        self,
        topology: Topology,
        roster: Roster,
        ledger: Ledger,
        keeper: Keeper,
        switches: Switchboard,
    ) -> None:
        self._topology = topology
        self._roster = roster
        self._ledger = ledger
        self._keeper = keeper
        self._switches = switches

    def carry_out(self, by_s: float, now: float) -> None:
        """The wall clock was set by ``by_s`` seconds, and it is ``now``. The switches are to be
        told afterwards, and the queue to be served."""
        before = now - by_s
        transits = list(self._roster.all.values())
        live = [transit for transit in transits if transit.state in LIVE]
        for transit in live:
            self._ledger.release(transit.id)
        # Those that run first: they held all this together a moment ago.
        live.sort(key=lambda transit: not has_begun(transit, before))
        for transit in transits:
            move_times(transit, by_s, before)
        for transit in live:
            refusal = self._reserve(transit, now)
            if refusal:
                circuits.leave(transit)
                transit.state, transit.lease_until = TransitState.QUEUED, 0.0
                transit.reason = f"the clock was set by {by_s:+.0f} s: {refusal}"
        for transit in transits:
            self._roster.enter(transit)
            if transit.state in ON_SWITCHES:
                self._switches.want(transit)
        self._roster.waitlist.unsettle()
        self._switches.move_time(by_s)
        self._keeper.save(transits)

    def _reserve(self, transit: Transit, now: float) -> str:
        """Why there is no room for it at its time, in words; "" where there is. One whose time is
        over needs none: it ends next."""
        if (transit.end or transit.lease_until) <= now:
            return ""
        return circuits.reserve(self._ledger, transit, self._topology, now)
