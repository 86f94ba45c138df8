"""How transfers are tuned by their path: once for each transit, and for people who ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.model import LIVE, Service, Transit, TransitRequest, TuningSettings
from network_provisioner.templates.advice import PathFigures, advise, varied_advice
from network_provisioner.templates.lookup import Templates, service_for, template_for
from network_provisioner.topology.graph import Path, Topology

FiguresOf = Callable[[Path, str], PathFigures | None]
"""What is known of a path, as a user decides by it; None where nobody knows."""


@dataclass(eq=False)
class TransferTuning:
    """Changes nothing of a transit but its ``tuning``."""

    _topology: Topology
    _templates: Templates
    _figures_of: FiguresOf

    def service(self, request: TransitRequest, transit: Transit | None) -> Service:
        """How a request that has its answer is served. What has a path is tuned the same way
        however often it is asked for, and by advice where the path was measured."""
        if transit is None or transit.state not in LIVE:
            return service_for(request, transit, self._templates)
        if transit.grant.tuning:
            service = service_for(request, transit, self._templates)
            return replace(service, **transit.grant.tuning.as_dict())
        advice = None
        figures = self.figures(transit)
        if figures.measured and figures.rtt_s > 0:
            advice = varied_advice(advise(figures, transit.request.size_bytes), figures, transit.id)
        service = service_for(request, transit, self._templates, advice)
        transit.grant.tuning = TuningSettings(
            service.streams, service.buffer_bytes, service.threads, service.why
        )
        return service

    def advise(
        self, src: str, dst: str, rate_bps: float | None, template: str, user: str
    ) -> dict[str, Any]:
        """The advice for a transfer between two sites over the path with the most room, what it was
        made of, and what the template has of it; JSON-ready. The rate (b/s) is the most that the
        template and the path allow where nothing is said.

        Raises BrokerError ``unknown_site``, ``unknown_template``, ``conflict`` (no path).
        """
        request = TransitRequest("advice", src, dst, template=template, user=user)
        matched = template_for(request, self._templates)
        try:
            sites = [self._topology.site(name) for name in (src, dst)]
        except InputError as error:
            raise BrokerError(str(error), "unknown_site") from error
        paths = self._topology.candidate_paths(src, dst) if src != dst else []
        if not paths:
            raise BrokerError(f"no path joins {src} and {dst}, expected one", "conflict")
        path = max(paths, key=lambda p: (p.capacity_bps, -p.rtt_s))
        rate = rate_bps or min(matched.rspec.max_bps or path.capacity_bps, path.capacity_bps)
        known = PathFigures(path.capacity_bps, path.rtt_s, path.loss)
        figures = replace(self._figures_of(path, user) or known, rate_bps=rate)
        advice = advise(figures)
        return {
            "path": list(path.nodes),
            "figures": asdict(figures),
            "advice": asdict(advice),
            "service": asdict(service_for(request, None, self._templates, advice)),
            "hosts": [[host.address for host in site.hosts] for site in sites],
        }

    def figures(self, transit: Transit) -> PathFigures:
        """What is known of a live transit's path, else what the topology says of it."""
        path = self._topology.path(transit.grant.path)
        # What it is given now may become more as others end: its windows must not be in the way.
        rate_bps = min(transit.request.max_bps, path.capacity_bps)
        declared = PathFigures(rate_bps, path.rtt_s, path.loss)
        if len(transit.grant.parts) > 1 or transit.request.max_bps <= 0:
            return declared
        figures = self._figures_of(path, transit.request.user) or declared
        return replace(figures, rate_bps=rate_bps)
