"""When to ask a cloud again that refused, or whose machines do not come up. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from condor_plugins.pool.cloud.protocol import CloudError, Refusal

_QUOTA_S, _REFUSED_S, _CREDENTIALS_S = 300.0, 3600.0, 600.0
_USE = "use"
_LEAST_S, _MOST_S = 30.0, 600.0  # of one that doubles each time


@dataclass(slots=True)
class BackOff:
    """Until which Unix second no machine of a flavour is asked for, or none at all."""

    until: dict[str, float] = field(default_factory=dict)
    all_until: float = 0.0
    _times: Counter[object] = field(default_factory=Counter)
    _failed_at: dict[str, float] = field(default_factory=dict)
    _quota: set[str] = field(default_factory=set)

    def refused(self, flavour: str, error: CloudError, now: float) -> None:
        """The cloud did not start one."""
        if error.why is Refusal.QUOTA:
            self._quota.add(flavour)
            self.until[flavour] = now + _QUOTA_S
        elif error.why is Refusal.REFUSED:
            self.until[flavour] = now + _REFUSED_S
        elif error.why is Refusal.CREDENTIALS:
            self.all_until = now + _CREDENTIALS_S
        else:
            self.all_until = now + max(error.retry_after_s, self._next(""))

    def broke(self, flavour: str, now: float) -> None:
        """One was started, and did not come up."""
        self._wait(flavour, flavour, now)

    def failed(self, flavour: str, now: float, *, once_is_chance: bool = False) -> None:
        """One came up, and was of no use: a second one may be wrong in the same way."""
        self._failed_at[flavour] = now
        if once_is_chance and not self._times[_USE, flavour]:
            self._times[_USE, flavour] = 1
        else:
            self._wait((_USE, flavour), flavour, now)

    def joined(self, flavour: str) -> None:
        """One is in the pool."""
        self._times.pop(flavour, None)
        self._times.pop("", None)

    def worked(self, flavour: str, up: float) -> None:
        """Jobs do well on one that is ``up`` since then: what failed before says no more of it."""
        if up > self._failed_at.get(flavour, 0.0):
            self._times.pop((_USE, flavour), None)

    def room(self) -> None:
        """Something was deleted: a quota may have room again."""
        for flavour in self._quota:
            self.until.pop(flavour, None)
        self._quota.clear()

    def of(self, flavours: Iterable[str]) -> dict[str, float]:
        """By flavour, as a decision needs it."""
        return {name: max(self.all_until, self.until.get(name, 0.0)) for name in flavours}

    def _wait(self, what: object, flavour: str, now: float) -> None:
        self.until[flavour] = max(self.until.get(flavour, 0.0), now + self._next(what))

    def _next(self, what: object) -> float:
        self._times[what] += 1
        return float(min(_MOST_S, _LEAST_S * 2 ** (self._times[what] - 1)))
