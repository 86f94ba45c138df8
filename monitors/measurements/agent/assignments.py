"""What is to be done when, and what is not done because of the agent's own limits. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address

from monitors.measurements.agent.messages import Assignment
from monitors.measurements.agent.settings import AgentLimits
from network_provisioner.base.units import bits, format_rate

LEAD_S = 0.5
"""Servers listen so much earlier: two machines' clocks are never the same."""
_LATE_S, _LATE = 1.0, 0.1  # late by more than 1 s and a tenth of the time: somebody else's turn
_REMEMBERED_S = 600.0


class PendingAssignments:
    """All times are the broker's, Unix seconds."""

    def __init__(self) -> None:
        self._known: dict[str, Assignment] = {}
        self._had: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._known)

    def replace(self, assignments: Iterable[Assignment]) -> None:
        """The broker's list takes the place of what was known; what had its turn stays so."""
        self._known = {a.id: a for a in assignments if a.id not in self._had}

    def had(self, key: str, until: float) -> None:
        """It had its turn, in an earlier life of this agent say; ``until`` it is over."""
        self._had[key] = max(until, self._had.get(key, -math.inf))
        self._known.pop(key, None)

    def take(self, now: float) -> tuple[list[Assignment], list[Assignment]]:
        """What is to begin now, earliest first, and what it is too late for. Each is given once."""
        due = sorted((a for a in self._known.values() if begin_of(a) <= now), key=begin_of)
        for assignment in due:
            self.had(assignment.id, assignment.at + assignment.duration_s)
        forgotten = [k for k, until in self._had.items() if until + _REMEMBERED_S < now]
        for key in forgotten:
            del self._had[key]
        late = [a for a in due if too_late(a, now)]
        return [a for a in due if not too_late(a, now)], late

    def next_at(self) -> float:
        """When the next one begins; infinite where there is none."""
        return min(map(begin_of, self._known.values()), default=math.inf)


def begin_of(assignment: Assignment) -> float:
    """When this agent begins with it."""
    return assignment.at - (LEAD_S if assignment.role == "server" else 0.0)


def too_late(assignment: Assignment, now: float) -> bool:
    """Whether its instant is past by more than clocks and a busy machine explain, or all its time.

    A run that is no longer than its tool needs may begin a little late as well."""
    late_s = now - assignment.at
    allowed_s = max(_LATE_S, _LATE * assignment.duration_s)
    return late_s > min(allowed_s, assignment.duration_s)


def refusal(
    assignment: Assignment, limits: AgentLimits, able: Mapping[str, str], running: int
) -> str:
    """Why this is not done, "" where it is. ``able`` names for each tool why it cannot be used here
    ("" where it can), ``running`` is how many runs there are now."""
    return next(_against(assignment, limits, able, running), "")


def _against(
    assignment: Assignment, limits: AgentLimits, able: Mapping[str, str], running: int
) -> Iterator[str]:
    tool, peer, options = assignment.tool, assignment.peer, assignment.options
    if tool not in limits.tools:
        yield f"this agent does not use {tool}"
    if why := able.get(tool, "it is not known here"):
        yield f"{tool} cannot be used here: {why}"
    if assignment.duration_s > limits.run_s:
        yield f"a run of {assignment.duration_s:g} s is above the agent's {limits.run_s:g} s"
    if peer and limits.peers and not any(ip_address(peer) in network for network in limits.peers):
        yield f"{peer} is not among the agent's peers"
    rate_bps = bits(options["length"]) / options["interval"] if "interval" in options else 0.0
    if rate_bps > limits.rate_bps:
        yield f"{format_rate(rate_bps)} is above the agent's {format_rate(limits.rate_bps)}"
    first, last = limits.ports
    if assignment.role == "server" and not first <= assignment.port <= last:
        yield f"port {assignment.port} is not among the agent's, {first} to {last}"
    if running >= limits.at_once:
        yield f"{running} runs at once are the agent's limit"
