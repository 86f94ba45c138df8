"""From a request to a transit: checked, completed from its template, with no path yet.

Reads the network's state and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import CLIENT, SEEN, Transit, TransitRequest
from network_provisioner.base.units import format_rate
from network_provisioner.selection.limits import BrokerLimits, check_times
from network_provisioner.selection.path_selector import PathSelector
from network_provisioner.selection.terms import (
    AgreedRates,
    decline_reason,
    new_transit,
    settle,
)
from network_provisioner.state.connections import ReportedConnections
from network_provisioner.state.network_state import NetworkState
from network_provisioner.templates.lookup import Templates, template_for
from network_provisioner.templates.template import Template


@dataclass(eq=False)
class RequestBuilder:
    """Not thread-safe: reads the state within the broker's cycle."""

    _state: NetworkState
    _selector: PathSelector
    _templates: Templates
    _limits: BrokerLimits
    _connections: ReportedConnections

    def build(self, request: TransitRequest, now: float) -> tuple[Transit, Template, AgreedRates]:
        """The transit of a checked request, its template, and what it settles for.

        Raises BrokerError ``unknown_template``, ``unknown_site``, ``impossible_rate``,
        ``bad_time``, ``conflict``.
        """
        try:
            self._state.topology.site(request.src)
            self._state.topology.site(request.dst)
        except InputError as error:
            raise BrokerError(str(error), "unknown_site") from error
        template = template_for(request, self._templates)
        self.check_times(request.start, request.end, now)
        most_bps = 0.0
        if not decline_reason(request):
            most_bps = self._selector.capacity(request.src, request.dst, self._paths(template))
        terms = settle(request, template, most_bps)
        transit = new_transit(request, template, terms, now)
        transit.request = replace(transit.request, hosts=self._hosts(request))
        if request.ports_at and not (request.flows or request.best_effort):
            self._tell_apart(transit, request.ports_at, now)
        clash = None if request.best_effort else self._state.active.pairs.clash(transit)
        if clash is not None:
            raise BrokerError(
                f"flows name packets that transit {clash.id!r} names too, expected ports of its "
                "own for each, or exactly the same",
                "conflict",
            )
        return transit, template, terms

    def changed_terms(
        self, transit: Transit, min_bps: float | None, max_bps: float | None
    ) -> AgreedRates:
        """What a transit that has not ended settles for instead; None leaves a rate as it is.

        Raises BrokerError ``impossible_rate``, ``conflict`` (it has no rate of its own).
        """
        template = self._state.active.template_of(transit)
        if template is None or transit.request.min_bps <= 0:
            gone = f"template {transit.request.template!r} is gone"
            why = "has no rate of its own" if template else gone
            raise BrokerError(f"the rates of {transit.id!r} cannot be changed: {why}", "conflict")
        if max_bps is None and not transit.request.uncapped:
            max_bps = transit.request.max_bps
        request = TransitRequest(
            transit.id,
            transit.request.src,
            transit.request.dst,
            min_bps=transit.request.min_bps if min_bps is None else min_bps,
            max_bps=max_bps,
        )
        terms = settle(request, template, transit.request.max_bps)
        self.check_possible(request, terms, template)
        return terms

    def _hosts(self, request: TransitRequest) -> tuple[str, ...]:
        """The addresses of the two hosts that a request names; none where the topology does not
        know both, or they cannot talk: then all of both sites are meant."""
        src = self._state.topology.site(request.src).host(request.src_host)
        dst = self._state.topology.site(request.dst).host(request.dst_host)
        if src is None or dst is None or src.version != dst.version:
            return ()
        return src.address, dst.address

    def _tell_apart(self, transit: Transit, end: str, now: float) -> None:
        """Have a transit's tool use ports of its own, where the switches tell them apart: now, or
        when it begins. Of a client's ports somebody has to see which connections of the servers
        come of them; but where a transit alone opens the way, nobody does before it has rules."""
        if not self._state.can.matches:
            return
        sites, nodes = (transit.request.src, transit.request.dst), self._state.topology.nodes
        if end in (CLIENT, SEEN) and any(nodes[site].dmz for site in sites):
            return
        if end == CLIENT and not any(self._connections.reports(site, now) for site in sites):
            return
        transit.request = replace(transit.request, ports_at=end)
        if end != SEEN and not (transit.request.start or transit.request.end):
            self.give_ports(transit)
            if not transit.grant.ports:
                transit.request = replace(transit.request, ports_at="")

    def give_ports(self, transit: Transit) -> None:
        """The ports for the tool of a transit that begins, if any are left."""
        if transit.request.ports_at not in ("", SEEN) and not transit.grant.ports:
            transit.grant.ports = self._state.active.ports.choose(transit)
            if transit.grant.ports and transit.request.ports_at != CLIENT:
                first, last = transit.grant.ports
                flow = Flow("tcp", **{f"{transit.request.ports_at}_ports": (first, last)})
                transit.request = replace(transit.request, flows=(flow,))
                if self._state.active.pairs.clash(transit) is not None:  # others name them
                    transit.grant.ports = []
                    transit.request = replace(transit.request, flows=())

    def check_times(self, start: float | None, end: float | None, now: float) -> None:
        """Raises BrokerError ``bad_time`` for times that nobody can have."""
        check_times(start, end, now, self._limits.max_lease_s)

    def check_possible(
        self, request: TransitRequest, terms: AgreedRates, template: Template
    ) -> None:
        """Raises BrokerError ``impossible_rate`` for a minimum of the caller's own that is more
        than can ever be reserved."""
        if not terms.asked:
            return
        largest = self._selector.largest(request.src, request.dst, self._paths(template))
        if 0 < largest < terms.min_bps:
            raise BrokerError(
                f"min_bps {format_rate(terms.min_bps)} between {request.src} and {request.dst}, "
                f"expected at most {format_rate(largest)}, all that can be reserved between them",
                "impossible_rate",
            )

    def _paths(self, template: Template) -> int:
        """Over how many paths one transit may be split."""
        return template.paths if self._state.can.multipath else 1
