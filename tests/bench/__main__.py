"""Runs the benches and writes ``bench-results.json``.

    python -m tests.bench [--only ID] [--out FILE]

A bench that fails costs only its own figures: the others are run and written, and the exit status
is 1. With ``--only``, figures of other ids that stand in the file already are kept.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import BENCHES, Bench, Figure


def load() -> list[str]:
    """Imports every bench module; returns the names of those that cannot be imported."""
    broken = []
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        try:
            importlib.import_module(f"tests.bench.{path.stem}")
        except Exception:  # whatever one module's trouble is, the others are run
            traceback.print_exc()
            broken.append(path.stem)
    return broken


def run(bench: Bench) -> tuple[list[dict[str, Any]], bool]:
    """The bench's rows, and whether it came to its end; what it yielded before failing counts."""
    name = f"{bench.id} {bench.run.__name__}"
    started = time.monotonic()

    def tell(line: str) -> None:
        print(f"{name}: [{time.monotonic() - started:5.1f} s] {line}", flush=True)

    rows: list[dict[str, Any]] = []
    tell("start")
    try:
        for figure in bench.run(tell):
            rows.append(_row(bench, figure))
            tell(_line(figure))
    except Exception:  # a bench may fail in any way, and the others are still wanted
        traceback.print_exc()
        tell("FAILED")
        return rows, False
    return rows, True


def _row(bench: Bench, figure: Figure) -> dict[str, Any]:
    return {
        "id": bench.id,
        "figure": figure.figure,
        "value": figure.value,
        "unit": figure.unit,
        "better": figure.better,
        "peers": dict(figure.peers),
        "goal": figure.goal,
        "command": f"make bench ONLY={bench.id}",
    }


def _line(figure: Figure) -> str:
    peers = "".join(f"; {name} {value:.4g}" for name, value in figure.peers.items())
    goal = ""
    if figure.goal is not None:
        word = "at least" if figure.better == "higher" else "at most"
        missed = "" if figure.reached else ", MISSED"
        goal = f" (goal: {word} {figure.goal:g}{missed})"
    return f"{figure.figure}: {figure.value:.4g} {figure.unit}{goal}{peers}"


def _kept(out: Path, ids: set[str]) -> list[dict[str, Any]]:
    """Rows of an earlier run, of benches that are not run now."""
    try:
        rows = json.loads(out.read_text())
        return [row for row in rows if row["id"] not in ids]
    except (OSError, ValueError, KeyError, TypeError):
        return []  # no earlier results, or none that can be read: they are made anew


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 where all benches ran, 1 where one failed, 2 for an id that is not there."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", metavar="ID", default="", help="such as P7")
    parser.add_argument("--out", type=Path, default=Path("bench-results.json"))
    options = parser.parse_args(arguments)
    broken = load()
    known = sorted({bench.id for bench in BENCHES})
    chosen = [bench for bench in BENCHES if options.only in ("", bench.id)]
    if not chosen:
        print(
            f"found no bench {options.only!r}, expected one of {', '.join(known)}", file=sys.stderr
        )
        return 2
    busy, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if busy > cores / 2:
        print(f"load average {busy:.1f} on {cores} cores before the start: times will be too long")
    rows = _kept(options.out, {bench.id for bench in chosen}) if options.only else []
    failed = list(broken)
    for bench in chosen:
        new, whole = run(bench)
        failed += [] if whole else [f"{bench.id} {bench.run.__name__}"]
        rows += new
        # Written after each: a bench that takes the machine down does not take the results along.
        ordered = sorted(rows, key=lambda row: str(row["id"]))
        options.out.write_text(json.dumps(ordered, indent=1) + "\n")
    print(f"{len(rows)} figures in {options.out}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
