"""``/v1/tasks``, ``/v1/runs``, ``/v1/schedule``, ``/v1/access``: what is measured, when, and who
may say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Response

from monitors.api.measuring_shapes import (
    OnceBody,
    OnDemandBody,
    RunAnswer,
    RunsAnswer,
    ScheduleAnswer,
    TaskAnswer,
    TaskBody,
    WhoAnswer,
)
from monitors.measurements.coordinator import Coordinator
from monitors.rules import Rules
from network_provisioner.access import May, Principal
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller

_BIG = 1e12
_MOST_RUNS = 10_000

Instant = Annotated[float, Query(ge=0, le=_BIG)]
Words = Annotated[str, Query(max_length=500)]


def router(
    coordinator: Coordinator,
    rules: Rules,
    keys: Callable[[], list[Principal]],
    clock: Callable[[], float],
) -> APIRouter:
    """The routes. ``keys`` gives everybody who is known, ``clock`` Unix seconds."""
    routes = APIRouter(tags=["measuring"])

    @routes.get("/v1/tasks", response_model=list[TaskAnswer])
    def list_tasks(caller: Caller) -> Response:
        """What is measured regularly, when next, and how many runs ended how."""
        caller.need(May.SEE)
        return answers.answer(coordinator.tasks())

    @routes.post("/v1/tasks/run", status_code=201, response_model=RunAnswer)
    def run_once(body: OnceBody, caller: Caller) -> Response:
        """Measure once, as soon as it disturbs nobody. ``at`` says when."""
        run = coordinator.run_once(body.task(), caller, body.within_ms())
        return answers.answer(run.as_dict(), 201)

    @routes.get("/v1/tasks/{name}", response_model=TaskAnswer)
    def get_task(name: str, caller: Caller) -> Response:
        """One task, with its latest runs."""
        caller.need(May.SEE)
        return answers.answer(coordinator.task(name))

    @routes.put(
        "/v1/tasks/{name}", response_model=TaskAnswer, responses={201: {"model": TaskAnswer}}
    )
    def put_task(name: str, body: TaskBody, caller: Caller) -> Response:
        """Measure something regularly from now on. 201 for a new task; where it does not fit, it
        is refused and nothing changes."""
        task, new = coordinator.put_task(name, body.task(), caller)
        return answers.answer(task, 201 if new else 200)

    @routes.delete("/v1/tasks/{name}", response_model=TaskAnswer)
    def delete_task(name: str, caller: Caller) -> Response:
        """Measure it no longer; what was measured stays. Answers with the task as it was."""
        return answers.answer(coordinator.delete_task(name, caller))

    @routes.post("/v1/tasks/{name}/run", status_code=201, response_model=RunAnswer)
    def run_task(name: str, caller: Caller, body: OnDemandBody | None = None) -> Response:
        """Make a task's measurement once more, as soon as it disturbs nobody."""
        run = coordinator.run_task(name, caller, (body or OnDemandBody()).within_ms())
        return answers.answer(run.as_dict(), 201)

    @routes.get("/v1/runs", response_model=RunsAnswer)
    def list_runs(
        caller: Caller,
        since: Instant = 0.0,
        until: Instant = _BIG,
        task: Words | None = None,
        limit: Annotated[int, Query(ge=1, le=_MOST_RUNS)] = 1000,
    ) -> Response:
        """The newest runs that begin from ``since`` to ``until``, oldest first; those to come too,
        as far as agents know of them."""
        caller.need(May.SEE)
        runs = coordinator.runs(round(since * 1000), round(until * 1000), task, limit)
        return answers.answer({"now": clock(), "runs": [run.as_dict() for run in runs]})

    @routes.get("/v1/runs/{run_id}", response_model=RunAnswer)
    def get_run(run_id: str, caller: Caller) -> Response:
        """One run: whether it is done, and if not, why."""
        caller.need(May.SEE)
        return answers.answer(coordinator.run(run_id).as_dict())

    @routes.get("/v1/schedule", response_model=ScheduleAnswer)
    def get_schedule(caller: Caller) -> Response:
        """The schedule that repeats: its length, its runs, and what it uses."""
        caller.need(May.SEE)
        return answers.answer(coordinator.schedule())

    @routes.get("/v1/access", response_model=WhoAnswer)
    def who_may(
        caller: Caller,
        source: Annotated[str, Query(alias="from", min_length=1, max_length=200)],
        metric: Annotated[str, Query(min_length=1, max_length=200)],
        to: Words = "",
    ) -> Response:
        """Who may start measurements of a metric from one end to another, and who may see what
        they give, each with the reason. Of others than themselves only those are told who read
        counters."""
        caller.need(May.READ)
        coordinator.need_ends(source, to)
        known = keys() if caller.may(May.MEASURE) and keys() else [caller]
        ends = (source, to) if to else (source,)
        return answers.answer({"from": source, "to": to, "metric": metric,
                               "keys": rules.table(known, ends, metric)})  # fmt: skip

    return routes
