"""Load of one direction of a link over time: reserved, measured, possible."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from adon import svg
from examples.demo.loads import Load, Rate, end_of
from network_provisioner.model import Transit
from network_provisioner.units import format_rate, format_size

_HEIGHT = 120.0
_TOP = 14.0
_MARKED = 7.0  # narrower than this a reservation gets a mark above it
_MOST_MARKS = 40  # more of them would be a line


def load_words(load: Load, t0: float) -> str:
    """A chart in a sentence, for readers who cannot see it or want the figures."""
    parts = []
    if load.held:
        start = min(t.installed_at for t in load.held) - t0
        end = max(end_of(t) for t in load.held) - t0
        parts.append(
            f"reserved up to {format_rate(load.most_reserved_bps)} between {start:.1f} and "
            f"{end:.1f} s"
        )
    else:
        parts.append("nothing reserved")
    if load.peak is not None:
        parts.append(
            f"measured {format_size(load.moved_bytes)} in all, at most "
            f"{format_rate(load.peak.bps)} at {load.peak.end - t0:.1f} s"
        )
    elif not load.counted:
        parts.append("not measured: the sender is no switch")
    return "; ".join(parts)


def chart(load: Load, t0: float, t1: float) -> str:
    """The drawing; each reservation is a block of its own, as high as the rate it keeps."""
    scale = svg.TimeScale(t0, t1)
    peak = load.peak.bps if load.peak else 0.0
    top = max(load.capacity_bps, peak, load.most_reserved_bps, 1.0)

    def y_of(bps: float) -> float:
        return _TOP + _HEIGHT * (1 - bps / top)

    parts = svg.time_axis(scale, _TOP, _TOP + _HEIGHT)
    for share in (0.0, 0.5, 1.0):
        words = format_rate(top * share) if share else "0"
        parts.append(svg.text(svg.LEFT - 6, y_of(top * share) + 4, words, "small", "end"))
        parts.append(svg.line(svg.LEFT, y_of(top * share), svg.RIGHT, y_of(top * share), "grid"))
    parts += _blocks(load.held, scale, y_of(0), _HEIGHT / top)
    ceiling = y_of(load.capacity_bps)
    parts.append(svg.line(svg.LEFT, ceiling, svg.RIGHT, ceiling, "capacity"))
    if load.measured:
        parts.append(f'<path class="measured" d="{_steps(load.measured, scale, y_of(0), top)}"/>')
    label = f"Load from {load.hop[0]} to {load.hop[1]}: {load_words(load, t0)}"
    return svg.drawing(svg.WIDTH, _TOP + _HEIGHT + 22, label, parts)


def _blocks(
    held: Sequence[Transit], scale: svg.TimeScale, floor: float, per_bps: float
) -> list[str]:
    parts = []
    times = sorted({at for t in held for at in (t.installed_at, end_of(t))})
    for start, end in pairwise(times):
        below = 0.0
        for t in held:
            if not t.installed_at <= start < end_of(t):
                continue
            x0, x1 = scale.x(start), scale.x(end)
            high = t.requested_bps * per_bps
            parts.append(
                svg.box(
                    x0, floor - (below + t.requested_bps) * per_bps, max(2.0, x1 - x0),
                    max(1.0, high), "reserved", _tip(t, scale.t0), 0,
                )
            )  # fmt: skip
            below += t.requested_bps
    short = [t for t in held if scale.x(end_of(t)) - scale.x(t.installed_at) < _MARKED]
    for t in short if len(short) <= _MOST_MARKS else ():
        x = (scale.x(t.installed_at) + scale.x(end_of(t))) / 2
        parts.append(
            f'<path class="mark" d="M{x - 4:.1f} 3L{x + 4:.1f} 3L{x:.1f} 11Z">'
            f"<title>{escape(_tip(t, scale.t0))}</title></path>"
        )
    return parts


def _tip(t: Transit, t0: float) -> str:
    return (
        f"{t.job}: {format_rate(t.requested_bps)} reserved, {format_rate(t.granted_bps)} granted, "
        f"from {t.installed_at - t0:.1f} to {end_of(t) - t0:.1f} s, {format_size(t.bytes)} moved "
        f"at {format_rate(t.goodput_bps)}"
    )


def _steps(measured: Sequence[Rate], scale: svg.TimeScale, floor: float, top: float) -> str:
    """A line that is flat while a mean holds; gaps where nothing is known."""
    points: list[str] = []
    last_end = last_y = None
    for rate in measured:
        y = f"{floor - rate.bps / top * _HEIGHT:.1f}"
        x0, x1 = f"{scale.x(rate.start):.1f}", f"{scale.x(rate.end):.1f}"
        if last_end != rate.start:
            points.append(f"M{x0} {y}")
        elif y != last_y:
            points.append(f"V{y}")
        if points[-1].startswith("H"):
            points.pop()
        points.append(f"H{x1}")
        last_end, last_y = rate.end, y
    return "".join(points)
