"""Other rates and other packets for live and queued transits."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import CLIENT, RateChange, Transit, TransitState
from network_provisioner.selection.admission import Admission
from network_provisioner.selection.request_builder import RequestBuilder
from network_provisioner.state import circuits
from network_provisioner.state.connections import Connection, ReportedConnections
from network_provisioner.state.network_state import NetworkState
from network_provisioner.transits.lifecycle import Lifecycle

log = logging.getLogger(__name__)

_KEPT = 16  # changes of the rates of one transit


@dataclass(eq=False)
class Modifications:
    """Not thread-safe: the broker holds its lock in every call. What raises BrokerError changes
    nothing."""

    _state: NetworkState
    _requests: RequestBuilder
    _admission: Admission
    _lifecycle: Lifecycle
    _connections: ReportedConnections

    def rates(
        self,
        transit: Transit,
        min_bps: float | None,
        max_bps: float | None,
        now: float,
        why: str = "",
    ) -> None:
        """Other rates on the paths it has; of one that waits, what it waits for. ``why``, in words;
        "" where its owner wants it."""
        terms = self._requests.changed_terms(transit, min_bps, max_bps)
        low, high = terms.min_bps, terms.max_bps
        was = transit.request.min_bps, transit.request.max_bps
        if was == (low, high):
            return
        what, queued = "the rates were not changed", transit.state is TransitState.QUEUED
        ways = () if queued else circuits.with_rates(transit, self._state.topology, low, high)
        wanted = transit.copy()
        wanted.request = replace(
            transit.request, min_bps=low, max_bps=high, uncapped=terms.uncapped
        )
        if low > was[0]:
            over = self._admission.over_quota(wanted, now)
            refusal = over or self._admission.refusal(transit, ways, now)
            if refusal:
                raise BrokerError(f"{what}: {refusal}", "conflict")
        rates = [*transit.grant.changes, RateChange(now, low, high, *was, why)]
        wanted.grant.changes = rates[-_KEPT:]
        self._lifecycle.modify(transit, wanted, now, what, ways=ways)
        if queued:
            self._state.active.waitlist.ask_again(transit)

    def flows(self, transit: Transit, flows: Sequence[Flow], now: float) -> None:
        """Other packets; what ports it was given counts no more."""
        wanted, pairs = transit.copy(), self._state.active.pairs
        wanted.request = replace(transit.request, flows=tuple(flows), ports_at="")
        wanted.grant.ports = []
        other_ways = (
            pairs.ways(wanted) - {tuple(transit.grant.path)} if transit.grant.path else set()
        )
        if other_ways or pairs.clash(wanted) is not None:
            raise BrokerError(
                f"some of the packets of {transit.id} go another way already, with another "
                "transit between its sites; expected ports of its own",
                "conflict",
            )
        self._lifecycle.modify(transit, wanted, now, "the flows were not changed")

    def connections(
        self, agent: str, site: str, connections: Sequence[Connection], now: float
    ) -> None:
        """The flows of transits whose clients have these connections of servers open."""
        flows = self._connections.take_in(agent, site, connections, now, self._state.active.all)
        for transit_id, named_flows in flows.items():
            transit, named = self._state.active.all[transit_id], tuple(named_flows)
            if transit.request.ports_at != CLIENT or transit.request.flows == named:
                continue
            wanted = transit.copy()
            wanted.request = replace(transit.request, flows=named)
            if self._state.active.pairs.clash(wanted) is not None:
                log.info("transit %s: its ports are those of another", transit_id)
                continue
            try:
                self._lifecycle.modify(transit, wanted, now, "the flows were not changed")
            except BrokerError as error:  # of one: the others have theirs
                log.warning("transit %s: %s", transit_id, error)
