"""What admission answers: Grant, Wait or Never, each with its reasons for people and programs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from network_provisioner.base.model import BlockedLink
from network_provisioner.selection.push import Reroute
from network_provisioner.selection.transit import PathChoice
from network_provisioner.state.ledger import PathPart, Reservation
from network_provisioner.state.waitlist import NO_CLAIM, Claim
from network_provisioner.topology.graph import Hop, Path


@dataclass(frozen=True, slots=True)
class Grant:
    """The paths with what to reserve on each from ``start`` to ``end`` (Unix seconds), and why.

    ``done``: when it is expected to be done. ``early``: it begins before others who wait for its
    room; then it gives way to them when that is over, and ``end`` is not after they come.
    ``moves`` must be carried out with it, in one step: without them it does not fit. What it is
    given *now*, at least the sum of ``min_bps``, is decided elsewhere (:mod:`~.state.elastic`).
    """

    parts: tuple[PathPart, ...]
    start: float
    end: float
    decision: PathChoice
    reason: str
    moves: tuple[Reroute, ...] = ()
    done: float = math.inf
    early: bool = False

    @property
    def path(self) -> Path:
        """The first path, which is the only one in most cases."""
        return self.parts[0].path

    def reservation(self, transit_id: str) -> Reservation:
        """What the ledger shall hold for it."""
        lanes = tuple(way.lane for way in self.parts)
        return Reservation(transit_id, lanes, self.start, self.end, self.done)


@dataclass(frozen=True, slots=True)
class Blocked:
    """A directed link that lacks room: what is free on it, and whose reservations hold the rest, or
    who waits for it before (then ``free_bps`` may be enough)."""

    hop: Hop
    free_bps: int
    holders: tuple[str, ...]

    def as_dict(self) -> BlockedLink:
        """JSON-ready: link, free_bps, holders."""
        link = f"{self.hop[0]}>{self.hop[1]}"
        return {"link": link, "free_bps": self.free_bps, "holders": list(self.holders)}


@dataclass(frozen=True, slots=True)
class Wait:
    """It does not fit now, or not then.

    ``earliest``: the first Unix second at which it fits, over all candidate paths and, where the
    template allows several at once, over splitting, by the reservations as they are; None where
    only an event that nobody knows the time of would help. For a request with an ``end`` it may be
    later than that: the first time at which a window of the same length is free.
    ``blocking``: every link that lacks room on a path worth waiting for.
    ``claim``: what those behind it in the queue must leave it, on the links that lack room and on
    ``path``, where it would start at ``earliest``; nothing on those that ``class_full`` names,
    where it is its own class that has no more.
    """

    reason: str
    earliest: float | None
    blocking: tuple[Blocked, ...]
    decision: PathChoice
    claim: Claim = NO_CLAIM
    path: Path | None = None
    class_full: frozenset[Hop] = frozenset()

    @property
    def links(self) -> frozenset[Hop]:
        """The links that lack room."""
        return frozenset(blocked.hop for blocked in self.blocking)

    def claims(self) -> dict[Hop, Claim]:
        """Its claim on each link."""
        hops = () if self.path is None else self.path.hops
        elsewhere = dict.fromkeys(hops, replace(self.claim, lacks=False))
        claims = {**elsewhere, **dict.fromkeys(sorted(self.links), self.claim)}
        none = replace(self.claim, rate_bps=0.0)
        return claims | dict.fromkeys(self.class_full & claims.keys(), none)


@dataclass(frozen=True, slots=True)
class Never:
    """No waiting helps: its end has passed, others of its packets are on several paths, or no path
    of this network can serve the request, however empty it is."""

    reason: str
    decision: PathChoice | None = None
