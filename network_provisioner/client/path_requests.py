"""Requests for paths by what runs beside a transfer: hooks of DAGMan and HTCondor, provisioning.

    request all at once ─► follow what is queued ─► lengthen leases ─► an answer to each

All calls together cost no more than their budget, but for a broker that answers: then a queued
request is followed as long as its patience lasts. What goes without a path is on record at the
broker as best effort, with the reason, wherever the broker can be told. Standard library only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import (
    ENDED,
    ON_SWITCHES,
    Service,
    Transit,
    TransitRequest,
    TransitState,
)
from network_provisioner.client.patience import Budget
from network_provisioner.client.request_ids import MOST, numbered

if TYPE_CHECKING:
    from network_provisioner.client.broker import BrokerClient

UNASKED = "unasked"
"""State of a request whose broker never answered, and may have given all the same."""

_WAITING = frozenset({TransitState.QUEUED, TransitState.HELD})
_FIRST_POLL_S, _LAST_POLL_S = 0.25, 2.0
# The broker's own patience ends at the same time as ours, and its reason says more.
_GRACE_S = 1.0
# Nobody may renew while a transfer runs, so a lease lasts twice what the granted rate needs, plus
# the transfer tool's own start.
_LEASE_FACTOR, _LEASE_EXTRA_S = 2.0, 60.0


@dataclass(slots=True)
class Effects:
    """The world of a hook: the broker, two clocks and sleep. ``cancelled`` says why whoever waits
    for the path needs it no more, empty while it does."""

    broker: BrokerClient
    budget: Budget
    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    warnings: list[str] = field(default_factory=list)
    cancelled: Callable[[], str] = lambda: ""


@dataclass(frozen=True, slots=True)
class Patience:
    """``limit_s`` is how long a request may wait, None for as its template says, ``most_s`` at any
    rate; ``waited_s`` how long it has, before it was deferred; ``may_defer`` whether whoever
    requests would do so again later, asked only where it matters."""

    limit_s: float | None = None
    waited_s: float = 0.0
    may_defer: Callable[[], bool] = lambda: False
    most_s: float = float("inf")


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """What became of a request. ``id`` is the transit's, which may have a number behind the
    request's; ``state`` the transit's or :data:`UNASKED`; ``told`` whether the broker knows."""

    id: str
    state: str
    reason: str = ""
    told: bool = False
    transit: Transit | None = None
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RequestOutcomes:
    """One for each request, how the templates want them served, and whether to ask again later."""

    answers: list[RequestOutcome]
    services: list[Service] = field(default_factory=list)
    deferred: bool = False


@dataclass(slots=True)
class _Pending:
    """A request that has a transit, as far as that is known."""

    request: TransitRequest
    transit: Transit
    service: Service
    until: float
    lost: str = ""

    @property
    def waiting(self) -> bool:
        return not self.lost and self.transit.state in _WAITING


def ask(
    requests: Sequence[TransitRequest], patience: Patience, effects: Effects
) -> RequestOutcomes:
    """Ask for everything at once and wait for it. The broker's failures become reasons."""
    started = effects.monotonic()
    try:
        answers = effects.budget.call(partial(effects.broker.ask, requests))
    except BrokerError as error:
        return RequestOutcomes(
            [_lost(request, f"best effort: {error}", effects) for request in requests]
        )
    pending: dict[int, _Pending] = {}
    refused: dict[int, BrokerError] = {}
    for number, (request, answer) in enumerate(zip(requests, answers, strict=True)):
        if answer.transit is None:
            refused[number] = answer.error or BrokerError("no transit and no reason", "bad_answer")
            continue
        limit_s = patience.limit_s
        if limit_s is None:
            limit_s = answer.service.patience_s + _GRACE_S
        until = started + min(limit_s, patience.most_s) - patience.waited_s
        pending[number] = _Pending(request, answer.transit, answer.service, until)
    deferred = (
        any(
            item.waiting and item.service.when_queued == "defer" and item.until > started
            for item in pending.values()
        )
        and patience.may_defer()
    )
    if not deferred:
        _follow(list(pending.values()), effects)
    outcomes = {n: _settled(item, started, effects) for n, item in pending.items()}
    outcomes |= _without(requests, refused, effects)
    return RequestOutcomes(
        [outcomes[n] for n in range(len(requests))], [o.service for o in answers], deferred
    )


def tell(requests: Iterable[TransitRequest], effects: Effects) -> list[RequestOutcome]:
    """Have it on record that these go without a path, for the reason in each, as far as that can
    be."""
    recorded = list(requests)
    try:
        answers = effects.budget.call(partial(effects.broker.ask, recorded))
    except BrokerError as error:
        effects.warnings.append(f"not reported to the broker: {error}")
        answers = []
    out = [RequestOutcome(r.id, str(TransitState.BEST_EFFORT), r.best_effort) for r in recorded]
    for number, answer in enumerate(answers):
        if answer.transit is not None:
            out[number] = _known(answer.transit)
    return out


def give_back(
    left: Mapping[str, bool],
    effects: Effects,
    but: Collection[str] = (),
    outcome: str = "abandoned",
) -> dict[str, bool]:
    """Release what a former run got: ids, and of each whether it was never answered for; ``but``
    for these, which it has now. Returns what could not be released."""
    still = {}
    for transit_id, unanswered in sorted(left.items()):
        for possible_id in ids_of(transit_id) if unanswered else [transit_id]:
            if possible_id in but:
                continue
            try:
                effects.budget.call(partial(effects.broker.release, possible_id, outcome=outcome))
            except BrokerError as error:
                if error.code != "unknown_transit":
                    still[transit_id] = unanswered
                    effects.warnings.append(f"{possible_id}: ends with its lease: {error}")
                break
    return still


def ids_of(requested: str) -> Iterator[str]:
    """The ids under which the broker gives what is asked for as ``requested``: that one, or where
    it has ended the first of those after it."""
    for number in range(1, MOST + 1):
        yield numbered(requested, number)


def may_be(transit_id: str, requested: str) -> bool:
    """Whether the broker may have given ``transit_id`` to who asked for ``requested``."""
    return transit_id == requested or transit_id.startswith(f"{requested}.")


def lease_of(transit: Transit) -> float:
    """The seconds that a lease must last to outlast the transfer at the granted rate, 0 where there
    is none or its size is not known."""
    size_bytes, rate_bps = transit.request.size_bytes, transit.grant.granted_bps
    if transit.state not in ON_SWITCHES or not size_bytes or rate_bps <= 0:
        return 0.0
    return _LEASE_FACTOR * 8 * size_bytes / rate_bps + _LEASE_EXTRA_S


def _without(
    requests: Sequence[TransitRequest], refused: Mapping[int, BrokerError], effects: Effects
) -> dict[int, RequestOutcome]:
    """What the broker will not give: on record as best effort, where it takes even that."""
    if not refused:
        return {}
    unserved = []
    for number, error in refused.items():
        request = replace(requests[number], best_effort=f"best effort: {error}")
        effects.warnings.append(f"{request.src} to {request.dst}: {request.best_effort}")
        unserved.append(request)
    return dict(zip(refused, tell(unserved, effects), strict=True))


def _follow(pending: list[_Pending], effects: Effects) -> None:
    """Look after queued transits until they have a path or patience ends, then give them up."""
    pause = _FIRST_POLL_S
    while True:
        why = effects.cancelled()
        for item in pending:
            if why and not item.lost and item.transit.state not in ENDED:
                _give_up(item, why, effects)
            elif item.waiting and item.service.when_queued == "best_effort":
                _give_up(item, "no path at once, and its template does not wait", effects)
            elif item.waiting and item.until <= effects.monotonic():
                _give_up(item, "no path within the hook's patience", effects)
        waiting = [item for item in pending if item.waiting]
        if not waiting:
            return
        effects.sleep(min(pause, *(max(0.0, item.until - effects.monotonic()) for item in waiting)))
        pause = min(2 * pause, _LAST_POLL_S)
        for item in waiting:
            left_s = effects.budget.left_s
            try:
                item.transit = effects.budget.call(partial(effects.broker.get, item.transit.id))
            except BrokerError as error:
                item.lost = f"best effort: {error}"
            else:
                effects.budget.left_s = left_s  # it answered: that is waiting, and no trouble


def _give_up(item: _Pending, why: str, effects: Effects) -> None:
    try:
        effects.budget.call(partial(effects.broker.release, item.transit.id, outcome="gave_up"))
    except BrokerError as error:
        item.lost = f"best effort: {why}; {error}"
        return
    reason = f"best effort: {why}"
    if item.transit.reason:
        reason += f" ({item.transit.reason})"
    effects.warnings.append(f"{item.request.src} to {item.request.dst}: {reason}")
    item.transit.state, item.transit.reason = TransitState.BEST_EFFORT, reason
    item.transit.grant.granted_bps = 0.0


def _lost(request: TransitRequest, reason: str, effects: Effects) -> RequestOutcome:
    """An answer that never came may still have been a path: whoever comes next gives it back."""
    effects.warnings.append(f"{request.src} to {request.dst}: {reason}")
    return RequestOutcome(request.id, UNASKED, reason)


def _settled(item: _Pending, started: float, effects: Effects) -> RequestOutcome:
    waited_s = effects.monotonic() - started
    if item.lost:
        lost = _lost(item.request, item.lost, effects)
        return replace(lost, id=item.transit.id, waited_s=waited_s)
    return replace(_known(_lengthen(item.transit, effects)), waited_s=waited_s)


def _known(transit: Transit) -> RequestOutcome:
    return RequestOutcome(transit.id, str(transit.state), transit.reason, True, transit)


def _lengthen(transit: Transit, effects: Effects) -> Transit:
    need_s = lease_of(transit)
    if transit.grant.lease_until - effects.now() >= need_s or not need_s:
        return transit
    try:
        return effects.budget.call(partial(effects.broker.renew, transit.id, need_s))
    except BrokerError as error:
        effects.warnings.append(f"{transit.id}: the lease was not extended: {error}")
        return transit
