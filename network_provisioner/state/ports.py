"""Blocks of ports that transfers use at one end, so that switches tell them apart. Pure.

A transfer's client has its connections begin, and listens, at ports of a block of its own. A block
is as long as a power of two and aligned, so that one rule meets it. Blocks are given in turns: a
port that was just used is not free for a minute (RFC 9293 §3.6.1, TIME-WAIT).
"""

from __future__ import annotations

from network_provisioner.base.flows import Ports
from network_provisioner.base.model import Transit
from network_provisioner.state.pairs import pair_of

# Each call of a tool uses one for its control connection and one for each stream, and does not use
# it again for a minute. Outside of what Linux gives away by itself (from 32768 on).
BLOCK = 256
FIRST, LAST = 20_000, 32_767


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


def _job(transit: Transit) -> tuple[object, ...]:
    request = transit.request
    return request.workflow, request.job, request.user, request.requested_at
