"""``/v1/topology``, ``/v1/counters``, ``/v1/health``, ``/metrics``: the network as it is now."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from network_provisioner.access import May
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.metrics import CONTENT_TYPE, Metrics
from network_provisioner.api.shapes import (
    MOST,
    AdviceAnswer,
    CallerAnswer,
    CountersAnswer,
    DiscoveredAnswer,
    HealthAnswer,
    RouteAnswer,
    Text,
    TopologyAnswer,
)
from network_provisioner.api.workers import Workers
from network_provisioner.broker import Broker
from network_provisioner.templates.match import DEFAULT


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
        at: Annotated[
            float | None, Query(ge=0, le=MOST, description="Unix seconds; default: now")
        ] = None,
        until: Annotated[
            float | None, Query(ge=0, le=MOST, description="Unix seconds; adds holders")
        ] = None,
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

    return routes
