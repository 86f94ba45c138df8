"""What to change of what is reserved, when the prediction has changed. Pure.

What begins soon is kept close to the prediction; what lies far ahead moves only once it is off by
a good part of the time until then, so that a job which ends a second late does not move all that
comes after it. Jobs that have begun are left alone: their paths are the business of their hooks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from pegasus_hooks.advance.predict import Pair, Window

Key = tuple[str, Pair]


@dataclass(frozen=True, slots=True)
class Rules:
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
class Held:
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
class Ask:
    """Reserve this. Unix seconds."""

    job: str
    pair: Pair
    start: float
    end: float
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Shift:
    """Hold this one from ``start`` to ``end`` (Unix seconds) instead."""

    held: Held
    start: float
    end: float
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Back:
    """Give this one back."""

    held: Held
    why: str


@dataclass(frozen=True, slots=True)
class Corrections:
    """In the order in which they find room: first what frees it, what goes later before what comes
    sooner, and new ones at the end."""

    back: list[Back] = field(default_factory=list)
    later: list[Shift] = field(default_factory=list)
    sooner: list[Shift] = field(default_factory=list)
    ask: list[Ask] = field(default_factory=list)


def corrections(
    windows: Iterable[Window],
    held: Iterable[Held],
    begun: Collection[str],
    declined: Collection[Key],
    now: float,
    rules: Rules,
    min_bps: Mapping[Pair, float],
) -> Corrections:
    """What to change so that ``held`` fits ``windows``, at Unix second ``now``.

    ``begun`` are the jobs whose hooks have asked or are over; ``declined`` is what the broker would
    not reserve; ``min_bps`` what it keeps for a pair, as far as that is known.
    """
    found = Corrections()
    wanted = {(w.job, w.pair): w for w in windows if w.job not in begun}
    has = {h.key: h for h in held if h.job not in begun}
    for key, one in has.items():
        window = wanted.get(key)
        if window is None:
            found.back.append(Back(one, "its job will not run, or moves nothing"))
            continue
        moved = _moved(one, window, now, rules)
        if moved is not None:
            (found.later if moved.start > one.start else found.sooner).append(moved)
    for key, window in wanted.items():
        if key not in has and key not in declined and _is_worth_it(window, now, rules):
            start, end = _times(window, now, min_bps.get(window.pair, 0.0), rules)
            found.ask.append(Ask(*key, start, end, round(window.size_bytes)))
    found.later.sort(key=lambda shift: (-shift.start, shift.held.id))
    found.sooner.sort(key=lambda shift: (shift.start, shift.held.id))
    found.ask.sort(key=lambda ask: (ask.start, ask.job, ask.pair))
    return found


def _is_worth_it(window: Window, now: float, rules: Rules) -> bool:
    if window.start > now + rules.horizon_s:
        return False
    return window.end - window.start - window.setup_s >= rules.least_s


def _times(window: Window, now: float, min_bps: float, rules: Rules) -> tuple[float, float]:
    start = max(window.start, now)
    length = window.until(min_bps) - window.start
    return start, start + length * (1 + rules.margin) + rules.margin_s


def _moved(held: Held, window: Window, now: float, rules: Rules) -> Shift | None:
    """Where it should be instead, None where it is well enough."""
    start, end = _times(window, now, held.min_bps, rules)
    off = max(rules.close_s, rules.part * (start - now))
    # Shorter than needed is worse than longer: it is given back as soon as the transfer is over.
    if abs(start - held.start) <= off and -off <= held.end - end <= off + 0.5 * (end - start):
        return None
    return Shift(held, start, end, round(window.size_bytes))
