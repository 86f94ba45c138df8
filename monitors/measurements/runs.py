"""One run of a measurement task, as the coordinator keeps it, what each agent does in it, and what
its result may say: nothing that the agent was not given to measure.

An agent is trusted for its own part alone. A stolen token of one agent so spoils measurements of
its own ends at the time of their runs, and no others.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from reprlib import repr as shown
from typing import Annotated, Any

from pydantic import Field

from monitors.base.measurement import UNITS, Measurement, check_believable, check_sendable, to_row
from monitors.measurements.agent.messages import Assignment
from monitors.measurements.agent_registry import RegisteredAgent
from monitors.measurements.probes.tools import gives
from monitors.measurements.task_data import Definition
from monitors.measurements.tasks import LinkId
from network_provisioner.base.errors import InputError
from network_provisioner.base.schema import Number, Schema, read

SLACK_S = 2.0
"""How far outside of its run a measurement may say that it was true."""
MOST_MEASUREMENTS = 20  # of one result; no tool has more metrics than that
_LONGEST_ERROR = 500  # characters
_SHARES = ("loss", "cpu_use", "memory_use", "io_wait")


class RunState(StrEnum):
    """Where a run stands. All but ``planned`` are ends; a late result still makes a run that was
    missed a done one."""

    PLANNED = "planned"
    DONE = "done"
    FAILED = "failed"
    MISSED = "missed"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class AgentPart:
    """What one agent has to do in a run: ``told``, whether it was given it; ``reported``, whether
    it said what came of it, and ``error``, why there is nothing."""

    agent: str
    assignment: Assignment
    told: bool = False
    reported: bool = False
    error: str = ""

    @property
    def measures(self) -> bool:
        """Whether the measurements come from this end."""
        return self.assignment.role != "server"


@dataclass(frozen=True, slots=True)
class Run:
    """One run, from ``at_ms`` to ``end_ms`` (Unix time). ``release_ms`` tells the runs of a task
    apart: each release is measured once. While it lasts it needs ``hosts`` and ``links`` for
    itself, and puts ``load_bps`` on each link. ``demanded``: by whom it was asked for, "" where the
    schedule says so. ``measured``: the metrics that were recorded."""

    id: str
    task: str
    tool: str
    subject: str
    at_ms: int
    end_ms: int
    release_ms: int
    parts: tuple[AgentPart, ...]
    hosts: frozenset[str] = frozenset()
    links: frozenset[LinkId] = frozenset()
    load_bps: float = 0.0
    demanded: str = ""
    state: RunState = RunState.PLANNED
    error: str = ""
    measured: tuple[str, ...] = ()

    def part_of(self, agent: str) -> AgentPart | None:
        """The agent's part in it."""
        return next((part for part in self.parts if part.agent == agent), None)

    def as_dict(self) -> dict[str, Any]:
        """For the REST API: without what only the agents need."""
        return {
            "id": self.id,
            "task": self.task,
            "tool": self.tool,
            "subject": self.subject,
            "at": self.at_ms / 1000,
            "until": self.end_ms / 1000,
            "state": str(self.state),
            "error": self.error,
            "demanded": self.demanded,
            "measured": list(self.measured),
            "agents": [
                {
                    "agent": part.agent,
                    "role": part.assignment.role,
                    "told": part.told,
                    "reported": part.reported,
                    "error": part.error,
                }
                for part in self.parts
            ],
        }


def after(run: Run, part: AgentPart, measurements: Sequence[Measurement]) -> Run:
    """The run after one of its agents reported ``part`` and ``measurements``."""
    parts = tuple(part if p.agent == part.agent else p for p in run.parts)
    if not part.measures:
        failure = run.state is RunState.FAILED and part.error
        error = f"{run.error}; {part.agent}: {part.error}" if failure else run.error
        return replace(run, parts=parts, error=error)
    if measurements:
        measured = tuple(m.metric for m in measurements)
        return replace(run, parts=parts, state=RunState.DONE, error="", measured=measured)
    others = [f"{p.agent}: {p.error}" for p in parts if p.error and not p.measures]
    error = "; ".join([f"{part.agent}: {part.error}", *others])
    return replace(run, parts=parts, state=RunState.FAILED, error=error)


def part_from_dict(data: Mapping[str, Any]) -> AgentPart:
    """The inverse of :func:`dataclasses.asdict`."""
    return AgentPart(**{**data, "assignment": Assignment(**data["assignment"])})


def new_run(
    run_id: str,
    definition: Definition,
    at_ms: int,
    release_ms: int,
    members: Mapping[str, RegisteredAgent],
    beside: Iterable[Run],
    demanded: str = "",
    new_key: Callable[[], str] = lambda: secrets.token_hex(16),
) -> Run:
    """A run with a part for each agent. ``beside`` are the runs at about the same time: no two
    servers of an agent that overlap get the same port. ``new_key`` draws what both ends know each
    other by.

    Raises InputError where a server has no port left.
    """
    # What nobody said is left out: an agent may be older than the option.
    options = {key: value for key, value in definition.options.items() if value is not None}
    task = definition.task
    end_ms = at_ms + task.duration_ms
    if "key" in definition.tool.options:
        options["key"] = new_key()
    ends = definition.agents
    port = 0 if len(ends) < 2 else _port(members[definition.dst], at_ms, end_ms, beside)
    parts = []
    for agent in ends:
        alone, client = len(ends) == 1, agent == definition.src
        assignment = Assignment(
            id=run_id,
            task=definition.name,
            tool=definition.tool.name,
            role="alone" if alone else "client" if client else "server",
            subject=definition.subject,
            at=at_ms / 1000,
            duration_s=task.duration_ms / 1000,
            peer=definition.address if client else members[definition.src].address,
            port=port,
            options=options,
        )
        parts.append(AgentPart(agent, assignment))
    return Run(
        run_id, definition.name, definition.tool.name, definition.subject, at_ms, end_ms,
        release_ms, tuple(parts), task.hosts, task.links, task.load_bps, demanded,
    )  # fmt: skip


def _port(member: RegisteredAgent, at_ms: int, end_ms: int, beside: Iterable[Run]) -> int:
    """A port of the server that no other run uses at that time, and that was used last as long ago
    as there are others."""
    first, last = member.ports
    taken, newest = set(), (-1, first - 1)
    for run in beside:
        part = run.part_of(member.name)
        if part is None or part.assignment.role != "server":
            continue
        if run.at_ms < end_ms and at_ms < run.end_ms:
            taken.add(part.assignment.port)
        newest = max(newest, (run.at_ms, part.assignment.port))
    count = last - first + 1
    for step in range(count):
        port = first + (newest[1] + 1 - first + step) % count
        if port not in taken:
            return port
    raise InputError(
        f"agent {member.name!r}: all its ports {first} to {last} are taken at that time"
    )


class _Measured(Schema):
    """Fields that follow from the run are optional, and must agree with it."""

    metric: Annotated[str, Field(max_length=200)]
    value: Number
    unit: str
    at: Number
    id: str | None = None
    subject: str | None = None
    source: str | None = None
    workflow: str | None = None
    details: dict[str, Any] = Field(default={})


class _Result(Schema):
    assignment: str = ""
    task: str | None = None
    started: Number = 0.0
    ended: Number = 0.0
    measurements: list[_Measured] = Field(default=[], max_length=MOST_MEASUREMENTS)
    error: str = ""


@dataclass(frozen=True, slots=True)
class ValidResult:
    """The measurements to record, or why there are none."""

    measurements: tuple[Measurement, ...]
    error: str


def valid_result(data: Mapping[str, Any], run: Run, part: AgentPart, now_ms: int) -> ValidResult:
    """A result (docs/agents.md) about ``part`` of ``run``, that came at ``now_ms`` (Unix time).

    Raises InputError that says what it may not say; such a result is never taken.
    """
    if run.state is RunState.DROPPED and not part.told:
        raise InputError("this run was dropped before an agent got it")
    doc = read(_Result, data, "the result")
    if doc.task not in (None, run.task):
        raise InputError(f"found task {shown(doc.task)}, expected {run.task!r}")
    if doc.measurements and not part.measures:
        raise InputError("the server of a run measures nothing, its client does")
    if doc.measurements and now_ms / 1000 < run.at_ms / 1000 - SLACK_S:
        raise InputError("found measurements of a run that has not begun")
    measurements = tuple(_measurement(item, run, part) for item in doc.measurements)
    if len({m.id for m in measurements}) < len(measurements):
        raise InputError("found a metric twice, expected each once")
    if doc.error and measurements:
        raise InputError("found measurements beside an error, expected one of both")
    error = doc.error
    if not error and not measurements and part.measures:
        error = "the agent sent neither a measurement nor a reason"
    return ValidResult(measurements, " ".join(error.split())[:_LONGEST_ERROR])


def _measurement(item: _Measured, run: Run, part: AgentPart) -> Measurement:
    metric, value = item.metric, item.value
    if not gives(run.tool, metric):
        raise InputError(f"found metric {shown(metric)}, which {run.tool} does not measure")
    right = Measurement(
        f"{metric}:{run.id}", metric, run.subject, value, UNITS.get(metric, item.unit), item.at,
        f"agent:{part.agent}", "", item.details,
    )  # fmt: skip
    for key in ("unit", "id", "subject", "source", "workflow"):
        reported = getattr(item, key)
        if reported not in (None, getattr(right, key)):
            raise InputError(
                f"{metric}: found {key} {shown(reported)}, expected {getattr(right, key)!r}"
            )
    if metric in _SHARES and not 0 <= value <= 1:
        raise InputError(f"{metric}: found {value!r}, expected 0 to 1")
    if value < 0 and metric in UNITS and metric != "one_way_delay":
        raise InputError(f"{metric}: found {value!r}, expected 0 or more")
    first, last = run.at_ms / 1000 - SLACK_S, run.end_ms / 1000 + SLACK_S
    if not first <= item.at <= last:
        raise InputError(f"{metric}: found at {item.at:.3f}, expected {first:.3f} to {last:.3f}")
    check_sendable(right)
    check_believable(right, item.at)  # which was held against its run
    to_row(right)  # what the archive does not take is refused here, and costs no other result
    demanded = {"demanded": run.demanded} if run.demanded else {}
    return replace(right, details={**item.details, "task": run.task, **demanded})
