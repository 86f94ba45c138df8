"""Results of the benches: ``docs/results/P7.json``, from which docs/benchmarks.md has its tables.

A file holds the latest run of each bench of an id:

    {"status_lag": {"command": "make bench ONLY=P7", "commit": "4d941962", "date": "2026-11-29",
                    "machine": "2 cores, AMD EPYC, Linux 6.1", "load": [0.4, 1.3],
                    "inputs": {"1000genome.json": "sha256:…"}, "figures": […]}}

``commit`` ends with ``+`` where files outside docs differed from it, and ``load`` is the load
average of a minute before and after the run. What nobody has measured with this program yet has
``typed`` instead, which says where the figures were typed from, and a ``table`` of text.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench import Bench, Figure

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "results"

Run = Mapping[str, Any]


def load(bench_id: str, folder: Path = FOLDER) -> dict[str, Run]:
    """The runs of an id by name of bench; none where nothing is measured yet."""
    try:
        runs: dict[str, Run] = json.loads((folder / f"{bench_id}.json").read_text())
    except FileNotFoundError:
        return {}
    return runs


def save(bench_id: str, name: str, run: Run, folder: Path = FOLDER) -> None:
    """Replaces the run of one bench."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**load(bench_id, folder), name: run}, indent=1, ensure_ascii=False)
    (folder / f"{bench_id}.json").write_text(text + "\n")


def record(
    bench: Bench,
    figures: Sequence[Figure],
    inputs: Mapping[str, str],
    commit_before: str,
    load_before: float,
) -> Run:
    """A run that has just ended; what was checked out, and the load, before it."""
    return {
        "command": f"make bench ONLY={bench.id}",
        "commit": commit_before,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
        "load": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "inputs": dict(inputs),
        "figures": [_compact(figure) for figure in figures],
    }


def commit() -> str:
    """What is checked out, with ``+`` where files outside docs differ; empty outside of git."""
    head = _git("rev-parse", "--short=8", "HEAD")
    return head + "+" if head and _git("status", "--porcelain", "-uno", ":!docs") else head


def machine() -> str:
    """Cores that this process may use, processor, kernel."""
    model = re.search(r"(?m)^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text())
    words = [f"{len(os.sched_getaffinity(0))} cores", *([model[1]] if model else [])]
    return ", ".join([*words, f"Linux {'.'.join(platform.release().split('.')[:2])}"])


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def _compact(figure: Figure) -> dict[str, Any]:
    """Without what is not there, and to five digits: more are noise, and make every run differ."""
    values = asdict(figure) | {"value": _rounded(figure.value)}
    values["peers"] = {name: _rounded(value) for name, value in figure.peers.items()}
    return {key: value for key, value in values.items() if value not in (None, {})}


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
