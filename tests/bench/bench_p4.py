"""P4: two classes of transfers on one link of the real data plane, by strategy.

The load patterns are those of the application-aware SDN paper (§V.B): both classes with more to
send than the link carries (Figure 6), one of them alone, both on and off at random (Figure 7), and
the second one switched on and off (Figure 8). A class is a project; its transfers run between the
same two hosts as the other's and are told apart by their ports, which their transits name.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

from adon.machine import box, packages
from tests.bench import Figure, Tell, bench

ROOT = Path(__file__).resolve().parents[2]
VERSION = os.environ.get("ADON_P4_IP", "4")  # of IP
RATE_BPS = 100e6  # of the link, see dataplane_world
OURS = "computed"
PEERS = ("7-3", "10-3")
PAPER_PERCENT = 11.74  # what 10-3 carried more than 7-3 (§V.B)
STEADY = ("both", "q1", "q2")
PATTERNS = {
    "both": "both backlogged",
    "q1": "only the first",
    "q2": "only the second",
    "random": "on and off at random",
    "switched": "the second switched on and off",
}


@dataclass(frozen=True, slots=True)
class Window:
    """One measured window: goodput, and what queues were sure of, per class in b/s."""

    pattern: str
    part: str
    setup: str
    bps: Mapping[str, float]
    sure: Mapping[str, float]

    @property
    def total_bps(self) -> float:
        """Of both classes."""
        return sum(self.bps.values())


@bench("P4")
def classes_on_the_data_plane(tell: Tell) -> Iterable[Figure]:
    """About twelve minutes; as root, in network namespaces of its own."""
    reason = box.can_box()
    if reason is not None:
        tell(f"not measured: it needs root and network namespaces of its own ({reason})")
        return
    # Downloads need the host's network, so before the box is made.
    programs = packages.ensure("openvswitch", progress=tell) / "wrap"
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as folder:
        words = [sys.executable, "-m", "tests.bench.classes_inside", str(programs), folder, VERSION]
        windows = []
        with subprocess.Popen(
            [*box.command(), *words], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as inside:
            assert inside.stdout is not None
            for line in inside.stdout:
                window = Window(**json.loads(line))
                windows.append(window)
                tell(_said(window))
        if inside.returncode:
            raise RuntimeError(f"the measurement ended with {inside.returncode}")
    for figure in figures(windows):
        yield figure if VERSION == "4" else replace(figure, figure=f"IPv{VERSION}: {figure.figure}")


def figures(windows: Sequence[Window]) -> Iterable[Figure]:
    """What the windows say."""
    link = _totals(windows, "both")["link"]
    alone = [w.total_bps for w in windows if (w.pattern, w.setup) == ("both", "link")]
    spread = (max(alone) - min(alone)) / link
    carried = {setup: total / link for setup, total in _totals(windows, "both").items()}
    yield Figure(
        "goodput of a backlogged link, of what it carries without any queue",
        100 * carried[OURS],
        "%",
        better="higher",
        goal=99.0,
        peers={peer: 100 * carried[peer] for peer in PEERS},
    )
    for pattern, label in PATTERNS.items():
        total = _totals(windows, pattern)
        best = max(total[peer] for peer in PEERS)
        yield Figure(
            f"total goodput, {label}: computed, of the better of 7-3 and 10-3",
            total[OURS] / best,
            "",
            better="higher",
            goal=1 - spread,  # no less, as far as this run can tell
            peers={peer: total[peer] / best for peer in PEERS},
        )
    gain = [_totals(windows, pattern)["10-3"] for pattern in PATTERNS]
    base = [_totals(windows, pattern)["7-3"] for pattern in PATTERNS]
    yield Figure(
        "what 10-3 carries more than 7-3, mean of the patterns",
        100 * (mean(gain) / mean(base) - 1),
        "%",
        better="higher",
        peers={"the paper": PAPER_PERCENT},
    )
    scale = link / RATE_BPS
    yield Figure(
        "what a backlogged class got of what its queue was sure of, the least",
        100 * min(_kept(windows, OURS, scale)),
        "%",
        better="higher",
        goal=98.0,
        peers={peer: 100 * min(_kept(windows, peer, scale)) for peer in PEERS},
    )
    for setup in (*PEERS, OURS):
        both = [w for w in windows if (w.pattern, w.setup) == ("both", setup)]
        first = median(next(iter(w.bps.values())) / w.total_bps for w in both)
        yield Figure(
            f"the first class's part, both backlogged, {setup}",
            100 * first,
            "%",
            better="higher",
            peers={"the second": 100 * (1 - first)},
        )
    yield Figure(
        "spread of the link without any queue, between rounds",
        100 * spread,
        "%",
        better="lower",
    )


def _totals(windows: Sequence[Window], pattern: str) -> dict[str, float]:
    """Total goodput by setup: the median of the rounds, the mean over a pattern's parts."""
    rates: dict[str, dict[str, list[float]]] = {}
    for w in windows:
        if w.pattern == pattern:
            part = "" if pattern in STEADY else w.part
            rates.setdefault(w.setup, {}).setdefault(part, []).append(w.total_bps)
    return {setup: mean(map(median, parts.values())) for setup, parts in rates.items()}


def _kept(windows: Sequence[Window], setup: str, scale: float) -> list[float]:
    """Of each class in each steady pattern, the median of its rounds: goodput over what its queue
    was sure of, of which ``scale`` is payload."""
    shares: dict[tuple[str, str], list[float]] = {}
    for w in windows:
        if w.setup == setup and w.pattern in STEADY:
            for name, rate in w.sure.items():
                values = shares.setdefault((w.pattern, name), [])
                values.append(w.bps[name] / (rate * scale))
    return [median(values) for values in shares.values()]


def _said(window: Window) -> str:
    rates = ", ".join(f"{name} {bps / 1e6:.1f}" for name, bps in window.bps.items())
    sure = ", ".join(f"{bps / 1e6:.0f}" for bps in window.sure.values()) or "nothing"
    return (
        f"{PATTERNS[window.pattern]} ({window.part}), {window.setup}: {rates} Mb/s, "
        f"total {window.total_bps / 1e6:.1f}; sure of {sure}"
    )
