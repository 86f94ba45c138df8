"""``/v1/tasks``, ``/v1/runs``, ``/v1/schedule``, ``/v1/access``: what is measured, when, and who
may say so.

Durations that people send have a unit (``5 min``); in answers times are seconds, instants Unix
seconds, rates bit/s."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from prometheus_client.core import GaugeMetricFamily, Metric
from pydantic import Field

from monitors.measurements.coordinator import Coordinator
from monitors.measurements.run_planner import LONGEST_WAIT_MS
from monitors.rules import Rules
from network_provisioner.access import May, Principal
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.shapes import Answer, Body, Text
from network_provisioner.base.errors import AdonError, InputError
from network_provisioner.base.units import parse_duration

_log = logging.getLogger(__name__)

_BIG = 1e12
_MOST_RUNS = 10_000

Instant = Annotated[float, Query(ge=0, le=_BIG)]
Words = Annotated[str, Query(max_length=500)]
Quantity = Text | float


class OnDemandBody(Body):
    """How soon a run on demand has to be over."""

    within: Quantity = Field(default="10 min", examples=["10 min"])

    def within_ms(self) -> int:
        """In milliseconds. Raises InputError."""
        within = round(parse_duration(self.within, "within") * 1000)
        if not 0 < within <= LONGEST_WAIT_MS:
            raise InputError(
                f"within: found {self.within!r}, expected more than 0 s and at most "
                f"{LONGEST_WAIT_MS // 60_000} min"
            )
        return within


class _MeasurementBody(Body):
    """What is measured."""

    tool: Text = Field(examples=["tcp"])
    source: Text = Field(alias="from", examples=["mu"])
    to: Text | None = Field(default=None, examples=["tacc"])
    lasts: Quantity | None = Field(default=None, alias="for", examples=["10 s"])
    load: Quantity | None = Field(default=None, description="on the network; default: the tool's")
    options: dict[str, Any] = Field(default={}, examples=[{"streams": 4}])

    def task(self) -> dict[str, Any]:
        """In the keys of ``monitoring.tasks``."""
        return self.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)


class TaskBody(_MeasurementBody):
    """What is measured, how often, and how late after its release it may be over."""

    every: Quantity = Field(examples=["10 min"])
    within: Quantity | None = Field(default=None, description="default: until the next release")
    via: list[Text] | None = Field(default=None, description="nodes of the path to measure")


class OnceBody(_MeasurementBody, OnDemandBody):
    """What is measured once, and how soon."""

    def task(self) -> dict[str, Any]:
        """In the keys of ``monitoring.tasks``."""
        return {key: value for key, value in super().task().items() if key != "within"}


class RunAnswer(Answer):
    """A run: ``planned``, ``done``, ``failed``, ``missed`` or ``dropped``, and why. ``measured``
    are the metrics that were recorded, each under the id ``METRIC:RUN``."""

    id: str
    task: str
    tool: str
    subject: str
    at: float
    until: float
    state: str
    error: str
    measured: list[str]


class RunsAnswer(Answer):
    """Runs, and what time it is."""

    now: float
    runs: list[RunAnswer]


class TaskAnswer(Answer):
    """A task. ``problem``: why it is in no schedule, empty where it is. ``configured``: it stands
    in adon.yml. ``next`` is when it begins next."""

    name: str
    tool: str
    subject: str
    metrics: list[str]
    every_s: float
    for_s: float
    within_s: float
    configured: bool
    problem: str
    next: float | None
    counts: dict[str, int]


class ScheduleAnswer(Answer):
    """The schedule. ``hosts`` and ``links``: the share of time that each is used. ``moved``: runs
    to come that start ``at`` ``instead_of`` their slot, because of a run on demand."""

    hyperperiod_s: float
    slots: int
    tasks: int
    until: float
    hosts: dict[str, float]
    links: list[dict[str, Any]]
    moved: list[dict[str, Any]]


class WhoAnswer(Answer):
    """Who may start, and who may see."""

    source: str = Field(alias="from")
    to: str
    metric: str
    keys: list[dict[str, Any]]


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


class RunMetrics:
    """Agents and runs for Prometheus, which asks when it scrapes; names begin with ``adon_``."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def describe(self) -> list[Metric]:
        """Nothing is asked before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Called by the library. Where the coordinator's store does not answer, runs are absent."""
        present = GaugeMetricFamily(
            "adon_agent_present", "1 where the agent asks regularly.", labels=("agent",)
        )
        offset = GaugeMetricFamily(
            "adon_agent_clock_offset_seconds",
            "The broker's clock less the agent's, as the agent knows it.",
            labels=("agent",),
        )
        for agent in self._coordinator.agents():
            present.add_metric((agent["name"],), float(agent["present"]))
            if agent["offset_s"] is not None:
                offset.add_metric((agent["name"],), agent["offset_s"])
        yield from (present, offset)
        runs = GaugeMetricFamily(
            "adon_measurement_runs", "Runs of the last week by state.", labels=("state",)
        )
        try:
            for state, number in sorted(self._coordinator.counts().items()):
                runs.add_metric((state,), number)
        except AdonError as error:
            _log.warning("the runs of measurements cannot be counted: %s", error)
            return
        yield runs
