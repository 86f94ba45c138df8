"""``/v1/relays``: what the agent of each carries, and how they are (docs/relay.md)."""

from __future__ import annotations

import asyncio
from functools import partial

from fastapi import APIRouter, Request, Response
from pydantic import Field, JsonValue

from network_provisioner.access import May
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller, need_own
from network_provisioner.api.shapes import Answer, Body, Count, Text
from network_provisioner.api.workers import Workers
from network_provisioner.base.errors import printable
from network_provisioner.broker import Broker
from network_provisioner.relay.agents import POLL_S, RelayAgents
from network_provisioner.relay.sessions import AgentStatus


class RelayBody(Body):
    """How a relay's agent is: the revision of what it was told, why it is not ready in words, its
    version, whether it can encrypt what it carries, and how many connections it has open by the ids
    of transits."""

    revision: Count = 0
    unready: Text = ""
    version: Count
    tls: bool = False
    connections: dict[Text, Count] = Field(default={})


class RelayAnswer(Answer):
    """A relay: the switch it is at, why it cannot be used now ("" where it can), how many transits
    it serves, and how many connections its agent has open."""

    name: str
    switch: str
    address: str
    unready: str
    transits: int
    connections: int


class SessionsAnswer(Answer):
    """All that a relay's agent is to carry, each as
    :class:`~network_provisioner.relay.sessions.Session` has it."""

    revision: int
    sessions: list[dict[str, JsonValue]]


def router(broker: Broker, workers: Workers) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["relays"])

    @routes.get("/v1/relays", response_model=list[RelayAnswer])
    async def list_relays(caller: Caller) -> Response:
        """All relays of the topology, why one cannot be used now, and what they carry."""
        caller.need(May.READ)
        return answers.answer(await workers.read(broker.relaying.described))

    @routes.post("/v1/relays/{name:path}", response_model=SessionsAnswer)
    async def post_status(name: str, body: RelayBody, request: Request, caller: Caller) -> Response:
        """How a relay's agent is. Answered with all that it is to carry, as soon as that is another
        ``revision`` than it has, or after 0.3 s. For that agent alone."""
        need_own(caller, name)
        broker.relaying.check_known(name)
        broker.check_started()  # before, nobody knows what an agent is to carry
        agents = broker.relaying.agents
        agents.heard(name, AgentStatus(**body.model_dump() | {"unready": printable(body.unready)}))
        await _news(agents, name, body.revision, request)
        revision, sessions = agents.assigned_sessions(name)
        documents = [session.as_dict() for session in sessions]
        return answers.answer({"revision": revision, "sessions": documents})

    return routes


async def _news(agents: RelayAgents, name: str, revision: int, request: Request) -> None:
    """Wait until an agent is to be told something else, or is gone, but not for long."""
    news = asyncio.Event()
    wake = partial(asyncio.get_running_loop().call_soon_threadsafe, news.set)
    with agents.waiting(name, wake):
        if agents.assigned_sessions(name)[0] != revision:
            return
        gone = asyncio.ensure_future(request.receive())  # the body was read: what comes is the end
        waits = asyncio.ensure_future(news.wait())
        try:
            done, _ = await asyncio.wait(
                (gone, waits), timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            gone.cancel()
            waits.cancel()
        if gone in done:
            agents.lost(name)
