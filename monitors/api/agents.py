"""``/v1/agents``: what each has to do, what came of it, and how they are (docs/agents.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from monitors.api.bells import Bells
from monitors.api.centre_shapes import (
    AgentAnswer,
    AssignmentsAnswer,
    ResultsAnswer,
    ResultsBody,
)
from monitors.api.signed import HashOf, is_itself, is_nonce, signing
from monitors.centre.centre import Centre
from monitors.centre.roll import Report
from network_provisioner.access import May, Principal
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.connection import stopping
from network_provisioner.errors import BrokerError

_LOOK_S = 1.0  # between looks at whether the service stops, while an agent waits
_LONGEST_WAIT_S = 60.0
_BIG = 1e12

Nonce = Annotated[str | None, Header(alias="Adon-Nonce", max_length=200)]
Seconds = Annotated[float | None, Query(ge=-_BIG, le=_BIG, allow_inf_nan=False)]
Count = Annotated[int, Query(ge=0, le=2**53)]
Words = Annotated[str, Query(max_length=500)]


def router(centre: Centre, hash_of: HashOf, clock: Callable[[], float]) -> APIRouter:
    """The routes. ``hash_of`` gives the SHA-256 of an agent's token, ``clock`` Unix seconds."""
    routes = APIRouter(tags=["agents"])
    own = APIRouter(route_class=signing(hash_of))  # what agents themselves ask
    bells = Bells()
    if centre is not None:  # None: only to be described
        centre.on_change(bells.ring)

    def heard(name: str, report: Report | None = None) -> None:
        centre.heard(name, report)
        if not hash_of(name):
            raise BrokerError(
                f"agent {name!r} has no token here that an answer could be signed with, expected "
                "one of role agent in security.tokens",
                "forbidden",
            )

    @own.get("/v1/agents/{name:path}/assignments", response_model=AssignmentsAnswer)
    async def get_assignments(
        name: str,
        request: Request,
        caller: Caller,
        adon_nonce: Nonce = None,
        wait_s: Annotated[float, Query(ge=0, le=_LONGEST_WAIT_S)] = 0.0,
        after: Count = 0,
        offset_s: Seconds = None,
        error_s: Seconds = None,
        unsent: Count = 0,
        dropped: Count = 0,
        version: Words = "",
        tools: Words | None = None,
    ) -> Response:
        """Everything that an agent has to do, as soon as that is something else than ``after``, or
        after ``wait_s``. For that agent alone, and signed (docs/agents.md)."""
        received = clock()
        _need_own(caller, name, adon_nonce)
        known = None if tools is None else tuple(t for t in tools.split(",") if t)
        report = Report(offset_s, error_s, unsent, dropped, version, known)
        await run_in_threadpool(heard, name, report)
        await _news(centre, bells, name, after, wait_s, request)
        number, until, todo = await run_in_threadpool(centre.assignments, name)
        content = {"agent": name, "version": number, "received": received, "sent": clock(),
                   "until": until, "assignments": todo}  # fmt: skip
        return answers.answer(content)

    @own.post("/v1/agents/{name:path}/results", response_model=ResultsAnswer)
    def post_results(
        name: str, body: ResultsBody, caller: Caller, adon_nonce: Nonce = None
    ) -> Response:
        """What came of an agent's assignments. Each is accepted, also when it comes again, or
        refused for ever with the reason."""
        received = clock()
        _need_own(caller, name, adon_nonce)
        heard(name)
        accepted, refused = centre.results(name, body.results)
        content = {"agent": name, "received": received, "sent": clock(), "accepted": accepted,
                   "refused": refused}  # fmt: skip
        return answers.answer(content)

    routes.include_router(own)

    @routes.get("/v1/agents", response_model=list[AgentAnswer])
    def list_agents(caller: Caller) -> Response:
        """All agents: when each was seen last, its clock, what it can, what it does next."""
        caller.need(May.SEE)
        return answers.answer(centre.agents())

    @routes.get("/v1/agents/{name:path}", response_model=AgentAnswer)
    def get_agent(name: str, caller: Caller) -> Response:
        """One agent."""
        caller.need(May.SEE)
        return answers.answer(centre.agent(name))

    return routes


def _need_own(caller: Principal, name: str, nonce: str | None) -> None:
    """Raises BrokerError where the caller is not this agent, or sends no nonce."""
    caller.need(May.ACT)
    if not is_itself(caller, name):
        raise BrokerError(
            f"{caller.name!r} asks as agent {name!r:.80}, expected its own name", "forbidden"
        )
    if not is_nonce(nonce):
        raise BrokerError("found no Adon-Nonce of 16 to 64 hexadecimal digits", "bad_request")


async def _news(
    centre: Centre, bells: Bells, name: str, after: int, wait_s: float, request: Request
) -> None:
    """Wait until the agent's list is not that of number ``after``, but not for ever, nor longer
    than until the agent asks again: an agent has one question here."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    with bells.alone_at(name) as (rung, alone):
        while centre.version(name) == after and alone() and not stopping(request.app):
            left = deadline - loop.time()
            if left <= 0:
                return
            try:
                await asyncio.wait_for(rung.wait(), min(left, _LOOK_S))
            except TimeoutError:
                continue
            rung.clear()
        taken = not alone()
    if taken and not stopping(request.app):
        # Of two agents with one name each ends the other's question, and would ask again at once.
        await asyncio.sleep(_LOOK_S)
