"""The words of the network: what is asked for, what is given, and its life.

A *transit* is one request for a path and bandwidth between two sites, and what became of it. Its
life is ``queued → held → installed → released``, or ``expired`` (its lease ended), ``failed`` (the
switches refused), ``best_effort`` (no path was given and the transfer runs without one).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class TransitState(StrEnum):
    """Where a transit stands. ``LIVE`` states hold bandwidth."""

    QUEUED = "queued"
    HELD = "held"
    INSTALLED = "installed"
    RELEASED = "released"
    EXPIRED = "expired"
    FAILED = "failed"
    BEST_EFFORT = "best_effort"


LIVE = frozenset({TransitState.HELD, TransitState.INSTALLED})
ENDED = frozenset(
    {TransitState.RELEASED, TransitState.EXPIRED, TransitState.FAILED, TransitState.BEST_EFFORT}
)


@dataclass(frozen=True, slots=True)
class TransitRequest:
    """What a transfer asks for.

    ``id`` is chosen by the caller, so that asking twice gives one transit. ``size_bytes`` is None
    where nobody knows. ``min_bps`` and ``max_bps`` default to the template's QSpec and RSpec.
    """

    id: str
    src: str
    dst: str
    size_bytes: int | None = None
    min_bps: float | None = None
    max_bps: float | None = None
    template: str = "default"
    lease_s: float | None = None
    workflow: str = ""
    job: str = ""
    retry: int = 0


@dataclass(slots=True)
class Transit:
    """A request and what became of it. Times are Unix seconds, 0 where it did not happen.

    ``lease_s`` is the lease that was asked for, None where the broker chooses it.
    """

    id: str
    src: str
    dst: str
    state: TransitState
    template: str = "default"
    workflow: str = ""
    job: str = ""
    retry: int = 0
    path: list[str] = field(default_factory=list)
    layer: str = ""
    requested_bps: float = 0.0
    granted_bps: float = 0.0
    max_bps: float = 0.0
    size_bytes: int | None = None
    requested_at: float = 0.0
    installed_at: float = 0.0
    released_at: float = 0.0
    lease_until: float = 0.0
    reason: str = ""
    bytes: int = 0
    seconds: float = 0.0
    goodput_bps: float = 0.0
    switch_bytes: int = 0
    candidates: list[dict[str, Any]] = field(default_factory=list)
    lease_s: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready copy."""
        out = asdict(self)
        out["state"] = str(self.state)
        return out

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Transit:
        """The inverse of :meth:`as_dict`; keys it does not know are ignored."""
        known = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
        known["state"] = TransitState(known["state"])
        return cls(**known)
