"""A network, a store in memory and a clock for tests of policies."""

from __future__ import annotations

from typing import Any

from made_transit import made_transit

from examples.soykb.scenario import LAYOUT
from network_provisioner.base.model import Transit, TransitState
from network_provisioner.policies.registry import PolicyRegistry
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.topology.data import topology_from_dict

NOW = 1_795_269_600.0  # 2026-11-21T14:00:00Z
TOPOLOGY = topology_from_dict(LAYOUT.topology())
L2 = ("mu", "s1", "s2", "tacc")
L3 = ("mu", "s1", "r1", "s2", "tacc")
LISTING_1: dict[str, Any] = {
    "name": "cms first",
    "type": "project",
    "strategy": "7-3",
    "action": "start",
    "specs": ["cms", "ligo"],
    "time": ["2026-11-21T14:00:00Z", "2026-11-21T15:00:00Z"],
}


class PolicyRig:
    """A book of policies whose clock stands still until it is set."""

    def __init__(self) -> None:
        self.store = SqliteStore(":memory:")
        self.now = NOW
        self.book = self.reopened()

    def reopened(self) -> PolicyRegistry:
        """Another book of the same store, as after a restart or in another broker."""
        return PolicyRegistry(TOPOLOGY, self.store, lambda: self.now)

    def post(self, **changes: Any) -> dict[str, Any]:
        """Listing 1 with changes; keys that are None are left out."""
        body = {k: v for k, v in (LISTING_1 | changes).items() if v is not None}
        return self.book.post(body)[0]


def live(name: str, path: tuple[str, ...] = L2, **more: Any) -> Transit:
    """A transit on the switches since NOW, 10 to 200 Mb/s."""
    known: dict[str, Any] = {
        "requested_bps": 10e6,
        "granted_bps": 10e6,
        "max_bps": 200e6,
        "installed_at": NOW,
        "lease_until": NOW + 1e6,
    }
    state = TransitState.INSTALLED
    return made_transit(name, path[0], path[-1], state, path=list(path), **(known | more))


def ended(name: str, **more: Any) -> Transit:
    """A transit that was released at NOW after 10 s."""
    known = {"installed_at": NOW - 10, "released_at": NOW, "requested_at": NOW - 11}
    return made_transit(name, "mu", "tacc", TransitState.RELEASED, **(known | more))
