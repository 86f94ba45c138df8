"""Which transits must take the same way, because no switch could tell their packets apart, and the
ports that tell them apart. Pure.

A switch that matches addresses of sites alone sees one stream between two sites, both ways. One
that matches hosts and ports too tells transits apart that name others, or whose flows do not meet.

So a transfer's client has its connections begin, and listens, at ports of a block of its own. A
block is as long as a power of two and aligned, so that one rule meets it. Blocks are given in
turns: a port that was just used is not free for a minute (RFC 9293 §3.6.1, TIME-WAIT).
"""

from __future__ import annotations

from collections.abc import Collection

from network_provisioner.base.flows import Flow, Ports
from network_provisioner.base.model import Transit

Nodes = tuple[str, ...]

# Each call of a tool uses one for its control connection and one for each stream, and does not use
# it again for a minute. Outside of what Linux gives away by itself (from 32768 on).
BLOCK = 256
FIRST, LAST = 20_000, 32_767


class SitePairs:
    """The live transits of every pair of sites. Not thread-safe.

    ``pin`` is False where every transit may take a path of its own; ``matches`` says that the
    switches tell flows apart.
    """

    def __init__(self, pin: bool) -> None:
        self.pin = pin
        self.matches = False
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
            for nodes in mate.grant.paths:
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


class PortBlocks:
    """Which transit of a pair of sites has which block. Not thread-safe."""

    def __init__(self, first: int = FIRST, last: int = LAST) -> None:
        aligned = range(-(-first // BLOCK) * BLOCK, last - BLOCK + 2, BLOCK)
        self._blocks: list[Ports] = [(port, port + BLOCK - 1) for port in aligned]
        self._numbers = {block: number for number, block in enumerate(self._blocks)}
        self._taken: dict[frozenset[str], dict[Ports, str]] = {}
        self._next = 0
        self._last: tuple[object, Ports] | None = None

    def choose(self, transit: Transit) -> list[int]:
        """A block that no other transit between its sites has, the same for all pairs that one job
        asks for together: its tool has one setting for all. Empty where there is none."""
        taken = self._taken.get(pair_of(transit), {})
        if self._last is not None and self._last[0] == _job(transit):
            return [] if self._last[1] in taken else list(self._last[1])
        for number in range(len(self._blocks)):
            block = self._blocks[(self._next + number) % len(self._blocks)]
            if block not in taken:
                return list(block)
        return []

    def enter(self, transit: Transit) -> None:
        """Take note of a transit's block."""
        if transit.grant.ports:
            taken = self._taken.setdefault(pair_of(transit), {})
            block = transit.grant.ports[0], transit.grant.ports[1]
            if taken.get(block) != transit.id:
                taken[block], self._last = transit.id, (_job(transit), block)
                self._next = self._numbers.get(block, self._next - 1) + 1

    def leave(self, transit: Transit) -> None:
        """A transit needs its block no more."""
        taken = self._taken.get(pair_of(transit), {})
        for block in [b for b, holder in taken.items() if holder == transit.id]:
            del taken[block]
        if not taken:
            self._taken.pop(pair_of(transit), None)

    def holder(self, site: str, other: str, port: int) -> str | None:
        """The id of the transit between two sites that has a port in its block."""
        for (first, last), holder in self._taken.get(frozenset((site, other)), {}).items():
            if first <= port <= last:
                return holder
        return None


def _meet(a: Flow, b: Flow, same_direction: bool) -> bool:
    """Whether one packet could belong to both flows."""
    src, dst = (b.src_ports, b.dst_ports) if same_direction else (b.dst_ports, b.src_ports)
    return a.protocol == b.protocol and _overlap(a.src_ports, src) and _overlap(a.dst_ports, dst)


def _overlap(a: Ports | None, b: Ports | None) -> bool:
    return a is None or b is None or (a[0] <= b[1] and b[0] <= a[1])


def pair_of(transit: Transit) -> frozenset[str]:
    """The two sites of a transit."""
    return frozenset((transit.request.src, transit.request.dst))


def _job(transit: Transit) -> tuple[object, ...]:
    request = transit.request
    return request.workflow, request.job, request.user, request.requested_at
