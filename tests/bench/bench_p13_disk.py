"""P13: the knee of real disks, found and followed over real switches.

A transfer goes over 150 Mb/s of the testbed's network into disks of 20, 40 and 80 Mb/s, whose
writers wait as those of a full disk do. Periods are of two seconds; nothing else is known about a
disk but what switches count and processes wait.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median

from adon.machine import box, packages
from network_provisioner.base.units import format_rate
from tests.bench import Figure, Tell, bench

ROOT = Path(__file__).resolve().parents[2]
GOAL_S = 20.0


@bench("P13")
def real_disks(tell: Tell) -> Iterable[Figure]:
    """About five minutes; as root, in network namespaces of its own."""
    reason = box.can_box()
    if reason is not None:
        tell(f"not measured: it needs root and network namespaces of its own ({reason})")
        return
    packages.ensure("openvswitch", progress=tell)  # needs the host's network
    rows = []
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as folder:
        words = [*box.command(), sys.executable, "-m", "tests.bench.knee_inside", folder]
        with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as inside:
            assert inside.stdout is not None
            for line in inside.stdout:
                rows.append(json.loads(line))
                tell(_said(rows[-1]))
        if inside.returncode:
            raise RuntimeError(f"the measurement ended with {inside.returncode}")
    yield from figures(rows)


def _said(row: Mapping[str, float]) -> str:
    return (
        f"disk of {format_rate(row['disk_bps'])}, which takes {format_rate(row['true_bps'])}: "
        f"{format_rate(row['bps'])} after {row['seconds']:.0f} s and {row['changes']:.0f} changes, "
        f"{format_rate(row['kept_bps'])} later; a neighbour after {row['followed_s']:.0f} s"
    )


def figures(rows: Iterable[Mapping[str, float]]) -> Iterable[Figure]:
    """Over all disks."""
    results = list(rows)
    for name, words in (("bps", "when it is found"), ("kept_bps", "20 s later")):
        errors = [100 * (row[name] / row["true_bps"] - 1) for row in results]
        worst = max(map(abs, errors))
        yield Figure(f"knee's error on real disks, worst, {words}", worst, "%", "lower", 5.0, {})
        yield Figure(
            f"beyond the knee on real disks, {words}", max(0.0, *errors), "%", "lower", 5.0, {}
        )
    seconds = median(row["seconds"] for row in results)
    yield Figure(
        "seconds until the knee of a real disk is found", seconds, "s", "lower", GOAL_S, {}
    )
    followed = median(row["followed_s"] for row in results)
    yield Figure("seconds until a neighbour is followed", followed, "s", "lower", None, {})
