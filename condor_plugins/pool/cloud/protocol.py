"""What a cloud can do for a pool: machines of some flavours, asked for by names of ours.

A driver of a cloud (:class:`Cloud`) keeps nothing itself: the cloud is asked what there is, so that
nothing is lost when the caller is killed. A name is chosen before the request; asked for again
under the same name, a machine is not made twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from condor_plugins.pool.scaling import Flavour, MachineState
from network_provisioner.base.errors import AdonError

_QUOTA_S, _REFUSED_S, _CREDENTIALS_S = 300.0, 3600.0, 600.0
_USE = "use"
_LEAST_S, _MOST_S = 30.0, 600.0  # of one that doubles each time


@dataclass(frozen=True, slots=True)
class Server:
    """One machine of ours. ``state`` is as its cloud sees it, which knows nothing of DRAINING, and
    of a machine that runs not whether it has joined the pool. ``since``: when it was asked for, in
    Unix seconds of the cloud's clock; ``until`` is from when on it takes no more jobs, for it would
    lose the pool; ``error`` is the cloud's own words."""

    name: str
    flavour: str
    state: MachineState
    since: float
    address: str = ""
    error: str = ""
    until: float = math.inf


class Refusal(Enum):
    """Why a cloud did not do what was asked, as far as what to do next differs.

    QUOTA        nothing of this size until something is deleted
    BUSY         later: it is asked too often, is overloaded or does not answer; nothing is wrong
    CONFLICT     not in the state that the machine is in now
    CREDENTIALS  nothing at all until someone renews them
    REFUSED      never, as it was asked
    """

    QUOTA = "quota"
    BUSY = "busy"
    CONFLICT = "conflict"
    CREDENTIALS = "credentials"
    REFUSED = "refused"


class CloudError(AdonError):
    """A cloud did not do what was asked. ``retry_after_s``: not before, 0 if it does not say."""

    def __init__(self, message: str, why: Refusal, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.why = why
        self.retry_after_s = retry_after_s


class Cloud(Protocol):
    """Every method raises CloudError; what it raises says nothing about whether a request that was
    not answered has been carried out: :meth:`machines` does."""

    def check(self) -> None:
        """Raise InputError if something that the configuration names is not there, or the
        credentials do not work."""
        ...

    def flavours(self) -> Sequence[Flavour]:
        """Those of the configuration, as the cloud has them."""
        ...

    def machines(self) -> Sequence[Server]:
        """All that are ours, for any request."""
        ...

    def start(self, flavour: str, name: str) -> None:
        """Ask for a machine; returns as soon as that is accepted. Nothing happens where there is
        one of this name."""
        ...

    def delete(self, name: str) -> None:
        """Delete a machine; returns as soon as that is accepted. Nothing happens where there is
        none. To be repeated for as long as :meth:`machines` reports it: what was made for it may
        have to go after it."""
        ...


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
            wait_s = min(error.retry_after_s, _REFUSED_S)  # a slip of the cloud's is not for ever
            self.all_until = now + max(wait_s, self._next(""))

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
        wait_s = min(_MOST_S, _LEAST_S * 2.0 ** self._times[what])
        if wait_s < _MOST_S:  # a cloud may be away for weeks
            self._times[what] += 1
        return wait_s
