"""What the papers' figures have: the papers' own numbers, and what was measured here.

Each function returns the values of one plot, by who has them; None where nothing is measured yet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from examples.soykb.fig18.story import SCALE, TRANSFERS
from monitors.measurements.probes.disks import write_histogram
from network_provisioner.selection.transit import Metric, PathMetrics, choose
from network_provisioner.templates.data import template_from_dict
from network_provisioner.topology.graph import Path
from tests.bench import paper_runs
from tests.bench.results import ROOT, load

FIGURE18 = ROOT / ".adon" / "papers" / "figure18"
SWEEP = ROOT / ".adon" / "papers" / "sweep"
PLACEMENTS = ("default", "isolated")
RATES_BPS = (1e6, 2.5e6, 10e6, 20e6)
DISK_BPS = 12e6

Value = float | tuple[float, float]
"""A value, or a mean and half of its interval; negative: there is none."""
Series = Mapping[str, Sequence[Value]]
"""Values by who has them, in the order of the plot's labels."""


def measured(bench_id: str, name: str) -> dict[str, dict[str, float]]:
    """Figures of a bench: ADON's value and the peers', by the figure's name."""
    run = load(bench_id).get(name, {})
    return {
        figure["figure"]: {"ADON": figure["value"], **figure.get("peers", {})}
        for figure in run.get("figures", [])
    }


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
        8 * transfer.size_bytes / (spans[transfer.name][1] - spans[transfer.name][0]) / SCALE / 1e9
        for transfer in TRANSFERS
    ]
    return {"thesis": (5.5, 5.5, 0.65, -1), "ADON": rates}


def selection() -> Series:
    """Figure 6 with what the thesis measured at t1, t4 and t6: the score of each path that meets
    the QSpec, b/s divided by 1e9."""
    template = template_from_dict(
        "paper", {"qspec": {"min_throughput": "600 Mb/s"}, "rspec": {"max_throughput": "10 Gb/s"}}
    )
    ways = {layer: Path(("mu", layer, "osu"), rate, 0.05, 0.0, layer) for layer, rate in
            (("l2", 10e9), ("l3", 1e9))}  # fmt: skip
    scores: dict[str, list[float]] = {layer: [] for layer in ways}
    for needed, measured in ((700e6, (5.5e9, 650e6)), (600e6, (500e6, 650e6)),
                             (700e6, (500e6, 100e6))):  # fmt: skip
        known = [
            (path, PathMetrics(path.capacity_bps, Metric(bps, "probe"), not_guaranteed=path.layer))
            for path, bps in zip(ways.values(), measured, strict=True)
        ]
        choice = choose(known, template, min_bps=needed)
        for candidate in choice.candidates:
            scores[candidate.path.layer].append(-1 if candidate.rejected else candidate.q)
    return {"layer 2": scores["l2"], "layer 3": scores["l3"]}


def sampled() -> Series | None:
    """Figure 18: what the switches counted of each transfer, half a second after another."""
    try:
        story = json.loads((FIGURE18 / "figure18.json").read_text())
    except FileNotFoundError:
        return None
    rows = {}
    for transfer in TRANSFERS:
        began, ended = story["spans"][transfer.name]
        rates: list[float] = []
        for sample in story["samples"]:
            new = sample["rates"].get(transfer.name)
            lasting = rates[-1] if rates and began <= sample["at_s"] <= ended else 0.0
            rates.append(new / SCALE / 1e9 if new is not None else lasting)
        rows[transfer.name] = rates
    return rows


def by_layer() -> Series | None:
    """Figures 19 to 21: throughput by size, Gb/s by the thesis's scale."""
    rates = paper_runs.load("soykb")
    cases = ("L2 alone", "L3 alone", "L2 beside others")
    keys = [f"{case}, {size} GB" for case in cases for size in paper_runs.SIZES]
    if not all(rates.get(key) for key in keys):
        return None
    published = (5.5, 0.65, 0.5)  # "close to 5.5", "around 650 Mb/s", "around 500 Mb/s"
    return {
        "thesis": [value for value in published for _ in paper_runs.SIZES],
        "ADON": [scaled(rates[key], 1 / SCALE / 1e9) for key in keys],
    }


def threads() -> Series | None:
    """Figure 22: of a layer-2 path, by streams."""
    rates = paper_runs.load("soykb")
    tools = {"GridFTP": "gridftp", "iRODS": "irods"}
    keys = {name: [f"{tool}, {n} threads" for n in paper_runs.THREADS]
            for name, tool in tools.items()}  # fmt: skip
    if not all(rates.get(key) for row in keys.values() for key in row):
        return None
    full = 100 / paper_runs.LAYERS["L2"][0]
    return {name: [scaled(rates[key], full) for key in row] for name, row in keys.items()}


def buffers() -> Series | None:
    """Figures 23 and 24: throughput ÷ that with the smallest buffer."""
    rates = paper_runs.load("soykb")
    rows: dict[str, list[Value]] = {"thesis, 16": [1.0, 1.5, 1.5, 1.0, 1.0, 1.0]}
    for streams in (16, 1):
        row: list[Value] = []
        for layer in paper_runs.LAYERS:
            keys = [f"{layer}, {streams} streams, {size} MB" for size in paper_runs.BUFFERS]
            if not all(rates.get(key) for key in keys):
                return None
            least = paper_runs.bounds(rates[keys[0]])[0]
            row += [scaled(rates[key], 1 / least) for key in keys]
        rows[f"ADON, {streams}"] = row
    return rows


def scaled(rates: Sequence[float], factor: float) -> tuple[float, float]:
    """Mean and half of its interval of 95 %, times a factor."""
    mean, half = paper_runs.bounds(rates)
    return mean * factor, half * factor


# --- policies ------------------------------------------------------------------------------------


def strategies() -> Series | None:
    """What 10-3 carries more than 7-3, and what the computed strategy does."""
    results = measured("P4", "classes_on_the_data_plane")
    if not results:
        return None
    patterns = [row for name, row in results.items() if name.startswith("total goodput")]
    best = {way: sum(row[way] for row in patterns) for way in ("7-3", "10-3", "ADON")}
    return {
        "paper": (0.0, 11.74, -1),
        "ADON": [100 * (best[way] / best["7-3"] - 1) for way in ("7-3", "10-3", "ADON")],
    }


def backlogged() -> Series | None:
    """Figures 6 and 8: each class's part of a backlogged link, in percent."""
    results = measured("P4", "classes_on_the_data_plane")
    names = [f"the first class's part, both backlogged, {way}" for way in ("7-3", "10-3")]
    if not all(name in results for name in names):
        return None
    ours = [results[name][who] for name in names for who in ("ADON", "the second")]
    return {"paper": (70, 30, 70, 30), "ADON": ours}


# --- Steroid OpenFlow Service --------------------------------------------------------------------

_GRIDFTP = ((1.7086, 0.0374), (3.5789, 0.4670), (6.6004, 0.5891), (3.9361, 0.3054),
            (4.4858, 0.1776), (4.6537, 0.4747), (6.1156, 0.3719))  # fmt: skip
_SOS = ((3.7308, 0.4744), (4.8472, 0.0924), (5.1724, 0.0814), (5.0597, 0.0487), (5.0879, 0.1010),
        (5.2692, 0.1540), (4.9361, 0.0284))  # fmt: skip
"""Tables 4.3.1 and 4.3.2: Gb/s of 10, with bounds of 95 %."""
_FULL = 100 / paper_runs.PATH_BPS


def relay() -> Series | None:
    """Percent of the path by streams; the relay's last bar is one stream of bbr."""
    rates = paper_runs.load("sos")
    if not all(rates.get(key) for key in paper_runs.sos_points()):
        return None
    rows: dict[str, list[Value]] = {
        "GridFTP, thesis": [(10 * mean, 10 * half) for mean, half in _GRIDFTP],
        "SOS, thesis": [(10 * mean, 10 * half) for mean, half in _SOS],
    }
    for name, tool in (("GridFTP", "GridFTP"), ("ADON", "relay")):
        keys = [f"{tool}, {n}" for n in paper_runs.STREAMS]
        rows[name] = [scaled(rates[key], _FULL) for key in keys]
    bbr = scaled(rates["relay, bbr"], _FULL)
    return {who: [*values, bbr if who == "ADON" else -1] for who, values in rows.items()}


def relay_buffers() -> Series | None:
    """Table 4.3.3: 64 streams by their buffers."""
    rates = paper_runs.load("sos")
    least, middle, _ = paper_runs.RELAY_BUFFERS
    keys = [f"relay, 64, {least}", f"relay, 64, {middle}", "relay, 64"]
    if not all(rates.get(key) for key in keys):
        return None
    return {"thesis": (49.361, 57.857, 59.84), "ADON": [scaled(rates[k], _FULL) for k in keys]}


# --- Montage -------------------------------------------------------------------------------------


def sweep_runs() -> dict[tuple[str, float], list[dict[str, Any]]]:
    """The sweep's runs by placement and rate, the lowest first."""
    runs: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for file in sorted(SWEEP.glob("*.json")):
        run = json.loads(file.read_text())
        if run["state"] == "success":
            runs.setdefault((run["placement"], run["rate_bps"]), []).append(run)
    return dict(sorted(runs.items()))


def swept() -> bool:
    """Whether each placement has been run with each rate."""
    runs = sweep_runs()
    return all((placement, rate) in runs for placement in PLACEMENTS for rate in RATES_BPS)


def execution_times() -> Series | None:
    """Figures 5 and 9: seconds by bandwidth, each placement; the text of the paper tells ratios."""
    rows = by_placement(lambda runs: paper_runs.bounds([run["seconds"] for run in runs]))
    if rows is None:
        return None
    least = rows["default"][-1]
    mean = least[0] if isinstance(least, tuple) else least
    return {"default, paper": (4 * mean, -1, -1, mean), **rows}


def io_waits() -> Series | None:
    """Figures 6, 10 and 11: samples of the head's processes with more than 90 % of I/O wait."""
    rows = by_placement(lambda runs: 100 * fmean(run["io_wait"][-1] for run in runs))
    return None if rows is None else {"default, paper": (-1, -1, -1, 30), **rows}


def by_placement(value: Callable[[list[dict[str, Any]]], Value]) -> dict[str, list[Value]] | None:
    """A value of the runs with each rate, -1 without any; None without any at the highest."""
    runs = sweep_runs()
    if not all((placement, RATES_BPS[-1]) in runs for placement in PLACEMENTS):
        return None
    return {
        placement: [
            value(runs[placement, rate]) if (placement, rate) in runs else -1 for rate in RATES_BPS
        ]
        for placement in PLACEMENTS
    }


def disk_series() -> Series | None:
    """Figure 7: what the head writes, second by second, at the lowest and the highest rate."""
    runs = sweep_runs()
    rows = {}
    for rate in (RATES_BPS[1], RATES_BPS[-1]):
        disk_runs = [run["disk"] for run in runs.get(("default", rate), ()) if run.get("disk")]
        if not disk_runs:
            return None
        rows[f"{rate / 1e6:g} Mb/s"] = [write_bps / 1e6 for _, write_bps in disk_runs[0]]
    length = max(map(len, rows.values()))
    return {who: [*values, *[0.0] * (length - len(values))] for who, values in rows.items()}


def write_rates() -> Series | None:
    """Figure 8: which share of the writing seconds was at which rate."""
    rows = {}
    runs = sweep_runs()
    for rate in RATES_BPS[1:]:
        disk_runs = [run["disk"] for run in runs.get(("default", rate), ()) if run.get("disk")]
        if not disk_runs:
            return None
        writes = [write_bps for seconds in disk_runs for _, write_bps in seconds]
        rows[f"{rate / 1e6:g} Mb/s"] = [100 * s for s in write_histogram(writes, 4 * DISK_BPS)]
    return rows


# --- Science DMZ ---------------------------------------------------------------------------------


def with_and_without() -> Series | None:
    """Figures 2 and 3: a flow with OpenFlow rules of its own ÷ a normal one."""
    rates = measured("P17", "over_veth").get("one stream over veth pairs, with a path")
    if rates is None:
        return None
    paper = (663 / 630, 1.0, 1.0, 541.0 / 403.2, 1.0, 371.0 / 470.8, -1)
    return {"paper": paper, "ADON": (*[-1.0] * 6, rates["ADON"] / rates["without"])}
