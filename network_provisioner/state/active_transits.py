"""The transits that wait or hold a path, in memory, and when their times come. No effects."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator

from network_provisioner.base.model import LIVE, ON_SWITCHES, Transit, TransitState
from network_provisioner.state.circuits import hops
from network_provisioner.state.pairs import PortBlocks, SitePairs
from network_provisioner.state.waitlist import Waitlist
from network_provisioner.templates.lookup import Templates, template_of
from network_provisioner.templates.template import Template

_FOR_EVER = float("inf")
_OWNERS = ("user", "project")


class ActiveTransits:
    """All queued, held, installed and active transits; ``waitlist`` has the queued ones, ``pairs``
    the others, ``ports`` whose ports are whose. Not thread-safe.

    ``templates`` are those that transits are asked with; ``pin_pairs`` and ``aging_s`` are as in
    :class:`~network_provisioner.selection.limits.BrokerLimits`.
    """

    def __init__(
        self, templates: Templates | None = None, pin_pairs: bool = False, aging_s: float = 60.0
    ) -> None:
        self.all: dict[str, Transit] = {}  # oldest first
        self.pairs = SitePairs(pin_pairs)
        self.waitlist = Waitlist(aging_s)
        self.ports = PortBlocks()
        self._templates = {} if templates is None else templates
        self._deadlines: list[tuple[float, str]] = []  # heap of ends; entries may be outdated
        self._starts: list[tuple[float, str]] = []  # heap of held ones' starts; likewise
        self._owned: dict[tuple[str, str], dict[str, Transit]] = {}  # by kind and name of owner
        self._early: dict[str, Transit] = {}  # that began before others who waited
        self._priorities: dict[int, set[str]] = {}  # who holds a path with each

    def enter(self, transit: Transit) -> None:
        """Add a transit, or take note that its state, its paths or its times have changed."""
        known = self.all.get(transit.id)
        if known is not None and known is not transit:
            self.leave(known)
        self.all[transit.id] = transit
        for kind in _OWNERS:
            self._owned.setdefault((kind, getattr(transit.request, kind)), {})[transit.id] = transit
        self.ports.enter(transit)
        self._early.pop(transit.id, None)
        if transit.state in LIVE:
            self.waitlist.leave(transit)
            self.pairs.enter(transit)
            self._priorities.setdefault(transit.request.priority, set()).add(transit.id)
            if transit.state is TransitState.HELD:
                heapq.heappush(self._starts, (transit.request.start, transit.id))
            if transit.grant.expected_end:
                self._early[transit.id] = transit
                heapq.heappush(self._deadlines, (transit.grant.expected_end, transit.id))
        else:
            self.pairs.leave(transit)
            self._priorities.get(transit.request.priority, set()).discard(transit.id)
            self.waitlist.enter(transit)
        heapq.heappush(self._deadlines, (self._deadline(transit), transit.id))

    def leave(self, transit: Transit) -> None:
        """Forget a transit, if it is known."""
        self.all.pop(transit.id, None)
        self._early.pop(transit.id, None)
        self._priorities.get(transit.request.priority, set()).discard(transit.id)
        for kind in _OWNERS:
            owned = self._owned.get((kind, getattr(transit.request, kind)), {})
            owned.pop(transit.id, None)
            if not owned:
                self._owned.pop((kind, getattr(transit.request, kind)), None)
        self.ports.leave(transit)
        self.waitlist.leave(transit)
        if self.pairs.leave(transit):
            self.waitlist.room_between(transit.request.src, transit.request.dst)

    def template_of(self, transit: Transit) -> Template | None:
        """As :func:`~network_provisioner.templates.lookup.template_of`."""
        return template_of(transit, self._templates)

    def of(self, kind: str, name: str) -> Collection[Transit]:
        """Those of a ``user`` or ``project``."""
        return self._owned.get((kind, name), {}).values()

    def starting(self, now: float) -> list[Transit]:
        """Held transits whose start has come, each once; :meth:`enter` brings one back."""
        due = {}
        while self._starts and self._starts[0][0] <= now:
            _, transit_id = heapq.heappop(self._starts)
            transit = self.all.get(transit_id)
            if (
                transit is not None
                and transit.state is TransitState.HELD
                and transit.request.start <= now
            ):
                due[transit_id] = transit
        return list(due.values())

    def due(self, now: float) -> Iterator[Transit]:
        """Transits whose lease, end or patience has come; whoever asks takes each out before the
        next."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, transit_id = heapq.heappop(self._deadlines)
            transit = self.all.get(transit_id)
            # One that was renewed, or went from queued to live, has a later entry in the heap.
            if transit is not None and self._deadline(transit) <= now:
                yield transit
            elif transit is not None and transit.id in self._early:
                self.waitlist.room_on(hops(transit))  # from now on others may take it

    def overrun(self, now: float) -> list[Transit]:
        """Those that began before others who waited, and are not done when they were expected to
        be."""
        return [t for t in self._early.values() if t.grant.expected_end <= now]

    def on_switches(self) -> list[Transit]:
        """Transits that are installed or active, oldest first."""
        return [t for t in self.all.values() if t.state in ON_SWITCHES]

    @property
    def lowest(self) -> int:
        """The lowest priority that holds a path; 0 where nobody does."""
        return min((priority for priority, ids in self._priorities.items() if ids), default=0)

    def count(self) -> tuple[int, int]:
        """How many are live, and how many wait."""
        return len(self.all) - len(self.waitlist), len(self.waitlist)

    def _deadline(self, transit: Transit) -> float:
        if transit.state in LIVE or transit.lost_path:
            return transit.grant.lease_until
        template = self.template_of(transit)
        patience_s = template.patience_s if template else 0.0
        last = max(transit.request.requested_at, transit.request.start) + patience_s
        return min(last, transit.request.end or _FOR_EVER)
