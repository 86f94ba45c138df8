"""``/v1/accounting``: who used how much."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from network_provisioner.access import May
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.shapes import Instant
from network_provisioner.api.workers import Workers
from network_provisioner.policies.accounting import Usage, as_csv, usage
from network_provisioner.stores.store import Store

UnixSeconds = Annotated[Instant | None, Query(description="Unix seconds")]


def router(store: Store, workers: Workers) -> APIRouter:
    """The route."""
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
