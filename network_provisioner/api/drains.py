"""``/v1/drains``: links and switches that are taken out of service for maintenance."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from network_provisioner.access import May
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.shapes import MOST, Answer, Body, Text
from network_provisioner.api.workers import Workers
from network_provisioner.broker import Broker
from network_provisioner.topology.drains import Drain

Instant = Annotated[float, Field(ge=0, le=MOST)]


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


def router(broker: Broker, workers: Workers) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["network"])

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
