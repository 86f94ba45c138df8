"""P10: many small files against one large one over the same path of the testbed.

What ADON gives a transfer (its path, and a submit file as PRE leaves it, for the real
pegasus-transfer; for iRODS our plug-in of HTCondor) beside pegasus-transfer as Pegasus plans it,
globus-url-copy on its own, and get() of iRODS's client. In place of 10,000 files of 1 MB and one of
10 GB there are 500 and one of 500 MB on a path of 200 Mb/s and 53 ms, of which 180 can be reserved:
starts weigh twenty times as much.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from adon.machine import box, packages
from network_provisioner.base.units import goodput
from tests.bench import Figure, Tell, bench

ROOT = Path(__file__).resolve().parents[2]
ADON = "ADON"
PROGRAMS = ("openvswitch", "gridftp")
SCHEMES = {
    "gsiftp": ("GridFTP, between two servers", 80.0),
    "http": ("HTTP, to a file", 80.0),
    "irods": ("iRODS (the tests' zone), to a file", None),
}


@bench("P10")
def many_small_files(tell: Tell) -> Iterable[Figure]:
    """About five minutes; as root, in network namespaces of its own."""
    reason = box.can_box()
    if reason is not None:
        tell(f"not measured: it needs root and network namespaces of its own ({reason})")
        return
    # Downloads need the host's network, so before the box is made.
    programs = [
        str(packages.ensure(name, progress=tell) / "wrap") for name in ("openvswitch", "gridftp")
    ]
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as folder:
        words = [sys.executable, "-m", "tests.bench.many_files_inside", *programs, folder]
        rates: dict[str, dict[str, float]] = {}
        with subprocess.Popen(
            [*box.command(), *words], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as inside:
            assert inside.stdout is not None
            for line in inside.stdout:
                row = json.loads(line)
                rate = goodput(row["files"] * row["bytes"], row["seconds"])
                tell(_said(row, rate))
                kind = "large" if row["files"] == 1 else "small"
                rates.setdefault(f"{row['scheme']} {kind}", {})[row["way"]] = rate
        if inside.returncode:
            raise RuntimeError(f"the measurement ended with {inside.returncode}")
    yield from figures(rates)


def figures(rates: Mapping[str, Mapping[str, float]]) -> Iterable[Figure]:
    """``rates``: b/s of each way, by scheme and kind of list."""
    for scheme, (label, goal) in SCHEMES.items():
        large, small = (dict(rates[f"{scheme} {kind}"]) for kind in ("large", "small"))
        single, many = large.pop(ADON), small.pop(ADON)
        peers = {way: rate / 1e6 for way, rate in large.items()}
        yield Figure(f"{label}: one large file", single / 1e6, "Mb/s", "higher", peers=peers)
        yield Figure(
            f"{label}: small files, of what one large file reaches with ADON",
            100 * many / single,
            "%",
            better="higher",
            goal=goal,
            peers={way: 100 * rate / single for way, rate in small.items()},
        )


def _said(row: Mapping[str, Any], rate_bps: float) -> str:
    what = f"{row['files']} of {row['bytes'] / 1e6:.0f} MB"
    seconds = f"{row['seconds']:.1f} s"
    return f"{row['scheme']}, {row['way']}: {what} in {seconds}, {rate_bps / 1e6:.0f} Mb/s"
