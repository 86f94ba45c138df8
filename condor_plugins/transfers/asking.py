"""Asking for one path before a transfer, within a budget, and waiting as its template says."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from network_provisioner.base.patience import Broker, Budget
from network_provisioner.errors import BrokerError
from network_provisioner.model import Service, Transit, TransitRequest, TransitState

_WAITING = frozenset({TransitState.QUEUED, TransitState.HELD})
_FIRST_POLL_S, _LAST_POLL_S = 0.25, 2.0
# The shadow gives a hook 120 s (ADON_HOOK_SHADOW_PREPARE_JOB_TIMEOUT), then starts the job over.
MOST_PATIENCE_S = 90.0
UNASKED = "unasked"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request. ``told``: the broker knows of it, and of the reason."""

    id: str
    state: str
    reason: str = ""
    told: bool = True


@dataclass(frozen=True, slots=True)
class Effects:
    """The world of a hook. ``gone`` tells whether whoever waits for it has ended meanwhile."""

    broker: Broker
    budget: Budget
    gone: Callable[[], bool] = lambda: False
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def ask(request: TransitRequest, patience_s: float | None, effects: Effects) -> Outcome:
    """Ask, and follow what is queued: at most ``patience_s``, None for as long as its template has
    patience. Nothing is raised for what a broker does or does not."""
    started = effects.monotonic()
    try:
        (answer,) = effects.budget.call(partial(effects.broker.ask, [request]))
        if answer.transit is None:
            why = str(answer.error) if answer.error else "no answer"
            return Outcome(request.id, UNASKED, f"best effort: {why}", told=False)
        until = started + _patience(patience_s, answer.service)
        return _followed(answer.transit, until, effects)
    except BrokerError as error:
        # An answer that never came may still have been a path: the watcher looks for this id.
        return Outcome(request.id, UNASKED, f"best effort: {error}", told=False)


def _patience(configured: float | None, service: Service) -> float:
    # HTCondor cannot be told to come again later, as DAGMan can: who would defer waits.
    if service.when_queued == "best_effort":
        return 0.0
    return min(service.patience_s if configured is None else configured, MOST_PATIENCE_S)


def _followed(transit: Transit, until: float, effects: Effects) -> Outcome:
    pause = _FIRST_POLL_S
    while transit.state in _WAITING and not effects.gone():
        left = until - effects.monotonic()
        if left <= 0:
            why = f"no path within the patience of its template ({transit.reason})"
            return _given_up(transit, why, effects)
        effects.sleep(min(pause, left))
        pause = min(2 * pause, _LAST_POLL_S)
        transit = effects.budget.call(partial(effects.broker.get, transit.id))
    if effects.gone():
        return _given_up(transit, "the shadow ended before its job's input was sent", effects)
    return Outcome(transit.id, str(transit.state), transit.reason)


def _given_up(transit: Transit, why: str, effects: Effects) -> Outcome:
    effects.budget.call(partial(effects.broker.release, transit.id, outcome="gave_up"))
    return Outcome(transit.id, str(TransitState.BEST_EFFORT), f"best effort: {why}")
