"""A ledger as it would be after some changes, without touching it. Pure."""

from __future__ import annotations

from network_provisioner.state.ledger import Ledger, Reservation
from network_provisioner.topology.graph import Hop

_Change = tuple[float, float, int]  # from when to when how much more is reserved


class Overlay:
    """What a ledger holds, with some reservations taken off and others put on."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._changes: dict[Hop, tuple[_Change, ...]] = {}

    def copy(self) -> Overlay:
        """Another one with the same changes."""
        made = Overlay(self._ledger)
        made._changes = dict(self._changes)
        return made

    def put(self, reservation: Reservation) -> bool:
        """Add a reservation if there is room for it; whether there was."""
        rates = reservation.rates()
        start, end = reservation.start, reservation.end
        if any(self.free(hop, start, end) < rate for hop, rate in rates.items()):
            return False
        self._change(reservation, 1)
        return True

    def take(self, reservation: Reservation) -> None:
        """Take off a reservation that is in the ledger or was put here."""
        self._change(reservation, -1)

    def free(self, hop: Hop, start: float, end: float) -> int:
        """Bits per second free on a directed link during all of [start, end)."""
        changes = self._changes.get(hop)
        if not changes:
            return self._ledger.residual(hop, start, end)
        instants = {at for begin, over, _ in changes for at in (begin, over) if start < at < end}
        cuts = [start, *sorted(instants), end]
        return min(
            self._ledger.residual(hop, cuts[i], cuts[i + 1])
            - sum(more for begin, over, more in changes if begin <= cuts[i] < over)
            for i in range(len(cuts) - 1)
        )

    def _change(self, r: Reservation, sign: int) -> None:
        for hop, rate in r.rates().items():
            change = (r.start, r.end, sign * rate)
            self._changes[hop] = (*self._changes.get(hop, ()), change)
