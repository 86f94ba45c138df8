"""What a transit may have: its paths, its minimum, its time. Decides, and touches nothing.

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
from network_provisioner.base.model import Transit
from network_provisioner.base.units import transfer_time
from network_provisioner.reservations import circuits
from network_provisioner.reservations.ledger import Hop, Ledger
from network_provisioner.reservations.quotas import Quotas
from network_provisioner.selection.fit import Fit, Requirement, failure
from network_provisioner.selection.push import MovableOf
from network_provisioner.selection.split import largest_split
from network_provisioner.selection.transit import Metric, PathChoice, PathMetrics, choose, meets
from network_provisioner.selection.verdicts import Claims, Grant, LimitOf, Never, Wait, unlimited
from network_provisioner.templates.template import Template
from network_provisioner.topology.graph import Path, Topology

MAX_AHEAD_S = 366 * 86_400.0  # what is asked for is at most so far away: later is a slip
PAST_S = 5.0  # a start that is no longer ago than this counts as now: clocks differ
PAIRS_KEPT = 4096  # pairs of sites whose candidate paths are remembered

MetricsOf = Callable[[Path, str], Mapping[str, Metric]]
"""What was measured of a path, as a user decides by it: throughput, delay, jitter and loss, as far
as anybody did."""


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """How the broker deals with links and leases.

    ``reservable``        the part of each link that may be reserved; the rest, and whatever is
                          idle, stays with best effort traffic, which must not starve
    ``max_lease_s``       no lease is longer, so that nothing is held for ever
    ``unsized_lease_s``   the lease of a transfer whose size nobody knows
    ``pin_pairs``         transits between the same two sites share one path, because a switch that
                          matches addresses cannot tell their packets apart
    ``max_paths``         how many candidate paths are compared; where none of so many has room, the
                          shortest of all others that has is taken
    ``aging_s``           what waits so long counts as one priority higher, so that nobody starves
    ``quotas``            what one user or project may hold
    """

    reservable: float = 0.9
    max_lease_s: float = 86_400.0
    unsized_lease_s: float = 900.0
    pin_pairs: bool = True
    max_paths: int = 8
    aging_s: float = 60.0
    quotas: Quotas = field(default_factory=dict)


def check_times(start: float | None, end: float | None, now: float, max_lease_s: float) -> None:
    """Raises BrokerError ``bad_time`` for a request in the past, or far too late to be meant, one
    that ends before it starts, and one that is longer than any lease. None stands for now, and for
    as long as it takes."""
    for name, value in (("start", start), ("end", end)):
        if value is not None and not math.isfinite(value):
            raise BrokerError(f"{name} {value!r}, expected Unix seconds", "bad_time")
        if value is not None and value > now + MAX_AHEAD_S:
            raise BrokerError(
                f"{name} {value!r}, expected Unix seconds at most {MAX_AHEAD_S / 86_400:.0f} days "
                "from now",
                "bad_time",
            )
    if start is not None and start < now - PAST_S:
        raise BrokerError(f"start {iso(start)} is past, expected {iso(now)} or later", "bad_time")
    begin = now if start is None else max(start, now)
    if end is not None and end <= begin:
        raise BrokerError(f"end {iso(end)}, expected it after the start, {iso(begin)}", "bad_time")
    if end is not None and end - begin > max_lease_s:
        raise BrokerError(
            f"{end - begin:g} s from start to end, expected at most {max_lease_s:g} s", "bad_time"
        )


@dataclass
class Admission:
    """Looks for paths for one transit in a topology and the ledger over it.

    ``guaranteed``: the controller keeps reserved rates (:func:`~.transit.choose`). ``failed``:
    directed links that carry nothing now, and why, as somebody else keeps them.
    """

    topology: Topology
    ledger: Ledger
    metrics_of: MetricsOf
    limits: BrokerLimits
    guaranteed: bool = True
    failed: Mapping[Hop, str] = field(default_factory=dict)
    switches: frozenset[str] = frozenset()
    _paths: OrderedDict[tuple[str, str], list[Path]] = field(default_factory=OrderedDict)
    _sizes: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sizes = sorted({link.capacity_bps for link in self.topology.links})
        nodes = self.topology.nodes.values()
        self.switches = frozenset(n.name for n in nodes if n.kind == "switch")

    def paths(self, src: str, dst: str) -> list[Path]:
        """The candidate paths between two sites: the shortest, and the largest if it is none of
        them. Raises BrokerError ``unknown_site``."""
        known = self._paths.get((src, dst))
        if known is not None:
            self._paths.move_to_end((src, dst))
            return known
        try:
            found = self.topology.candidate_paths(src, dst, self.limits.max_paths)
        except InputError as error:
            raise BrokerError(str(error), "unknown_site") from error
        if len(found) >= self.limits.max_paths:
            found += self._larger(src, dst, max(path.capacity_bps for path in found))
        self._paths[src, dst] = found
        if len(self._paths) > PAIRS_KEPT:
            self._paths.popitem(last=False)
        return found

    def capacity(self, src: str, dst: str, paths: int = 1) -> float:
        """Bits per second that the largest ``paths`` between two sites carry, whatever is reserved
        there; 0 where nothing joins them."""
        found = sorted((path.capacity_bps for path in self.paths(src, dst)), reverse=True)
        return sum(found[:paths])

    def largest(self, src: str, dst: str, paths: int = 1) -> int:
        """Bits per second that two sites may reserve at most, over one path or up to ``paths``
        together; 0 where nothing joins them."""
        found = self.paths(src, dst)
        one = max((min(map(self.ledger.capacity, path.hops)) for path in found), default=0)
        if paths < 2:
            return one
        return max(one, largest_split(found, self.ledger.capacity, paths, self.switches))

    def likely_bps(self, transit: Transit, now: float) -> float:
        """Bits per second that a transit would be given if its path were asked for now: what is
        free on the roomiest, between its minimum and its maximum; 0 where nothing joins its sites.

        Raises BrokerError ``unknown_site``.
        """
        paths = self.paths(transit.src, transit.dst)
        if not paths:
            return 0.0
        window = self.window(transit, now)
        free = max(min(self.ledger.residual(hop, *window) for hop in p.hops) for p in paths)
        return max(transit.requested_bps, min(transit.max_bps, float(free)))

    def _larger(self, src: str, dst: str, than_bps: float) -> list[Path]:
        """The largest path, and the shortest of its size, if it is larger than that."""
        best: list[Path] = []
        low, high = bisect_right(self._sizes, than_bps), len(self._sizes)
        while low < high:
            middle = (low + high) // 2
            found = self.topology.open_path(src, dst, partial(self._carries, self._sizes[middle]))
            if found is None:
                high = middle
            else:
                best, low = [found], middle + 1
        return best

    def _carries(self, bps: float, a: str, b: str) -> bool:
        return self.topology.link(a, b).capacity_bps >= bps

    def usable(self, src: str, dst: str, template: Template, min_bps: float) -> tuple[Path, ...]:
        """The paths where a transit can be put if it has to move: those that work, are large enough
        for its minimum and meet its template's QSpec, whatever is free there, shortest first.

        Measurements are not asked: they exclude nothing where rates are kept, and where they are
        not, moving helps nobody.
        """
        least = min_bps / self.limits.reservable
        return tuple(
            path
            for path in self.paths(src, dst)
            if path.capacity_bps >= least
            and meets(path, template)
            and not failure(path, self.failed)
        )

    def best_first(self, transit: Transit, template: Template, now: float) -> tuple[Path, ...]:
        """The paths that work and meet a transit's QSpec, whatever is free there."""
        fit = self._fit(self._ask(transit, now), template)
        known = self._known(fit, self.paths(transit.src, transit.dst), transit.user)
        return tuple(fit.fitting(known))

    def _fit(
        self,
        ask: Requirement,
        template: Template,
        claimed: Claims | None = None,
        limit_of: LimitOf = unlimited,
    ) -> Fit:
        return Fit(
            self.ledger, ask, template, claimed or {}, self.switches, self.guaranteed, self.failed,
            limit_of,
        )  # fmt: skip

    def _known(self, fit: Fit, paths: Sequence[Path], user: str) -> list[tuple[Path, PathMetrics]]:
        return [(path, fit.metrics(path, self.metrics_of(path, user))) for path in paths]

    def decide(
        self,
        transit: Transit,
        template: Template,
        now: float,
        pinned: Path | None = None,
        claimed: Claims | None = None,
        movable_of: MovableOf | None = None,
        multipath: bool = False,
        limit_of: LimitOf = unlimited,
    ) -> Grant | Wait | Never:
        """Grant, wait or never, for a transit's ``requested_bps`` from its ``start`` (0: now) to
        its ``end`` (0: as long as its lease).

        ``pinned``      the only path it may take, if given
        ``claimed``     links that transits before it in the queue wait for
        ``movable_of``  who may be moved to another path for it; None where nobody may
        ``multipath``   the switches can divide its packets over several paths
        ``limit_of``    what its class may reserve on each link

        Tried in this order, so that nobody moves without need: one path, several where the template
        allows them, one path after moving others. Raises BrokerError ``unknown_site``.
        """
        ask = self._ask(transit, now)
        if ask.end <= ask.start:
            return Never(f"its end, {iso(transit.end)}, has passed", "bad_time")
        paths = [pinned] if pinned else self.paths(transit.src, transit.dst)
        if not paths:
            return Never(f"no path joins {transit.src} and {transit.dst}", "no_path")
        fit = self._fit(ask, template, claimed, limit_of)
        known = self._known(fit, paths, transit.user)
        decision = choose(known, template, ask.low, ask.high, self.guaranteed)
        if decision.chosen is None and not pinned and len(paths) >= self.limits.max_paths:
            # There are more paths than candidates: one of them may have room.
            other = self.topology.open_path(transit.src, transit.dst, fit.is_open)
            if other is not None:
                known += self._known(fit, [other], transit.user)
                decision = choose(known, template, ask.low, ask.high, self.guaranteed)
        if pinned:
            words = "the only path to choose from: other transits of the two sites hold it"
            decision = replace(decision, reason=f"{decision.reason} ({words})")
        if decision.chosen is not None:
            return fit.grant(decision.chosen.path, decision)
        most = template.paths if multipath and not pinned else 1
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
        start = max(now, transit.start)
        low, high = transit.requested_bps, transit.max_bps
        if transit.end:
            return Requirement(transit.id, low, high, start, transit.end - start, transit.end)
        lease_s, brief_s = self._lease(transit), circuits.brief_s(transit)
        return Requirement(transit.id, low, high, start, lease_s, brief_s=brief_s)

    def _lease(self, transit: Transit) -> float:
        """Seconds: what was asked for, or three times the time at the guaranteed rate and a minute,
        because a lease that ends too early costs more than one that ends late."""
        if transit.lease_s is not None:
            return min(transit.lease_s, self.limits.max_lease_s)
        if transit.size_bytes is None:
            return min(self.limits.unsized_lease_s, self.limits.max_lease_s)
        estimate = 3 * transfer_time(transit.size_bytes, transit.requested_bps) + 60
        return min(estimate, self.limits.max_lease_s)


def explain(decision: PathChoice | None) -> list[dict[str, Any]]:
    """The candidates of a decision, JSON-ready."""
    return [] if decision is None else [c.as_dict() for c in decision.candidates]
