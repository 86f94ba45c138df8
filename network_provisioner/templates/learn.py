"""What transfers teach a template: which succeed, the best of them, and a template made of one; and
what they reach at each level of bandwidth, for its table of scores (thesis, Table 2)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from statistics import median
from typing import Any

from network_provisioner.base.model import Transit, TransitState
from network_provisioner.stores.store import Document
from network_provisioner.templates.data import plain
from network_provisioner.templates.template import (
    MAX_SCORE,
    MIN_SCORE,
    MOST_STREAMS,
    Table,
    Template,
    Tuning,
)

LEAST_BYTES = 256 * 1024  # below, a rate says more of round trips than of the path
HALF_LIFE_S = 30 * 86_400.0  # after which half as fast is as good: networks and tools change
_PER_LEVEL, _MOST_LEVELS = 15, 16  # transfers, and powers of two
_ENOUGH = 3  # transfers, from which on a level counts
_MOST_BUFFER = 1 << 34  # of one stream: more than fills 1 Tb/s over 100 ms
Levels = Mapping[str, Sequence[Sequence[float]]]
"""What the latest transfers were granted and their goodput (b/s), by the power of two that is next
to what was granted."""


def failure(transit: Transit) -> str:
    """Why a transit teaches nothing, in words; "" for one that succeeded and was measured."""
    if transit.state is not TransitState.RELEASED:
        return f"is {transit.state}"
    if not transit.grant.path or not transit.grant.installed_at:
        return "had no path of its own"
    if transit.usage.outcome not in ("", "success"):
        return f"ended with {transit.usage.outcome!r}"
    if transit.usage.doubt:
        return transit.usage.doubt
    if not 0 < transit.usage.goodput_bps < math.inf:
        return "reported no bytes and seconds"
    return ""


def made_of(name: str, base: Template, transit: Transit) -> Template:
    """The template under which a transit succeeded, with the rates and the rank it had, and for
    its application alone."""
    low = transit.request.min_bps
    high = None if transit.request.uncapped else max(transit.request.max_bps, low)
    return replace(
        base,
        name=name,
        qspec=replace(base.qspec, min_bps=low),
        rspec=replace(base.rspec, max_bps=high),
        priority=transit.request.priority,
        applications=(transit.request.application,) if transit.request.application else (),
    )


def used_tuning(transit: Transit, otherwise: Tuning) -> Tuning:
    """What a transfer was tuned with by its report; ``otherwise`` where it does not say, or says
    what no transfer can have used, or was carried by relays, which have streams of their own."""
    if transit.relayed:
        return otherwise

    def said(value: int, most: int, other: int) -> int:
        return value if 0 < value <= most else other

    return Tuning(
        said(transit.usage.streams, MOST_STREAMS, otherwise.streams),
        said(transit.usage.buffer_bytes, _MOST_BUFFER, otherwise.buffer_bytes),
        said(transit.usage.threads, MOST_STREAMS, otherwise.threads),
    )


def tuning_of(taught: Mapping[str, Any]) -> Tuning:
    """The tuning in a lesson, also in one of a time when it said less."""
    names = {"streams": "streams", "buffer": "buffer_bytes", "threads": "threads"}
    return Tuning(**{names[key]: int(taught[key]) for key in names if key in taught})


def lesson(transit: Transit, tuning: Tuning) -> dict[str, Any]:
    """The body of a document that keeps a transfer as the best so far."""
    return {
        "transit": transit.id,
        "at": transit.grant.released_at,
        "version": transit.request.template_version,
        "peak": transit.usage.goodput_bps,
        "tuning": plain(tuning),
    }


def peak_at(taught: Mapping[str, Any], now: float) -> float:
    """The rate, b/s, that a transfer at ``now`` (Unix seconds) has to be above to teach instead:
    the peak of what was taught, half of it after each :data:`HALF_LIFE_S`; 0 for nothing."""
    age_s = max(0.0, now - float(taught.get("at", now)))
    return float(taught.get("peak", 0.0)) * math.exp2(-age_s / HALF_LIFE_S)


def with_goodput(
    levels: Levels, granted_bps: float, goodput_bps: float
) -> dict[str, list[Sequence[float]]]:
    """The same, with one more transfer; levels that are far from it are dropped where there are too
    many."""
    level = round(math.log2(granted_bps))
    known = {name: list(values) for name, values in levels.items()}
    known[str(level)] = [*known.get(str(level), ()), [granted_bps, goodput_bps]][-_PER_LEVEL:]
    near = sorted(known, key=lambda name: abs(int(name) - level))[:_MOST_LEVELS]
    return {name: known[name] for name in sorted(near, key=int)}


def table_of(levels: Levels, low_bps: float) -> Table:
    """Scores by bandwidth: 1 for ``low_bps``, 10 for what gives the best goodput, between in
    proportion to the median goodput of each level. Empty where fewer than two levels are known by
    :data:`_ENOUGH` transfers each. More bandwidth never scores less."""
    known = sorted(
        tuple(map(median, zip(*transfers, strict=True)))
        for transfers in levels.values()
        if len(transfers) >= _ENOUGH
    )
    if len(known) < 2:
        return ()
    reached = list(accumulate((goodput for _, goodput in known), max))
    span = reached[-1] - low_bps
    scores = [
        MIN_SCORE + (MAX_SCORE - MIN_SCORE) * max(0.0, goodput - low_bps) / span
        if span > 0
        else MAX_SCORE
        for goodput in reached
    ]
    points = [(rate, score) for (rate, _), score in zip(known, scores, strict=True)]
    return ((low_bps, MIN_SCORE), *(p for p in points if p[0] > low_bps))


def best(history: Iterable[Document]) -> Mapping[str, Any]:
    """The best of the lessons kept, with when it was; empty for none. Not simply the last: another
    broker may have written a smaller one in between."""
    lesson: Mapping[str, Any] = {}
    for document in history:
        peak = document.body.get("peak")
        if document.deleted:
            lesson = {}
        elif isinstance(peak, int | float):
            taught = {"at": document.at, **document.body}
            if peak > peak_at(lesson, taught["at"]):
                lesson = taught
    return lesson
