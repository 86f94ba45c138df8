"""Anomalies and what they are judged by, as values and as measurements of the archive.

An anomaly is recorded when it is noticed, and once more when it is over: the archive is
append-only. The two have ids that follow from the anomaly alone, so that finding it again records
nothing. Why something is one is said in one sentence for people.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

from monitors.base.measurement import UNITS, Measurement
from network_provisioner.base.errors import InputError
from network_provisioner.base.schema import read
from network_provisioner.base.units import format_rate

Kind = Literal["level", "dip", "outage"]
"""``level``: other values than before, and they stay; ``dip``: they came back; ``outage``: there
are none, or they say that nothing gets through."""

METRIC = "anomaly"
END = ":end"  # of the id of what is recorded when an anomaly is over

SHARES = frozenset({"loss", "cpu_use", "memory_use", "io_wait", "disk_io", "belief_error"})
_RATES = frozenset({"throughput", "path_throughput", "tcp_throughput", "udp_throughput"})


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


def to_measurement(anomaly: Anomaly) -> Measurement:
    """For the archive; ``at`` is when it began, or when it ended. The value is the change, relative
    or, for shares, the difference."""
    details = asdict(anomaly)
    for key in ("id", "subject", "change", *(() if anomaly.limits else ("limits",))):
        del details[key]
    details["confidence"] = round(anomaly.confidence, 4)
    return Measurement(
        anomaly.id if anomaly.until is None else anomaly.id + END,
        METRIC,
        anomaly.subject,
        anomaly.change,
        "1",
        anomaly.since if anomaly.until is None else anomaly.until,
        "plateaus",
        details=details,
    )


def from_measurement(record: Measurement) -> Anomaly | None:
    """The inverse; None for what is no anomaly of ours."""
    about = {"subject": record.subject, "change": record.value}
    try:
        return read(Anomaly, {**record.details, **about}, "anomaly")
    except InputError:
        return None


def together(measurements: Iterable[Measurement]) -> list[Anomaly]:
    """Each anomaly once, in its latest state, by its begin."""
    by_id: dict[str, Anomaly] = {}
    for anomaly in filter(None, map(from_measurement, measurements)):
        known = by_id.get(anomaly.id)
        if known is None or anomaly.until is not None:
            by_id[anomaly.id] = (
                anomaly if known is None else replace(anomaly, noticed=known.noticed)
            )
    return sorted(by_id.values(), key=lambda latest: (latest.since, latest.id))


@dataclass(frozen=True, slots=True)
class Scale:
    """Converts values to numbers whose difference is a change, and back: by the logarithm if a
    change is a ``ratio`` (rates, delays, counts), else unchanged (parts of a whole). From ``dead``
    on, a value says that nothing gets through. Noise is at least ``floor``."""

    ratio: bool
    floor: float
    dead: float = math.inf

    def of(self, value: float) -> float | None:
        """The number of a value; None where the value says that nothing gets through, or that it
        was not measured."""
        if self.ratio:
            return math.log(value) if value > 0 else None
        return None if value >= self.dead else value

    def value(self, number: float) -> float:
        """The inverse of :meth:`of`."""
        return math.exp(min(number, 700.0)) if self.ratio else number

    def change(self, shift: float) -> float:
        """A shift as a change: a share of the value before, or a difference of shares."""
        return math.expm1(min(shift, 700.0)) if self.ratio else shift

    def shift(self, change: float) -> float:
        """The downward shift that is a change of this size; upwards it is a larger change."""
        return math.log1p(change) if self.ratio else change


_RATIO = Scale(ratio=True, floor=0.01)


_SHARE = Scale(ratio=False, floor=0.0025)


_LOSS = Scale(ratio=False, floor=0.0025, dead=0.999)  # the whole is the end


def scale_of(metric: str) -> Scale:
    """The scale of a metric; of one that is not known, the logarithm."""
    if metric == "loss":
        return _LOSS
    return _SHARE if metric in SHARES else _RATIO


def is_worse(metric: str, shift: float) -> bool:
    """Whether a shift is for the worse: less of a rate, more of anything else."""
    return shift < 0 if metric in _RATES else shift > 0


def worsening(metric: str, recorded: Iterable[Measurement]) -> Anomaly | None:
    """The newest anomaly of a metric, if it is for the worse and lasts."""
    newest = max(
        (anomaly for anomaly in together(recorded) if anomaly.metric == metric),
        key=lambda anomaly: anomaly.noticed,
        default=None,
    )
    if newest is None or newest.until is not None:
        return None
    lost = newest.kind == "outage" and metric == "loss"
    return newest if lost or is_worse(metric, newest.change) else None


def why_level(metric: str, change: float, samples: int, times_noise: float, cycle: float) -> str:
    """For a change of level."""
    return (
        f"the median of {samples} measurements is {_change(metric, change)} than expected, which is"
        f" {times_noise:.1f} times what noise does to it{_cycle_words(metric, cycle)}"
    )


def why_dip(dip: Anomaly, until: float) -> str:
    """For what came back."""
    return f"{dip.why}; it was back after {_span(until - dip.since)}"


def why_missing(period_s: float, after: int) -> str:
    """For measurements that are missing."""
    return (
        f"no measurement for more than {after} times the {_span(period_s)} that usually lie"
        " between two"
    )


def why_dead(metric: str, count: int) -> str:
    """For measurements that say that nothing gets through."""
    what = "everything was lost" if metric == "loss" else "nothing got through"
    return f"{what} in {count} measurements in a row"


def _change(metric: str, change: float) -> str:
    size = f"{abs(change):.0%}" if _is_ratio(metric) else f"{abs(change) * 100:.2g} points"
    return f"{size} {'higher' if change > 0 else 'lower'}"


def _cycle_words(metric: str, cycle: float) -> str:
    size = scale_of(metric).change(cycle)
    if cycle < 0.005:
        return "; there is no daily cycle"
    return f"; the daily and weekly cycle of {_size(metric, size)} is taken into account"


def _is_ratio(metric: str) -> bool:
    return scale_of(metric).ratio


def _span(seconds: float) -> str:
    for size, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"


def notice_text(anomaly: Anomaly) -> str:
    """What people are told: one line."""
    when = datetime.fromtimestamp(anomaly.since, UTC).strftime("%Y-%m-%d %H:%M UTC")
    what = f"{anomaly.metric} of {anomaly.subject}"
    if anomaly.kind == "outage":
        return f"{what}: outage since {when}: {anomaly.why}"
    unit = UNITS.get(anomaly.metric, "")
    verb = "rose" if anomaly.change > 0 else "fell"
    return (
        f"{what} {verb} from {quantity(anomaly.before, unit)} to"
        f" {quantity(anomaly.after or 0.0, unit)} at {when}: {anomaly.why}"
    )


def quantity(value: float, unit: str) -> str:
    """A value of a metric for people."""
    if unit == "bit/s":
        return format_rate(value)
    if unit == "s":
        return f"{value * 1000:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"
    return f"{value:.3g}{'' if unit in ('', '1') else f' {unit}'}"


def explanation_lines(metric: str, limits: SeriesLimits) -> list[str]:
    """What a series is judged by, in sentences."""
    unit = UNITS.get(metric, "")
    period = "" if limits.period_s is None else f", usually one every {_span(limits.period_s)}"
    plural = "" if limits.measured == 1 else "s"
    lines = [f"{limits.measured} measurement{plural} in {_span(limits.learnt_s)}{period}"]
    if not limits.ready:
        return [*lines, "not yet enough to judge changes by; outages are noticed"]
    by_noise = limits.threshold > scale_of(metric).shift(limits.min_change)
    why = (
        f"{limits.noise_factor:g} times what the noise does to such a median"
        if by_noise
        else f"the least change that matters, min_change = {_size(metric, limits.min_change)}"
    )
    return [
        *lines,
        f"expected now: {quantity(limits.expected, unit)}; one measurement is off by"
        f" {_size(metric, limits.noise)}, the daily and weekly cycle goes over"
        f" {_size(metric, limits.cycle)}",
        f"an anomaly is a median of {limits.samples} measurements below"
        f" {quantity(limits.lower, unit)} or above {quantity(limits.upper, unit)}; a median of"
        " fewer, further off",
        f"that is {why}",
    ]


def _size(metric: str, size: float) -> str:
    return f"{size:.1%}" if _is_ratio(metric) else f"{size * 100:.2g} points"
