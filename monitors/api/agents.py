"""``/v1/agents``: what each has to do, what came of it, and how they are (docs/agents.md).

Times are seconds, instants Unix seconds, rates bit/s."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import AfterValidator, Field

from monitors.measurements.agent_registry import AgentReport
from monitors.measurements.coordinator import Coordinator
from monitors.measurements.probes.disks import (
    MOST_PROCESSES,
    MOST_SECONDS,
    DiskReport,
    ProcessSecond,
)
from network_provisioner.access import May
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller, need_own
from network_provisioner.api.connection import stopping
from network_provisioner.api.shapes import Answer, Body, Port, Text
from network_provisioner.base.fields import plain_address
from network_provisioner.base.schema import INTEGRAL
from network_provisioner.base.units import MAX_RATE_BPS
from network_provisioner.state.connections import MOST_SOCKETS, Connection, SocketPeriod
from network_provisioner.state.disks import DiskSample

_LOOK_S = 1.0  # between looks at whether the service stops, while an agent waits
_LONGEST_WAIT_S = 60.0
_BIG = 1e12
_MOST_RESULTS = 50
_MOST_CONNECTIONS = 10_000
_MOST_PROCESSES = MOST_SECONDS * MOST_PROCESSES

Offset = Annotated[float | None, Query(ge=-_BIG, le=_BIG, allow_inf_nan=False)]
Count = Annotated[int, Query(ge=0, le=2**53)]
Words = Annotated[str, Query(max_length=500)]
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

ReportConnections = Callable[[str, str, list[Connection]], None]
ReportDisks = Callable[[str, DiskReport], None]
ReportSockets = Callable[[str, list[SocketPeriod]], None]


class ResultsBody(Body):
    """What came of assignments; :func:`monitors.measurements.runs.valid_result` checks each."""

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


def router(
    coordinator: Coordinator,
    clock: Callable[[], float],
    connections: ReportConnections,
    disks: ReportDisks,
    sockets: ReportSockets,
) -> APIRouter:
    """The routes. ``clock`` gives Unix seconds; ``connections`` takes what an agent at a site sees
    open, ``disks`` and ``sockets`` what those of its host did."""
    routes = APIRouter(tags=["agents"])
    polls = LongPolls()
    if coordinator is not None:  # None: only to be described
        coordinator.on_change(polls.notify)

    @routes.get("/v1/agents/{name:path}/assignments", response_model=AssignmentsAnswer)
    async def get_assignments(
        name: str,
        request: Request,
        caller: Caller,
        wait_s: Annotated[float, Query(ge=0, le=_LONGEST_WAIT_S)] = 0.0,
        after: Count = 0,
        offset_s: Offset = None,
        error_s: Offset = None,
        unsent: Count = 0,
        dropped: Count = 0,
        version: Words = "",
        tools: Words | None = None,
    ) -> Response:
        """Everything that an agent has to do, as soon as that is something else than ``after``, or
        after ``wait_s``. For that agent alone."""
        received = clock()
        need_own(caller, name)
        known = None if tools is None else tuple(t for t in tools.split(",") if t)
        report = AgentReport(offset_s, error_s, unsent, dropped, version, known)
        await run_in_threadpool(coordinator.heard, name, report, wait_s)
        await _news(coordinator, polls, name, after, wait_s, request)
        number, until, todo = await run_in_threadpool(coordinator.assignments, name)
        content = {"agent": name, "version": number, "received": received, "sent": clock(),
                   "until": until, "assignments": todo}  # fmt: skip
        return answers.answer(content)

    @routes.post("/v1/agents/{name:path}/results", response_model=ResultsAnswer)
    def post_results(name: str, body: ResultsBody, caller: Caller) -> Response:
        """What came of an agent's assignments. Each is accepted, also when it comes again, or
        refused for ever with the reason."""
        received = clock()
        need_own(caller, name)
        coordinator.heard(name)
        accepted, refused = coordinator.results(name, body.results)
        content = {"agent": name, "received": received, "sent": clock(), "accepted": accepted,
                   "refused": refused}  # fmt: skip
        return answers.answer(content)

    @routes.post("/v1/agents/{name:path}/connections", response_model=AgentNameAnswer)
    def post_connections(name: str, body: ConnectionsBody, caller: Caller) -> Response:
        """All connections that the transfer servers of an agent's host have open now: by them the
        switches tell transfers apart whose client has two servers move the bytes."""
        need_own(caller, name)
        coordinator.reported(name, "connections")
        connections(name, name.partition("/")[0], body.as_connections())
        return answers.answer({"agent": name})

    @routes.post("/v1/agents/{name:path}/disks", response_model=AgentNameAnswer)
    def post_disks(name: str, body: DisksBody, caller: Caller) -> Response:
        """What the disks of an agent's host read and wrote, and who waited for them, in the seconds
        since its last report."""
        received = clock()
        need_own(caller, name)
        coordinator.reported(name, "disks")
        disks(name, body.report(received))
        return answers.answer({"agent": name})

    @routes.post("/v1/agents/{name:path}/sockets", response_model=AgentNameAnswer)
    def post_sockets(name: str, body: SocketsBody, caller: Caller) -> Response:
        """What the TCP connections of an agent's host sent since its last report, and what held
        them up: the broker tells a slow sender from a network that breaks its promise."""
        need_own(caller, name)
        sockets(name, body.periods())  # what is refused is not heard, and its silence is told
        coordinator.reported(name, "sockets")
        return answers.answer({"agent": name})

    @routes.get("/v1/agents", response_model=list[AgentAnswer])
    def list_agents(caller: Caller) -> Response:
        """All agents: when each was seen last, its clock, what it can, what it does next."""
        caller.need(May.SEE)
        return answers.answer(coordinator.agents())

    @routes.get("/v1/agents/{name:path}", response_model=AgentAnswer)
    def get_agent(name: str, caller: Caller) -> Response:
        """One agent."""
        caller.need(May.SEE)
        return answers.answer(coordinator.agent(name))

    return routes


async def _news(
    coordinator: Coordinator,
    polls: LongPolls,
    name: str,
    after: int,
    wait_s: float,
    request: Request,
) -> None:
    """Wait until the agent's list is not that of number ``after``, but not for ever, nor longer
    than until the agent asks again: an agent has one question here."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    with polls.waiting(name) as (news, alone):
        while coordinator.version(name) == after and alone() and not stopping(request.app):
            left = deadline - loop.time()
            if left <= 0:
                return
            if await request.is_disconnected():
                await run_in_threadpool(coordinator.left, name)
                return
            try:
                await asyncio.wait_for(news.wait(), min(left, _LOOK_S))
            except TimeoutError:
                continue
            news.clear()
        taken = not alone()
    if taken and not stopping(request.app):
        # Of two agents with one name each ends the other's question, and would ask again at once.
        await asyncio.sleep(_LOOK_S)


class LongPolls:
    """Who waits for news, one request for each agent: who comes later takes the place."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Event]] = {}

    def notify(self, name: str) -> None:
        """There is news for this agent. From any thread; never waits."""
        with self._lock:
            waiting = self._waiting.get(name)
        _wake(waiting)

    @contextmanager
    def waiting(self, name: str) -> Iterator[tuple[asyncio.Event, Callable[[], bool]]]:
        """Wait: an event that is set whenever there is news, or somebody else comes, and whether
        nobody else did."""
        mine = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            before, self._waiting[name] = self._waiting.get(name), mine
        _wake(before)
        try:
            yield mine[1], lambda: self._waiting.get(name) is mine
        finally:
            with self._lock:
                if self._waiting.get(name) is mine:
                    del self._waiting[name]


def _wake(waiting: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None) -> None:
    if waiting is None:
        return
    loop, event = waiting
    with suppress(RuntimeError):  # its loop has ended, and with it whoever waited
        loop.call_soon_threadsafe(event.set)
