"""What the watcher owes to a broker, done as often as it takes.

A broker that is away is asked again after 0.5 s, 1 s, 2 s and then every 2 s, and owed duties of
other brokers do not wait for it. What a broker refuses is asked again 5 s later, and dropped
after a day: leases have ended long before. Where its submit directory is gone too, ten minutes do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from network_provisioner.base.hookconfig import HookConfig
from network_provisioner.errors import BrokerError, InputError
from pegasus_hooks.watch.events import Watched
from pegasus_hooks.watch.world import Broker

log = logging.getLogger(__name__)

_AWAY = frozenset({"unreachable", "timeout", "bad_answer"})
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.5, 2.0
_REFUSED_S = 5.0
_SLICE_S = 3.0  # so that a slow broker does not keep the watcher from looking
_DROP_S, _GONE_S = 86400.0, 600.0

# A line for the journal of the submit directory.
Line = dict[str, Any]


class Later(Exception):
    """Raised by a duty that is not done yet: to be tried again after ``after_s``."""

    def __init__(self, after_s: float) -> None:
        super().__init__(after_s)
        self.after_s = after_s


class Duty(Protocol):
    """Something to do at one broker. Doing it twice does no harm."""

    @property
    def key(self) -> str:
        """What it is about; of two with one key one is enough."""
        ...

    @property
    def watched(self) -> Watched:
        """Whose it is."""
        ...

    def do(self, broker: Broker, /) -> list[Line]:
        """Do it, and say what was done. Raises BrokerError, or :class:`Later`."""
        ...


@dataclass(slots=True)
class _Owed:
    duty: Duty
    since: float
    due: float


@dataclass(slots=True)
class _Away:
    until: float = 0.0
    pause_s: float = _FIRST_PAUSE_S
    reason: str = ""


@dataclass(slots=True)
class Duties:
    """All that is owed. ``broker_of`` makes a client, ``note`` takes lines for a journal; ``clock``
    is one that no one sets, in seconds."""

    broker_of: Callable[[HookConfig], Broker]
    note: Callable[[Watched, list[Line]], None]
    clock: Callable[[], float]
    _owed: dict[str, _Owed] = field(default_factory=dict)
    _away: dict[str, _Away] = field(default_factory=dict)

    def owe(self, duty: Duty) -> None:
        """Take a duty on."""
        now = self.clock()
        self._owed.setdefault(duty.key, _Owed(duty, now, now))

    def owed_to(self, workflow: str) -> int:
        """How much is still to be done for a workflow."""
        return sum(owed.duty.watched.workflow == workflow for owed in self._owed.values())

    def __len__(self) -> int:
        return len(self._owed)

    def work(self) -> None:
        """Do what can be done now."""
        started = self.clock()
        for key, owed in list(self._owed.items()):
            now = self.clock()
            if now - started > _SLICE_S:
                return
            away = self._away.setdefault(owed.duty.watched.config.broker, _Away())
            if now >= max(owed.due, away.until):
                self._do(key, owed, away)

    def _do(self, key: str, owed: _Owed, away: _Away) -> None:
        duty = owed.duty
        try:
            lines = duty.do(self.broker_of(duty.watched.config))
        except Later as later:
            owed.due = self.clock() + later.after_s
        except (BrokerError, InputError) as error:
            if isinstance(error, BrokerError) and error.code in _AWAY:
                self._is_away(away, duty, str(error))
            else:
                log.warning("%s: %s", key, error)
                owed.due = self.clock() + _REFUSED_S
            kept_s = _DROP_S if duty.watched.submit_dir.is_dir() else _GONE_S
            if self.clock() - owed.since > kept_s:
                log.warning("%s: given up after %g s", key, kept_s)
                del self._owed[key]
            return
        else:
            del self._owed[key]
            for line in lines:
                log.info("%s: %s", key, line.get("reason") or line.get("outcome") or line)
            self.note(duty.watched, lines)
        if away.reason:
            log.info("%s answers again", duty.watched.config.broker)
            away.reason = ""
        away.pause_s = _FIRST_PAUSE_S

    def _is_away(self, away: _Away, duty: Duty, reason: str) -> None:
        away.until = self.clock() + away.pause_s
        away.pause_s = min(2 * away.pause_s, _LAST_PAUSE_S)
        if not away.reason:
            log.warning("%s does not answer: %s", duty.watched.config.broker, reason)
        away.reason = reason


def worded(watched: Watched, event: str, at: float, **values: Any) -> Line:
    """A line of the journal, ``at`` in Unix seconds."""
    head: Mapping[str, Any] = {"at": at, "hook": "watch", "event": event}
    return {**head, "workflow": watched.workflow, **values}
