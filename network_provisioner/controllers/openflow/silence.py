"""Links between switches that frames have stopped to come through. Pure.

A frame is sent over every link in every round. A link that was heard once, and of which the last
rounds brought nothing, is silent. What was never heard may carry no such frames: many providers
keep LLDP to themselves.
"""

from __future__ import annotations

from collections.abc import Collection

from network_provisioner.topology.discovery import End

ROUNDS = 3
Way = tuple[End, End]
"""From a port to a port."""


class Silence:
    """What was heard of each way in the last rounds."""

    def __init__(self) -> None:
        self._missed: dict[Way, int] = {}

    def sent(self, ways: Collection[Way]) -> None:
        """A round of frames was sent, and all switches have done it."""
        for way in ways:
            if way in self._missed:
                self._missed[way] += 1

    def heard(self, way: Way) -> None:
        """A frame came through."""
        self._missed[way] = 0

    def forget(self, dpid: int) -> None:
        """A switch is away, or has just come: nothing is known of its links."""
        for way in [w for w in self._missed if dpid in (w[0][0], w[1][0])]:
            del self._missed[way]

    def doubtful(self) -> dict[Way, bool]:
        """The ways of which the last round brought nothing, and whether they are silent."""
        # The round that was sent last may still be on its way.
        return {way: missed > ROUNDS for way, missed in list(self._missed.items()) if missed > 1}
