"""Selects the paths, the minimum and the time that a transit may have. Pure.

terms of a transit ─► candidate paths with metrics ─► choose() ──────────► Grant
                                nothing fits: split over several paths? ─► Grant
                                push lower priorities to other paths? ───► Grant with moves
                                room at a later time? ───────────────────► Wait
                                not on this network ─────────────────────► Never
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.instants import iso
from network_provisioner.base.model import AgreedRequest, Transit
from network_provisioner.base.units import transfer_time
from network_provisioner.policies.policy import LimitOf, no_limit
from network_provisioner.selection.fit import Fit, Requirement, failure
from network_provisioner.selection.limits import BrokerLimits
from network_provisioner.selection.outcomes import Grant, Never, Wait
from network_provisioner.selection.push import MovableOf
from network_provisioner.selection.split import largest_split
from network_provisioner.selection.transit import Metric, PathMetrics, choose, missed_terms
from network_provisioner.state import circuits
from network_provisioner.state.ledger import Ledger
from network_provisioner.state.network_state import NetworkState
from network_provisioner.state.waitlist import Claims
from network_provisioner.templates.template import Template
from network_provisioner.topology.graph import Path

PAIRS_KEPT = 4096  # pairs of sites whose candidate paths are remembered

MetricsOf = Callable[[Path, str], Mapping[str, Metric]]
"""What was measured of a path, as a user decides by it: throughput, delay, jitter and loss, as far
as anybody did."""


@dataclass
class PathSelector:
    """Looks for paths for one transit on a network as it is reserved."""

    _state: NetworkState
    _limits: BrokerLimits
    _metrics_of: MetricsOf = lambda *_: {}
    switches: frozenset[str] = frozenset()
    _paths: OrderedDict[tuple[str, str], list[Path]] = field(default_factory=OrderedDict)
    _sizes: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sizes = sorted({link.capacity_bps for link in self._state.topology.links})
        nodes = self._state.topology.nodes.values()
        self.switches = frozenset(n.name for n in nodes if n.kind == "switch")

    def paths(self, src: str, dst: str) -> list[Path]:
        """The candidate paths between two sites: the shortest, and the largest if it is none of
        them. Raises BrokerError ``unknown_site``."""
        known = self._paths.get((src, dst))
        if known is not None:
            self._paths.move_to_end((src, dst))
            return known
        try:
            paths = self._state.topology.candidate_paths(src, dst, self._limits.max_paths)
        except InputError as error:
            raise BrokerError(str(error), "unknown_site") from error
        if len(paths) >= self._limits.max_paths:
            paths += self._larger(src, dst, max(path.capacity_bps for path in paths))
        self._paths[src, dst] = paths
        if len(self._paths) > PAIRS_KEPT:
            self._paths.popitem(last=False)
        return paths

    def capacity(self, src: str, dst: str, paths: int = 1) -> float:
        """Bits per second that the largest ``paths`` between two sites carry, whatever is reserved
        there; 0 where nothing joins them."""
        capacities = sorted((path.capacity_bps for path in self.paths(src, dst)), reverse=True)
        return sum(capacities[:paths])

    def largest(self, src: str, dst: str, paths: int = 1) -> int:
        """Bits per second that two sites may reserve at most, over one path or up to ``paths``
        together; 0 where nothing joins them."""
        candidates = self.paths(src, dst)
        single_bps = max(
            (min(map(self._state.ledger.capacity, path.hops)) for path in candidates), default=0
        )
        if paths < 2:
            return single_bps
        return max(
            single_bps, largest_split(candidates, self._state.ledger.capacity, paths, self.switches)
        )

    def likely_bps(self, transit: Transit, now: float) -> float:
        """Bits per second that a transit would be given if its path were asked for now: what is
        free on the roomiest, between its minimum and its maximum; 0 where nothing joins its sites.

        Raises BrokerError ``unknown_site``.
        """
        paths = self.paths(transit.request.src, transit.request.dst)
        if not paths:
            return 0.0
        window = self.window(transit, now)
        free = max(min(self._state.ledger.residual(hop, *window) for hop in p.hops) for p in paths)
        return max(transit.request.min_bps, min(transit.request.max_bps, float(free)))

    def _larger(self, src: str, dst: str, than_bps: float) -> list[Path]:
        """The largest path, and the shortest of its size, if it is larger than that."""
        best: list[Path] = []
        low, high = bisect_right(self._sizes, than_bps), len(self._sizes)
        while low < high:
            middle = (low + high) // 2
            path = self._state.topology.open_path(
                src, dst, partial(self._carries, self._sizes[middle])
            )
            if path is None:
                high = middle
            else:
                best, low = [path], middle + 1
        return best

    def _carries(self, bps: float, a: str, b: str) -> bool:
        return self._state.topology.link(a, b).capacity_bps >= bps

    def usable(self, transit: Transit, template: Template, min_bps: float) -> tuple[Path, ...]:
        """The paths where a transit can be put if it has to move: those that work, are large enough
        for its minimum and meet its template's QSpec, whatever is free there, shortest first."""
        least = min_bps / self._limits.reservable
        request, state = transit.request, self._state
        return tuple(
            path
            for path in self.paths(request.src, request.dst)
            if path.capacity_bps >= least
            and not failure(path, state.unusable)
            and not missed_terms(path, self._quality(path, request.user), template, min_bps)
        )

    def _quality(self, path: Path, user: str) -> PathMetrics:
        """What is known of a path, whatever is free there."""
        measured: dict[str, Any] = dict(self.measured(path, user))
        return PathMetrics(math.inf, **measured, not_guaranteed=self._state.not_guaranteed(path))

    def best_first(self, transit: Transit, template: Template, now: float) -> tuple[Path, ...]:
        """The paths that work and meet a transit's QSpec, whatever is free there."""
        fit = self._fit(self._ask(transit, now), template)
        request = transit.request
        known = self._known(fit, self.paths(request.src, request.dst), request.user)
        return tuple(fit.fitting(known))

    def _fit(
        self,
        ask: Requirement,
        template: Template,
        claims: Claims | None = None,
        limit_of: LimitOf = no_limit,
        ledger: Ledger | None = None,
    ) -> Fit:
        state = self._state
        # What has no end of its own goes on elsewhere once a link is taken out of service.
        closed = state.closed(ask.start, ask.start if ask.until == math.inf else ask.until)
        return Fit(
            ledger or state.ledger, ask, template, claims or {}, self.switches,
            state.not_guaranteed, closed, limit_of,
        )  # fmt: skip

    def _known(self, fit: Fit, paths: Sequence[Path], user: str) -> list[tuple[Path, PathMetrics]]:
        return [(path, fit.metrics(path, self.measured(path, user))) for path in paths]

    def measured(self, path: Path, user: str) -> Mapping[str, Metric]:
        """What was measured of a path, as a user decides by it."""
        # Without packets, what transfers reach tells nothing about a path.
        return self._metrics_of(path, user) if self._state.can.real_packets else {}

    def find(
        self,
        transit: Transit,
        template: Template,
        now: float,
        pinned: Path | None = None,
        claims: Claims | None = None,
        movable_of: MovableOf | None = None,
        limit_of: LimitOf = no_limit,
        ledger: Ledger | None = None,
    ) -> Grant | Wait | Never:
        """Grant, wait or never, for a transit's ``requested_bps`` from its ``start`` (0: now) to
        its ``end`` (0: as long as its lease).

        ``pinned``      the only path it may take, if given
        ``claims``      links that transits before it in the queue wait for
        ``movable_of``  who may be moved to another path for it; None where nobody may
        ``limit_of``    what its class may reserve on each link
        ``ledger``      as it would be, instead of as it is

        Tried in this order, so that nobody moves without need: one path, several where the template
        allows them, one path after moving others. Raises BrokerError ``unknown_site``.
        """
        ask, request = self._ask(transit, now), transit.request
        if ask.end <= ask.start:
            return Never(f"its end, {iso(request.end)}, has passed")
        paths = [pinned] if pinned else self.paths(request.src, request.dst)
        if not paths:
            return Never(f"no path joins {request.src} and {request.dst}")
        fit = self._fit(ask, template, claims, limit_of, ledger)
        known = self._known(fit, paths, request.user)
        decision = choose(known, template, ask.low, ask.high)
        if decision.chosen is None and not pinned and len(paths) >= self._limits.max_paths:
            # There are more paths than candidates: one of them may have room.
            other = self._state.topology.open_path(request.src, request.dst, fit.is_open)
            if other is not None:
                known += self._known(fit, [other], request.user)
                decision = choose(known, template, ask.low, ask.high)
        if pinned:
            words = "the only path to choose from: other transits of the two sites hold it"
            decision = replace(decision, reason=f"{decision.reason} ({words})")
        if decision.chosen is not None:
            return fit.grant(decision.chosen.path, decision)
        most = template.paths if self._state.can.multipath and not pinned else 1
        fitting = fit.fitting(known)
        return (
            fit.several(fitting, decision, most)
            or fit.pushed(fitting, decision, None if pinned else movable_of, now)
            or fit.waiting(fitting, decision, most)
        )

    def window(self, transit: Transit, now: float) -> tuple[float, float]:
        """From when to when a transit would hold what it asks for, if it began when it should."""
        ask = self._ask(transit, now)
        return ask.start, ask.end

    def _ask(self, transit: Transit, now: float) -> Requirement:
        request = transit.request
        start = max(now, request.start)
        low, high = request.min_bps, request.max_bps
        if request.end:
            return Requirement(transit.id, low, high, start, request.end - start, request.end)
        lease_s, brief_s = self._lease(request), circuits.brief_s(transit)
        return Requirement(transit.id, low, high, start, lease_s, brief_s=brief_s)

    def _lease(self, request: AgreedRequest) -> float:
        """Seconds: what was asked for, or three times the time at the guaranteed rate and a minute,
        because a lease that ends too early costs more than one that ends late."""
        if request.lease_s is not None:
            return min(request.lease_s, self._limits.max_lease_s)
        if request.size_bytes is None:
            return min(self._limits.unsized_lease_s, self._limits.max_lease_s)
        estimate = 3 * transfer_time(request.size_bytes, request.min_bps) + 60
        return min(estimate, self._limits.max_lease_s)
