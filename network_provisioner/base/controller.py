"""What every network controller must be able to do, as a Protocol.

The broker holds the whole desired state; a controller is told what should be on the switches and
makes it so. ``apply`` is therefore idempotent: applying the same transits twice changes nothing,
and after a restart of either side one ``apply`` brings both together again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from network_provisioner.base.errors import AdonError
from network_provisioner.base.flows import Flow

Way = tuple[tuple[int, int], tuple[int, int]]
"""From a port to a port: each a datapath id and a number."""


class ControllerError(AdonError):
    """The switches refused, did not answer, or are not connected. Nothing was left half-made."""

    code = "controller_unavailable"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a controller can do. Silence means no.

    ``bandwidth``     how rates are kept: "dscp-htb", "queue", "meter" or "none"
    ``flow_leases``   rules end by themselves in the switch (OpenFlow hard_timeout)
    ``real_packets``  traffic really crosses what it controls
    ``matches``       circuits of one pair of sites with :attr:`Circuit.flows` are told apart, each
                      with a path and a rate of its own
    ``multipath``     a circuit may have several :attr:`Circuit.parts`
    ``queues``        circuits may share a :class:`Queue`
    """

    name: str
    bandwidth: str = "none"
    flow_leases: bool = False
    real_packets: bool = False
    matches: bool = False
    multipath: bool = False
    queues: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """One of several paths of a circuit, with its part of the rate."""

    path: tuple[str, ...]
    min_bps: float
    max_bps: float


@dataclass(frozen=True, slots=True)
class Redirect:
    """Packets between two sites that relays at both ends of a circuit's path carry (SOS thesis,
    §2.3). Data flows from ``src`` to ``dst``; ``flows`` are TCP alone, empty: all TCP between them;
    ``hosts`` as :attr:`Circuit.hosts`."""

    src: str
    dst: str
    flows: tuple[Flow, ...] = ()
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Circuit:
    """One transit as the switches must carry it.

    ``path`` is the list of topology nodes from source site to destination site; data flows from
    source to destination, acknowledgements come back the same way. ``min_bps`` is guaranteed,
    ``max_bps`` is the ceiling; ``lease_until`` is Unix seconds. A ``min_bps`` of 0 opens the way
    and guarantees nothing.

    ``flows``: which packets it carries; empty: all between its two sites that no other names.
    ``hosts``: the addresses of the two hosts whose packets they are; empty: all of both sites.
    ``queue``: the name of the :class:`Queue` it shares where its path meets one, or "".
    ``parts``: all its paths where it has several; then ``path`` is the first's, and ``min_bps`` and
    ``max_bps`` are the sums.
    ``redirect``: the packets that the relays at both ends of its path carry over it; None for most.
    """

    id: str
    path: tuple[str, ...]
    min_bps: float
    max_bps: float
    lease_until: float
    flows: tuple[Flow, ...] = ()
    queue: str = ""
    parts: tuple[Part, ...] = ()
    hosts: tuple[str, ...] = ()
    redirect: Redirect | None = None

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """Its parts, or the whole circuit as the only one."""
        return self.parts or (Part(self.path, self.min_bps, self.max_bps),)


@dataclass(frozen=True, slots=True)
class Queue:
    """A class of traffic on one directed link (application-aware SDN paper, §IV.E).

    What circuits name it gets at least ``rate_bps`` together while it has enough to send, at most
    ``ceil_bps``. Of what others leave idle, the lowest ``prio`` is served first, equal ones in
    proportion to their rates. ``parent`` names another queue of the link out of which this one is
    served, "" for the link itself. Rates guaranteed to circuits are kept within their queue.
    """

    name: str
    hop: tuple[str, str]
    rate_bps: float
    ceil_bps: float
    prio: int = 0
    parent: str = ""


@dataclass(frozen=True, slots=True)
class LinkCounter:
    """Bytes sent from ``a`` towards ``b`` since the switch started, read at Unix second ``at``."""

    a: str
    b: str
    bytes: int
    at: float


class Controller(Protocol):
    """A driver for one kind of network. See docs/controllers.md for how to write another."""

    def capabilities(self) -> Capabilities:
        """What this driver can do."""
        ...

    def start(self, timeout_s: float) -> None:
        """Connect to the switches, lay the best-effort routes. Raises ControllerError."""
        ...

    def apply(self, circuits: Sequence[Circuit], queues: Sequence[Queue] = ()) -> None:
        """Make the switches carry exactly these circuits, and have these queues, all or nothing.

        Returns when the switches have confirmed. Raises ControllerError, with the previous circuits
        still in place.
        """
        ...

    def circuit_bytes(self, circuit_id: str) -> int:
        """Bytes the source-side switch has forwarded for a circuit; 0 where it is not installed."""
        ...

    def installed(self) -> list[str]:
        """Ids of the circuits whose rules are on the switches now, read from the switches."""
        ...

    def counters(self) -> list[LinkCounter]:
        """Bytes sent on every link direction that a switch sends into."""
        ...

    def stop(self) -> None:
        """Disconnect. What is on the switches stays there, so that nobody notices a restart;
        circuits end with their leases."""
        ...

    def clear(self) -> None:
        """Remove everything of ours from the switches that can be reached. Never fails: what
        cannot be removed is logged."""
        ...


@dataclass(frozen=True, slots=True)
class SwitchStatus:
    """A switch as its controller sees it.

    ``label`` is how messages name it. ``since`` is the Unix second since which it is not connected,
    0 where it is. ``problem`` says what is wrong, "" for nothing; ``repairs`` counts, by kind, what
    was missing on it and was put back.
    """

    name: str
    label: str
    connected: bool
    since: float
    problem: str
    repairs: Mapping[str, int]


@runtime_checkable
class CountsHops(Protocol):
    """A controller that knows what each switch has forwarded for a circuit."""

    def hop_bytes(self, circuit_ids: Collection[str]) -> Mapping[str, Sequence[tuple[str, int]]]:
        """The switches along each circuit's path with the bytes that its rules there have met,
        source first. Circuits with several paths, those that share rules, and those of which a
        switch does not answer are left out. Counts begin anew where rules are laid anew."""
        ...


@runtime_checkable
class MayMissBytes(Protocol):
    """A controller whose switches may not say what they have forwarded."""

    def is_uncounted(self, circuit_id: str) -> bool:
        """Whether the switches did not say what a circuit carries when they were asked last."""
        ...


@runtime_checkable
class StandsBy(Protocol):
    """A controller that switches may be connected with while another broker's has them."""

    def stand_by(self) -> None:
        """Have the switches connect, and change nothing on them. Raises ControllerError."""
        ...

    def lead(self, term: int, leads: Callable[[], bool]) -> None:
        """From here on the switches are ours, as long as ``leads`` says so: they refuse what a
        broker says that led in an earlier ``term``. Before ``start``."""
        ...


@runtime_checkable
class WatchesSwitches(Protocol):
    """A controller that sees how each switch is."""

    def switches(self) -> Sequence[SwitchStatus]:
        """Every switch of the topology. Asks none."""
        ...


@runtime_checkable
class ProbesLinks(Protocol):
    """A controller that knows of links that work."""

    def known_ways(self) -> Set[Way]:
        """All that something has come through since the start, or was expected. Asks no switch."""
        ...

    def unheard_links(self) -> Set[tuple[str, str]]:
        """Every directed link that is probed, and that nothing has come through. Asks no switch."""
        ...

    def expect_ways(self, ways: Set[Way], failed: Mapping[tuple[str, str], str]) -> None:
        """Something came through these before a restart: where nothing does now, they fail. These
        directed links had ``failed``, for a reason, and have until something comes through."""
        ...


@runtime_checkable
class WatchesLinks(Protocol):
    """A controller that sees links fail."""

    def failed_links(self) -> Mapping[tuple[str, str], str]:
        """Every directed link that carries nothing now, and why, in words. Asks no switch."""
        ...


@runtime_checkable
class AvoidsLinks(Protocol):
    """A controller that lays the routes of best effort."""

    def avoid_links(self, hops: Set[tuple[str, str]]) -> None:
        """Lay best effort over other directed links than these, where there are such, from the next
        ``apply`` on."""
        ...
