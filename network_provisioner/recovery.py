"""Brings ledger, switches and store together again: after a crash, and after another broker's turn.

What the store says is right. Whatever step the last broker died in, a transit that is live there is
reserved again and put on the switches, one whose time is over ends, one that no longer fits the
network fails. Not thread-safe: the broker's turn is around every call.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from network_provisioner import circuits
from network_provisioner.decisions.reservations import Ledger
from network_provisioner.keeper import Keeper
from network_provisioner.lifecycle import Lifecycle
from network_provisioner.model import ENDED, LIVE, Transit, TransitState
from network_provisioner.store import ACTIVE
from network_provisioner.topology import Topology

log = logging.getLogger(__name__)


class Recovery:
    """Takes in transits that the store has and this broker does not know."""

    def __init__(self, topology: Topology, ledger: Ledger, keeper: Keeper, life: Lifecycle) -> None:
        self._topology = topology
        self._ledger = ledger
        self._keeper = keeper
        self._life = life

    def adopt(self, transits: Sequence[Transit], now: float) -> None:
        """Take over all that the last broker left active, oldest first."""
        for transit in transits:
            if transit.state is TransitState.QUEUED:
                self._life.resume(transit)
            elif transit.lease_until <= now:
                transit.reason += "; its lease ended while no broker ran"
                self._life.end(transit, TransitState.EXPIRED, now)
            else:
                problem = circuits.reserve(self._ledger, transit, self._topology, now)
                if problem:
                    transit.reason += f"; after a restart: {problem}"
                    self._life.end(transit, TransitState.FAILED, now)
                else:
                    self._life.resume(transit)

    def news(self, transits: Sequence[Transit], now: float) -> None:
        """Take in what other brokers that share the store did since our last turn.

        They decided in turns of their own, so it fits; the more so as all that moved is taken off
        before any of it is put back. But they could not know what the store has not taken of us:
        what was given back stays so, for its owner was told and nobody would end it again; all else
        is again as they found it, for they may have given away what it takes up.
        """
        transits = [
            *self._keeper.late({transit.id for transit in transits}),
            *(t for t in transits if t.state in ENDED or not self._keeper.given_back(t.id)),
        ]
        for transit in transits:
            self._life.forget(transit.id)
        for transit in transits:
            if transit.state not in ACTIVE:
                continue
            if transit.state in LIVE and transit.lease_until > now:
                problem = circuits.reserve(self._ledger, transit, self._topology, now)
                if problem:  # brokers with different limits or topologies on one store
                    log.error("transit %s of another broker does not fit: %s", transit.id, problem)
                    continue
            self._life.resume(transit)
