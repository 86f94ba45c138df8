"""What each agent has to do in a run: pure."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping

from monitors.measurements.definitions import Definition, Member
from monitors.measurements.messages import Assignment
from monitors.measurements.runs import Part, Run, Uses
from network_provisioner.errors import InputError


def new_run(
    run_id: str,
    definition: Definition,
    at_ms: int,
    end_ms: int,
    release_ms: int,
    members: Mapping[str, Member],
    beside: Iterable[Run],
    uses: Uses,
    demanded: str = "",
    new_key: Callable[[], str] = lambda: secrets.token_hex(16),
) -> Run:
    """A run with a part for each agent. ``beside`` are the runs at about the same time: no two
    servers of an agent that overlap get the same port. ``new_key`` draws what both ends know each
    other by.

    Raises InputError where a server has no port left.
    """
    options = dict(definition.options)
    if "key" in definition.tool.options:
        options["key"] = new_key()
    ends = definition.agents
    port = 0 if len(ends) < 2 else _port(members[definition.dst], at_ms, end_ms, beside)
    parts = []
    for agent in ends:
        alone, client = len(ends) == 1, agent == definition.src
        assignment = Assignment(
            run_id,
            definition.name,
            definition.tool.name,
            "alone" if alone else "client" if client else "server",
            definition.subject,
            at_ms / 1000,
            (end_ms - at_ms) / 1000,
            definition.address if client else members[definition.src].address,
            port,
            options,
        )
        parts.append(Part(agent, assignment))
    return Run(
        run_id, definition.name, definition.tool.name, definition.subject, at_ms, end_ms,
        release_ms, tuple(parts), uses, demanded,
    )  # fmt: skip


def _port(member: Member, at_ms: int, end_ms: int, beside: Iterable[Run]) -> int:
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
