"""A network as decisions see it: what is promised, who holds or awaits a path, what is broken.

Decisions read it and change nothing; the broker's lifecycle alone changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from network_provisioner.base.controller import Capabilities
from network_provisioner.state.active_transits import ActiveTransits
from network_provisioner.state.ledger import Ledger
from network_provisioner.topology.drains import Drains
from network_provisioner.topology.graph import Hop, Link, Path, Topology


@dataclass(eq=False)
class NetworkState:
    """``ledger``: what is promised on each link, and when; ``active``: the transits that hold a
    path or wait for one; ``unusable``: the directed links that nothing new may use, and why;
    ``can``: what the switches can do, known once the controller has started; ``drains``: what is or
    will be out of service; ``avoided``: by transit, the paths that lately gave it too little."""

    topology: Topology
    ledger: Ledger
    active: ActiveTransits = field(default_factory=ActiveTransits)
    unusable: Mapping[Hop, str] = field(default_factory=dict)
    can: Capabilities = field(default_factory=lambda: Capabilities("none"))
    drains: Drains | None = None
    avoided: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)

    @property
    def tells_packets_apart(self) -> bool:
        """Whether the switches are this broker's alone, and tell packets apart by their ports."""
        return self.can.matches and self.can.real_packets

    def closed(self, start: float, end: float) -> Mapping[Hop, str]:
        """The directed links that nothing new may use between two Unix seconds, and why."""
        if not self.drains:
            return self.unusable
        out = self.drains.closed_now
        failed = {hop: why for hop, why in self.unusable.items() if hop not in out}
        return failed | self.drains.closed(start, end)

    def not_guaranteed(self, path: Path) -> str:
        """Which link of a path can take no promise, in words; "" for none.

        A link says so itself (``guaranteed``). Else its rates are enforced where a device of ours
        queues what a switch sends to another, and it is no routed link, which others may share. A
        site's link is its own. Where no packets are carried, nobody can take more than his.
        """
        for hop in path.hops:
            link = self.topology.link(*hop)
            if self._guarantees(link, hop) if link.guaranteed is None else link.guaranteed:
                continue
            if self.can.bandwidth == "none" and link.guaranteed is None:
                return "this network keeps no rates"
            return f"link {'-'.join(hop)} is not guaranteed"
        return ""

    def _guarantees(self, link: Link, hop: Hop) -> bool:
        if not self.can.real_packets:
            return True
        if self.can.bandwidth == "none" or link.layer == "l3":
            return False
        # A driver that needs no devices keeps rates by itself.
        by_devices = self.can.bandwidth in ("dscp-htb", "queue") and self._names_devices
        sender, other = (self.topology.nodes[end].kind for end in hop)
        between = sender == "switch" and other not in ("site", "relay")
        return not (by_devices and between) or hop[0] in (link.devices or {})

    @cached_property
    def _names_devices(self) -> bool:
        return any(link.devices for link in self.topology.whole_links)
