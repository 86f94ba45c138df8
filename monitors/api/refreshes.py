"""``POST /v1/workflows/…/refresh``, the thesis's remote trigger, and what was asked that way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from monitors.api.visible import Visible
from monitors.api.workflow_shapes import RefreshAnswer, RefreshRequestAnswer
from monitors.workflows.service import KIND, LOOK_S, Refresher, RefreshRequest
from network_provisioner.access import May, Principal
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.connection import stopping

MOST_WAIT_S = 10.0
EVERY_S = 1.0  # a workflow is measured at most so often

Wait = Annotated[float, Query(ge=0, le=MOST_WAIT_S)]


@dataclass(frozen=True)
class _Refresh:
    """One measurement, ``began`` in steady seconds: ``asking`` for it, and whether it was
    ``answered``, which goes on for as long as anybody may wait."""

    began: float
    asking: asyncio.Task[RefreshRequest]
    answered: asyncio.Task[bool]


class _Shared:
    """Measurements of workflows, of each one at a time and one a second: who asks meanwhile gets
    the same answer. For one event loop."""

    def __init__(self, refresher: Refresher) -> None:
        self._refresher = refresher
        self._refreshes: dict[str, _Refresh] = {}

    def of(self, workflow: str, begin: Callable[[], RefreshRequest], app: FastAPI) -> _Refresh:
        """The measurement of a workflow that is under way, or a second old at most, else one that
        begins now with ``begin`` in a thread."""
        now = time.monotonic()
        self._refreshes = {key: one for key, one in self._refreshes.items() if _is_of_now(one, now)}
        if workflow not in self._refreshes:
            asking = asyncio.ensure_future(run_in_threadpool(begin))
            answered = asyncio.ensure_future(self._answered(asking, app))
            # A fault is told to those who wait; where nobody does any more it is nobody's.
            answered.add_done_callback(_failed)
            self._refreshes[workflow] = _Refresh(now, asking, answered)
        return self._refreshes[workflow]

    async def _answered(self, asking: asyncio.Task[RefreshRequest], app: FastAPI) -> bool:
        asked = await asking
        until = time.monotonic() + MOST_WAIT_S
        while not await run_in_threadpool(self._refresher.answered, asked):
            if time.monotonic() >= until or stopping(app):
                return False
            await asyncio.sleep(LOOK_S / 2)
        return True


def _is_of_now(one: _Refresh, now: float) -> bool:
    if not one.answered.done():
        return one.answered.get_loop() is asyncio.get_running_loop()
    # What nobody answered is asked anew.
    return not _failed(one.answered) and one.answered.result() and now < one.began + EVERY_S


def _failed(ended: asyncio.Task[bool]) -> bool:
    return ended.cancelled() or ended.exception() is not None


def router(seen: Visible, refresher: Refresher) -> APIRouter:
    """The routes. Every one raises BrokerError for what it refuses, ArchiveError where the archive
    cannot be read or written just now."""
    routes = APIRouter(tags=["workflows"])
    shared = _Shared(refresher)

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
        so in time; the request stays. Who asks while it is measured, or within the same second,
        gets the same answer."""

        def begin() -> RefreshRequest:
            return refresher.ask(workflow, seen.known.facts(workflow))

        until = time.monotonic() + wait_s
        await run_in_threadpool(seen.one, caller, workflow)
        while True:
            refresh = shared.of(workflow, begin, request.app)
            asked = await asyncio.shield(refresh.asking)  # others wait for it as well
            left = max(0.0, until - time.monotonic())
            await asyncio.wait({refresh.answered}, timeout=left)
            refreshed = asked.here or (refresh.answered.done() and refresh.answered.result())
            if refreshed or time.monotonic() >= until or stopping(request.app):
                break
        found, _ = await run_in_threadpool(seen.one, caller, workflow)
        shown = {
            "refreshed": refreshed, "request": asked.request, "workflow": found.as_dict(),
        }  # fmt: skip
        return answers.answer(shown, 200 if refreshed else 202)

    @routes.get("/v1/refreshes", response_model=list[RefreshRequestAnswer])
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
