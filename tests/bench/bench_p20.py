"""P20: promises that are broken are told, slow senders are not accused, and a transfer whose path
gets worse ends sooner on another.

Real Open vSwitch switches with two paths of 200 and 150 Mb/s, 53 ms there and back; a transit of
60 Mb/s, and an agent at its sender.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from adon.machine import box, packages
from tests.bench import Figure, Tell, bench

ROOT = Path(__file__).resolve().parents[2]


@bench("P20")
def promises(tell: Tell) -> Iterable[Figure]:
    """A quarter of an hour; as root, in network namespaces of its own."""
    reason = box.can_box()
    if reason is not None:
        tell(f"not measured: it needs root and network namespaces of its own ({reason})")
        return
    # Downloads need the host's network, so before the box is made.
    packages.ensure("openvswitch", progress=tell)
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as folder:
        words = [*box.command(), sys.executable, "-m", "tests.bench.promises_inside", folder]
        tried = []
        with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as inside:
            assert inside.stdout is not None
            for line in inside.stdout:
                tell(line.rstrip())
                tried.append(json.loads(line))
        if inside.returncode:
            raise RuntimeError(f"ended with {inside.returncode} before all was measured")
    for trial in tried:
        if trial["what"] == "broken":
            told_s = 1e9 if trial["told_s"] is None else trial["told_s"]  # JSON knows no infinity
            yield Figure(f"{trial['fault']}, told after", told_s, "s", "lower", goal=10)
    wrong = sum(trial["states"].get("broken", 0) for trial in tried if trial["what"] == "slow")
    yield Figure("looks that accuse the network of a slow sender", wrong, "", "lower", goal=0)
    seconds = {
        what: [trial["seconds"] for trial in tried if trial["what"] == what]
        for what in ("moved", "stayed")
    }
    yield Figure(
        "transfer whose path gets worse, median of three", median(seconds["moved"]), "s", "lower",
        peers={"without moving": median(seconds["stayed"])},
    )  # fmt: skip
    without, with_move = (trial for trial in tried if trial["what"] == "cost")
    yield Figure("a move alone", with_move["seconds"] - without["seconds"], "s", "lower")
    again = with_move["retransmitted"] - without["retransmitted"]
    yield Figure("sent again for it", again, "B", "lower")
