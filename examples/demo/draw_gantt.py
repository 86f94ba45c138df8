"""When every job and transfer ran, and how long it waited for it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adon import svg
from examples.demo.facts import Bar
from examples.demo.loads import end_of
from network_provisioner.model import Transit
from network_provisioner.units import format_rate, format_size

TRANSFERS = "transfers"
_ROW = 19.0
_TIGHT_ROW = 9.0
_STRIP = 26.0
_FONT = 10.5
_MOST_LABELS = 80
_NUMBERED = re.compile(r"(.+)_ID0*(\d+)(?:_0)?\Z")


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A bar with its label and the horizontal room that both take."""

    bar: Bar
    label: str
    label_x: float
    anchor: str
    room: tuple[float, float]


def short_job(name: str) -> str:
    """``sort_sam_ID0000005`` as ``sort_sam 5``; other names as they are."""
    match = _NUMBERED.match(name)
    return f"{match[1]} {match[2]}" if match else name


def gantt(
    bars: Sequence[Bar],
    transits: Sequence[Transit],
    classes: Mapping[str, str],
    t0: float,
    t1: float,
) -> str:
    """Jobs by the site they ran at, transfers below; dashed is waiting in the queue.

    ``classes`` maps a site to its CSS class; ``t0`` and ``t1`` are Unix seconds. Groups of many
    bars are drawn without names, and with the number of those that wait as an area.
    """
    scale = svg.TimeScale(t0, t1)
    moves: dict[str, list[Transit]] = {}
    for transit in transits:
        moves.setdefault(transit.job, []).append(transit)
    groups: dict[str, list[Bar]] = {}
    for bar in bars:
        groups.setdefault(TRANSFERS if bar.kind == "transfer" else bar.site, []).append(bar)
    parts: list[str] = []
    y = 8.0
    for name in sorted(groups, key=lambda g: (g == TRANSFERS, g)):
        inner, height = (
            _named(groups[name], moves, scale, classes, y)
            if len(groups[name]) <= _MOST_LABELS
            else _tight(groups[name], moves, scale, classes, y)
        )
        parts.append(svg.text(4, y + 13, name, "label"))
        parts += inner
        y += height + 4
        parts.append(svg.line(0, y, svg.RIGHT, y, "grid"))
        y += 4
    label = f"When {len(bars)} jobs and transfers waited and ran, by site"
    axis = svg.time_axis(scale, 4, max(y - 4, 20))
    return svg.drawing(svg.WIDTH, max(y, 24) + 20, label, axis + parts)


def _named(
    bars: Sequence[Bar],
    moves: Mapping[str, Sequence[Transit]],
    scale: svg.TimeScale,
    classes: Mapping[str, str],
    top: float,
) -> tuple[list[str], float]:
    drawn = [_with_label(bar, moves.get(bar.job, ()), scale) for bar in bars]
    rows = svg.pack([d.room for d in drawn])
    parts = []
    for d, row in zip(drawn, rows, strict=True):
        y = top + row * _ROW
        xq, x0 = scale.x(d.bar.submit), scale.x(d.bar.start)
        if x0 - xq >= 1:
            parts.append(svg.line(xq, y + _ROW / 2, x0, y + _ROW / 2, "wait"))
        parts.append(_bar(d.bar, moves.get(d.bar.job, ()), scale, classes, y + 3, _ROW - 6))
        parts += _held(moves.get(d.bar.job, ()), scale, y + _ROW - 3)
        parts.append(svg.text(d.label_x, y + _ROW - 6, d.label, "on-bar", d.anchor))
    return parts, (max(rows, default=0) + 1) * _ROW


def _with_label(bar: Bar, moved: Sequence[Transit], scale: svg.TimeScale) -> _Drawn:
    """The label inside the bar where it fits, else after it, else before it."""
    label = short_job(bar.job) + ("" if bar.ok else " ✗ failed")
    label += "".join(f" · {t.src} → {t.dst}, {format_size(t.bytes)}" for t in moved[:2])
    xq, x0, x1 = scale.x(bar.submit), scale.x(bar.start), scale.x(bar.end)
    ends = [scale.x(end_of(t)) for t in moved if t.installed_at and t.path]
    right = max([x1, x0 + 2, *ends])
    wide = svg.text_width(label, _FONT)
    if wide + 8 <= x1 - x0:
        return _Drawn(bar, label, x0 + 4, "start", (xq, right + 3))
    if x1 + 4 + wide <= svg.WIDTH:
        return _Drawn(bar, label, x1 + 5, "start", (xq, max(right, x1 + wide) + 12))
    return _Drawn(bar, label, xq - 4, "end", (xq - wide - 8, right + 3))


def _tight(
    bars: Sequence[Bar],
    moves: Mapping[str, Sequence[Transit]],
    scale: svg.TimeScale,
    classes: Mapping[str, str],
    top: float,
) -> tuple[list[str], float]:
    rows = svg.pack([(bar.start, bar.end) for bar in bars])
    parts = _waiting(bars, scale, top)
    top += _STRIP
    for bar, row in zip(bars, rows, strict=True):
        y = top + row * _TIGHT_ROW
        parts.append(_bar(bar, moves.get(bar.job, ()), scale, classes, y, _TIGHT_ROW - 2))
    return parts, _STRIP + (max(rows) + 1) * _TIGHT_ROW


def _waiting(bars: Sequence[Bar], scale: svg.TimeScale, top: float) -> list[str]:
    """How many wait in the queue, over time, as an area."""
    changes = sorted(
        change for b in bars if b.start > b.submit for change in ((b.submit, 1), (b.start, -1))
    )
    levels, level = [], 0
    for at, change in changes:
        level += change
        levels.append((at, level))
    most = max((n for _, n in levels), default=0)
    if not most:
        return []
    bottom, high = top + _STRIP - 5, _STRIP - 8
    points, before = [f"M{svg.LEFT:.1f} {bottom:.1f}"], 0
    for at, now in levels:
        x = scale.x(at)
        points.append(
            f"L{x:.1f} {bottom - high * before / most:.1f}L{x:.1f} {bottom - high * now / most:.1f}"
        )
        before = now
    words = f"up to {most} waiting"
    return [
        f'<path class="waiting" d="{"".join(points)}Z"><title>{words} in the queue</title></path>',
        svg.text(4, top + 26, words, "small"),
    ]


def _bar(
    bar: Bar,
    moved: Sequence[Transit],
    scale: svg.TimeScale,
    classes: Mapping[str, str],
    y: float,
    height: float,
) -> str:
    x0, x1 = scale.x(bar.start), scale.x(bar.end)
    cls = classes.get(bar.site, "s0")
    cls += {"transfer": " moved", "other": " other"}.get(bar.kind, "")
    cls += "" if bar.ok else " failed"
    tip = (
        f"{bar.job} at {bar.site}: waited {bar.start - bar.submit:.1f} s, "
        f"ran from {bar.start - scale.t0:.1f} to {bar.end - scale.t0:.1f} s"
        f"{'' if bar.ok else ', failed'}"
    )
    tip += "".join(
        f"; {t.src} → {t.dst} {format_size(t.bytes)} at {format_rate(t.goodput_bps)}" for t in moved
    )
    return svg.box(x0, y, max(2.0, x1 - x0), height, cls, tip, 2)


def _held(moved: Sequence[Transit], scale: svg.TimeScale, y: float) -> list[str]:
    """A thin line for as long as a transfer's bandwidth was reserved."""
    parts = []
    for t in moved:
        if t.installed_at and t.path:
            end = end_of(t)
            x0, x1 = scale.x(t.installed_at), scale.x(end)
            tip = (
                f"{format_rate(t.requested_bps)} reserved on {' → '.join(t.path)} from "
                f"{t.installed_at - scale.t0:.1f} to {end - scale.t0:.1f} s"
            )
            parts.append(svg.box(x0, y, max(2.0, x1 - x0), 3, "held", tip, 1))
    return parts
