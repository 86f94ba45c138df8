"""A mapping over time, as a Gantt chart in SVG: jobs on workers, transfers on paths.

One band per site with a row for each of its workers, then one band per path with as many rows as
transfers overlap there. Text and colours stand in the file itself: it needs nothing beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as MappingType
from colorsys import hls_to_rgb
from dataclasses import dataclass
from heapq import heappop, heappush
from xml.sax.saxutils import escape, quoteattr

from network_provisioner.base.units import format_size
from site_selector.explain.reasons import seconds
from site_selector.mapping.estimator import SharingEstimator
from site_selector.mapping.placement import Mapping
from site_selector.problem import NEVER_S, Problem


def chart_of(problem: Problem, names: Sequence[str], mapping: Mapping) -> Chart:
    """Jobs by site and moves by path of a mapping of ``problem``, with each job's transformation.

    Jobs that wait for a site without resources have no place in time and are left out.
    """
    place = {name: i for i, name in enumerate(problem.places)}
    sites = mapping.sites
    schedule = SharingEstimator(problem)([place[sites[job]] for job in problem.jobs])
    jobs = tuple(
        job_bar(job, name, sites[job], start, end)
        for job, name, start, end in zip(
            problem.jobs, names, schedule.start_s, schedule.end_s, strict=True
        )
        if end < NEVER_S
    )
    moves = tuple(
        move_bar(
            problem.files[move.file],
            f"{problem.places[move.src]}>{problem.places[move.dst]}",
            problem.size[move.file],
            move.start_s,
            move.end_s,
        )
        for move in schedule.transfers
        if move.end_s < NEVER_S
    )
    title = (
        f"{mapping.workflow}: {len(mapping.placements)} jobs, expected to end after "
        f"{seconds(mapping.makespan_s)} ({mapping.policy})"
    )
    return Chart(title, jobs, moves)


_WIDTH = 1200
_LEFT, _RIGHT, _TOP, _BOTTOM = 170, 24, 64, 40
_ROW, _GAP = 16, 12  # of one worker, between bands
_MOST_HEIGHT = 2400  # rows become thinner so that a thousand workers still make a picture
_LEAST_ROW = 2.0
_PATH_HIGH = 4 * _ROW  # of a path, however many transfers share it
_CHAR = 6.3  # a letter of the labels, about
# Distinct also for eyes that see fewer colours (Okabe and Ito), lightened under dark text.
_COLOURS = (
    "#8cc5e8", "#f3c77a", "#86cfb5", "#e9a0c0", "#b8b5e0",
    "#f0e68c", "#d9a679", "#a8c97f", "#c9c9c9", "#f2a48c",
)  # fmt: skip
_MOVE = "#7a8794"


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that takes from ``start_s`` to ``end_s``. ``kind`` chooses the colour."""

    band: str
    label: str
    kind: str
    start_s: float
    end_s: float
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn: jobs by site, moves by path, all in seconds from the start."""

    title: str
    jobs: tuple[Bar, ...]
    moves: tuple[Bar, ...]

    @property
    def end_s(self) -> float:
        """When the last bar ends."""
        return max((b.end_s for b in (*self.jobs, *self.moves)), default=0.0)


def job_bar(job: str, transformation: str, site: str, start_s: float, end_s: float) -> Bar:
    """A job at a site."""
    tip = f"{job} {transformation} at {site}: {_time(start_s)} to {_time(end_s)}"
    return Bar(site, job, transformation, start_s, end_s, tip)


def move_bar(lfn: str, path: str, size_bytes: float, start_s: float, end_s: float) -> Bar:
    """A file on a path (``src>dst``)."""
    tip = f"{lfn}, {format_size(size_bytes)}, {path}: {_time(start_s)} to {_time(end_s)}"
    return Bar(path, lfn, "", start_s, end_s, tip)


def rows(bars: Sequence[Bar]) -> list[tuple[int, Bar]]:
    """Each bar with a row such that bars of one row do not overlap; as few rows as there can be."""
    out: list[tuple[int, Bar]] = []
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    for bar in sorted(bars, key=lambda b: (b.start_s, b.end_s, b.label)):
        while busy and busy[0][0] <= bar.start_s + 1e-9 * max(1.0, abs(bar.start_s)):
            heappush(free, heappop(busy)[1])
        row = heappop(free) if free else len(busy)
        heappush(busy, (bar.end_s, row))
        out.append((row, bar))
    return out


def svg(chart: Chart) -> str:
    """The chart as an SVG document."""
    return _Drawing(chart).text()


class _Drawing:
    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.span = chart.end_s if 0 < chart.end_s < math.inf else 1.0
        self.unit, self.unit_s = _unit(self.span)
        self.step = _step(self.span / self.unit_s) * self.unit_s
        self.bands = [*_bands(chart.jobs, "site"), *_bands(chart.moves, "path")]
        count = sum(high for _, what, high, _ in self.bands if what == "site")
        gaps = (_GAP + _PATH_HIGH) * len(self.bands)
        room = (_MOST_HEIGHT - _TOP - _BOTTOM - gaps) / max(1, count)
        site_row = max(_LEAST_ROW, min(_ROW, room))
        self.row = [
            site_row if what == "site" else min(site_row, _PATH_HIGH / high)
            for _, what, high, _ in self.bands
        ]
        # A band of one thin row still has to hold its name.
        self.high = [
            max(_ROW, band[2] * row) for band, row in zip(self.bands, self.row, strict=True)
        ]
        self.height = _TOP + _BOTTOM + _GAP * len(self.bands) + sum(self.high)
        kinds = list(dict.fromkeys(b.kind for b in chart.jobs))
        self.colour = dict(zip(kinds, _colours(len(kinds)), strict=True))
        # What all ids begin with says nothing where there is little room.
        self.shared = _shared([b.label for b in chart.jobs])
        self.legend = _legend(self.colour)
        self.height += _ROW * len(self.legend)

    def x(self, seconds: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * seconds / self.span

    def text(self) -> str:
        out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{self.height:.0f}" '
            f'viewBox="0 0 {_WIDTH} {self.height:.0f}" font-family="sans-serif" font-size="11">',
            f"<title>{escape(self.chart.title)}</title>",
            f'<rect width="{_WIDTH}" height="{self.height:.0f}" fill="#ffffff"/>',
            f'<text x="{_RIGHT}" y="24" font-size="15">{escape(self.chart.title)}</text>',
        ]
        bottom = self._axis(out)
        top: float = _TOP
        for (name, what, _, placed), row, high in zip(self.bands, self.row, self.high, strict=True):
            self._background(out, name, what, top, high)
            for line, bar in placed:
                self._bar(out, bar, top + line * row, row)
            top += high + _GAP
        self._names(out, bottom + 34)
        out.append("</svg>\n")
        return "\n".join(out)

    def _axis(self, out: list[str]) -> float:
        """Grid lines and times, above and below; returns where the chart ends."""
        bottom = _TOP + sum(self.high) + _GAP * len(self.high)
        ticks = int(self.span / self.step + 1e-9)
        for i in range(ticks + 1):
            x = self.x(i * self.step)
            out.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{bottom:.1f}" '
                'stroke="#e3e6e8"/>'
            )
            for y in (_TOP - 12, bottom + 13):
                out.append(
                    f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" fill="#555">'
                    f"{i * self.step / self.unit_s:g}</text>"
                )
        out.append(
            f'<text x="{_LEFT - 14}" y="{_TOP - 12}" text-anchor="end" fill="#555">'
            f"time ({self.unit})</text>"
        )
        return bottom

    def _background(self, out: list[str], name: str, what: str, top: float, high: float) -> None:
        wide = _WIDTH - _LEFT - _RIGHT
        fill = "#f6f8f9" if what == "site" else "#ffffff"
        out.append(
            f'<rect x="{_LEFT}" y="{top:.1f}" width="{wide}" height="{high:.1f}" fill="{fill}" '
            'fill-opacity="0.6" stroke="#d5dadd"/>'
        )
        shown = _fit(name, _LEFT - 24)
        weight = ' font-weight="bold"' if what == "site" else ""
        out.append(
            f'<text x="{_LEFT - 10}" y="{top + 12:.1f}" text-anchor="end"{weight}>{escape(shown)}'
            "</text>"
        )

    def _bar(self, out: list[str], bar: Bar, top: float, row: float) -> None:
        left, right = self.x(bar.start_s), self.x(min(bar.end_s, self.span))
        wide, high = max(right - left, 0.6), max(row - (1.5 if row > 5 else 0.2 * row), 0.3)
        fill = self.colour.get(bar.kind, _MOVE)
        edge = ' stroke="#5b6770" stroke-width="0.4"' if wide > 4 and high > 5 else ""
        y = top + min(0.7, row / 5)
        out.append(
            f'<g><title>{escape(bar.tip)}</title><rect x="{left:.2f}" y="{y:.2f}" '
            f'width="{wide:.2f}" height="{high:.2f}" fill={quoteattr(fill)}{edge}/>'
        )
        label = _fit(bar.label, wide - 6)
        if label != bar.label and bar.kind in self.colour:
            label = _fit(bar.label[self.shared :], wide - 6)
        if high >= 12 and (len(label) >= 3 or label.isalnum()):
            ink = "#ffffff" if bar.kind not in self.colour else "#1b1f23"
            out.append(
                f'<text x="{left + 3:.2f}" y="{top + 11.5:.2f}" fill="{ink}" font-size="10">'
                f"{escape(label)}</text>"
            )
        out.append("</g>")

    def _names(self, out: list[str], top: float) -> None:
        for line, names in enumerate(self.legend):
            x: float = _LEFT
            y = top + line * _ROW
            for name in names:
                fill = self.colour.get(name, _MOVE)
                out.append(
                    f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="10" height="10" fill="{fill}"/>'
                    f'<text x="{x + 14:.1f}" y="{y:.1f}">{escape(name)}</text>'
                )
                x += 14 + len(name) * _CHAR + 18


def _bands(bars: Iterable[Bar], what: str) -> list[tuple[str, str, int, list[tuple[int, Bar]]]]:
    """(name, what, rows, bars with their row) of each site or path, in order of appearance."""
    found: dict[str, list[Bar]] = {}
    for bar in bars:
        found.setdefault(bar.band, []).append(bar)
    out = []
    for name in sorted(found):
        placed = rows(found[name])
        out.append((name, what, 1 + max(row for row, _ in placed), placed))
    return out


def _legend(colours: MappingType[str, str]) -> list[list[str]]:
    lines: list[list[str]] = [[]]
    used = 0.0
    for name in [*colours, "transfer"]:
        wide = 32 + len(name) * _CHAR
        if lines[-1] and used + wide > _WIDTH - _LEFT - _RIGHT:
            lines.append([])
            used = 0.0
        lines[-1].append(name)
        used += wide
    return lines


def _colours(count: int) -> list[str]:
    """As many colours as there are kinds, no two alike: beyond those chosen by eye, hues a golden
    angle apart."""
    if count <= len(_COLOURS):
        return list(_COLOURS[:count])
    out = []
    for i in range(count):
        lightness, strength = (0.72, 0.6) if i % 2 == 0 else (0.6, 0.45)
        rgb = hls_to_rgb(i * 0.618034 % 1, lightness, strength)
        out.append("#" + "".join(f"{round(255 * part):02x}" for part in rgb))
    return out


def _shared(labels: Sequence[str]) -> int:
    """How many letters all labels begin with."""
    first, last = min(labels, default=""), max(labels, default="")
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)


def _unit(span_s: float) -> tuple[str, float]:
    units = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0))
    return next(((name, s) for name, s in units if span_s >= 3 * s), ("seconds", 1.0))


def _step(span: float) -> float:
    """1, 2 or 5 times a power of ten, for about ten marks."""
    rough = span / 10
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    return next(power * n for n in (1, 2, 5, 10) if power * n >= rough * (1 - 1e-9))


def _fit(text: str, wide: float) -> str:
    most = int(wide / _CHAR)
    return text if len(text) <= most else text[: max(0, most - 1)] + "…" if most > 1 else ""


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s"
