"""``/v1/plans``: what workflows that are planned will take, for who plans the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from monitors.archive.archive import Archive
from monitors.archive.plans import LONGEST_S, add_plan, known_plans
from network_provisioner.access import May
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.shapes import MOST, Answer, Body, Count

_After = Annotated[float, Field(ge=0, le=LONGEST_S)]
_Key = Annotated[str, Field(min_length=1, max_length=401)]
_Step = Annotated[list[_After], Field(min_length=2, max_length=2)]
_Flow = Annotated[list[Annotated[float, Field(ge=0, le=MOST)]], Field(min_length=3, max_length=3)]


class PlanBody(Body):
    """What a workflow will take, in seconds from now."""

    name: str = Field(min_length=1, max_length=1000, description="its submit directory")
    after: Count = Field(description="the number of the last plan that it was made beside")
    cores: dict[_Key, Annotated[list[_Step], Field(min_length=1, max_length=64)]] = Field(
        max_length=50, description="by site: cores from a second on, the last of them 0"
    )
    flows: dict[_Key, Annotated[list[_Flow], Field(max_length=16)]] = Field(
        max_length=100, description="by path: from second, to second, bytes"
    )
    tenths: list[_After] = Field(max_length=10, description="when each tenth of its jobs has ended")


class PlanAnswer(Answer):
    """A plan of ``age_s`` seconds ago; ``done`` is the share of the workflow's jobs, null where it
    was not seen. ``mine``: it has the name that was asked with."""

    age_s: float
    done: float | None
    mine: bool
    cores: dict[str, list[list[float]]]
    flows: dict[str, list[list[float]]]
    tenths: list[float]


class PlansAnswer(Answer):
    """The plans of all workflows that have not ended, and the number of the last one."""

    number: int
    plans: list[PlanAnswer]


class PlanRecordedAnswer(Answer):
    """Whether it was recorded; not where another plan came first."""

    recorded: bool


def router(archive: Archive, clock: Callable[[], float]) -> APIRouter:
    """The routes. ``clock`` gives Unix seconds. Every one raises BrokerError for what it refuses,
    ArchiveError where the archive cannot be read or written just now."""
    routes = APIRouter(tags=["measurements"])

    @routes.get("/v1/plans", response_model=PlansAnswer)
    def list_plans(caller: Caller, name: str = "") -> Response:
        """What workflows that have been planned and have not ended will take: of which user or
        workflow is not said."""
        caller.need(May.SEE)
        number, plans = known_plans(archive, clock())
        return answers.answer({"number": number, "plans": [plan.shown(name) for plan in plans]})

    @routes.post("/v1/plans", response_model=PlanRecordedAnswer)
    def record_plan(body: PlanBody, caller: Caller) -> Response:
        """Record what a workflow will take, unless another plan came first: then read them again,
        and plan beside it. A newer plan of the same name replaces it."""
        caller.need(May.RECORD)
        details = body.model_dump(include={"cores", "flows", "tenths"})
        return answers.answer(
            {"recorded": add_plan(archive, body.name, clock(), details, body.after)}
        )

    return routes
