"""Policies: which transfers share which queue, how, and when. Pure.

A policy is what Listing 1 of the application-aware SDN paper writes down::

    {"name": "cms-first", "type": "project", "strategy": "10-3", "action": "start",
     "specs": ["cms", "ligo"], "time": ["2026-11-21T14:00:00Z", null]}

Transfers of the project ``cms`` share the first queue, those of ``ligo`` the second, on every link
that the policy governs. ``"*"`` stands for everybody else. Three keys are ours and may be left out:
``links``, ``parts`` and ``guarantees``.

How it is read and checked, and what its action does, is in
:mod:`~network_provisioner.policies.schema`.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from network_provisioner.base.controller import Queue
from network_provisioner.base.model import Transit
from network_provisioner.policies.strategies import Amount
from network_provisioner.topology.graph import Hop

TYPES = ("user", "project", "experiment")
"""What a policy may tell transfers apart by, the most specific first."""
EVERYBODY_ELSE = "*"
PARTS = (7.0, 3.0)
"""What is meant for each queue where nothing else is said: as in the paper's two strategies."""


class PolicyState(StrEnum):
    """Where a policy stands. All but RUNNING leave no trace on the network."""

    SCHEDULED = "scheduled"
    RUNNING = "running"
    EXPIRED = "expired"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy that was checked. Times are Unix seconds.

    ``id``          made of the name, so that the same name is the same policy (Algorithm 1)
    ``type``        what transfers are told apart by: user, project or experiment
    ``specs``       whose transfers share the first queue, and whose the second
    ``start``, ``end``  when it is enforced; ``end`` is infinite where it has none
    ``links``       the links it governs, both ways; empty: all between switches and routers
    ``parts``       what is meant for each queue, relative to the other; `computed` alone reads it
    ``guarantees``  what `computed` keeps for each queue; None: half of its part
    ``stopped_at``  when a stop ended it, 0 where none did
    """

    id: str
    name: str
    type: str
    strategy: str
    specs: tuple[str, str]
    start: float
    end: float = math.inf
    links: tuple[tuple[str, str], ...] = field(default=(), hash=False)  # may be very many
    parts: tuple[float, float] = PARTS
    guarantees: tuple[Amount, Amount] | None = None
    created_at: float = 0.0
    changed_at: float = 0.0
    stopped_at: float = 0.0

    def state(self, now: float) -> PolicyState:
        """Where it stands at Unix second ``now``."""
        if self.stopped_at:
            return PolicyState.STOPPED
        if now >= self.end:
            return PolicyState.EXPIRED
        return PolicyState.RUNNING if now >= self.start else PolicyState.SCHEDULED

    @property
    def queues(self) -> tuple[str, str]:
        """The names of its two queues."""
        return f"{self.id}/1", f"{self.id}/2"

    @property
    def precedence(self) -> tuple[int, float, str]:
        """Of the policies that could govern a link, the one with the greatest does: the most
        specific type, then the latest start, then the name."""
        return -TYPES.index(self.type), self.start, self.name

    def queue_of(self, transit: Transit) -> str:
        """The queue that a transfer shares under this policy, "" where it names no such one."""
        value = getattr(transit.request, self.type)
        spec = value if value in self.specs else EVERYBODY_ELSE
        return self.queues[self.specs.index(spec)] if spec in self.specs else ""

    def guaranteed(self) -> tuple[Amount, Amount]:
        """What `computed` keeps for each queue."""
        if self.guarantees is not None:
            return self.guarantees
        total = sum(self.parts)
        return Amount(self.parts[0] / total / 2), Amount(self.parts[1] / total / 2)

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready copy; :func:`policy_from_record` is the inverse."""
        out = asdict(self)
        out["end"] = None if math.isinf(self.end) else self.end
        return out


def policy_from_record(body: Mapping[str, Any]) -> Policy:
    """A policy as :meth:`Policy.as_dict` wrote it. Raises KeyError, TypeError, ValueError."""
    guarantees = body["guarantees"]
    first, second = body["specs"]
    known = {key: body[key] for key in Policy.__dataclass_fields__ if key in body}
    return Policy(
        **known
        | {
            "specs": (str(first), str(second)),
            "end": math.inf if body["end"] is None else float(body["end"]),
            "links": tuple((a, b) for a, b in body["links"]),
            "parts": (float(body["parts"][0]), float(body["parts"][1])),
            "guarantees": guarantees and (Amount(**guarantees[0]), Amount(**guarantees[1])),
        }
    )


def policy_id(name: str) -> str:
    """The id of the policy of this name: readable, safe in a URL, the same for the same name."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
    return f"{slug or 'policy'}-{digest[:8]}"


# -- what the broker asks of policies ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClassLimit:
    """What the class of a request may reserve at most on a directed link, in bits per second, and
    for others ``of`` it, by id. ``explanation`` names the policy."""

    bps: int
    of: Callable[[str], bool]
    explanation: str


LimitOf = Callable[[Hop], ClassLimit | None]
"""The limit on each directed link, None where no policy sets one."""


def no_limit(_: Hop) -> None:
    """Where there are no policies."""


class Differentiator(Protocol):
    """Tells transfers apart by whose they are. Times are Unix seconds."""

    def queue_of(self, transit: Transit, now: float) -> str:
        """The queue a transit shares where its path meets one, "" for none."""
        ...

    def queues(self, live: Sequence[Transit], now: float) -> Sequence[Queue]:
        """The queues that the links shall have now."""
        ...

    def bound(
        self,
        transit: Transit,
        hop: Hop,
        capacity_bps: float,
        at: float,
        known: Mapping[str, Transit],
    ) -> ClassLimit | None:
        """How much of what can be reserved on a link direction those of a transit's class may
        reserve together from ``at`` on, None for all of it."""
        ...

    def next_change(self, now: float) -> float | None:
        """When to ask again though no transit changes: not after ``now`` where policies have
        changed since :meth:`queues` was asked; None where nothing is to come."""
        ...

    def ended(self, transit: Transit) -> None:
        """A transit has ended, or the report of one that had ended has come. Called once for each
        of the two; whatever it raises is logged and goes no further."""
        ...
