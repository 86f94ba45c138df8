"""Packets that are held to a path for a while, without a rate of their own: to measure the path.

They are no transits: nobody asked for them, nothing is reserved, and they end with the broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import AgreedRequest, Transit, TransitGrant, TransitState
from network_provisioner.state.circuits import first_of
from network_provisioner.state.network_state import NetworkState
from network_provisioner.transits.desired_state import DesiredState
from network_provisioner.transits.lifecycle import Lifecycle


@dataclass(eq=False)
class HeldPackets:
    """What is held to which path now. Not thread-safe: the broker holds its lock in every call."""

    _state: NetworkState
    _lifecycle: Lifecycle
    _desired: DesiredState
    _held: dict[str, Transit] = field(default_factory=dict)

    def hold(self, name: str, nodes: Sequence[str], flow: Flow, until: float, now: float) -> None:
        """Raises BrokerError ``conflict``, ``controller_unavailable``."""
        if not self._state.tells_packets_apart:
            raise BrokerError(
                f"{name} cannot be held to a path: expected switches of this broker alone, which "
                "tell packets apart by their ports",
                "conflict",
            )
        try:
            path = self._state.topology.path(nodes)
        except InputError as error:
            raise BrokerError(str(error), "conflict") from error
        request = AgreedRequest(
            name, nodes[0], nodes[-1], max_bps=path.capacity_bps, requested_at=now, flows=(flow,)
        )
        grant = TransitGrant(list(nodes), path.layer, lease_until=until)
        held = Transit(request, TransitState.HELD, grant=grant)
        pairs = self._state.active.pairs
        failed = first_of(held, self._state.unusable)
        if failed is not None or pairs.clash(held) or pairs.mates(held):
            why = failed[1] if failed else "another transit has its packets"
            raise BrokerError(f"{name} cannot be held to a path: {why}", "conflict")
        self._held[name] = held
        pairs.enter(held)
        self._desired.update(held)
        self._lifecycle.apply(now)
        if self._desired.out_of_step:
            self.drop(name)
            raise BrokerError(f"{name}: the switches refused", "controller_unavailable")

    def drop(self, name: str) -> None:
        """No longer; harmless where they are not held. The switches are to be told."""
        held = self._held.pop(name, None)
        if held is not None:
            self._state.active.pairs.leave(held)
            self._desired.drop(name)

    def expire(self, now: float) -> None:
        """Drop those whose time is over."""
        for name in [name for name, held in self._held.items() if held.grant.lease_until <= now]:
            self.drop(name)

    def __contains__(self, name: str) -> bool:
        return name in self._held
