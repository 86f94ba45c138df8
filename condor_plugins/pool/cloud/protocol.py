"""What a cloud can do for a pool: machines of some flavours, asked for by names of ours.

A driver of a cloud (:class:`Cloud`) keeps nothing itself: the cloud is asked what there is, so that
nothing is lost when whoever asks is killed. A name is chosen before the request; asked for again
under the same name, a machine is not made twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from condor_plugins.pool.scaling import Flavour, MachineState
from network_provisioner.base.errors import AdonError


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
    """A cloud did not do what was asked. ``retry_after_s``: not before, 0 where it does not say."""

    def __init__(self, message: str, why: Refusal, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.why = why
        self.retry_after_s = retry_after_s


class Cloud(Protocol):
    """Every method raises CloudError; what it raises says nothing about whether a request that was
    not answered has been carried out: :meth:`machines` does."""

    def check(self) -> None:
        """Raise InputError where something that the configuration names is not there, or the
        credentials do not work."""
        ...

    def flavours(self) -> Sequence[Flavour]:
        """Those of the configuration, as the cloud has them."""
        ...

    def machines(self) -> Sequence[Server]:
        """All that are ours, whoever asked for them and when."""
        ...

    def start(self, flavour: str, name: str) -> None:
        """Ask for a machine; returns as soon as that is accepted. Nothing happens where there is
        one of this name."""
        ...

    def delete(self, name: str) -> None:
        """Delete a machine; returns as soon as that is accepted. Nothing happens where there is
        none. To be repeated for as long as :meth:`machines` tells of it: what was made for it may
        have to go after it."""
        ...
