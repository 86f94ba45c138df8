"""Those who are told what became of transits: a recorder of transfers, and policies."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from network_provisioner.classes import Differentiator
from network_provisioner.model import Transit

log = logging.getLogger(__name__)


class Recorder(Protocol):
    """Takes what was measured of a transfer, once for each transit that is reported."""

    def record(self, transit: Transit) -> object:
        """Keep bytes, seconds, goodput. Whatever it raises is logged and goes no further."""
        ...


class Followers:
    """Tells them outside of the broker's turn: they may take their time, and may fail."""

    def __init__(
        self, recorder: Recorder | None, policies: Differentiator | None, ended: deque[Transit]
    ) -> None:
        """``ended`` is filled by the lifecycle."""
        self._recorder = recorder
        self._policies = policies
        self._reported: deque[Transit] = deque()
        self._ended = ended

    def reported(self, transit: Transit) -> None:
        """A transfer's first report has come."""
        if self._recorder is not None:
            self._reported.append(transit)

    def tell(self) -> None:
        """Tell all that is new."""
        if self._recorder is not None:
            _hand_over(self._reported, self._recorder.record, "recorded")
        if self._policies is None:
            self._ended.clear()
        else:
            _hand_over(self._ended, self._policies.ended, "accounted for")


def _hand_over(queue: deque[Transit], take: Callable[[Transit], object], what: str) -> None:
    while queue:
        try:
            transit = queue.popleft()
        except IndexError:  # another thread took the last one
            return
        try:
            take(transit)
        except Exception:  # somebody else's failure must not fail the release
            log.exception("transit %s was not %s", transit.id, what)
