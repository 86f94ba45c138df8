"""``python -m tests.bench.papers [--only PAPER]``: figures of the five papers, made again.

Each paper has programs that measure and plots that put what they measured beside the paper's
numbers, in ``docs/papers``. What is measured already is not measured again; a plot whose
measurement is missing is left as it is. docs/papers.md says what differs and why.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from adon.dashboard.standalone import COLOURS, Panel, drawing
from examples.soykb.fig18.story import SCALE, TRANSFERS
from network_provisioner.templates.data import template_from_dict
from tests.bench.results import ROOT, load

OUT = ROOT / "docs" / "papers"
FIGURE18 = ROOT / ".adon" / "papers" / "figure18"
SWEEP = ROOT / ".adon" / "papers" / "sweep"
_PAPER, _ADON = COLOURS
_GREY = "#999"

Series = Mapping[str, Sequence[float]]
"""Values by who has them, in the order of the plot's labels; negative: there is none."""


@dataclass(frozen=True, slots=True)
class Plot:
    """Bars side by side. ``read`` returns None if nothing is measured yet."""

    name: str
    title: str
    labels: tuple[str, ...]
    unit: str
    read: Callable[[], Series | None]


@dataclass(frozen=True, slots=True)
class Paper:
    """Programs that measure, each with what says whether that is done, and plots."""

    programs: tuple[tuple[tuple[str, ...], Callable[[], bool]], ...]
    plots: tuple[Plot, ...]


def measured(bench_id: str, name: str) -> dict[str, dict[str, float]]:
    """Figures of a bench: ADON's value and the peers', by the figure's name."""
    run = load(bench_id).get(name, {})
    return {
        figure["figure"]: {"ADON": figure["value"], **figure.get("peers", {})}
        for figure in run.get("figures", [])
    }


def bench(bench_id: str, name: str) -> tuple[tuple[str, ...], Callable[[], bool]]:
    words = ("-m", "tests.bench", "--only", bench_id, "--bench", name)
    return words, lambda: bool(measured(bench_id, name))


# --- the thesis on SoyKB -------------------------------------------------------------------------


def scores() -> Series:
    """Table 2, and a template with the same ends."""
    ends = {"qspec": {"min_throughput": "1 Gb/s"}, "rspec": {"max_throughput": "10 Gb/s"}}
    template = template_from_dict("paper", ends)
    return {
        "thesis": list(range(1, 11)),
        "ADON": [template.score("throughput", gbps * 1e9) for gbps in range(1, 11)],
    }


def figure18() -> Series | None:
    """Means of the transfers, by the thesis's scale. Headers take 4 % of what the switches see."""
    try:
        story = json.loads((FIGURE18 / "figure18.json").read_text())
    except FileNotFoundError:
        return None
    spans = story["spans"]
    rates = [
        8 * one.size_bytes / (spans[one.name][1] - spans[one.name][0]) / SCALE / 1e9
        for one in TRANSFERS
    ]
    return {"thesis": (5.5, 5.5, 0.65, -1), "ADON": rates}


# --- policies ------------------------------------------------------------------------------------


def strategies() -> Series | None:
    """What 10-3 carries more than 7-3, and what the computed strategy does."""
    found = measured("P4", "classes_on_the_data_plane")
    if not found:
        return None
    patterns = [row for name, row in found.items() if name.startswith("total goodput")]
    best = {way: sum(row[way] for row in patterns) for way in ("7-3", "10-3", "ADON")}
    return {
        "paper": (0.0, 11.74, -1),
        "ADON": [100 * (best[way] / best["7-3"] - 1) for way in ("7-3", "10-3", "ADON")],
    }


def backlogged() -> Series | None:
    """Figures 6 and 8: each class's part of a backlogged link, in percent."""
    found = measured("P4", "classes_on_the_data_plane")
    names = [f"the first class's part, both backlogged, {way}" for way in ("7-3", "10-3")]
    if not all(name in found for name in names):
        return None
    ours = [found[name][who] for name in names for who in ("ADON", "the second")]
    return {"paper": (70, 30, 70, 30), "ADON": ours}


# --- Steroid OpenFlow Service --------------------------------------------------------------------

_GRIDFTP_GBPS = (1.7086, 6.6004, 3.9361, 4.4858, 4.6537, 6.1156)
_SOS_GBPS = (3.7308, 5.1724, 5.0597, 5.0879, 5.2692, 4.9361)


def relay() -> Series | None:
    """Tables 4.3.1 and 4.3.2 in percent of the path of 10 Gb/s, and the relay at no loss."""
    found = measured("P12", "relay")
    name = "share of the path, 1 GB by curl, no loss"
    if name not in found:
        return None
    row = found[name]
    streams = (1, 4, 8, 16, 32, 64)
    return {
        "GridFTP in the thesis": [10 * value for value in _GRIDFTP_GBPS],
        "SOS in the thesis": [10 * value for value in _SOS_GBPS],
        "ADON's relay": [
            row["ADON"] if n == 1 else row.get(f"relay, {n} cubic streams", -1) for n in streams
        ],
    }


# --- Montage -------------------------------------------------------------------------------------


def execution_times() -> Series | None:
    """Figure 5: execution time ÷ that at the lowest rate; the paper's text tells two of them."""
    try:
        runs = json.loads(SWEEP.with_suffix(".json").read_text())
    except FileNotFoundError:
        return None
    seconds = {run["rate_bps"]: run["seconds"] for run in runs if run["state"] == "success"}
    if len(seconds) < 4:
        return None
    times = [seconds[rate] for rate in sorted(seconds)]
    return {"paper": (1, -1, -1, 0.25), "ADON": [time / times[0] for time in times]}


# --- Science DMZ ---------------------------------------------------------------------------------


def with_and_without() -> Series | None:
    """Figures 2 and 3: a flow with OpenFlow rules of its own ÷ a normal one."""
    found = measured("P17", "over_veth").get("one stream over veth pairs, with a path")
    if found is None:
        return None
    paper = (663 / 630, 1.0, 1.0, 541.0 / 403.2, 1.0, 371.0 / 470.8, -1)
    return {"paper": paper, "ADON": (*[-1.0] * 6, found["ADON"] / found["without"])}


PAPERS = {
    "soykb": Paper(
        ((("examples/soykb/figure18.py", "--out", str(FIGURE18)),
          (FIGURE18 / "figure18.json").exists),),
        (
            Plot("soykb-table-2", "Table 2: score of a path's throughput, Gb/s",
                 tuple(map(str, range(1, 11))), "", scores),
            Plot("soykb-figure-18", "Figure 18: throughput of each workflow, Gb/s of the thesis",
                 ("SoyKB, t1: L2", "Neurobl., t3: L2", "SoyKB, t4: L3", "SoyKB, t6"), "Gb/s",
                 figure18),
        ),
    ),
    "policies": Paper(
        (bench("P4", "classes_on_the_data_plane"),),
        (
            Plot("policies-figures-6-8", "Figures 6, 8: parts of two backlogged classes",
                 ("7-3: CMS", "LIGO", "10-3: CMS", "LIGO"), "%", backlogged),
            Plot("policies-gain", "§V.B: goodput above 7-3's", ("7-3", "10-3", "computed"), "%",
                 strategies),
        ),
    ),
    "sos": Paper(
        (bench("P12", "relay"),),
        (Plot("sos-tables", "Tables 4.3.1, 4.3.2: share of the path by streams",
              ("1", "4", "8", "16", "32", "64"), "%", relay),),
    ),
    "montage": Paper(
        ((("-m", "examples.montage.sweep", "--runs", "1", "--placements", "default", "--state",
           str(SWEEP), "--report", str(SWEEP)), SWEEP.with_suffix(".json").exists),),
        (Plot("montage-figure-5", "Figure 5: execution time by provisioned bandwidth",
              ("1", "2.5", "10", "20 Mb/s"), "", execution_times),),
    ),
    "dmz": Paper(
        (bench("P17", "over_veth"),),
        (Plot("dmz-figures-2-3", "Figures 2, 3: with OpenFlow rules ÷ normal",
              ("OSDC", "Gluster", "AWS", "HMS", "TACC home", "scratch", "ADON"), "",
              with_and_without),),
    ),
}  # fmt: skip


def drawn(plot: Plot, series: Series) -> str:
    """The plot as SVG."""
    most = max(value for values in series.values() for value in values) * 1.1
    panel = Panel(60, 40, 640, 220, len(plot.labels) * (len(series) + 1), most)
    levels = [(most * part / 4, f"{most * part / 4:.3g} {plot.unit}".strip()) for part in range(5)]
    panel.axes(plot.title, (), levels)
    colours = (_PAPER, _ADON) if len(series) == 2 else (_PAPER, _GREY, _ADON)
    for number, (who, values) in enumerate(series.items()):
        colour = _ADON if who.startswith("ADON") else colours[number]
        for place, value in enumerate(values):
            if value >= 0:
                panel.bar(place * (len(series) + 1) + number, value, 0.0, colour)
    for place, label in enumerate(plot.labels):
        at = panel.across(place * (len(series) + 1) + (len(series) - 1) / 2)
        panel.parts.append(f'<text x="{at:.1f}" y="276" text-anchor="middle">{label}</text>')
    for number, who in enumerate(series):
        colour = _ADON if who.startswith("ADON") else colours[number]
        words = f'<text x="{60 + 180 * number}" y="298" fill="{colour}">■ {who}</text>'
        panel.parts.append(words)
    return drawing(720, 310, [panel])


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
