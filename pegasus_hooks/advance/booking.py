"""What is reserved in advance for one workflow, and what to change when the prediction has changed.

What begins soon is kept close to the prediction; what lies far ahead moves only once it is off by
a good part of the time until then, so that a job which ends a second late does not move all that
comes after it. Jobs that have begun are left alone: their paths are the business of their hooks.

A reservation has the id that the job's PRE will ask for, and the same terms but for its times: so
PRE begins it by asking (``network_provisioner/broker.py``). One that PRE has begun has no times
any more, and is not ours to move.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import (
    LIVE,
    Transit,
    TransitRequest,
    TransitState,
)
from network_provisioner.client.broker import BrokerClient
from pegasus_hooks.advance.predict import Pair, Window

Key = tuple[str, Pair]
log = logging.getLogger(__name__)
MOST_AT_ONCE = 256  # requests in one question
STUCK_S = 10.0  # until it is tried again to move what could not be moved
MOST_ROUNDS = 5  # that one transfer is reserved for anew, each time under another id
_WAITS = LIVE | {TransitState.QUEUED}
# Nothing about the request is wrong: it may be asked again.
_PASSING = frozenset({"controller_unavailable", "store_unavailable", "busy", "timeout"})
# It cannot be moved so, but what is held stays held.
_REFUSALS = frozenset({"conflict", "bad_time", "controller_unavailable", "store_unavailable"})
RequestsOf = Callable[[str], Mapping[Pair, TransitRequest]]
"""What the PRE of a job will ask for, by pair of sites. Raises InputError, OSError."""


@dataclass(frozen=True, slots=True)
class CorrectionRules:
    """How closely what is held follows the prediction. Seconds, but for parts.

    ``horizon_s``   nothing that begins later is reserved: should everything die that could give it
                    back, it is held no longer than so
    ``least_s``     a transfer that is over sooner is not worth a reservation
    ``close_s``, ``part``  what is held may be off by so much, and so much of the time until then
    ``margin_s``, ``margin``  it is held for longer than the transfer should take, by so much and
                    by so much of its time
    """

    horizon_s: float = 3600.0
    least_s: float = 2.0
    close_s: float = 2.0
    part: float = 0.1
    margin_s: float = 5.0
    margin: float = 0.1


@dataclass(frozen=True, slots=True)
class AdvanceReservation:
    """What is reserved, or ``waits`` for room, for one job and pair. Unix seconds; ``min_bps`` is
    what the broker keeps for it."""

    id: str
    job: str
    pair: Pair
    start: float
    end: float
    min_bps: float
    waits: bool = False

    @property
    def key(self) -> Key:
        """Whose it is."""
        return self.job, self.pair


@dataclass(frozen=True, slots=True)
class NewReservation:
    """Reserve this. Unix seconds."""

    job: str
    pair: Pair
    start: float
    end: float
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Shift:
    """Hold this one from ``start`` to ``end`` (Unix seconds) instead."""

    held: AdvanceReservation
    start: float
    end: float
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Corrections:
    """In the order in which they find room: first what frees it, what goes later before what comes
    sooner, and new ones at the end."""

    back: list[AdvanceReservation] = field(default_factory=list)
    later: list[Shift] = field(default_factory=list)
    sooner: list[Shift] = field(default_factory=list)
    ask: list[NewReservation] = field(default_factory=list)


def corrections(
    windows: Iterable[Window],
    held: Iterable[AdvanceReservation],
    begun: Collection[str],
    declined: Collection[Key],
    now: float,
    rules: CorrectionRules,
    min_bps: Mapping[Pair, float],
) -> Corrections:
    """What to change so that ``held`` fits ``windows``, at Unix second ``now``.

    ``begun`` are the jobs whose hooks have asked or are over; ``declined`` is what the broker would
    not reserve; ``min_bps`` what it keeps for a pair, as far as that is known.
    """
    changes = Corrections()
    wanted = {(w.job, w.pair): w for w in windows if w.job not in begun}
    has = {h.key: h for h in held if h.job not in begun}
    for key, reservation in has.items():
        window = wanted.get(key)
        if window is None:
            changes.back.append(reservation)  # its job will not run, or moves nothing
            continue
        moved_window = _moved(reservation, window, now, rules)
        if moved_window is not None:
            (changes.later if moved_window.start > reservation.start else changes.sooner).append(
                moved_window
            )
    for key, window in wanted.items():
        if key not in has and key not in declined and _is_worth_it(window, now, rules):
            start, end = _times(window, now, min_bps.get(window.pair, 0.0), rules)
            changes.ask.append(NewReservation(*key, start, end, round(window.size_bytes)))
    changes.later.sort(key=lambda shift: (-shift.start, shift.held.id))
    changes.sooner.sort(key=lambda shift: (shift.start, shift.held.id))
    changes.ask.sort(key=lambda ask: (ask.start, ask.job, ask.pair))
    return changes


def _is_worth_it(window: Window, now: float, rules: CorrectionRules) -> bool:
    if window.start > now + rules.horizon_s:
        return False
    return window.end - window.start - window.setup_s >= rules.least_s


def _times(
    window: Window, now: float, min_bps: float, rules: CorrectionRules
) -> tuple[float, float]:
    start = max(window.start, now)
    length = window.until(min_bps) - window.start
    return start, start + length * (1 + rules.margin) + rules.margin_s


def _moved(
    held: AdvanceReservation, window: Window, now: float, rules: CorrectionRules
) -> Shift | None:
    """Where it should be instead, None if it is well enough."""
    start, end = _times(window, now, held.min_bps, rules)
    off = max(rules.close_s, rules.part * (start - now))
    # Shorter than needed is worse than longer: it is released as soon as the transfer is over.
    if abs(start - held.start) <= off and -off <= held.end - end <= off + 0.5 * (end - start):
        return None
    return Shift(held, start, end, round(window.size_bytes))


def reserved_in_advance(transit: Transit) -> AdvanceReservation | None:
    """What a transit holds, or waits for, in advance of its job; None for any other."""
    request = transit.request
    own = f"{request.workflow}:{request.job}:0:{request.src}-{request.dst}"
    if transit.state not in _WAITS or not request.end or not transit.id.startswith(own):
        return None
    start, pair = request.start or request.requested_at, (request.src, request.dst)
    waits = transit.state is TransitState.QUEUED
    return AdvanceReservation(
        transit.id, request.job, pair, start, request.end, request.min_bps, waits
    )


@dataclass(slots=True)
class CorrectionCounts:
    """How many were asked for, moved, released, and could not be moved."""

    requested: int = 0
    moved: int = 0
    released: int = 0
    stuck: int = 0

    def __bool__(self) -> bool:
        return bool(self.requested or self.moved or self.released)


@dataclass(slots=True)
class WorkflowReservations:
    """What is held for one workflow. Not thread-safe.

    ``declined`` is what the broker will not reserve, with its reason; ``min_bps`` what it keeps for
    a pair of sites.
    """

    workflow: str
    broker: BrokerClient
    requests_of: RequestsOf
    held: dict[Key, AdvanceReservation] = field(default_factory=dict)
    declined: dict[Key, str] = field(default_factory=dict)
    min_bps: dict[Pair, float] = field(default_factory=dict)
    _stuck: dict[Key, float] = field(default_factory=dict)  # until when
    _rounds: dict[Key, int] = field(default_factory=dict)

    def observe(self) -> None:
        """Learn from the broker what is held. Raises BrokerError."""
        transits = map(reserved_in_advance, self.broker.list(workflow=self.workflow))
        self.held = {held.key: held for held in transits if held is not None}
        self.min_bps.update({held.pair: held.min_bps for held in self.held.values()})

    def fit(
        self,
        windows: Iterable[Window],
        begun: Collection[str],
        now: float,
        rules: CorrectionRules,
        go_on: Callable[[], bool] = lambda: True,
    ) -> CorrectionCounts:
        """Have what is held be as ``windows`` need it; see :func:`corrections` and
        :meth:`carry_out`."""
        held, declined = self.held.values(), self.declined
        changes = corrections(windows, held, begun, declined, now, rules, self.min_bps)
        return self.carry_out(changes, now, go_on)

    def leave(self, job: str) -> None:
        """A job has begun: what is held for it is its hooks' business, until :meth:`observe` finds
        that they have not taken it."""
        self.held = {key: held for key, held in self.held.items() if held.job != job}

    def carry_out(
        self, changes: Corrections, now: float, go_on: Callable[[], bool] = lambda: True
    ) -> CorrectionCounts:
        """Make the changes at Unix second ``now``, as many as there is time for. Raises BrokerError
        where the broker does not answer: what was done until then is known here."""
        done = CorrectionCounts()
        for back in changes.back:
            if go_on():
                self._back(back, done)
        for shift in (*changes.later, *changes.sooner):
            if self._stuck.get(shift.held.key, now) <= now and go_on():
                self._shift(shift, now, done)
        for first in range(0, len(changes.ask), MOST_AT_ONCE):
            if go_on():
                self._ask(changes.ask[first : first + MOST_AT_ONCE], done)
        return done

    # -- within ----------------------------------------------------------------------------------

    def _back(self, held: AdvanceReservation, done: CorrectionCounts) -> None:
        # By now its job may have begun it.
        if reserved_in_advance(self.broker.get(held.id)) is not None:
            self.broker.release(held.id, outcome="not needed")
            done.released += 1
        self.held.pop(held.key, None)

    def _shift(self, shift: Shift, now: float, done: CorrectionCounts) -> None:
        held = shift.held
        try:
            shifted = self.broker.shift(held.id, shift.start, shift.end, shift.size_bytes)
        except BrokerError as error:
            if error.code not in _REFUSALS:
                raise
            log.info("%s is unchanged: %s", held.id, error)
            done.stuck += 1
            self._note(self.broker.get(held.id), held.key)
            if held.key in self.held and shift.start > held.start and held.start <= now:
                # Its time passes unused. What is needed later is asked for anew, and may wait.
                self._back(held, done)
            else:
                self._stuck[held.key] = now + STUCK_S
            return
        self._note(shifted, held.key)
        done.moved += 1

    def _ask(self, asks: Sequence[NewReservation], done: CorrectionCounts) -> None:
        requests, keys = [], []
        for ask in asks:
            key = ask.job, ask.pair
            request = self.requests_of(ask.job).get(ask.pair)
            if request is None:
                self.declined[key] = "its job does not ask for a path"
                continue
            requests.append(
                replace(request, start=ask.start, end=ask.end, size_bytes=ask.size_bytes)
            )
            keys.append(key)
        answers = self.broker.ask(requests) if requests else []
        for key, answer in zip(keys, answers, strict=True):
            self._rounds[key] = self._rounds.get(key, 0) + 1
            if answer.transit is not None:
                self._note(answer.transit, key)
            if key in self.held:
                done.requested += 1
            elif answer.transit is not None:  # begun, or better off without
                self.declined[key] = answer.transit.reason
            elif answer.error is not None and answer.error.code not in _PASSING:
                self.declined[key] = str(answer.error)
            if self._rounds[key] >= MOST_ROUNDS:
                self.declined.setdefault(key, f"reserved {MOST_ROUNDS} times in vain")

    def _note(self, transit: Transit, key: Key) -> None:
        held = reserved_in_advance(transit)
        if held is None:
            self.held.pop(key, None)
            return
        self.held[key] = held
        self.min_bps[held.pair] = held.min_bps
