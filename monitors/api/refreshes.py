"""``POST /v1/workflows/…/refresh``, the thesis's remote trigger, and what was asked that way."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from monitors.api.visible import Visible
from monitors.api.workflow_shapes import AskedAnswer, RefreshAnswer
from monitors.follow.refreshing import KIND, LOOK_S, Asked, Refresher
from network_provisioner.access import May, Principal
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.connection import stopping

MOST_WAIT_S = 10.0

Wait = Annotated[float, Query(ge=0, le=MOST_WAIT_S)]


def router(seen: Visible, refresher: Refresher) -> APIRouter:
    """The routes. Every one raises BrokerError for what it refuses, ArchiveError where the archive
    cannot be read or written just now."""
    routes = APIRouter(tags=["workflows"])

    def asked_of(caller: Principal, after: int) -> list[dict[str, object]]:
        return [
            {"request": number, "workflow": workflow, "at": at}
            for number, workflow, at in seen.archive.asked(KIND, after)
            if seen.known.may_answer(caller, workflow)
        ]

    @routes.post(
        "/v1/workflows/{workflow:path}/refresh",
        response_model=RefreshAnswer,
        responses={202: {"model": RefreshAnswer, "description": "not measured yet"}},
    )
    async def refresh_workflow(
        workflow: str, request: Request, caller: Caller, wait_s: Wait = 2.0
    ) -> Response:
        """Measure a workflow at once: whoever follows it reads its files now. 202 where nobody did
        so in time; the request stays."""

        def begun() -> Asked:
            seen.one(caller, workflow)
            return refresher.ask(workflow, seen.known.facts(workflow))

        until = time.monotonic() + wait_s
        asked = await run_in_threadpool(begun)
        while not (refreshed := await run_in_threadpool(refresher.answered, asked)):
            left = until - time.monotonic()
            if left <= 0 or stopping(request.app):
                break
            await asyncio.sleep(min(left, LOOK_S / 2))
        found, _ = await run_in_threadpool(seen.one, caller, workflow)
        shown = {
            "refreshed": refreshed, "request": asked.request, "workflow": found.as_dict(),
        }  # fmt: skip
        return answers.answer(shown, 200 if refreshed else 202)

    @routes.get("/v1/refreshes", response_model=list[AskedAnswer])
    async def list_refreshes(
        request: Request,
        caller: Caller,
        after: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
        wait_s: Wait = 0.0,
    ) -> Response:
        """Requests to measure workflows at once with numbers above ``after``, for who follows them
        elsewhere and records them here; waits up to ``wait_s`` for one. What answers request N of
        workflow W is a measurement ``status`` with the id ``status:W:refresh:N:AT``."""
        caller.need(May.RECORD)
        until = time.monotonic() + wait_s
        while True:
            # A thread for the look, and none for the wait.
            found = await run_in_threadpool(asked_of, caller, after)
            left = until - time.monotonic()
            if found or left <= 0 or stopping(request.app):
                return answers.answer(found)
            await asyncio.sleep(min(LOOK_S, left))

    return routes
