"""What admission answers: Grant, Wait or Never, each with its reasons for people and programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from network_provisioner.reservations.ledger import Hop, Reservation
from network_provisioner.selection.push import Reroute
from network_provisioner.selection.split import PathPart
from network_provisioner.selection.transit import PathChoice
from network_provisioner.topology.graph import Path


@dataclass(frozen=True, slots=True)
class Grant:
    """The paths with what to reserve on each from ``start`` to ``end`` (Unix seconds), and why.

    ``moves`` must be carried out with it, in one step in the ledger
    (:meth:`~.reservations.Ledger.commit`): without them it does not fit. The
    rate that is granted *now* is the business of :mod:`~.elastic`: at least the
    sum of ``min_bps``.
    """

    parts: tuple[PathPart, ...]
    start: float
    end: float
    decision: PathChoice
    reason: str
    moves: tuple[Reroute, ...] = ()

    @property
    def path(self) -> Path:
        """The first path, which is the only one in most cases."""
        return self.parts[0].path

    def reservation(self, transit_id: str) -> Reservation:
        """What the ledger shall hold for it."""
        return Reservation(transit_id, tuple(w.lane for w in self.parts), self.start, self.end)


@dataclass(frozen=True, slots=True)
class Blocked:
    """A directed link that lacks room: what is free on it, and whose reservations hold the rest, or
    who waits for it before (then ``free_bps`` may be enough)."""

    hop: Hop
    free_bps: int
    holders: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready: link, free_bps, holders."""
        link = f"{self.hop[0]}>{self.hop[1]}"
        return {"link": link, "free_bps": self.free_bps, "holders": list(self.holders)}


@dataclass(frozen=True, slots=True)
class Claim:
    """Somebody who waits wants a link during [``start``, ``end``)."""

    id: str
    start: float
    end: float


Claims = Mapping[Hop, Sequence[Claim]]
"""Whom a request must leave each directed link to. A claim counts where the times overlap."""


@dataclass(frozen=True, slots=True)
class Wait:
    """It does not fit now, or not then.

    ``earliest``: the first Unix second at which it fits, over all candidate paths and, where the
    template allows several at once, over splitting, by the reservations as they are; None where
    only an event that nobody knows the time of would help. For a request with an ``end`` it may be
    later than that: the first time at which a window of the same length is free.
    ``blocking``: every link that lacks room on a path worth waiting for.
    ``claim``: what those behind it in the queue must leave alone, on :attr:`links`.
    """

    reason: str
    earliest: float | None
    blocking: tuple[Blocked, ...]
    decision: PathChoice
    claim: Claim = Claim("", -math.inf, math.inf)

    @property
    def links(self) -> frozenset[Hop]:
        """The links that lack room."""
        return frozenset(blocked.hop for blocked in self.blocking)

    def claims(self) -> dict[Hop, Claim]:
        """Its claim on each of :attr:`links`."""
        return dict.fromkeys(sorted(self.links), self.claim)


@dataclass(frozen=True, slots=True)
class Never:
    """No waiting helps: no path of this network can serve the request, however empty it is.

    ``code``: ``no_path`` (the sites are not joined), ``impossible_rate`` (no path is large enough),
    ``quality`` (what is large enough misses the QSpec in delay, jitter, loss or measured rate),
    ``bad_time`` (its end has passed).
    """

    reason: str
    code: str
    decision: PathChoice | None = None
