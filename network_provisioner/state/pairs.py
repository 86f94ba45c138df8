"""Which transits must take the same way, because no switch could tell their packets apart. Pure.

A switch that matches addresses of sites alone sees one stream between two sites, both ways. One
that matches hosts and ports too tells transits apart that name others, or whose flows do not meet.
"""

from __future__ import annotations

from collections.abc import Collection

from network_provisioner.base.flows import Flow, Ports
from network_provisioner.base.model import Transit

Nodes = tuple[str, ...]


class SitePairs:
    """The live transits of every pair of sites. Not thread-safe.

    ``pin`` is False where every transit may take a path of its own; ``matches`` says that the
    switches tell flows apart.
    """

    def __init__(self, pin: bool, matches: bool = False) -> None:
        self.pin = pin
        self.matches = matches
        self._live: dict[frozenset[str], dict[str, Transit]] = {}

    def enter(self, transit: Transit) -> None:
        """Take note of a transit that has a path."""
        self._live.setdefault(pair_of(transit), {})[transit.id] = transit

    def leave(self, transit: Transit) -> bool:
        """Forget a transit; whether others may have been bound to its path."""
        live = self._live.get(pair_of(transit))
        if live is None or live.pop(transit.id, None) is None:
            return False
        if not live:
            del self._live[pair_of(transit)]
        return self.pin

    def between(self, transit: Transit) -> Collection[Transit]:
        """The live transits of its two sites, itself too."""
        return self._live.get(pair_of(transit), {}).values()

    def mates(self, transit: Transit) -> list[Transit]:
        """The other live transits that must take the way this one takes."""
        if not self.pin:
            return []
        live = self._live.get(pair_of(transit), {})
        return [t for t in live.values() if t.id != transit.id and self._alike(t, transit)]

    def clash(self, transit: Transit) -> Transit | None:
        """A live transit that names some of the packets this one names, and others: no switch can
        carry both."""
        request = transit.request
        if not (self.matches and request.flows):
            return None
        for other in self._live.get(pair_of(transit), {}).values():
            its = other.request
            if (
                other.id != transit.id
                and its.src == request.src
                and its.hosts == request.hosts
                and set(its.flows) != set(request.flows)
                and any(_meet(a, b, True) for a in request.flows for b in its.flows)
            ):
                return other
        return None

    def ways(self, transit: Transit) -> set[Nodes]:
        """The paths its mates hold, each from this transit's own source. It can be placed where
        there is one at most; one with several parts counts as two, for nobody can join it."""
        paths: set[Nodes] = set()
        for mate in self.mates(transit):
            for nodes in [mate.grant.path, *(part.path for part in mate.grant.parts[1:])]:
                paths.add(tuple(nodes if mate.request.src == transit.request.src else nodes[::-1]))
        return paths

    def _alike(self, transit: Transit, other: Transit) -> bool:
        if not self.matches:
            return True
        if transit.awaits_flows or other.awaits_flows:
            return False
        mine, its = transit.request, other.request
        same = mine.src == its.src
        if mine.hosts != (its.hosts if same else its.hosts[::-1]):
            return False
        if not mine.flows or not its.flows:
            # What names no flow carries what no other names.
            return not mine.flows and not its.flows
        return any(_meet(a, b, same) for a in mine.flows for b in its.flows)


def _meet(a: Flow, b: Flow, same_direction: bool) -> bool:
    """Whether one packet could belong to both flows."""
    src, dst = (b.src_ports, b.dst_ports) if same_direction else (b.dst_ports, b.src_ports)
    return a.protocol == b.protocol and _overlap(a.src_ports, src) and _overlap(a.dst_ports, dst)


def _overlap(a: Ports | None, b: Ports | None) -> bool:
    return a is None or b is None or (a[0] <= b[1] and b[0] <= a[1])


def pair_of(transit: Transit) -> frozenset[str]:
    """The two sites of a transit."""
    return frozenset((transit.request.src, transit.request.dst))
