"""What a driver of OpenFlow switches needs of the way to reach them, as a Protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from network_provisioner.controllers.aids import Aid
from network_provisioner.controllers.rules import (
    Changes,
    SeenRule,
)


class Native(Protocol):
    """Switches that understand all of OpenFlow 1.3 and answer small questions quickly."""

    def read_bytes(self, wanted: Mapping[int, Sequence[int]], now: float) -> list[SeenRule]:
        """The rules with exactly these cookies, by switch. Raises ControllerError."""
        ...

    def read_aids(self, dpids: set[int]) -> dict[int, list[Aid]]:
        """Our groups and meters on several switches. Raises ControllerError."""
        ...

    def can_meter(self, dpid: int) -> bool:
        """Whether a switch has meters that drop. Raises ControllerError."""
        ...


class Board(Protocol):
    """The switches that can be reached, by datapath id: directly, or through a controller.

    It calls the two functions it was made with: ``on_up`` with a datapath id when a switch can be
    reached (again), ``on_removed`` when a rule ended by itself. Both return at once.
    """

    def open(self) -> None:
        """Start to reach for the switches. Raises ControllerError."""
        ...

    def close(self) -> None:
        """Leave the switches alone from now on, and wait for threads to end."""
        ...

    def expectation(self) -> str:
        """Where switches should have come to, and what to look at: the end of a message."""
        ...

    def label(self, dpid: int) -> str:
        """A switch as messages name it."""
        ...

    def is_named(self, dpid: int, name: str) -> bool:
        """Whether the switch with this datapath id has that name in the topology."""
        ...

    def connected(self) -> set[int]:
        """The datapath ids of the switches that can be reached now."""
        ...

    def send(self, changes: Mapping[int, Changes], now: float) -> None:
        """Change rules on several switches at once; returns when all have confirmed.

        Raises ControllerError naming the switch that refused, did not answer or is not connected;
        the others may have changed by then.
        """
        ...

    def delete_by_cookie(self, dpid: int, cookie: int, mask: int) -> None:
        """Delete every rule under a cookie mask. Raises ControllerError."""
        ...

    def read_rules(
        self, dpids: set[int], cookie: int, mask: int, now: float
    ) -> tuple[dict[int, list[SeenRule]], dict[int, set[int]]]:
        """The rules under a cookie mask on several switches, and the cookies of odd ones.

        Odd is a rule under our cookie that we would not make. Raises ControllerError.
        """
        ...

    @property
    def native(self) -> Native | None:
        """What can be asked where the switches are reached directly, None otherwise.

        Where None, there are no groups, meters and stamps, and what is on the switches is read
        before every change.
        """
        ...

    def sent_bytes(self, dpids: set[int]) -> dict[int, dict[int, int]]:
        """Bytes sent out of every port of several switches. Raises ControllerError."""
        ...
