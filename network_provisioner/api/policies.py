"""``/v1/policies``: Table I of the application-aware SDN paper, with and without a last slash; and
``/v1/accounting``."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from network_provisioner.access import May
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.shapes import Answer, Body, Instant, Text
from network_provisioner.api.workers import Workers
from network_provisioner.broker import Broker
from network_provisioner.policies.accounting import Usage, as_csv, usage
from network_provisioner.policies.registry import PolicyRegistry
from network_provisioner.policies.schema import api_details
from network_provisioner.stores.store import Store

_VERSION = re.compile(r"v[0-9]+(\.[0-9]+)*\Z")
_MOST_LINKS = 1000
UnixSeconds = Annotated[Instant | None, Query(description="Unix seconds")]


class PolicyBody(Body):
    """Listing 1 of the paper. ``specs``: whose transfers share the first queue, and whose the
    second; ``*`` is everybody else. ``time``: start and end, as ISO 8601 or Unix seconds."""

    name: Text = Field(min_length=1, examples=["cms-first"])
    type: Text | None = Field(default=None, examples=["project"])
    strategy: Text | None = Field(default=None, examples=["10-3"])
    action: Text = Field(default="start", examples=["start"])
    specs: list[Text] | None = Field(default=None, examples=[["cms", "*"]])
    time: Annotated[list[Text | float | None], Field(max_length=2)] | None = Field(
        default=None, examples=[[None, None]]
    )
    links: Annotated[list[list[Text]], Field(max_length=_MOST_LINKS)] | None = None
    parts: Annotated[list[float], Field(max_length=2)] | None = None
    guarantees: Annotated[list[Text | float], Field(max_length=2)] | None = None


class PolicyAnswer(Answer):
    """A policy as it is now; ``links`` are those that it governs."""

    id: str
    name: str
    type: str
    strategy: str
    specs: list[str]
    time: list[str | None]
    state: str
    queues: list[str]


def router(registry: PolicyRegistry, broker: Broker, workers: Workers) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["policies"])

    def enforced(work: Any, *args: Any) -> Any:
        # At once, and not with the next sweep: who starts a policy wants to see it work.
        result = work(*args)
        broker.sweep()
        return result

    @routes.get("/v1/policies", include_in_schema=False)
    @routes.get("/v1/policies/", response_model=list[PolicyAnswer])
    async def list_policies(
        caller: Caller,
        ended: Annotated[bool, Query(description="also those that have ended")] = False,
    ) -> Response:
        """The policies that run or will."""
        caller.need(May.READ)
        return answers.answer(await workers.read(registry.listed, ended))

    @routes.post("/v1/policies", include_in_schema=False)
    @routes.post(
        "/v1/policies/",
        status_code=201,
        response_model=PolicyAnswer,
        responses={200: {"model": PolicyAnswer}},
    )
    async def post_policy(body: PolicyBody, caller: Caller) -> Response:
        """Start, modify or stop a policy. 201 for a new one."""
        caller.need(May.MANAGE)
        given = body.model_dump(exclude_unset=True)
        view, new = await workers.change(enforced, registry.post, given)
        return answers.answer(view, 201 if new else 200)

    @routes.get("/v1/policies/{policy_id}/", include_in_schema=False)
    @routes.get("/v1/policies/{policy_id}", response_model=PolicyAnswer | dict[str, Any])
    async def get_policy(policy_id: str, caller: Caller) -> Response:
        """One policy; or, for the name of a version such as v1, what that version of this
        interface understands."""
        caller.need(May.READ)
        if _VERSION.match(policy_id):
            return answers.answer(api_details(policy_id))
        return answers.answer(await workers.read(registry.get, policy_id))

    @routes.delete("/v1/policies/{policy_id}/", include_in_schema=False)
    @routes.delete("/v1/policies/{policy_id}", response_model=PolicyAnswer)
    async def delete_policy(policy_id: str, caller: Caller) -> Response:
        """End a policy and forget it."""
        caller.need(May.MANAGE)
        return answers.answer(await workers.change(enforced, registry.delete, policy_id))

    return routes


def accounting_router(store: Store, workers: Workers) -> APIRouter:
    """``/v1/accounting``: who used how much."""
    routes = APIRouter(tags=["accounting"])

    @routes.get(
        "/v1/accounting",
        response_model=list[Usage],
        responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
    )
    async def get_accounting(
        caller: Caller,
        by: Literal["user", "project", "experiment"] = "user",
        since: UnixSeconds = None,
        until: UnixSeconds = None,
        format: Literal["json", "csv"] = "json",
    ) -> Response:
        """Bytes, byte-seconds and seconds of the transfers that ended in a period; a researcher
        sees its own users."""
        caller.need(May.READ)
        if caller.users is not None and by != "user":
            caller.need(May.MEASURE)

        def used() -> list[Usage]:
            # One pass over all states: one that ends meanwhile must not be met in two of them.
            return usage(store.each(), by, since or 0.0, until or float("inf"))

        rows = await workers.read(used)
        if caller.users is not None:
            rows = [row for row in rows if row.name in caller.users]
        if format == "csv":
            return Response(as_csv(rows, by), media_type="text/csv")
        return answers.answer([row.as_dict() for row in rows])

    return routes
