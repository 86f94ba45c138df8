"""Which agents there are, and how they are: what they say of themselves when they ask."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from network_provisioner.base.errors import BrokerError

AWAY_S = 90.0
"""Who has not asked for so long is away: an agent asks again at the latest after a minute."""
REPORTS_S = {"connections": 10.0, "disks": 10.0, "sockets": 5.0}
"""What agents report of their hosts, and how often at least."""
_GONE_S = 3600.0  # a report that has not come for so long is not expected any more
SILENT_AFTER_S = 1.5
"""An agent whose question was answered asks again at once: who is so late is silent."""


@dataclass(frozen=True, slots=True)
class RegisteredAgent:
    """An agent that the broker knows: its ``address`` for other agents, and the first and last
    port that its servers may listen on."""

    name: str
    address: str
    ports: tuple[int, int] = (5201, 5210)

    @property
    def site(self) -> str:
        """Its site: its name up to the ``/``."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What an agent says of itself: ``offset_s`` is the broker's clock less its own and
    ``error_s`` how far that may be off, None while it does not know; ``unsent`` results wait there
    and ``dropped`` were thrown away; ``tools`` can be used now (None: it did not say)."""

    offset_s: float | None = None
    error_s: float | None = None
    unsent: int = 0
    dropped: int = 0
    version: str = ""
    tools: tuple[str, ...] | None = None


class AgentRegistry:
    """All agents of the broker. Not for several threads at once."""

    def __init__(self, members: Iterable[RegisteredAgent]) -> None:
        self.members = {member.name: member for member in members}
        self._reports: dict[str, AgentReport] = {}
        self._seen: dict[str, float] = {}
        self._back: dict[str, float] = {}  # when those that were away were heard again
        self._due: dict[str, float] = {}  # when those are to ask again that wait for answers
        self._errors: dict[str, tuple[float, str]] = {}
        self._reported: dict[tuple[str, str], float] = {}

    def known(self, name: str) -> RegisteredAgent:
        """Raises BrokerError ``unknown_agent``."""
        if name not in self.members:
            raise BrokerError(
                f"found agent {name!r:.80}, expected one of monitoring.agents", "unknown_agent"
            )
        return self.members[name]

    def heard(
        self, name: str, now: float, report: AgentReport | None = None, wait_s: float = 0.0
    ) -> None:
        """The agent asked for something at ``now`` (Unix seconds), and waits for ``wait_s``."""
        if not self.present(name, now):
            self._back[name] = now
        self._seen[name] = now
        if wait_s > 0:
            self._due[name] = now + wait_s
        if report is not None:
            self._reports[name] = report

    def reported(self, name: str, what: str, now: float) -> None:
        """The agent reported something of its host, one of :data:`REPORTS_S`."""
        self._reported[name, what] = now

    def missing_reports(self, now: float) -> dict[tuple[str, str], float]:
        """Reports that agents, which are not silent themselves, no longer send; since when."""
        silent = self.silent(now)
        return {
            (name, what): at
            for (name, what), at in self._reported.items()
            if name not in silent
            and 0 <= now - max(at, self.back_at(name)) - 2 * REPORTS_S[what] < _GONE_S
        }

    def back_at(self, name: str) -> float:
        """When the agent was first heard, or heard again after it was away (Unix seconds); 0 where
        it was never heard. What it sends is not late because of that absence."""
        return self._back.get(name, 0.0)

    def failed(self, name: str, at: float, error: str) -> None:
        """The agent failed, or its result was refused."""
        self._errors[name] = (at, error)

    def left(self, name: str, now: float) -> None:
        """The agent has hung up before it was answered."""
        self._due[name] = now

    def silent(self, now: float) -> dict[str, float]:
        """The agents that should have asked again, and when each was heard last."""
        due = self._due.items()
        return {name: self._seen[name] for name, at in due if now > at + SILENT_AFTER_S}

    def present(self, name: str, now: float) -> bool:
        """Whether it asks regularly."""
        seen = self._seen.get(name)
        return seen is not None and now - seen <= AWAY_S

    def away(self, name: str, now: float) -> str:
        """Why it is not present, "" if it is."""
        if self.present(name, now):
            return ""
        seen = self._seen.get(name)
        if seen is None:
            return f"agent {name!r} has not been seen since the broker was started"
        return f"agent {name!r} was last seen {now - seen:.0f} s ago"

    def lacks(self, name: str, tool: str) -> bool:
        """Whether it reported its tools, and ``tool`` is not among them."""
        report = self._reports.get(name)
        return report is not None and report.tools is not None and tool not in report.tools

    def view(self, name: str, now: float) -> dict[str, Any]:
        """For people and programs."""
        member, report = self.members[name], self._reports.get(name, AgentReport())
        failed = self._errors.get(name)
        return {
            "name": name,
            "site": member.site,
            "address": member.address,
            "ports": list(member.ports),
            "present": self.present(name, now),
            "last_seen": self._seen.get(name),
            **asdict(report),
            "tools": None if report.tools is None else list(report.tools),
            "last_error": "" if failed is None else failed[1],
            "last_error_at": None if failed is None else failed[0],
        }
