"""The embedded OpenFlow 1.3 controller: circuits on real switches.

It runs inside the broker's process, and the switches connect to it. Each change is confirmed by
barriers, and what the switches report tells when one has connected again or a rule has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from network_provisioner.controllers import lldp
from network_provisioner.controllers.connections import parse_listen
from network_provisioner.controllers.shaper import Shaper
from network_provisioner.controllers.switched import SwitchedController
from network_provisioner.controllers.switches import SwitchBoard
from network_provisioner.topologies.discovery import Discovered
from network_provisioner.topology import Topology


class OpenFlowController(SwitchedController):
    """A :class:`~network_provisioner.controllers.base.Controller` for OpenFlow 1.3 switches.

    ``listen`` is ``HOST:PORT`` for the switches to connect to. ``shaper`` keeps the rates on the
    topology's devices; without one, circuits choose paths but guarantee nothing. Thread-safe.
    """

    def __init__(
        self,
        topology: Topology,
        listen: str,
        shaper: Shaper | None = None,
        *,
        clock: Callable[[], float] = time.time,
        reply_timeout_s: float = 5.0,
        bandwidth: str = "auto",
        shared: bool = False,
    ) -> None:
        """Raises InputError for a topology without switches, or one that lacks ports or MACs."""
        address = parse_listen(listen)

        def board(
            names: dict[int, str],
            on_up: Callable[[int], None],
            on_removed: Callable[[int], None],
        ) -> SwitchBoard:
            self._switches = SwitchBoard(address, names, on_up, on_removed, reply_timeout_s)
            return self._switches

        super().__init__(
            "openflow", topology, board, shaper, clock, bandwidth=bandwidth, shared=shared
        )

    @property
    def port(self) -> int:
        """The port that is listened on, for a ``listen`` with port 0."""
        return self._switches.port

    def discover(self) -> Discovered:
        """The switches' ports, and how they are joined: see
        :class:`~network_provisioner.topologies.discovery.Discovers`. Raises ControllerError."""
        self._require_running()
        return lldp.discover(self._switches)
