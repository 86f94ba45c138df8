"""``/v1/topology``, ``/v1/counters``, ``/v1/health``, ``/metrics``: the network as it is now;
``/v1/drains``: what is taken out of it for maintenance."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from network_provisioner.access import May
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.metrics import CONTENT_TYPE, Metrics
from network_provisioner.api.shapes import MOST, Answer, Body, Instant, Text
from network_provisioner.api.workers import Workers
from network_provisioner.base.controller import Capabilities, LinkCounter
from network_provisioner.base.model import Service
from network_provisioner.broker import Broker
from network_provisioner.templates.advice import Advice, PathFigures
from network_provisioner.templates.match import DEFAULT
from network_provisioner.topology.drains import Drain


class CallerAnswer(Answer):
    """Who asks: ``name`` is empty where the broker has no tokens. ``users`` and ``projects`` are
    those that it acts for (null: all), ``may`` what its role allows."""

    name: str
    role: str
    users: list[str] | None
    projects: list[str] | None
    may: list[str]


class NodeAnswer(Answer):
    """A site, switch, router or relay."""

    name: str
    kind: str


class LoadAnswer(Answer):
    """One direction of a link now. ``transits`` are the ids of those that hold a part of it."""

    # "from" is a word of Python's.
    source: str = Field(alias="from")
    to: str
    reserved_bps: float
    reservable_bps: float
    transits: list[str]


class LinkAnswer(Answer):
    """A link and what is reserved on it in both directions; ``delay_s`` is one way, ``failed`` says
    why nothing goes over it, "" where it works; ``unknown``: nobody knows whether it does;
    ``drained``: it is out of service for maintenance."""

    a: str
    b: str
    layer: str
    capacity_bps: float
    delay_s: float
    loss: float
    failed: str
    unknown: bool
    drained: bool
    load: list[LoadAnswer]


class TopologyAnswer(Answer):
    """The network."""

    nodes: list[NodeAnswer]
    links: list[LinkAnswer]


class NextHopAnswer(Answer):
    """A switch on a path: the ports where packets come in, the one where they leave, what is at the
    other end, and the link to it."""

    switch: str
    in_ports: list[int]
    out_port: int
    to: str
    link: str


class RouteAnswer(Answer):
    """Where packets between two sites go. ``who`` is the id of a transit, or "best effort";
    ``rate_bps`` what a transit is granted, or the capacity of best effort's path; ``state`` the
    transit's, or up, or none where there is no path; ``failed`` says which of its links carries
    nothing."""

    src: str
    dst: str
    who: str
    path: list[str]
    next_hops: list[NextHopAnswer]
    layer: str
    rtt_s: float | None
    rate_bps: float
    state: str
    failed: str
    why: str


class PortAnswer(Answer):
    """A port as its switch describes it; ``speed_bps`` is 0 where it does not say."""

    number: int
    name: str
    up: bool
    speed_bps: float


class SwitchAnswer(Answer):
    """A switch that was found; ``name`` as the topology has it, or made up."""

    dpid: int
    name: str
    ports: list[PortAnswer]


class EndAnswer(Answer):
    """A port at one end of a link."""

    dpid: int
    port: int


class JoinedAnswer(Answer):
    """Two ports that are joined."""

    a: EndAnswer
    b: EndAnswer


class DiscoveredAnswer(Answer):
    """The network as its switches see it; ``differences`` from the topology in words."""

    switches: list[SwitchAnswer]
    links: list[JoinedAnswer]
    differences: list[str]


class CountersAnswer(Answer):
    """What the switches say."""

    counters: list[LinkCounter]
    installed: list[str]


class FailedLinkAnswer(Answer):
    """A link that carries nothing, why, and since when (Unix seconds)."""

    link: str
    reason: str
    since: float


class AdviceAnswer(Answer):
    """``path`` by its nodes, the ``figures`` known of it, the ``advice`` made of them, how the
    template has its transfers served, and the addresses of the ``hosts`` of both sites."""

    path: list[str]
    figures: PathFigures
    advice: Advice
    service: Service
    hosts: list[list[str]]


class SwitchHealthAnswer(Answer):
    """A switch: whether it is connected, or since when it is not (Unix seconds, 0 where it is); its
    ``problem``, "" for none, and where it has one, how many transits pass it; and how many repairs
    there were of each kind."""

    name: str
    label: str
    connected: bool
    since: float
    problem: str
    transits: int | None
    repairs: dict[str, int]


class HealthAnswer(Answer):
    """``status`` is ok or degraded; then ``problem`` says why. Of several brokers on one database
    one ``leads``, the ``leader`` at its URL. ``release`` is ADON's."""

    status: Literal["ok", "degraded"]
    problem: str
    controller: Capabilities
    live: int
    queued: int
    links_failed: list[FailedLinkAnswer]
    links_unknown: list[str]
    switches: list[SwitchHealthAnswer]
    leads: bool
    leader: str
    release: str


class DrainBody(Body):
    """``element``: a switch, or the label of a link such as ``s1-s2``. ``at`` (0: now) and
    ``until`` (0: until the drain is cancelled) are Unix seconds."""

    element: Text = Field(min_length=1, examples=["s1-s2"])
    at: Instant = 0.0
    until: Instant = 0.0
    note: Text = Field(default="", max_length=200, examples=["new line card"])


class DrainAnswer(Answer):
    """A drain; whether it is ``active``; the ids of the transits that are ``on`` the element now,
    and of the advance reservations that need it while the drain lasts (``reserved``). Nothing is
    on an element that can be switched off."""

    element: str
    at: float
    until: float
    note: str
    user: str
    active: bool
    on: list[str]
    reserved: list[str]


def router(broker: Broker, workers: Workers, metrics: Metrics) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["network"])

    @routes.get("/v1/caller", response_model=CallerAnswer)
    async def get_caller(caller: Caller) -> Response:
        """Who asks, and what it may do."""
        names = {"users": caller.users, "projects": caller.projects}
        held = {key: None if value is None else sorted(value) for key, value in names.items()}
        may = [permission.name.lower() for permission in May if caller.may(permission)]
        return answers.answer({"name": caller.name, "role": caller.role, **held, "may": may})

    @routes.get("/v1/topology", response_model=TopologyAnswer)
    async def get_topology(
        caller: Caller,
        at: Annotated[Instant | None, Query(description="Unix seconds; default: now")] = None,
        until: Annotated[Instant | None, Query(description="Unix seconds; adds holders")] = None,
    ) -> Response:
        """Nodes, links, and what is reserved on each direction of a link at an instant; with
        ``until`` also who holds what until then, from when to when. A researcher is told the ids
        of its own transits alone."""
        caller.need(May.READ)
        return answers.answer(await workers.read(broker.describe_topology, at, until, caller.users))

    @routes.get("/v1/topology/routes", response_model=list[RouteAnswer])
    async def get_routes(
        caller: Caller,
        site: Annotated[Text, Query(description="from and to this one; default: all")] = "",
    ) -> Response:
        """Who goes where and why: best effort between every two sites, and the paths of transits.
        A researcher is told its own transits alone."""
        caller.need(May.READ)
        return answers.answer(await workers.read(broker.routes, site, caller.users))

    @routes.get("/v1/topology/discovered", response_model=DiscoveredAnswer)
    async def get_discovered(caller: Caller) -> Response:
        """What the controller finds where it looks around now, and in words where the network is
        not as it was said to be. Takes seconds."""
        caller.need(May.MEASURE)
        return answers.answer(await workers.read(broker.discover))

    @routes.get("/v1/advice", response_model=AdviceAnswer)
    async def get_advice(
        caller: Caller,
        src: Text,
        dst: Text,
        template: Text = DEFAULT,
        rate_bps: Annotated[
            float | None, Query(gt=0, le=MOST, description="default: all that may be had")
        ] = None,
    ) -> Response:
        """How a transfer between two sites is tuned best, what to expect of it, what bounds that,
        and by which figures of the path and of the hosts at its ends."""
        caller.need(May.READ)
        query = (src, dst, rate_bps, template, caller.name)
        return answers.answer(await workers.read(broker.advise, *query))

    @routes.get("/v1/counters", response_model=CountersAnswer)
    async def get_counters(caller: Caller) -> Response:
        """Bytes sent on each direction of a link, and the circuits on the switches now."""
        caller.need(May.MEASURE)
        return answers.answer(await workers.read(broker.on_switches))

    @routes.get("/v1/health", response_model=HealthAnswer)
    async def get_health(caller: Caller) -> Response:
        """Status, the controller and what it can do, live and queued transits."""
        caller.need(May.READ)
        return answers.answer(await workers.read(broker.health))

    @routes.get(
        "/metrics",
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def get_metrics(caller: Caller) -> Response:
        """Everything that is counted, in Prometheus's text format."""
        caller.need(May.MEASURE)
        return Response(await workers.read(metrics.text, caller), media_type=CONTENT_TYPE)

    @routes.get("/v1/drains", response_model=list[DrainAnswer])
    async def list_drains(caller: Caller) -> Response:
        """All drains that have not ended, the next first."""
        caller.need(May.MANAGE)
        return answers.answer(await workers.read(broker.drains))

    @routes.post("/v1/drains", response_model=DrainAnswer)
    async def post_drain(body: DrainBody, caller: Caller) -> Response:
        """Take a link or switch out of service, or change when. Transits move to other paths a
        minute before, advance reservations at once."""
        caller.need(May.MANAGE)
        drain = Drain(**body.model_dump(), user=caller.name)
        return answers.answer(await workers.change(broker.drain, drain))

    @routes.delete("/v1/drains/{element}", response_model=DrainAnswer)
    async def delete_drain(element: str, caller: Caller) -> Response:
        """Put a link or switch back into service."""
        caller.need(May.MANAGE)
        return answers.answer(await workers.change(broker.cancel_drain, element))

    return routes
