"""A broker in memory that keeps to its word: what hooks and watchers rely on, and nothing more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from made_transit import made_transit

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import (
    ENDED,
    RequestAnswer,
    Service,
    Transit,
    TransitRequest,
    TransitState,
)
from network_provisioner.client.request_ids import latest, numbered


class Killed(BaseException):
    """kill -9, as far as a test can have it: nothing of the hook runs after it."""


@dataclass
class BrokerModel:
    """Transits by id; one that has ended is given anew under the next number. What is asked for
    next gets ``state``. While it is ``away`` nothing is answered. ``fate`` says of each call what
    happens: ``ok``; ``before`` it the caller is killed, or ``after`` it; ``refused`` or ``lost``:
    the answer is an error, before the broker did anything or after."""

    transits: dict[str, Transit] = field(default_factory=dict)
    away: bool = False
    unmet: bool = False  # whether packets go another way
    state: TransitState = TransitState.INSTALLED
    fate: Iterator[str] = field(default_factory=lambda: iter(()))
    calls: list[tuple[str, str]] = field(default_factory=list)
    released: list[tuple[str, int, float, str]] = field(default_factory=list)

    @contextmanager
    def step(self, call: str = "", name: str = "") -> Iterator[None]:
        """Something that may be interrupted; a ``call`` may be answered by an error, too."""
        if call and self.away:
            raise BrokerError("away", "unreachable")
        fate = next(self.fate, "ok")
        if fate == "before":
            raise Killed
        if call and fate == "refused":
            raise BrokerError("not now", "store_unavailable")
        self.calls.append((call, name))
        yield
        if fate == "after":
            raise Killed
        if call and fate == "lost":
            raise BrokerError("the answer was lost", "timeout")

    def ask(self, requests: Sequence[TransitRequest], /) -> list[RequestAnswer]:
        with self.step("ask", requests[0].id):
            return [RequestAnswer(self._given(request), Service()) for request in requests]

    def _given(self, request: TransitRequest) -> Transit:
        number, transit = latest(request.id, self.transits.get)
        name = numbered(request.id, number)
        if transit is None:
            state = TransitState.BEST_EFFORT if request.best_effort else self.state
            transit = self.transits[name] = made_transit(
                name, request.src, request.dst, state, size_bytes=request.size_bytes,
                reason=request.best_effort, lease_until=1e18,
            )  # fmt: skip
        return self._seen(transit)

    def _seen(self, transit: Transit) -> Transit:
        if transit.state is TransitState.QUEUED:  # there may be room by now
            transit.state = self.state
        return transit.copy()

    def _known(self, name: str) -> Transit:
        if name not in self.transits:
            raise BrokerError("who?", "unknown_transit")
        return self.transits[name]

    def get(self, transit_id: str, /) -> Transit:
        with self.step("get", transit_id):
            return self._seen(self._known(transit_id))

    def release(
        self,
        transit_id: str,
        bytes_moved: int = 0,
        seconds: float = 0.0,
        outcome: str = "",
        **used: int | str,
    ) -> Transit:
        with self.step("release", transit_id):
            transit = self._known(transit_id)
            if transit.state not in ENDED:
                transit.state, transit.usage.outcome = TransitState.RELEASED, outcome
                self.released.append((transit_id, bytes_moved, seconds, outcome))
            if not transit.usage.bytes:
                transit.usage.bytes, transit.usage.seconds = bytes_moved, seconds
                transit.reason += str(used.get("note", ""))
            return transit.copy()

    def renew(self, transit_id: str, lease_s: float) -> Transit:
        with self.step("renew", transit_id):
            return self._known(transit_id).copy()

    def report_flows(self, transit_id: str, flows: Iterable[Flow]) -> Transit:
        with self.step("flows", transit_id):
            transit = self._known(transit_id)
            transit.request = replace(transit.request, flows=tuple(flows), ports_at="")
            return transit.copy()

    def report_progress(self, transit_id: str, n_bytes: int) -> Transit:
        with self.step("progress", transit_id):
            transit = self._known(transit_id)
            if n_bytes and transit.state is TransitState.INSTALLED:
                transit.state = TransitState.BEST_EFFORT if self.unmet else TransitState.ACTIVE
            return transit.copy()

    def list(self, state: str | None = None, workflow: str | None = None) -> list[Transit]:
        with self.step("list", state or ""):
            mine = [t for t in self.transits.values() if workflow in (None, t.id.partition(":")[0])]
            return [transit for transit in mine if transit.state == state]

    def live(self) -> list[str]:
        """The ids that hold something, or wait for it."""
        return [name for name, transit in self.transits.items() if transit.state not in ENDED]
