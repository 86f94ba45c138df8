"""What the switches should carry, and whether they do.

The controller is always told the whole desired state in one ``apply``, so that one mends whatever
was cut short. Here that state is kept, and told only where something of it has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from network_provisioner.circuits import circuit
from network_provisioner.controllers.base import Circuit, Controller, ControllerError, Queue
from network_provisioner.model import Transit

log = logging.getLogger(__name__)

AGAIN_S = 5.0  # between attempts to mend switches that did not take the last change


@runtime_checkable
class CountsReports(Protocol):
    """A controller that sees no packets, and counts what transfers report instead."""

    def report_bytes(self, circuit_id: str, n_bytes: int) -> None:
        """Take in that a transfer has moved ``n_bytes`` over a circuit."""
        ...


class Switchboard:
    """The desired circuits and queues of one controller. Not thread-safe."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        # Asked once: what a protocol wants is looked up attribute by attribute.
        self._reported = controller if isinstance(controller, CountsReports) else None
        self.matches = False  # whether it looks at the flows of circuits
        self._circuits: dict[str, Circuit] = {}
        self._queues: tuple[Queue, ...] = ()
        self.dirty = True  # whether what is wanted was changed since it was told
        self._again: float | None = None  # when to try again what the switches did not take

    def want(self, transit: Transit) -> None:
        """A transit is to be carried, as it stands now."""
        wanted = circuit(transit, self.matches)
        if self._circuits.get(transit.id) != wanted:
            self._circuits[transit.id] = wanted
            self.dirty = True

    def drop(self, transit_id: str) -> None:
        """A transit is not to be carried any more."""
        if self._circuits.pop(transit_id, None) is not None:
            self.dirty = True

    def set_queues(self, queues: Sequence[Queue]) -> None:
        """Other queues are to be there than before."""
        self._queues = tuple(queues)
        self.dirty = True

    @property
    def out_of_step(self) -> bool:
        """Whether the switches did not take the last change."""
        return self._again is not None

    def waits(self, now: float) -> bool:
        """Whether it is too early to try again what they did not take."""
        return self._again is not None and self._again > now

    def move_time(self, by_s: float) -> None:
        """The clock was set by so many seconds."""
        if self._again is not None:
            self._again += by_s

    def tell(self, now: float) -> None:
        """Have the switches carry what is wanted. Raises ControllerError: they do not, and
        :meth:`waits` until it is time to try again."""
        try:
            self._controller.apply(list(self._circuits.values()), self._queues)
        except Exception as error:
            self._again = now + AGAIN_S
            self.dirty = True
            if isinstance(error, ControllerError):
                raise
            # A driver's own fault must end like a refusal, not half-way.
            log.exception("the controller failed in a way of its own")
            raise ControllerError(f"the controller failed: {error}") from error
        self._again, self.dirty = None, False

    def report(self, transit_id: str, n_bytes: int) -> bool:
        """Tell a controller that sees no packets what a transfer has moved; False for others."""
        if self._reported is None:
            return False
        self._reported.report_bytes(transit_id, n_bytes)
        return True

    def bytes_of(self, transit_id: str) -> int:
        """What the switches have forwarded for a transit, 0 where they cannot say."""
        try:
            return self._controller.circuit_bytes(transit_id)
        except Exception as error:  # a counter that cannot be read must not keep a path from ending
            log.warning("transit %s: its byte counter cannot be read: %s", transit_id, error)
            return 0
