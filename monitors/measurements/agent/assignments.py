"""What an agent does when, by the broker's time, and what its own limits keep it from. Pure.

The broker's time does not depend on what the agent's own wall clock says or is set to. As NTP does:
of a question sent at t0, received at t1, answered at t2, and the answer here at t3, the offset is
((t1 - t0) + (t2 - t3)) / 2, and off by at most half of the time on the way, however unequal both
directions are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from monitors.measurements.agent.messages import Assignment
from monitors.measurements.agent.settings import AgentLimits
from network_provisioner.base.units import bits, format_rate

LEAD_S = 0.5
"""Servers listen so much earlier: two machines' clocks are never the same."""
_LATE_S, _LATE = 1.0, 0.1  # late by more than 1 s and a tenth of the time: somebody else's turn
_REMEMBERED_S = 600.0

_DRIFT = 50e-6  # seconds per second that an ordinary quartz is off by
_SLACK_S = 1e-3
_MOST_ERROR_S = 5.0  # an answer that took longer says nothing


class PendingAssignments:
    """All times are the broker's, Unix seconds."""

    def __init__(self) -> None:
        self._known: dict[str, Assignment] = {}
        self._had: dict[str, float] = {}

    def replace(self, assignments: Iterable[Assignment]) -> None:
        """Replace the known assignments, except those that have begun."""
        self._known = {a.id: a for a in assignments if a.id not in self._had}

    def had(self, key: str, until: float) -> None:
        """A run began, perhaps in an earlier process; ``until``: when it is over."""
        self._had[key] = max(until, self._had.get(key, -math.inf))
        self._known.pop(key, None)

    def take(self, now: float) -> tuple[list[Assignment], list[Assignment]]:
        """Assignments to begin now, earliest first, and those that are too late; each once."""
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


@dataclass(frozen=True, slots=True)
class _Known:
    offset_s: float
    error_s: float
    at: float

    def error_at(self, steady: float) -> float:
        return self.error_s + _DRIFT * abs(steady - self.at)


class BrokerClock:
    """Learns from answers. ``steady`` are seconds of a clock of this machine that nobody sets."""

    def __init__(self) -> None:
        self._known: _Known | None = None

    def learn(self, requested: float, received: float, sent: float, answered: float) -> None:
        """One question: ``requested`` and ``answered`` steady, the others the broker's clock."""
        on_the_way = (answered - requested) - (sent - received)
        error_s = max(0.0, on_the_way) / 2
        if on_the_way < -_SLACK_S or error_s > _MOST_ERROR_S or sent < received:
            return
        offset = _Known(((received - requested) + (sent - answered)) / 2, error_s, answered)
        known = self._known
        if known is not None:
            before = known.error_at(answered)
            apart = abs(offset.offset_s - known.offset_s)
            # Farther apart than both allow: the broker's clock was set, and what was known is past.
            if apart <= error_s + before + _SLACK_S and error_s > before:
                return
        self._known = offset

    def now(self, steady: float) -> float:
        """The broker's time, Unix seconds; NaN while nothing is known."""
        return steady + self._known.offset_s if self._known else math.nan

    def steady_at(self, broker_time: float) -> float:
        """When it is that time at the broker; infinitely late while nothing is known."""
        return broker_time - self._known.offset_s if self._known else math.inf

    def error_s(self, steady: float) -> float:
        """What :meth:`now` may be off by; infinite while nothing is known."""
        return self._known.error_at(steady) if self._known else math.inf
