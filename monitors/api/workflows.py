"""``/v1/workflows``: all workflows, the latest status and the analysis of each (the thesis's
Figures 13 to 15), and ``POST …/refresh``, the thesis's remote trigger.

Times are seconds, instants Unix seconds, sizes bytes."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice
from typing import Annotated, Literal

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from monitors.api.archive import read_cursor
from monitors.api.visible import Visible
from monitors.base.measurement import Measurement
from monitors.workflows.analysis import Analysis, analyse, text
from monitors.workflows.overview import (
    HeldJob,
    JobRow,
    TransferRow,
    job_row,
    placed_as,
    transfer_row,
)
from monitors.workflows.planned.levels import DagShape
from monitors.workflows.progress import DagProgress, Timeline, progress, timeline
from monitors.workflows.savings import Savings, by_paths, by_placement
from monitors.workflows.service import KIND, LOOK_S, Followers, Refresher, RefreshRequest
from network_provisioner.access import May, Principal
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.connection import stopping
from network_provisioner.api.shapes import MOST, Answer

MOST_LISTED = 10_000
MOST_CHANGES = 10_000
MOST_COMPARED = 1000  # transfers between two sites

State = Literal["planned", "running", "done", "failed", "removed", "stuck"]
Kind = Literal[
    "compute", "stage_in", "stage_inter", "stage_out", "create_dir", "cleanup", "register",
    "subworkflow", "service", "other",
]  # fmt: skip
Outcome = Literal["done", "failed", "removed"]
Limit = Annotated[int, Query(ge=1, le=MOST_LISTED)]
Offset = Annotated[int, Query(ge=0, le=2**53)]

MOST_WAIT_S = 10.0
EVERY_S = 1.0  # a workflow is measured at most so often

Wait = Annotated[float, Query(ge=0, le=MOST_WAIT_S)]


def router(seen: Visible) -> APIRouter:
    """The routes. Every one raises BrokerError for what it refuses, ArchiveError where the archive
    cannot be read just now."""
    routes = APIRouter(tags=["workflows"])

    @routes.get("/v1/workflows", response_model=list[WorkflowAnswer])
    def list_workflows(
        caller: Caller,
        user: Annotated[str | None, Query(max_length=200)] = None,
        state: State | None = None,
        since: Annotated[float, Query(ge=0, le=MOST, description="Unix seconds")] = 0.0,
        roots: bool = False,
        text: Annotated[
            str | None, Query(max_length=200, description="part of name, id, user or directory")
        ] = None,
        limit: Limit = 1000,
        cursor: Annotated[
            str | None, Query(max_length=1100, description="AT:ID of the last of the page before")
        ] = None,
    ) -> Response:
        """All workflows that the caller may see, the one that changed last first. For the next
        page, pass ``at`` and ``id`` of the last as ``cursor``; a page of fewer than ``limit`` is
        the last."""
        words = (text or "").lower()
        at, key = (math.inf, "") if cursor is None else read_cursor(cursor, "a workflow")
        matching = (
            known.as_dict()
            for known in seen.all(caller).values()
            if (user is None or known.user == user)
            and (state is None or known.is_in(state))
            and known.at >= since
            and (-known.at, known.id) > (-at, key)
            and not (roots and known.parent)
            and words in f"{known.name} {known.id} {known.user} {known.submit_dir}".lower()
        )
        return answers.answer(list(islice(matching, limit)))

    @routes.get("/v1/workflows/{workflow:path}/analysis", response_model=AnalysisAnswer)
    def get_analysis(workflow: str, caller: Caller, whole: bool = False) -> Response:
        """Statistics and failures of a workflow, or with ``whole`` of it and all inside it."""
        overview, all_of_them = seen.workflow(caller, workflow)
        ids = seen.known.inside(workflow, all_of_them) if whole else [workflow]
        runs = chain(seen.of(caller, "job", ids), seen.of(caller, "task", ids))
        made = analyse(chain(runs, seen.transfers(caller, ids)))
        head = {"workflow": workflow, "state": overview.state, "workflows": ids}
        return answers.answer(head | asdict(made))

    @routes.get("/v1/workflows/{workflow:path}/timeline", response_model=Timeline)
    def get_timeline(
        workflow: str, caller: Caller, bins: Annotated[int, Query(ge=1, le=2000)] = 240
    ) -> Response:
        """How many of its jobs ran and waited over time, by site; of attempts that have ended."""
        seen.workflow(caller, workflow)
        return answers.answer(asdict(timeline(seen.of(caller, "job", [workflow]), bins)))

    @routes.get("/v1/workflows/{workflow:path}/dag", response_model=DagProgress)
    def get_dag(workflow: str, caller: Caller) -> Response:
        """How far its DAG has come by level and kind of job, and the level that it waits for; of a
        workflow whose DAG or jobs nobody recorded, or whose jobs are forgotten, no boxes."""
        overview, _ = seen.workflow(caller, workflow)
        dags = list(seen.of(caller, "dag", [workflow]))
        shape = DagShape.read(dags[-1]) if dags else None
        if shape is None:
            return answers.answer(asdict(DagProgress()))
        done = 0 if overview.status is None else overview.status.done
        made = progress(shape, seen.of(caller, "job", [workflow]), done)
        return answers.answer(asdict(made))

    @routes.get("/v1/workflows/{workflow:path}/savings", response_model=Savings)
    def get_savings(workflow: str, caller: Caller) -> Response:
        """How much sooner it ends by where its jobs are, as was expected, and how much time paths
        saved its transfers, against the last transfers of all without one that the caller may
        see."""
        seen.workflow(caller, workflow)
        dags = list(seen.of(caller, "dag", [workflow]))
        between = partial(seen.between, caller, "job_transfer", limit=MOST_COMPARED)
        paths = by_paths(seen.transfers(caller, [workflow]), between)
        return answers.answer(asdict(Savings(by_placement(dags[-1] if dags else None), paths)))

    @routes.get("/v1/workflows/{workflow:path}/jobs", response_model=list[JobRow])
    def list_jobs(
        workflow: str,
        caller: Caller,
        kind: Kind | None = None,
        outcome: Outcome | None = None,
        newest: bool = False,
        limit: Limit = 1000,
        offset: Offset = 0,
    ) -> Response:
        """Every attempt of its jobs that has ended, oldest or ``newest`` first."""

        def wanted(job: Measurement) -> bool:
            return kind in (None, text(job, "kind")) and outcome in (None, text(job, "outcome"))

        seen.workflow(caller, workflow)
        page = seen.some(caller, "job", workflow, offset, limit, newest, wanted)
        names = {name for job in page for name in placed_as(job)}
        placements = seen.placements(caller, workflow, names)
        return answers.answer([asdict(job_row(job, placements)) for job in page])

    @routes.get("/v1/workflows/{workflow:path}/transfers", response_model=list[TransferRow])
    def list_transfers(
        workflow: str,
        caller: Caller,
        newest: bool = False,
        limit: Limit = 1000,
        offset: Offset = 0,
    ) -> Response:
        """What its jobs moved between sites, oldest or ``newest`` first."""
        seen.workflow(caller, workflow)
        page = seen.some(caller, "job_transfer", workflow, offset, limit, newest)
        return answers.answer([asdict(transfer_row(moved)) for moved in seen.with_paths(page)])

    @routes.get("/v1/workflows/{workflow:path}", response_model=WorkflowDetailsAnswer)
    def get_workflow(
        workflow: str,
        caller: Caller,
        history: Annotated[int, Query(ge=0, le=MOST_CHANGES)] = 100,
    ) -> Response:
        """A workflow: who it is, where it stands, and its latest changes."""
        overview, _ = seen.workflow(caller, workflow)
        changes = seen.known.changes(workflow, history)
        details = {
            "source": overview.source,
            "children": list(overview.children),
            "history": changes,
        }
        return answers.answer(overview.as_dict() | details)

    return routes


class CountsAnswer(Answer):
    """The eight fields of the thesis's Figure 16, how many jobs there are, and how many of them can
    never run because one before them failed."""

    unready: int
    ready: int
    pre: int
    in_queue: int
    post: int
    done: int
    fail: int
    percent_done: float
    total: int
    futile: int


class TotalsAnswer(Answer):
    """Jobs of a workflow and of all workflows inside it."""

    done: int
    fail: int
    total: int
    percent_done: float


class WorkflowAnswer(Answer):
    """A workflow: who it is and where it stands. ``at`` is when that was; ``stuck`` says why it
    does not go on, "" where it does; ``held`` are its jobs on hold; ``reason`` is why it failed
    where no job did, or how it is known to have ended where its DAGMan did not say so."""

    id: str
    name: str
    user: str
    submit_dir: str
    host: str
    root: str
    parent: str
    planned_at: float | None
    state: str
    stuck: str
    held: list[HeldJob]
    reason: str
    at: float
    percent_done: float
    status: CountsAnswer
    totals: TotalsAnswer


class ChangeAnswer(CountsAnswer):
    """One change of a workflow's status."""

    at: float
    state: str
    source: str


class WorkflowDetailsAnswer(WorkflowAnswer):
    """The same with the workflows inside it, who said the last, and its latest changes, oldest
    first."""

    source: str
    children: list[str]
    history: list[ChangeAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisAnswer(Analysis):
    """Statistics and failures of a workflow, or of several."""

    workflow: str
    state: str
    workflows: Sequence[str]


class RefreshAnswer(Answer):
    """Whether a workflow was measured at once, and where it stands; ``request`` is the number under
    which it was asked."""

    refreshed: bool
    request: int
    workflow: WorkflowAnswer


class RefreshRequestAnswer(Answer):
    """A request to measure a workflow at once."""

    request: int
    workflow: str
    at: float


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
        self._refreshes = {
            key: refresh for key, refresh in self._refreshes.items() if _is_of_now(refresh, now)
        }
        if workflow not in self._refreshes:
            asking = asyncio.ensure_future(run_in_threadpool(begin))
            answered = asyncio.ensure_future(self._answered(asking, app))
            # A fault is told to those who wait; where nobody does any more it is nobody's.
            answered.add_done_callback(_failed)
            self._refreshes[workflow] = _Refresh(now, asking, answered)
        return self._refreshes[workflow]

    async def _answered(self, asking: asyncio.Task[RefreshRequest], app: FastAPI) -> bool:
        accepted = await asking
        until = time.monotonic() + MOST_WAIT_S
        while not await run_in_threadpool(self._refresher.answered, accepted):
            if time.monotonic() >= until or stopping(app):
                return False
            await asyncio.sleep(LOOK_S / 2)
        return True


def _is_of_now(refresh: _Refresh, now: float) -> bool:
    if not refresh.answered.done():
        return refresh.answered.get_loop() is asyncio.get_running_loop()
    # What nobody answered is asked anew.
    return (
        not _failed(refresh.answered)
        and refresh.answered.result()
        and now < refresh.began + EVERY_S
    )


def _failed(ended: asyncio.Task[bool]) -> bool:
    return ended.cancelled() or ended.exception() is not None


def refresh_router(seen: Visible, refresher: Refresher, followers: Followers) -> APIRouter:
    """The routes. Every one raises BrokerError for what it refuses, ArchiveError where the archive
    cannot be read or written just now."""
    routes = APIRouter(tags=["workflows"])
    shared = _Shared(refresher)

    def visible_requests(caller: Principal, after: int) -> list[dict[str, object]]:
        return [
            {"request": number, "workflow": workflow, "at": at}
            for number, workflow, at in seen.archive.requests(KIND, after)
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
        await run_in_threadpool(seen.workflow, caller, workflow)
        while True:
            refresh = shared.of(workflow, begin, request.app)
            accepted = await asyncio.shield(refresh.asking)  # others wait for it as well
            left = max(0.0, until - time.monotonic())
            await asyncio.wait({refresh.answered}, timeout=left)
            refreshed = accepted.here or (refresh.answered.done() and refresh.answered.result())
            if refreshed or time.monotonic() >= until or stopping(request.app):
                break
        overview, _ = await run_in_threadpool(seen.workflow, caller, workflow)
        shown = {
            "refreshed": refreshed, "request": accepted.request, "workflow": overview.as_dict(),
        }  # fmt: skip
        return answers.answer(shown, 200 if refreshed else 202)

    @routes.get("/v1/refreshes", response_model=list[RefreshRequestAnswer])
    async def list_refreshes(
        request: Request,
        caller: Caller,
        after: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
        wait_s: Wait = 0.0,
        follower: Annotated[str, Query(max_length=200)] = "",
        ends: bool = False,
    ) -> Response:
        """Requests to measure workflows at once with numbers above ``after``, for who follows them
        elsewhere and records them here; waits up to ``wait_s`` for one. A ``follower`` that gives
        its name and does not ask again, nor says that it ``ends``, is reported. What answers
        request N of workflow W is a measurement ``status`` with the id
        ``status:W:refresh:N:AT``."""
        caller.need(May.RECORD)
        if follower:
            name = f"{caller.name}: {follower}" if caller.name else follower
            followers.heard(name, wait_s, ends)
        until = time.monotonic() + wait_s
        while True:
            # A thread for the look, and none for the wait.
            requests = await run_in_threadpool(visible_requests, caller, after)
            left = until - time.monotonic()
            if requests or left <= 0 or stopping(request.app):
                return answers.answer(requests)
            await asyncio.sleep(min(LOOK_S, left))

    return routes
