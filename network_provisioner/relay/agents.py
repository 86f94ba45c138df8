"""What the agents of relays said last, and the sessions that each is told."""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from network_provisioner.relay.sessions import VERSION, AgentStatus, Session

POLL_S = 0.3  # an agent that asks has its answer by then
SILENT_S = 1.5  # without a question


@dataclass(eq=False)
class _Agent:
    revision: int
    sessions: list[Session] = field(default_factory=list)
    status: AgentStatus | None = None
    heard_at: float = -math.inf
    lost: bool = False
    wakes: list[Callable[[], object]] = field(default_factory=list)  # of questions that wait


class RelayAgents:
    """All agents by the names of their relays. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` gives seconds that nobody sets."""
        self._clock = clock
        self._lock = threading.Lock()
        self._agents: dict[str, _Agent] = {}
        # What a broker before this one told is another revision.
        self._first = secrets.randbits(40) + 1

    def heard(self, name: str, status: AgentStatus) -> None:
        """An agent asks, and says how it is."""
        with self._lock:
            agent = self._of(name)
            agent.status, agent.heard_at, agent.lost = status, self._clock(), False

    def lost(self, name: str) -> None:
        """Its connection broke while it waited: most likely it is dead, with all it carried."""
        with self._lock:
            agent = self._of(name)
            agent.lost = True
            if agent.status:
                agent.status = replace(agent.status, connections={})

    @contextmanager
    def waiting(self, name: str, wake: Callable[[], object]) -> Iterator[None]:
        """While the question of an agent waits it is not silent, and ``wake`` is called, in any
        thread, each time that it is to be told something else."""
        with self._lock:
            self._of(name).wakes.append(wake)
        try:
            yield
        finally:
            with self._lock:
                agent = self._of(name)
                agent.wakes.remove(wake)
                agent.heard_at = max(agent.heard_at, self._clock() - POLL_S)

    def want(self, sessions: Mapping[str, Sequence[Session]]) -> None:
        """Each agent is to have these sessions and no others, the first that fits first."""
        with self._lock:
            for name in {*self._agents, *sessions}:
                agent, wanted = self._of(name), list(sessions.get(name, ()))
                if agent.sessions != wanted:
                    agent.sessions, agent.revision = wanted, agent.revision + 1
                    for wake in agent.wakes:
                        wake()

    def assigned_sessions(self, name: str) -> tuple[int, list[Session]]:
        """The sessions that an agent is to have, and the revision that it knows them by."""
        with self._lock:
            agent = self._of(name)
            return agent.revision, list(agent.sessions)

    def unready(self, name: str, tls: bool = False) -> str:
        """Why an agent cannot be used now, to carry something by TLS or not, in words; "" where it
        can."""
        with self._lock:
            agent = self._of(name)
            status = agent.status
            if status is None:
                return f"no agent of relay {name!r} has connected yet"
            if agent.lost:
                return f"the connection to the agent of relay {name!r} broke"
            if silent_s := self._silent_s(agent):
                return f"the agent of relay {name!r} has been silent for {silent_s:.1f} s"
            if status.version != VERSION:
                return (
                    f"the agent of relay {name!r} is of version {status.version}, expected "
                    f"{VERSION}"
                )
            if tls and not status.tls:
                return f"the agent of relay {name!r} has no certificate for TLS"
            return f"relay {name!r}: {status.unready}" if status.unready else ""

    def connections(self, session_id: str) -> int:
        """How many connections of a session agents have open, by what each said last."""
        with self._lock:
            statuses = [agent.status for agent in self._agents.values() if agent.status]
        return sum(status.connections.get(session_id, 0) for status in statuses)

    def open_at(self, name: str) -> int:
        """How many connections one agent has open in all, by what it said last; none of one that is
        silent, whose transits go directly."""
        with self._lock:
            agent = self._of(name)
            status = None if self._silent_s(agent) else agent.status
        return sum(status.connections.values()) if status else 0

    def _silent_s(self, agent: _Agent) -> float:
        """For how long one that is silent has not asked; 0 for another."""
        seconds = self._clock() - agent.heard_at
        return seconds if seconds > SILENT_S and not agent.wakes else 0.0

    def _of(self, name: str) -> _Agent:
        return self._agents.setdefault(name, _Agent(self._first))
