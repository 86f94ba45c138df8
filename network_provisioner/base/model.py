"""The words of the network: what is asked for, what is given, and its life.

A *transit* is one request for a path and bandwidth between two sites, and what became of it:

    queued ─► held ─► installed ─► active ─► released | expired
                └─► failed                        queued ─► best_effort

``held`` has its bandwidth in the ledger, from its start on; ``installed`` is on the switches;
``active`` has been seen to carry bytes. ``expired``: its lease ended; ``failed``: the switches
refused; ``best_effort``: no path was given and the transfer runs without one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter
from typing import Any, NotRequired, Self, TypedDict

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.flows import Flow

CLIENT = "client"
SEEN = "seen"
PORTS_AT = ("", "src", "dst", CLIENT, SEEN)
SHARES = "shares standing circuit"  # in the reason of each transit that a standing one carries


class TransitState(StrEnum):
    """Where a transit stands. ``LIVE`` states hold bandwidth."""

    QUEUED = "queued"
    HELD = "held"
    INSTALLED = "installed"
    ACTIVE = "active"
    RELEASED = "released"
    EXPIRED = "expired"
    FAILED = "failed"
    BEST_EFFORT = "best_effort"


ON_SWITCHES = frozenset({TransitState.INSTALLED, TransitState.ACTIVE})
LIVE = ON_SWITCHES | {TransitState.HELD}
ENDED = frozenset(
    {TransitState.RELEASED, TransitState.EXPIRED, TransitState.FAILED, TransitState.BEST_EFFORT}
)


@dataclass(frozen=True, slots=True)
class TransitRequest:
    """What a transfer asks for.

    ``id``           chosen by the caller, so that asking twice gives one transit
    ``size_bytes``   None where nobody knows
    ``min_bps``, ``max_bps``  default to the template's QSpec and RSpec; where neither sets a
                     ceiling, it is all that the path has
    ``start``        Unix seconds from which on it is needed, None for now
    ``end``          Unix seconds until which it is needed at most, None for as long as it takes
    ``priority``     None for the template's; never above it
    ``template``     by name; where it is "default", ``application`` may find a better one
    ``flows``        which packets are meant; empty: all between the two sites
    ``src_host``, ``dst_host``  between which two hosts of the sites, by name or address; empty: all
    ``ports_at``     where its tool can use ports that are given to it: ``src`` or ``dst`` moves the
                     bytes itself, ``client`` has two servers do so; ``seen``: nowhere, but its
                     connections are reported where it runs; empty: nowhere
    ``user``, ``project``, ``experiment``, ``workflow``, ``job``, ``retry``  whose transfer it is
    ``best_effort``  why the caller does without a path, in words: nothing is reserved, and the
                     transit is recorded as best effort for this reason
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
    start: float | None = None
    end: float | None = None
    priority: int | None = None
    application: str = ""
    user: str = ""
    project: str = ""
    experiment: str = ""
    flows: tuple[Flow, ...] = ()
    src_host: str = ""
    dst_host: str = ""
    ports_at: str = ""
    best_effort: str = ""


@dataclass(frozen=True, slots=True)
class AgreedRequest(TransitRequest):
    """A request completed from its template, as the broker took it and may have changed it since.

    ``min_bps``, ``max_bps``  the least and the most that it is to be given; the least is stored
                        and published as ``requested_bps``
    ``uncapped``        nobody set a ceiling: ``max_bps`` is what its path has, or before it has one
                        what the paths between its sites have
    ``start``, ``end``  0 for now, and for as long as it takes
    ``lease_s``         None where the broker chooses it
    ``hosts``           the addresses of the two hosts whose packets are meant; empty: all of both
    ``requested_at``    when it was made, Unix seconds
    ``fingerprint``     tells a repeated request from another; published as ``asked``
    """

    min_bps: float = 0.0
    max_bps: float = 0.0
    start: float = 0.0
    end: float = 0.0
    priority: int = 0
    uncapped: bool = False
    template_version: int = 1
    hosts: tuple[str, ...] = ()
    requested_at: float = 0.0
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Service:
    """How the template of a request wants its transfer served by who runs it.

    ``patience_s``   how long it may wait for a path
    ``when_queued``  what to do meanwhile: ``wait``, ``defer`` (let DAGMan ask again later) or
                     ``best_effort`` (go on without, at once)
    ``streams``, ``buffer_bytes``  of GridFTP; ``threads`` of iRODS and pegasus-transfer, 0 where
                     theirs are to be kept
    ``why``          it is tuned so, in words; "" where it is not
    """

    template: str = "default"
    version: int = 1
    patience_s: float = 20.0
    when_queued: str = "wait"
    streams: int = 0
    buffer_bytes: int = 0
    threads: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """A part of a transit that is stored and published as an object; None is left out."""

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        values = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        return {name: value for name, value in values if value is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`as_dict`; keys it does not know are ignored."""
        return cls(**{k: v for k, v in data.items() if k in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True)
class TransitPart(Record):
    """One of several paths of a transit, with its part of the rates."""

    path: list[str]
    layer: str
    min_bps: int
    max_bps: float
    granted_bps: float


@dataclass(frozen=True, slots=True)
class RateChange(Record):
    """Rates that a transit was given ``at`` a Unix second, what they were before, and why; "" where
    its owner wanted it."""

    at: float
    min_bps: float
    max_bps: float
    was_min_bps: float
    was_max_bps: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class TuningSettings(Record):
    """How a transfer is to be tuned, and why; 0 leaves it to its tool."""

    streams: int = 0
    buffer_bytes: int = 0
    threads: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class TransitRelay(Record):
    """The relays at both ends that carry the connections of a transit, to which ``port``, how, and
    why; why alone where none do."""

    src: str = ""
    dst: str = ""
    port: int = 0
    streams: int = 0
    congestion: str = ""
    buffer_bytes: int = 0
    chunk_bytes: int = 0
    tls: bool = False
    why: str = ""

    def as_dict(self) -> dict[str, Any]:
        return Record.as_dict(self) if self.port else {"why": self.why}


@dataclass(frozen=True, slots=True)
class DiskKnee(Record):
    """The rate beyond which more does not help, as it was found ``at`` a Unix second: between
    ``low_bps`` and ``high_bps``, by which ``cause``; the ``site`` and the ``way`` (read, write) of
    the disk, and the share of the time that processes waited for it."""

    bps: float
    low_bps: float
    high_bps: float
    cause: str
    site: str
    way: str
    io_wait: float
    at: float


@dataclass(frozen=True, slots=True)
class IoRecord(Record):
    """What disks take of a transit (:mod:`~.transits.io_aware`): the rates that it would have else,
    what earlier transfers taught, and the ``knee`` that it was found to have."""

    asked_min_bps: float = 0.0
    asked_max_bps: float = 0.0
    remembered_bps: float | None = None
    knee: DiskKnee | None = None

    def as_dict(self) -> dict[str, Any]:
        out = Record.as_dict(replace(self, knee=None))
        return out if self.knee is None else out | self.knee.as_dict()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        low, high = (data.get(name, 0.0) for name in ("asked_min_bps", "asked_max_bps"))
        knee = DiskKnee.from_dict(data) if "bps" in data else None
        return cls(low, high, data.get("remembered_bps"), knee)


@dataclass(frozen=True, slots=True)
class KeptPromise(Record):
    """Whether the network keeps the rate that it granted (:mod:`~.selection.promise`): ``state``,
    ``why``, and the ``link`` that broke it, since Unix second ``since``; and for how many seconds
    it was in each state."""

    state: str = ""
    why: str = ""
    link: str = ""
    since: float = 0.0
    kept_s: float = 0.0
    less_s: float = 0.0
    broken_s: float = 0.0
    unknown_s: float = 0.0


class MetricScore(TypedDict):
    """One metric's part in the score of a path."""

    value: float | None
    source: str
    age_s: float | None
    score: float
    weight: float


class PathScore(TypedDict):
    """A path that was compared with others, why it was left out, and which of its links can take no
    promise; "" where it was not, and for none."""

    path: list[str]
    layer: str
    q: float
    free_bps: float
    expected_bps: float
    rejected: str
    not_guaranteed: NotRequired[str]
    scores: dict[str, MetricScore]


class BlockedLink(TypedDict):
    """A link that lacks room, and whose reservations hold it."""

    link: str
    free_bps: int
    holders: list[str]


@dataclass(slots=True)
class TransitGrant:
    """What a transit was given, and why. Times are Unix seconds, 0 where it did not happen.

    ``granted_bps``     what it is given now: between the least and the most that it asks for, and
                        more or less of it as others come and go
    ``parts``           all its paths where it has several; ``path`` is the first
    ``queue``           the policy's queue it shares, "" for none
    ``moves``           how often it was moved to another path while it had one
    ``candidates``      the paths that were compared
    ``earliest``        while it waits: when it could start as far as is known, 0 where nothing is
    ``blocking``        while it waits: the links that lack room
    ``expected_end``    where it began before others who wait: when it was expected to be done. From
                        then on it gives way to them, and becomes best effort; 0 for all others
    ``changes``         the latest changes of its rates, oldest first
    ``ports``           the first and last port that its tool is to use, at the end that it asks
                        for; none before the transfer of what is reserved in advance begins
    ``tuning``          how its transfer is to be tuned, None before it has a path
    ``warnings``        what may make its transfer slower than it could be, in words
    """

    path: list[str] = field(default_factory=list)
    layer: str = ""
    parts: list[TransitPart] = field(default_factory=list)
    granted_bps: float = 0.0
    queue: str = ""
    moves: int = 0
    lease_until: float = 0.0
    installed_at: float = 0.0
    active_at: float = 0.0
    released_at: float = 0.0
    candidates: list[PathScore] = field(default_factory=list)
    earliest: float = 0.0
    blocking: list[BlockedLink] = field(default_factory=list)
    expected_end: float = 0.0
    changes: list[RateChange] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    tuning: TuningSettings | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def paths(self) -> list[list[str]]:
        """Each of its paths, by nodes."""
        return [part.path for part in self.parts] or [self.path]

    def copy(self) -> TransitGrant:
        """A copy with lists of its own."""
        other = TransitGrant(*_OF_GRANT(self))
        other.path, other.parts, other.ports = list(self.path), list(self.parts), list(self.ports)
        other.candidates, other.blocking = list(self.candidates), list(self.blocking)
        other.changes, other.warnings = list(self.changes), list(self.warnings)
        return other


@dataclass(slots=True)
class TransitUsage:
    """What was made of it, by the report of its transfer and by the switches.

    ``outcome``         how the transfer ended: "success" or a word of the caller's
    ``switch_bytes``    what the switches counted
    ``byte_seconds``, ``metered_at``  what it was given until that time: see accounting.meter
    ``streams``, ``buffer_bytes``, ``threads``  what the transfer used, 0 for unknown
    ``retries``         attempts of its transfer that failed
    ``files``           how many it moved, 0 for unknown
    ``doubt``           why bytes and seconds cannot be as reported, "" where they can. They stay as
                        claimed, with a goodput of 0, and nobody decides by them
    ``vouched``         whether others decide by its report too; else its user alone
    ``kept``            whether it was given what it was promised; None where nothing was
    """

    bytes: int = 0
    seconds: float = 0.0
    goodput_bps: float = 0.0
    outcome: str = ""
    switch_bytes: int = 0
    byte_seconds: float = 0.0
    metered_at: float = 0.0
    streams: int = 0
    buffer_bytes: int = 0
    threads: int = 0
    retries: int = 0
    files: int = 0
    doubt: str = ""
    vouched: bool = True
    kept: KeptPromise | None = None


@dataclass(slots=True)
class Transit:
    """A request and what became of it, with the reason for its state in words.

    ``relay``  which relays carry its connections; None where its template asks for none
    ``io``     what disks take of it, None where its template does not ask for that; published as
               ``knee``
    """

    request: AgreedRequest
    state: TransitState
    reason: str = ""
    grant: TransitGrant = field(default_factory=TransitGrant)
    usage: TransitUsage = field(default_factory=TransitUsage)
    relay: TransitRelay | None = None
    io: IoRecord | None = None

    @property
    def id(self) -> str:
        """That of its request."""
        return self.request.id

    @property
    def relayed(self) -> bool:
        """Whether relays carry its connections."""
        return self.relay is not None and self.relay.port > 0

    @property
    def lost_path(self) -> bool:
        """Whether it had a path, and waits for another until its lease ends."""
        return self.state is TransitState.QUEUED and self.grant.lease_until > 0

    @property
    def awaits_flows(self) -> bool:
        """Whether its packets are told apart, but nobody knows yet which they are."""
        return bool(self.request.ports_at) and not self.request.flows

    @property
    def given_back_bps(self) -> float:
        """What it leaves to others of the ceiling that was asked for."""
        return max(0.0, self.io.asked_max_bps - self.request.max_bps) if self.io else 0.0

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready copy."""
        out = dict(zip(PUBLISHED, _VALUES(self), strict=True))
        for name, write in _WRITE.items():
            out[name] = write(out[name])
        return out

    def copy(self) -> Transit:
        """A copy that does not change with this one."""
        grant, usage = self.grant.copy(), TransitUsage(*_OF_USAGE(self.usage))
        return Transit(self.request, self.state, self.reason, grant, usage, self.relay, self.io)

    def assign(self, other: Transit) -> None:
        """Become what ``other`` is."""
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(other, name))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Transit:
        """The inverse of :meth:`as_dict`; keys it does not know are ignored."""
        parts: dict[str, dict[str, Any]] = {"": {}, "request": {}, "grant": {}, "usage": {}}
        for name, value in data.items():
            if name in _PARTS:
                part, attribute = _PARTS[name]
                parts[part][attribute] = _READ[name](value) if name in _READ else value
        if not math.isfinite(parts["usage"].get("goodput_bps", 0.0)):  # of an earlier version
            parts["usage"] |= {"goodput_bps": 0.0, "doubt": "reported a rate that no number tells"}
        request = AgreedRequest(**parts["request"])
        grant, usage = TransitGrant(**parts["grant"]), TransitUsage(**parts["usage"])
        return cls(request, **parts[""], grant=grant, usage=usage)


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    """The answer to one of several requests: a transit or why there is none, and how its template
    wants it served. ``new``: it was made for this request."""

    transit: Transit | None
    service: Service
    error: BrokerError | None = None
    new: bool = False

    def copy(self) -> RequestAnswer:
        """With a transit that does not change any more."""
        return self if self.transit is None else replace(self, transit=self.transit.copy())


def _read_flow(data: Mapping[str, Any]) -> Flow:
    ports = (data.get(name) for name in ("src_ports", "dst_ports"))
    return Flow(data["protocol"], *(each and (each[0], each[1]) for each in ports))


def _written(record: Record | None) -> dict[str, Any]:
    return {} if record is None else record.as_dict()


def _all_written(records: Iterable[Record | Flow]) -> list[dict[str, Any]]:
    return [record.as_dict() for record in records]


_PLACES = """
    request.id request.src request.dst state request.template request.workflow request.job
    request.retry grant.path grant.layer request.min_bps grant.granted_bps request.max_bps
    request.size_bytes request.requested_at grant.installed_at grant.released_at grant.lease_until
    reason usage.bytes usage.seconds usage.goodput_bps usage.switch_bytes grant.candidates
    request.lease_s request.start request.end grant.active_at request.priority request.application
    request.user request.project request.experiment request.flows grant.queue grant.parts
    grant.earliest grant.blocking grant.moves request.template_version usage.outcome
    request.fingerprint usage.byte_seconds usage.metered_at usage.streams usage.buffer_bytes
    usage.threads usage.retries usage.doubt usage.vouched grant.expected_end grant.changes io
    request.hosts grant.ports request.ports_at grant.tuning relay request.uncapped grant.warnings
    usage.kept usage.files
"""
_RENAMED = {"request.min_bps": "requested_bps", "request.fingerprint": "asked", "io": "knee"}
PUBLISHED = {_RENAMED.get(at, at.rpartition(".")[2]): at for at in _PLACES.split()}
"""The fields as they are stored and published, in this order, and where they are in a transit."""
_PARTS = {name: at.rpartition(".")[::2] for name, at in PUBLISHED.items()}
_VALUES = attrgetter(*PUBLISHED.values())
_OF_GRANT, _OF_USAGE = (
    attrgetter(*kind.__dataclass_fields__) for kind in (TransitGrant, TransitUsage)
)
_WRITE: dict[str, Callable[[Any], Any]] = {
    "state": str,
    **dict.fromkeys(("path", "candidates", "blocking", "hosts", "ports", "warnings"), list),
    **dict.fromkeys(("flows", "parts", "changes"), _all_written),
    **dict.fromkeys(("tuning", "relay", "knee", "kept"), _written),
}
_READ: dict[str, Callable[[Any], Any]] = {
    "state": TransitState,
    "hosts": tuple,
    "flows": lambda value: tuple(map(_read_flow, value)),
    "parts": lambda value: [*map(TransitPart.from_dict, value)],
    "changes": lambda value: [*map(RateChange.from_dict, value)],
    "tuning": lambda value: TuningSettings.from_dict(value) if value else None,
    "relay": lambda value: TransitRelay.from_dict(value) if value else None,
    "knee": lambda value: IoRecord.from_dict(value) if value else None,
    "kept": lambda value: KeptPromise.from_dict(value) if value else None,
}
