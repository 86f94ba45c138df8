"""``/v1/perfsonar/results``: where pScheduler's HTTP archiver posts what it measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from monitors.archive.archive import Archive
from monitors.base.measurement import check_believable
from monitors.measurements.perfsonar.results import left_out, measurements_of, not_yet
from monitors.measurements.perfsonar.settings import Hosts
from monitors.recording import of_agent, own
from network_provisioner.access import May
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.shapes import Answer


class PschedulerRun(BaseModel):
    """A result in pScheduler's own shape; what is not read here may be in it as well."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    id: Annotated[str, Field(max_length=200)] = Field(
        description="of the run", examples=["d206c24d-f44d-4d0a-a13c-0ab5eed91313"]
    )
    schedule: dict[str, Any] = Field(
        examples=[{"start": "2026-11-21T12:00:00Z", "duration": "PT31S"}]
    )
    test: dict[str, Any] = Field(
        examples=[{"type": "rtt", "spec": {"schema": 1, "source": "mu", "dest": "tacc"}}]
    )
    tool: Any = None
    participants: Any = None
    result: Any = Field(
        default=None,
        examples=[{"succeeded": True, "schema": 1, "roundtrips": [], "mean": "PT0.053S"}],
    )


class TakenAnswer(Answer):
    """How many measurements the run gave that were new; ``known`` were there already. ``ignored``
    says why none is of what the test is made for, "" where one is."""

    recorded: int
    known: int
    ignored: str


def router(archive: Archive, hosts: Hosts, clock: Callable[[], float]) -> APIRouter:
    """The routes. ``clock`` gives Unix seconds. They raise InputError for what is no result,
    BrokerError for what the caller may not record, ArchiveError where the archive cannot be written
    just now."""
    routes = APIRouter(tags=["perfsonar"])

    def take(body: PschedulerRun, caller: Caller) -> Response:
        caller.need(May.RECORD)
        run = body.model_dump()
        measured = measurements_of(run, hosts)
        for measurement in measured:
            check_believable(measurement, clock())
        sent = own(caller, of_agent(caller, measured), archive.get)
        recorded = archive.record_many(not_yet(sent, archive))
        ignored = left_out(run, sent)
        return answers.answer(
            {"recorded": recorded, "known": len(sent) - recorded, "ignored": ignored}
        )

    @routes.post("/v1/perfsonar/results", response_model=TakenAnswer)
    def post_perfsonar_result(body: PschedulerRun, caller: Caller) -> Response:
        """Record what a run of pScheduler's measured, once however often it is posted. A run that
        failed is recorded as such; of a test of another type nothing is."""
        return take(body, caller)

    @routes.put("/v1/perfsonar/results", response_model=TakenAnswer)
    def put_perfsonar_result(body: PschedulerRun, caller: Caller) -> Response:
        """The same, for archivers that are told to PUT."""
        return take(body, caller)

    return routes
