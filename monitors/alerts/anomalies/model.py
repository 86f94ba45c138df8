"""Anomalies and what they are judged by: values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["level", "dip", "outage"]
"""``level``: other values than before, and they stay; ``dip``: they came back; ``outage``: there
are none, or they say that nothing gets through."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What counts as an anomaly of a metric.

    ``min_change``  smallest change that matters, as a share of the value before (0.15: 15 %); for
                    shares such as loss the difference itself
    ``noise``       a change must be so many times the noise of a mean of as many samples
    ``samples``     fewest samples in a row that say so; what is shorter is noise
    ``outage_after``  so many measurements in a row that are missing, or fail, are an outage
    ``dip_within_s``  what has come back within so many seconds was a dip
    ``learn_s``     nothing is said before so many seconds of measurements, but outages
    """

    min_change: float = 0.15
    noise: float = 5.5
    samples: int = 5
    outage_after: int = 5
    dip_within_s: float = 12 * 3600.0
    learn_s: float = 3 * 86_400.0


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something happened to a series at ``since`` (Unix seconds); it was noticed at ``noticed``.

    ``before`` and ``after`` are levels in the metric's unit, ``after`` None where there are no
    values; ``change`` is a share of the value before, of shares (loss) a difference. ``until`` is
    when it was over, None while it lasts; a change of level has no end. ``confidence`` (0..1) is a
    bound for noise of any distribution (Chebyshev). ``limits`` are the thresholds at the time, see
    :class:`SeriesLimits`. ``id`` is the same for everybody who finds it.
    """

    metric: str
    subject: str
    kind: Kind
    since: float
    noticed: float
    before: float
    after: float | None
    change: float
    confidence: float
    why: str
    until: float | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    id: str = field(init=False)

    def __post_init__(self) -> None:
        own = f"anomaly:{self.metric}:{self.subject}:{int(self.since)}"
        object.__setattr__(self, "id", own)


@dataclass(frozen=True, slots=True)
class SeriesLimits:
    """What a series is judged by at ``at``, in the metric's unit where nothing else is said.

    ``expected`` is the value this moment should have: the level with the daily and weekly cycle on
    top. A median of ``samples`` measurements below ``lower`` or above ``upper`` is an anomaly.
    ``noise`` (of one measurement) and ``threshold`` are shares of the value (or plain differences,
    for shares); the threshold is the larger of ``min_change`` and ``noise_factor`` times the noise
    of such a median. ``cycle`` is how far the cycle goes from its lowest to its highest, as
    ``noise``. Where ``ready`` is false there were not yet enough to judge by.
    """

    at: float
    expected: float
    lower: float
    upper: float
    samples: int
    threshold: float
    noise: float
    noise_factor: float
    min_change: float
    cycle: float
    measured: int
    learnt_s: float
    ready: bool
    period_s: float | None
