"""What is sent to the coordinator, and what it answers. Durations that people send have a unit
(``5 min``); in answers times are seconds, instants Unix seconds, rates bit/s."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from monitors.measurements.disks.periods import (
    MOST_PROCESSES,
    MOST_SECONDS,
    DiskReport,
    ProcessSecond,
)
from monitors.measurements.run_planner import LONGEST_WAIT_MS
from network_provisioner.api.shapes import Answer, Body, Port, Text
from network_provisioner.base.errors import InputError
from network_provisioner.base.fields import plain_address
from network_provisioner.base.schema import INTEGRAL
from network_provisioner.base.units import MAX_RATE_BPS, parse_duration
from network_provisioner.state.connections import MOST_SOCKETS, Connection, SocketPeriod
from network_provisioner.state.disks import DiskSample

Quantity = Text | float
_MOST_RESULTS = 50
_MOST_CONNECTIONS = 10_000
_MOST_PROCESSES = MOST_SECONDS * MOST_PROCESSES
_WITHIN = "10 min"
Address = Annotated[Text, AfterValidator(plain_address)]
Bps = Annotated[float, Field(ge=0, le=MAX_RATE_BPS)]
Share = Annotated[float, Field(ge=0, le=1)]
Age = Annotated[float, Field(ge=0, le=3600)]
ProcessName = Annotated[str, Field(max_length=64)]
Pid = Annotated[int, Field(ge=1, lt=2**31), INTEGRAL]
# A list in JSON.
Second = Annotated[tuple[Age, Bps, Bps, Share], Field(strict=False)]
Process = Annotated[tuple[ProcessName, Pid, Bps, Bps, Share | None], Field(strict=False)]
Seconds = Annotated[float, Field(gt=0, le=60)]
Bytes = Annotated[int, Field(ge=0, lt=2**63), INTEGRAL]
Socket = Annotated[
    tuple[Address, Port, Address, Port, Seconds, Bytes, Share, Share, Share, bool, Bps],
    Field(strict=False),
]


class OnDemandBody(Body):
    """How soon a run on demand has to be over."""

    within: Quantity = Field(default=_WITHIN, examples=["10 min"])

    def within_ms(self) -> int:
        """In milliseconds. Raises InputError."""
        within = round(parse_duration(self.within, "within") * 1000)
        if not 0 < within <= LONGEST_WAIT_MS:
            raise InputError(
                f"within: found {self.within!r}, expected more than 0 s and at most "
                f"{LONGEST_WAIT_MS // 60_000} min"
            )
        return within


class _MeasurementBody(Body):
    """What is measured."""

    tool: Text = Field(examples=["tcp"])
    source: Text = Field(alias="from", examples=["mu"])
    to: Text | None = Field(default=None, examples=["tacc"])
    lasts: Quantity | None = Field(default=None, alias="for", examples=["10 s"])
    load: Quantity | None = Field(default=None, description="on the network; default: the tool's")
    options: dict[str, Any] = Field(default={}, examples=[{"streams": 4}])

    def task(self) -> dict[str, Any]:
        """In the keys of ``monitoring.tasks``."""
        return self.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)


class TaskBody(_MeasurementBody):
    """What is measured, how often, and how late after its release it may be over."""

    every: Quantity = Field(examples=["10 min"])
    within: Quantity | None = Field(default=None, description="default: until the next release")


class OnceBody(_MeasurementBody, OnDemandBody):
    """What is measured once, and how soon."""

    def task(self) -> dict[str, Any]:
        """In the keys of ``monitoring.tasks``."""
        return {key: value for key, value in super().task().items() if key != "within"}


class ResultsBody(Body):
    """What came of assignments; :mod:`monitors.measurements.result_validation` checks each."""

    results: Annotated[list[dict[str, Any]], Field(max_length=_MOST_RESULTS)]


class ConnectionBody(Body):
    """A TCP connection: its ends, and the port that the client of its process comes from."""

    client_port: Port
    local: Address = Field(examples=["192.0.2.1"])
    local_port: Port
    remote: Address
    remote_port: Port


class ConnectionsBody(Body):
    """All connections that the transfer servers of an agent's host have open."""

    connections: Annotated[list[ConnectionBody], Field(max_length=_MOST_CONNECTIONS)]

    def as_connections(self) -> list[Connection]:
        """As the broker takes them."""
        return [
            Connection(c.client_port, (c.local, c.local_port), (c.remote, c.remote_port))
            for c in self.connections
        ]


class DisksBody(Body):
    """What the disks of an agent's host did. ``seconds``: how long ago each ended when it was
    sent, what was read and written (bit/s) and the share that was waited for. ``processes``: of the
    busiest in each of these seconds name, number, the same rates, and the share that it waited for
    disks, null where that is not known."""

    source: Literal["delay", "pressure", "iowait"]
    seconds: Annotated[list[Second], Field(min_length=1, max_length=MOST_SECONDS)]
    processes: Annotated[list[Process], Field(max_length=_MOST_PROCESSES)]

    def report(self, received: float) -> DiskReport:
        """With instants by the clock that says when it was ``received``."""
        seconds = [DiskSample(received - age, *rest) for age, *rest in self.seconds]
        return DiskReport(
            self.source, seconds, [ProcessSecond(*process) for process in self.processes]
        )


class SocketsBody(Body):
    """What the TCP connections of an agent's host sent. ``sockets``: of each the local address and
    port, the remote address and port, the seconds that are reported, and in them the bytes that
    arrived, the shares of the time in which it had data to send, was held up by the receiver's
    window, and by the sender's buffer; whether data waited at the end; and the rate that its
    program allows (bit/s), 0 for any."""

    sockets: Annotated[list[Socket], Field(max_length=MOST_SOCKETS)]

    def periods(self) -> list[SocketPeriod]:
        """As the broker takes them."""
        return [SocketPeriod((s[0], s[1]), (s[2], s[3]), *s[4:]) for s in self.sockets]


class AgentNameAnswer(Answer):
    """Who was heard."""

    agent: str


class AssignmentsAnswer(Answer):
    """Everything that an agent has to do until ``until``."""

    agent: str
    version: int
    received: float
    sent: float
    until: float
    assignments: list[dict[str, Any]]


class ResultsAnswer(Answer):
    """``accepted``: recorded, now or before. ``refused``: the reason, by assignment."""

    agent: str
    received: float
    sent: float
    accepted: list[str]
    refused: dict[str, str]


class AgentAnswer(Answer):
    """An agent. ``offset_s``: the broker's clock less its own, None while it is not known."""

    name: str
    site: str
    present: bool
    last_seen: float | None
    offset_s: float | None
    error_s: float | None
    version: str
    last_error: str


class RunAnswer(Answer):
    """A run: ``planned``, ``done``, ``failed``, ``missed`` or ``dropped``, and why. ``measured``
    are the metrics that were recorded, each under the id ``METRIC:RUN``."""

    id: str
    task: str
    tool: str
    subject: str
    at: float
    until: float
    state: str
    error: str
    measured: list[str]


class RunsAnswer(Answer):
    """Runs, and what time it is."""

    now: float
    runs: list[RunAnswer]


class TaskAnswer(Answer):
    """A task. ``problem``: why it is in no schedule, empty where it is. ``configured``: it stands
    in adon.yml. ``next`` is when it begins next."""

    name: str
    tool: str
    subject: str
    metrics: list[str]
    every_s: float
    for_s: float
    within_s: float
    configured: bool
    problem: str
    next: float | None
    counts: dict[str, int]


class ScheduleAnswer(Answer):
    """The schedule. ``hosts`` and ``links``: the share of time that each is used. ``moved``: runs
    to come that start ``at`` ``instead_of`` their slot, because of a run on demand."""

    hyperperiod_s: float
    slots: int
    tasks: int
    until: float
    hosts: dict[str, float]
    links: list[dict[str, Any]]
    moved: list[dict[str, Any]]


class WhoAnswer(Answer):
    """Who may start, and who may see."""

    source: str = Field(alias="from")
    to: str
    metric: str
    keys: list[dict[str, Any]]
