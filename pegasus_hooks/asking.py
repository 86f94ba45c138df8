"""What a hook says to the broker, and for how long it waits for a path.

    ask for all pairs at once ─► follow what is queued ─► lengthen leases ─► what became of each

All calls together cost no more than their budget, but for a broker that answers: then a queued
request is followed as long as its patience lasts. What goes without a path is on record at the
broker as best effort, with the reason, wherever the broker can be told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from network_provisioner.base.patience import Broker, Budget
from network_provisioner.errors import BrokerError
from network_provisioner.model import (
    ON_SWITCHES,
    Service,
    Transit,
    TransitRequest,
    TransitState,
)
from pegasus_hooks.decision import UNASKED, PairDecision, rounds

_WAITING = frozenset({TransitState.QUEUED, TransitState.HELD})
_FIRST_POLL_S, _LAST_POLL_S = 0.25, 2.0
# The broker's own patience ends at the same time as ours, and its reason says more.
_GRACE_S = 1.0
# Nobody renews while a transfer runs, so a lease lasts twice what the granted rate needs, plus
# pegasus-transfer's own start.
_LEASE_FACTOR, _LEASE_EXTRA_S = 2.0, 60.0


@dataclass(slots=True)
class Effects:
    """The world of a hook: the broker, two clocks and sleep."""

    broker: Broker
    budget: Budget
    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Wish:
    """One request, its number of files, and where its size is from."""

    request: TransitRequest
    files: int
    size_source: str = ""

    def without(self, reason: str) -> Wish:
        """The same, to be told that it goes without a path."""
        return replace(self, request=replace(self.request, best_effort=reason))

    def became(self, state: str, reason: str = "", told: bool = False) -> PairDecision:
        """A decision without a path."""
        r = self.request
        return PairDecision(
            r.id, r.src, r.dst, self.files, r.size_bytes, state,
            reason=reason, told=told, size_source=self.size_source,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Patience:
    """``limit_s`` is how long a request may wait, None for as its template says; ``waited_s`` how
    long it has, before it was deferred; ``may_defer`` whether DAGMan would ask again later."""

    limit_s: float | None = None
    waited_s: float = 0.0
    may_defer: bool = False


@dataclass(frozen=True, slots=True)
class Answers:
    """A decision for each wish, how the templates want them served, and whether DAGMan is to ask
    again later."""

    decisions: list[PairDecision]
    services: list[Service] = field(default_factory=list)
    deferred: bool = False


@dataclass(slots=True)
class _Asked:
    """A wish that the broker answered with a transit, as far as that is known."""

    wish: Wish
    transit: Transit
    service: Service
    until: float
    lost: str = ""

    @property
    def waiting(self) -> bool:
        return not self.lost and self.transit.state in _WAITING


def ask(wishes: Sequence[Wish], patience: Patience, effects: Effects) -> Answers:
    """Ask for everything at once and wait for it. The broker's failures become reasons."""
    started = effects.monotonic()
    try:
        answers = effects.budget.call(lambda: effects.broker.ask([wish.request for wish in wishes]))
    except BrokerError as error:
        return Answers([_lost(wish, f"best effort: {error}", effects) for wish in wishes])
    asked: dict[int, _Asked] = {}
    refused: dict[int, BrokerError] = {}
    for number, (wish, answer) in enumerate(zip(wishes, answers, strict=True)):
        if answer.transit is None:
            refused[number] = answer.error or BrokerError("no transit and no reason", "bad_answer")
            continue
        limit_s = patience.limit_s
        if limit_s is None:
            limit_s = answer.service.patience_s + _GRACE_S
        until = started + limit_s - patience.waited_s
        asked[number] = _Asked(wish, answer.transit, answer.service, until)
    deferred = patience.may_defer and any(
        one.waiting and one.service.when_queued == "defer" and one.until > started
        for one in asked.values()
    )
    if not deferred:
        _follow(list(asked.values()), effects)
    decisions = {n: _settled(one, started, effects) for n, one in asked.items()}
    decisions |= _without(wishes, refused, effects)
    services = [answer.service for answer in answers]
    return Answers([decisions[n] for n in range(len(wishes))], services, deferred)


def tell(wishes: Iterable[Wish], effects: Effects) -> list[PairDecision]:
    """Have it on record that these go without a path, for the reason in each, as far as that can
    be."""
    told = list(wishes)
    try:
        answers = effects.budget.call(lambda: effects.broker.ask([w.request for w in told]))
    except BrokerError as error:
        effects.warnings.append(f"not told to the broker: {error}")
        answers = []
    out = [wish.became(TransitState.BEST_EFFORT, wish.request.best_effort) for wish in told]
    for number, answer in enumerate(answers):
        known = answer.transit
        if known is not None:
            out[number] = replace(
                told[number].became(str(known.state), known.reason, told=True), id=known.id
            )
    return out


def give_back(
    left: Mapping[str, bool], effects: Effects, but: Collection[str] = ()
) -> dict[str, bool]:
    """Release what a former run of a hook left behind (as :func:`decision.to_give_back` has it),
    ``but`` for these, which it has now; returns what could not be released."""
    still = {}
    for transit_id, unanswered in sorted(left.items()):
        for one in rounds(transit_id) if unanswered else [transit_id]:
            if one in but:
                continue
            try:
                effects.budget.call(partial(effects.broker.release, one, outcome="abandoned"))
            except BrokerError as error:
                if error.code != "unknown_transit":
                    still[transit_id] = unanswered
                    effects.warnings.append(f"{one}: left to its lease: {error}")
                break
    return still


def _without(
    wishes: Sequence[Wish], refused: Mapping[int, BrokerError], effects: Effects
) -> dict[int, PairDecision]:
    """What the broker will not give: on record as best effort, where it takes even that."""
    if not refused:
        return {}
    reasons = {number: f"best effort: {error}" for number, error in refused.items()}
    for number, reason in reasons.items():
        request = wishes[number].request
        effects.warnings.append(f"{request.src} to {request.dst}: {reason}")
    told = tell((wishes[number].without(reason) for number, reason in reasons.items()), effects)
    return dict(zip(reasons, told, strict=True))


def _follow(asked: list[_Asked], effects: Effects) -> None:
    """Look after queued transits until they have a path or patience ends, then give them up."""
    pause = _FIRST_POLL_S
    while True:
        for one in asked:
            hasty = one.service.when_queued == "best_effort"
            if one.waiting and (hasty or one.until <= effects.monotonic()):
                _give_up(one, effects)
        waiting = [one for one in asked if one.waiting]
        if not waiting:
            return
        effects.sleep(min(pause, *(max(0.0, one.until - effects.monotonic()) for one in waiting)))
        pause = min(2 * pause, _LAST_POLL_S)
        for one in waiting:
            left_s = effects.budget.left_s
            try:
                one.transit = effects.budget.call(partial(effects.broker.get, one.transit.id))
            except BrokerError as error:
                one.lost = f"best effort: {error}"
            else:
                effects.budget.left_s = left_s  # it answered: that is waiting, and no trouble


def _give_up(one: _Asked, effects: Effects) -> None:
    why = "no path within the hook's patience"
    if one.service.when_queued == "best_effort":
        why = "no path at once, and its template does not wait"
    try:
        effects.budget.call(partial(effects.broker.release, one.transit.id, outcome="gave_up"))
    except BrokerError as error:
        one.lost = f"best effort: {why}; {error}"
        return
    reason = f"best effort: {why} ({one.transit.reason})"
    r = one.wish.request
    effects.warnings.append(f"{r.src} to {r.dst}: {reason}")
    one.transit = replace(
        one.transit, state=TransitState.BEST_EFFORT, reason=reason, granted_bps=0.0
    )


def _lost(wish: Wish, reason: str, effects: Effects) -> PairDecision:
    """An answer that never came may still have been a path: whoever comes next gives it back."""
    reason = f"{wish.request.src} to {wish.request.dst}: {reason}"
    effects.warnings.append(reason)
    return wish.became(UNASKED, reason)


def _settled(one: _Asked, started: float, effects: Effects) -> PairDecision:
    waited_s = effects.monotonic() - started
    if one.lost:
        lost = _lost(one.wish, one.lost, effects)
        return replace(lost, id=one.transit.id, waited_s=waited_s)
    transit = _lengthen(one.transit, effects)
    return replace(one.wish.became(UNASKED).answered(transit), waited_s=waited_s)


def lease_of(transit: Transit) -> float:
    """The seconds that a lease must last to outlast the transfer at the granted rate, 0 where there
    is none or its size is not known."""
    if transit.state not in ON_SWITCHES or not transit.size_bytes or transit.granted_bps <= 0:
        return 0.0
    return _LEASE_FACTOR * 8 * transit.size_bytes / transit.granted_bps + _LEASE_EXTRA_S


def _lengthen(transit: Transit, effects: Effects) -> Transit:
    need_s = lease_of(transit)
    if transit.lease_until - effects.now() >= need_s or not need_s:
        return transit
    try:
        return effects.budget.call(partial(effects.broker.renew, transit.id, need_s))
    except BrokerError as error:
        effects.warnings.append(f"{transit.id}: the lease was not lengthened: {error}")
        return transit
