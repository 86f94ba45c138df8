"""``python -m tests.bench.papers [--only PAPER]``: figures of the five papers, made again.

Each paper has programs that measure and plots that put what they measured beside the paper's
numbers, in ``docs/papers``. What is measured already is not measured again; a plot whose
measurement is missing is left as it is. docs/papers.md says what differs and why.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adon.dashboard.standalone import COLOURS, Panel, drawing
from tests.bench import paper_runs
from tests.bench import paper_series as series_of
from tests.bench.paper_series import FIGURE18, SWEEP, Series, Value
from tests.bench.results import ROOT, load

OUT = ROOT / "docs" / "papers"
_PAPER, _ADON = COLOURS
_COLOURS = (_PAPER, _ADON, "#999", "#7a5195")


@dataclass(frozen=True, slots=True)
class Plot:
    """Bars side by side, or ``lines``. ``read`` returns None where nothing is measured yet."""

    name: str
    title: str
    labels: tuple[str, ...]
    unit: str
    read: Callable[[], Series | None]
    lines: bool = False


@dataclass(frozen=True, slots=True)
class Paper:
    """Programs that measure, each with what says whether that is done, and plots."""

    programs: tuple[tuple[tuple[str, ...], Callable[[], bool]], ...]
    plots: tuple[Plot, ...]


def bench(bench_id: str, name: str) -> tuple[tuple[str, ...], Callable[[], bool]]:
    """A bench whose results are kept."""
    words = ("-m", "tests.bench", "--only", bench_id, "--bench", name)
    return words, lambda: bool(load(bench_id).get(name, {}).get("figures"))


def runs(name: str) -> tuple[tuple[str, ...], Callable[[], bool]]:
    """Measurements of paper_runs."""
    return ("-m", "tests.bench.paper_runs", name), lambda: paper_runs.whole(name)


PAPERS = {
    "soykb": Paper(
        ((("examples/soykb/figure18.py", "--out", str(FIGURE18)),
          (FIGURE18 / "figure18.json").exists),
         runs("soykb")),
        (
            Plot("soykb-table-2", "Table 2: score of a path's throughput, Gb/s",
                 tuple(map(str, range(1, 11))), "", series_of.scores),
            Plot("soykb-figure-6", "Figure 6: score of each path that meets the QSpec",
                 ("t1: 5.5 and 0.65 Gb/s", "t4: 0.5 and 0.65", "t6: 0.5 and 0.1"), "",
                 series_of.selection),
            Plot("soykb-figure-18", "Figure 18: throughput of each workflow, Gb/s of the thesis",
                 ("SoyKB, t1: L2", "Neurobl., t3: L2", "SoyKB, t4: L3", "SoyKB, t6"), "Gb/s",
                 series_of.figure18),
            Plot("soykb-figure-18-sampled", "Figure 18: sampled throughput, Gb/s of the thesis",
                 (), "", series_of.sampled, True),
            Plot("soykb-figures-19-21", "Figures 19 to 21: Gb/s of the thesis by GB, one stream",
                 ("L2: 5", "15", "25", "L3: 5", "15", "25", "beside: 5", "15", "25"), "",
                 series_of.by_layer),
            Plot("soykb-figure-22", "Figure 22: share of layer 2 by threads, buffers of 16 MB",
                 tuple(map(str, paper_runs.THREADS)), "%", series_of.threads),
            Plot("soykb-figures-23-24", "Figures 23, 24: throughput ÷ that with 16 MB of buffers",
                 ("L2: 16", "64", "256 MB", "L3: 16", "64", "256 MB"), "", series_of.buffers),
        ),
    ),
    "policies": Paper(
        (bench("P4", "classes_on_the_data_plane"),),
        (
            Plot("policies-figures-6-8", "Figures 6, 8: parts of two backlogged classes",
                 ("7-3: CMS", "LIGO", "10-3: CMS", "LIGO"), "%", series_of.backlogged),
            Plot("policies-gain", "§V.B: goodput above 7-3's", ("7-3", "10-3", "computed"), "%",
                 series_of.strategies),
        ),
    ),
    "sos": Paper(
        (runs("sos"),),
        (
            Plot("sos-tables", "Tables 4.3.1, 4.3.2: share of the path by streams, 95 % bounds",
                 (*map(str, paper_runs.STREAMS), "bbr"), "%", series_of.relay),
            Plot("sos-table-4.3.3", "Table 4.3.3: 64 streams by buffers together",
                 ("10,000; 3.3 MB", "60,000; 6.6 MB", "65,000; 13.2 MB"), "%",
                 series_of.relay_buffers),
        ),
    ),
    "montage": Paper(
        ((("-m", "examples.montage.sweep", "--runs", "1", "--state", str(SWEEP), "--report",
           str(SWEEP)), series_of.swept),),
        (
            Plot("montage-figures-5-9", "Figures 5, 9: seconds by provisioned bandwidth",
                 ("1", "2.5", "10", "20 Mb/s"), "s", series_of.execution_times),
            Plot("montage-figures-6-10-11", "Figures 6, 10, 11: samples above 90 % I/O wait",
                 ("1", "2.5", "10", "20 Mb/s"), "%", series_of.io_waits),
            Plot("montage-figure-7", "Figure 7: Mb/s that the head writes, second by second",
                 (), "", series_of.disk_series, True),
            Plot("montage-figure-8", "Figure 8: share of writing seconds by Mb/s",
                 tuple(f"≤ {4 * series_of.DISK_BPS * n / 1e7:.0f}" for n in range(1, 11)), "%",
                 series_of.write_rates),
        ),
    ),
    "dmz": Paper(
        (bench("P17", "over_veth"),),
        (Plot("dmz-figures-2-3", "Figures 2, 3: with OpenFlow rules ÷ normal",
              ("OSDC", "Gluster", "AWS", "HMS", "TACC home", "scratch", "ADON"), "",
              series_of.with_and_without),),
    ),
}  # fmt: skip


def drawn(plot: Plot, series: Series) -> str:
    """The plot as SVG."""
    rows = {who: [_with_bounds(value) for value in values] for who, values in series.items()}
    most = max(mean + half for values in rows.values() for mean, half in values) * 1.1
    slots = 1 if plot.lines else len(plot.labels) * (len(rows) + 1)
    panel = Panel(60, 40, 640, 220, slots, most)
    levels = [(most * part / 4, f"{most * part / 4:.3g} {plot.unit}".strip()) for part in range(5)]
    panel.axes(plot.title, (), levels)
    colours = dict(zip(rows, _COLOURS if "ADON" not in rows else _adons(list(rows)), strict=False))
    for number, (who, values) in enumerate(rows.items()):
        if plot.lines:
            points = [(n / len(values) - 0.5, mean) for n, (mean, _) in enumerate(values)]
            panel.curve(points, colours[who])
            continue
        for place, (mean, half) in enumerate(values):
            if mean >= 0:
                panel.bar(place * (len(rows) + 1) + number, mean, half, colours[who])
    for place, label in enumerate(plot.labels):
        at = panel.across(place * (len(rows) + 1) + (len(rows) - 1) / 2)
        if plot.lines:
            at = panel.across(place / max(1, len(plot.labels) - 1) - 0.5)
        panel.parts.append(f'<text x="{at:.1f}" y="276" text-anchor="middle">{label}</text>')
    for number, who in enumerate(rows):
        words = f'<text x="{60 + 160 * number}" y="298" fill="{colours[who]}">■ {who}</text>'
        panel.parts.append(words)
    return drawing(720, 310, [panel])


def _with_bounds(value: Value) -> tuple[float, float]:
    return value if isinstance(value, tuple) else (value, 0.0)


def _adons(names: Sequence[str]) -> list[str]:
    """Colours by name, of which ADON has its own."""
    others = (colour for colour in _COLOURS if colour != _ADON)
    return [_ADON if name == "ADON" else next(others) for name in names]


def made(paper: Paper) -> None:
    """Measures what is missing, and draws what can be drawn."""
    for words, done in paper.programs:
        if not done():
            subprocess.run([sys.executable, *words], cwd=ROOT, check=False)
    OUT.mkdir(parents=True, exist_ok=True)
    for plot in paper.plots:
        series = plot.read()
        if series is None:
            print(f"{plot.name}: not measured here, left as it is")
            continue
        (OUT / f"{plot.name}.svg").write_text(drawn(plot, series), encoding="utf-8")
        print(f"{plot.name}: {(OUT / plot.name).relative_to(ROOT)}.svg")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 2 for a paper that is not there."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.papers", description=__doc__)
    parser.add_argument("--only", choices=tuple(PAPERS), help="one paper (default: all)")
    only = parser.parse_args(arguments).only
    for name, paper in PAPERS.items():
        if only in (None, name):
            made(paper)
    return 0


if __name__ == "__main__":
    sys.exit(main())
