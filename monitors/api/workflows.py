"""``/v1/workflows``: all workflows, the latest status and the analysis of each (the thesis's
Figures 13 to 15)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from monitors.api.visible import Visible
from monitors.api.workflow_shapes import (
    AnalysisAnswer,
    WorkflowAnswer,
    WorkflowDetailsAnswer,
)
from monitors.base.measurement import Measurement
from monitors.workflows.analysis import analyse, text
from monitors.workflows.overview import (
    JobRow,
    TransferRow,
    job_row,
    placed_as,
    transfer_row,
)
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.shapes import MOST

MOST_LISTED = 10_000
MOST_CHANGES = 10_000

State = Literal["planned", "running", "done", "failed", "removed", "stuck"]
Kind = Literal[
    "compute", "stage_in", "stage_inter", "stage_out", "create_dir", "cleanup", "register",
    "subworkflow", "other",
]  # fmt: skip
Outcome = Literal["done", "failed", "removed"]
Limit = Annotated[int, Query(ge=1, le=MOST_LISTED)]
Offset = Annotated[int, Query(ge=0, le=2**53)]


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
        limit: Limit = 1000,
    ) -> Response:
        """All workflows that the caller may see, the one that changed last first."""
        found = [
            known.as_dict()
            for known in seen.all(caller).values()
            if (user is None or known.user == user)
            and (state is None or known.is_in(state))
            and known.at >= since
            and not (roots and known.parent)
        ]
        return answers.answer(found[:limit])

    @routes.get("/v1/workflows/{workflow:path}/analysis", response_model=AnalysisAnswer)
    def get_analysis(workflow: str, caller: Caller, whole: bool = False) -> Response:
        """Statistics and failures of a workflow, or with ``whole`` of it and all inside it."""
        found, all_of_them = seen.one(caller, workflow)
        ids = seen.known.inside(workflow, all_of_them) if whole else [workflow]
        runs = seen.of(caller, "job", ids) + seen.of(caller, "task", ids)
        made = analyse(runs + seen.transfers(caller, ids))
        head = {"workflow": workflow, "state": found.state, "workflows": ids}
        return answers.answer(head | asdict(made))

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

        seen.one(caller, workflow)
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
        seen.one(caller, workflow)
        page = seen.some(caller, "job_transfer", workflow, offset, limit, newest)
        return answers.answer([asdict(transfer_row(moved)) for moved in seen.with_paths(page)])

    @routes.get("/v1/workflows/{workflow:path}", response_model=WorkflowDetailsAnswer)
    def get_workflow(
        workflow: str,
        caller: Caller,
        history: Annotated[int, Query(ge=0, le=MOST_CHANGES)] = 100,
    ) -> Response:
        """A workflow: who it is, where it stands, and its latest changes."""
        found, _ = seen.one(caller, workflow)
        changes = seen.known.changes(workflow, history)
        details = {"source": found.source, "children": list(found.children), "history": changes}
        return answers.answer(found.as_dict() | details)

    return routes
