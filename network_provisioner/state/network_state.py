"""A network as decisions see it: what is promised, who holds or awaits a path, what is broken.

Decisions read it and change nothing; the broker's lifecycle alone changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from network_provisioner.base.controller import Capabilities
from network_provisioner.state.active_transits import ActiveTransits
from network_provisioner.state.ledger import Ledger
from network_provisioner.topology.drains import Drains
from network_provisioner.topology.graph import Hop, Topology


@dataclass(eq=False)
class NetworkState:
    """``ledger``: what is promised on each link, and when; ``active``: the transits that hold a
    path or wait for one; ``unusable``: the directed links that nothing new may use, and why;
    ``can``: what the switches can do, known once the controller has started; ``drains``: what is or
    will be out of service."""

    topology: Topology
    ledger: Ledger
    active: ActiveTransits = field(default_factory=ActiveTransits)
    unusable: Mapping[Hop, str] = field(default_factory=dict)
    can: Capabilities = field(default_factory=lambda: Capabilities("none"))
    drains: Drains | None = None

    @property
    def keeps_rates(self) -> bool:
        """Whether what is reserved is there: the switches enforce rates, or carry no packets that
        could take more than theirs."""
        return self.can.bandwidth != "none" or not self.can.real_packets

    def closed(self, start: float, end: float) -> Mapping[Hop, str]:
        """The directed links that nothing new may use between two Unix seconds, and why."""
        if not self.drains:
            return self.unusable
        out = self.drains.closed_now
        failed = {hop: why for hop, why in self.unusable.items() if hop not in out}
        return failed | self.drains.closed(start, end)
