"""A request on paper: checked against the network and completed from its template, with no path
yet."""

from __future__ import annotations

from network_provisioner.decisions.admission import Admission, Limits, check_times
from network_provisioner.errors import BrokerError, InputError
from network_provisioner.model import Transit, TransitRequest
from network_provisioner.roster import Roster
from network_provisioner.template import Template
from network_provisioner.terms import (
    Templates,
    Terms,
    check_ahead,
    new_transit,
    settle,
    template_for,
)
from network_provisioner.topology import Topology
from network_provisioner.units import format_rate


class Drafts:
    """Makes transits of requests. Changes nothing."""

    def __init__(
        self,
        topology: Topology,
        templates: Templates,
        admission: Admission,
        roster: Roster,
        limits: Limits,
    ) -> None:
        self._topology = topology
        self._templates = templates
        self._admission = admission
        self._roster = roster
        self._limits = limits

    def draw_up(self, request: TransitRequest, now: float) -> tuple[Transit, Template, Terms]:
        """The transit of a checked request, its template, and what it settles for.

        Raises BrokerError ``unknown_template``, ``unknown_site``, ``impossible_rate``,
        ``bad_time``, ``conflict``.
        """
        self._check_sites(request)
        template = template_for(request, self._templates)
        check_ahead(request, now)
        check_times(request.start, request.end, now, self._limits.max_lease_s)
        terms = settle(request, template)
        transit = new_transit(request, template, terms, now)
        clash = None if request.best_effort else self._roster.pairs.clash(transit)
        if clash is not None:
            raise BrokerError(
                f"flows name packets that transit {clash.id!r} names too, expected ports of its "
                "own for each, or exactly the same",
                "conflict",
            )
        return transit, template, terms

    def check_possible(
        self, request: TransitRequest, terms: Terms, template: Template, multipath: bool
    ) -> None:
        """Raises BrokerError ``impossible_rate`` for a minimum of the caller's own that is more
        than can ever be reserved."""
        if not terms.asked:
            return
        paths = template.paths if multipath else 1
        largest = self._admission.largest(request.src, request.dst, paths)
        if 0 < largest < terms.min_bps:
            raise BrokerError(
                f"min_bps {format_rate(terms.min_bps)} between {request.src} and {request.dst}, "
                f"expected at most {format_rate(largest)}, all that can be reserved between them",
                "impossible_rate",
            )

    def _check_sites(self, request: TransitRequest) -> None:
        try:
            self._topology.site(request.src)
            self._topology.site(request.dst)
        except InputError as error:
            raise BrokerError(str(error), "unknown_site") from error
