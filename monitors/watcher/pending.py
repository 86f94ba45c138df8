"""Actions at brokers that are still to be done, done as often as it takes.

A broker that is away is asked again after 0.5 s, 1 s, 2 s and then every 2 s, and actions at other
brokers do not wait for it. What a broker refuses is asked again 5 s later, for as long as the
action is worth it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.hookconfig import HookConfig

log = logging.getLogger(__name__)

AWAY = frozenset({"unreachable", "timeout", "bad_answer"})  # codes of a broker that did nothing
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.5, 2.0
_REFUSED_S = 5.0
_SLICE_S = 3.0  # so that a slow broker does not keep the watcher from looking


class Later(Exception):
    """Raised by an action that is not done yet: to be tried again after ``after_s``."""

    def __init__(self, after_s: float) -> None:
        super().__init__(after_s)
        self.after_s = after_s


class PendingAction(Protocol):
    """Something to do at one broker. Doing it twice does no harm."""

    @property
    def key(self) -> str:
        """What it is about; of two with one key one is enough."""
        ...

    @property
    def owner(self) -> str:
        """The workflow that it is for, empty for none."""
        ...

    @property
    def config(self) -> HookConfig:
        """Which broker, and how it is reached."""
        ...

    @property
    def kept_s(self) -> float:
        """For how long it is tried again where the broker refuses it."""
        ...

    def do(self, broker: BrokerClient, /) -> None:
        """Do it. Raises BrokerError, or :class:`Later`."""
        ...


@dataclass(slots=True)
class _Pending:
    action: PendingAction
    since: float
    due: float


@dataclass(slots=True)
class _Away:
    until: float = 0.0
    pause_s: float = _FIRST_PAUSE_S
    reason: str = ""


@dataclass(slots=True)
class PendingActions:
    """``client_of`` gives a client, and raises InputError for an address or a token that is none;
    ``clock`` is one that no one sets, in seconds."""

    client_of: Callable[[HookConfig], BrokerClient]
    clock: Callable[[], float]
    _pending: dict[str, _Pending] = field(default_factory=dict)
    _away: dict[str, _Away] = field(default_factory=dict)

    def add(self, action: PendingAction) -> None:
        """Take an action on."""
        now = self.clock()
        self._pending.setdefault(action.key, _Pending(action, now, now))

    def hurry(self, key: str) -> None:
        """Do an action that waits as soon as its broker answers."""
        self._pending[key].due = self.clock()

    def of(self, owner: str) -> int:
        """How many are pending for a workflow."""
        return sum(pending.action.owner == owner for pending in self._pending.values())

    def is_away(self, config: HookConfig) -> bool:
        """Whether the broker did not answer when it was last asked."""
        return bool(self._away.get(config.broker, _Away()).reason)

    def __len__(self) -> int:
        return len(self._pending)

    def work(self) -> None:
        """Do what can be done now, what is due longest first."""
        started = self.clock()
        for key, pending in sorted(self._pending.items(), key=lambda item: self._due(item[1])):
            now = self.clock()
            if now - started > _SLICE_S:
                return
            if now >= self._due(pending):
                self._do(key, pending, self._away[pending.action.config.broker])

    def _due(self, pending: _Pending) -> float:
        """When it is to be done, and its broker to be asked again."""
        return max(pending.due, self._away.setdefault(pending.action.config.broker, _Away()).until)

    def _do(self, key: str, pending: _Pending, away: _Away) -> None:
        action = pending.action
        try:
            action.do(self.client_of(action.config))
        except Later as later:
            pending.due = self.clock() + later.after_s
        except (BrokerError, InputError) as error:
            if isinstance(error, BrokerError) and error.code in AWAY:
                self._is_away(away, action, str(error))
            else:
                log.warning("%s: %s", key, error)
                pending.due = self.clock() + _REFUSED_S
            if self.clock() - pending.since > action.kept_s:
                log.warning("%s: given up after %g s", key, action.kept_s)
                del self._pending[key]
            return
        else:
            del self._pending[key]
        if away.reason:
            log.info("%s answers again", action.config.broker)
            away.reason = ""
        away.pause_s = _FIRST_PAUSE_S

    def _is_away(self, away: _Away, action: PendingAction, reason: str) -> None:
        away.until = self.clock() + away.pause_s
        away.pause_s = min(2 * away.pause_s, _LAST_PAUSE_S)
        if not away.reason:
            log.warning("%s does not answer: %s", action.config.broker, reason)
        away.reason = reason
