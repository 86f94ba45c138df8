"""Why something is an anomaly, in one sentence for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from monitors.alerts.anomalies.model import scale_of
from monitors.base.measurement import UNITS
from network_provisioner.base.units import format_rate

if TYPE_CHECKING:
    from monitors.alerts.anomalies.model import Anomaly, SeriesLimits


def why_level(metric: str, change: float, samples: int, times_noise: float, cycle: float) -> str:
    """For a change of level."""
    return (
        f"the median of {samples} measurements is {_change(metric, change)} than expected, which is"
        f" {times_noise:.1f} times what noise does to it{_cycle_words(metric, cycle)}"
    )


def why_dip(dip: Anomaly, until: float) -> str:
    """For what came back."""
    return f"{dip.why}; it was back after {_span(until - dip.since)}"


def why_missing(metric: str, period_s: float, after: int) -> str:
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


def explained(metric: str, limits: SeriesLimits) -> list[str]:
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
