"""The comparison in a terminal's lines, and as a page of figures."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from adon.dashboard.standalone import Figure, page
from examples.compare.judge import Rounds, curve, left_out, mean_of, verdicts
from examples.compare.record import Run
from examples.compare.ways import LEARNED, WAYS
from examples.demo.running import STOPPED
from network_provisioner.base.units import format_rate

_PARTS = ("queue", "computing", "moving", "between")
_KEY = "Seconds; the thin line below a run of ADON's ends where its end was expected."
_COLOURS = {"queue": "s3", "computing": "s1", "moving": "s2", "between": "s4"}


def text(by_network: Mapping[str, Rounds]) -> str:
    """By network: every way's runs, what its time was made of, and what that proves."""
    lines: list[str] = []
    for network, rounds in by_network.items():
        lines += [f"{network} network", _row("way", "seconds", "expected", *_PARTS, "cores")]
        for way in WAYS:
            runs = [r[way.name] for r in rounds.values() if way.name in r]
            good = [run for run in runs if run.good]
            if not good:
                continue
            spans = " ".join("≥" * (r.state == STOPPED) + f"{r.makespan:.0f}" for r in good)
            expected = f"{mean_of(r.expected for r in good):.0f}" if way.by_adon else "–"
            parts = [f"{mean_of(getattr(r.split, part) for r in good):.0f}" for part in _PARTS]
            cores = f"{mean_of(run.cores[0] for run in good):.0%}"
            lines.append(_row(way.name, spans, expected, *parts, cores))
        lines += verdicts(network, rounds)
        lines += [f"not counted: {_why(run)}" for run in left_out(rounds)]
        lines.append("")
    if smaller := curve(by_network):
        lines += [
            f"{LEARNED.name} ÷ the better of Pegasus's two, by how much of it was moving",
            *smaller,
        ]
    return "\n".join(lines).rstrip()


def html(by_network: Mapping[str, Rounds]) -> str:
    """Every run with what its time was made of and the end that was expected, what that proves, and
    who held which link when in the newest round."""
    figures: list[Figure] = []
    smaller = "; ".join(curve(by_network))
    for network, rounds in by_network.items():
        words = "; ".join(verdicts(network, rounds))
        heading = f"Every run on the {network} network"
        words = f"{words}. {_KEY}" + (f" {LEARNED.name} by share: {smaller}." if smaller else "")
        figures.append(Figure("gantt", _runs(rounds), heading, words))
        for run in rounds[max(rounds)].values():
            if run.held:
                heading = f"Who held which link: {run.way}, round {run.number}"
                figures.append(Figure("gantt", _links(run), heading))
    return page("The same workflow with ADON and without", figures)


def _row(way: str, seconds: str, expected: str, *rest: str) -> str:
    return f"  {way:<15}{seconds:<32}{expected:>9}" + "".join(f"{word:>10}" for word in rest)


def _why(run: Run) -> str:
    load = f"cores busy for {run.cores[1]:.0%} of it" if run.by_cores else run.state
    return f"{run.way} of round {run.number}, {run.makespan:.0f} s: {load}"


def _runs(rounds: Rounds) -> dict[str, Any]:
    """A row for each run; the thin line below it ends where its end was expected."""
    groups = []
    for way in WAYS:
        for run in (r[way.name] for r in rounds.values() if way.name in r):
            bars, at = [], 0.0
            for part in _PARTS:
                seconds = getattr(run.split, part)
                tip = f"{part} {seconds:.1f} s"
                bars.append(_bar(f"{seconds:.0f}", _COLOURS[part], at, at + seconds, tip))
                at += seconds
            if way.by_adon and run.expected:
                tip = f"expected end {run.expected:.1f} s"
                bars[0]["held"] = [[0.0, run.expected, tip]]
            name = f"{way.name} {run.number}" + ("" if run.good else ", not counted")
            groups.append((name, bars))
    end = max((bar["end"] for _, bars in groups for bar in bars), default=1.0)
    return {"groups": groups, "end": end, "key": [(c, part) for part, c in _COLOURS.items()]}


def _links(run: Run) -> dict[str, Any]:
    """A row for each direction of a link, with the paths over it."""
    hops: dict[str, list[dict[str, Any]]] = {}
    for hold in run.held:
        tip = f"{hold.job}: {format_rate(hold.bps)} on {' > '.join(hold.path)}"
        for a, b in pairwise(hold.path):
            bar = _bar(format_rate(hold.bps), _COLOURS["moving"], hold.start, hold.end, tip)
            hops.setdefault(f"{a} > {b}", []).append(bar)
    return {"groups": sorted(hops.items()), "end": run.makespan}


def _bar(label: str, cls: str, start: float, end: float, tip: str) -> dict[str, Any]:
    return {"label": label, "cls": cls, "submit": start, "start": start, "end": end,
            "tip": tip, "held": []}  # fmt: skip
