"""Circuits by an OpenDaylight that the switches are connected to, over RESTCONF.

Tried with OpenDaylight Potassium: RESTCONF 6.0.8, OpenFlowPlugin 0.17.3, with the feature
``odl-openflowplugin-flow-services``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from network_provisioner.controllers.odl_board import OdlBoard
from network_provisioner.controllers.odl_discovery import SECONDS
from network_provisioner.controllers.restconf import Access, Restconf
from network_provisioner.controllers.shaper import Shaper
from network_provisioner.controllers.switched import SwitchedController
from network_provisioner.errors import InputError
from network_provisioner.topologies.discovery import Discovered
from network_provisioner.topology import Topology


class OpenDaylightController(SwitchedController):
    """A :class:`~network_provisioner.controllers.base.Controller` that asks OpenDaylight.

    The topology's switches are known there as ``openflow:DPID``. ``shaper`` keeps the rates on the
    devices it reaches; see there for ``bandwidth`` and ``shared``. Thread-safe.
    """

    def __init__(
        self,
        topology: Topology,
        access: Access,
        shaper: Shaper | None = None,
        *,
        bandwidth: str = "auto",
        shared: bool = False,
        clock: Callable[[], float] = time.time,
        poll_s: float = 1.0,
        settle_s: float = 10.0,
        discover_s: float = SECONDS,
    ) -> None:
        """Raises InputError like :class:`SwitchedController`, and for a ``bandwidth`` of meters,
        which OpenDaylight cannot change."""
        if bandwidth == "meter":
            raise InputError(
                "controller: bandwidth is 'meter', which cannot be kept by OpenDaylight: it has no "
                "way to change one; expected dscp-htb, queue or none"
            )
        rest = Restconf("OpenDaylight", access)

        def board(
            names: dict[int, str],
            on_up: Callable[[int], None],
            on_removed: Callable[[int], None],
        ) -> OdlBoard:
            self._odl = OdlBoard(
                rest,
                names,
                on_up,
                on_removed,
                clock,
                poll_s=poll_s,
                settle_s=settle_s,
                discover_s=discover_s,
            )
            return self._odl

        super().__init__(
            "opendaylight", topology, board, shaper, clock, bandwidth=bandwidth, shared=shared
        )

    def discover(self) -> Discovered:
        """The switches' ports, and how they are joined: see
        :class:`~network_provisioner.topologies.discovery.Discovers`. Raises ControllerError."""
        self._require_running()
        return self._odl.discover()
