"""One run of a measurement task, as the coordinator keeps it, and what each agent does in it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from monitors.base.measurement import Measurement
from monitors.measurements.agent.messages import Assignment
from monitors.measurements.agent_registry import RegisteredAgent
from monitors.measurements.task_data import Definition
from monitors.measurements.tasks import LinkId
from network_provisioner.base.errors import InputError


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
        """For people and programs that ask over HTTP: without what only the ends need to know."""
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
    """The run after one of its agents reported: ``part`` as it is then, and what was measured."""
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
