"""Which installed transits have carried bytes: then they are active. Not thread-safe."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from network_provisioner.keeper import Keeper
from network_provisioner.model import ON_SWITCHES, Transit, TransitState
from network_provisioner.roster import Roster
from network_provisioner.switchboard import Switchboard


class Watch:
    """Looks at the counters of some transits at a time, in turns."""

    def __init__(self, roster: Roster, switches: Switchboard, keeper: Keeper) -> None:
        self._roster = roster
        self._switches = switches
        self._keeper = keeper
        self._unseen: deque[str] = deque()  # installed ones that no byte was seen of

    def enter(self, transit: Transit) -> None:
        """Look for the bytes of a transit that was installed."""
        self._unseen.append(transit.id)

    def moving(self, most: int) -> list[str]:
        """Those among the next ``most`` that have carried bytes. Asks the switches, and may be
        called while others change transits."""
        some = [self._unseen.popleft() for _ in range(min(most, len(self._unseen)))]
        self._unseen.extend(some)
        return [name for name in some if self._switches.bytes_of(name) > 0]

    def seen(self, names: Collection[str], now: float) -> None:
        """These have carried bytes."""
        active = []
        for name in names:
            transit = self._roster.all.get(name)
            if transit is not None and transit.state is TransitState.INSTALLED:
                transit.state, transit.active_at = TransitState.ACTIVE, now
                active.append(transit)
        self._keeper.save(active)
        known = self._roster.all
        self._unseen = deque(
            name
            for name in self._unseen
            if name in known and known[name].state is TransitState.INSTALLED
        )

    def reported(self, transit: Transit, n_bytes: int, now: float) -> None:
        """A transfer says what it moved. Where the network carries no packets, only then is its
        transit active: nobody else can know."""
        on = transit.state in ON_SWITCHES
        if on and self._switches.report(transit.id, n_bytes) and n_bytes:
            transit.state, transit.active_at = TransitState.ACTIVE, transit.active_at or now
