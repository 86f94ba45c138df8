"""Runs the benches and writes their results to ``docs/results``.

    python -m tests.bench [--only ID] [--bench NAME] [--out FOLDER]

A bench that fails, or cannot measure here, leaves its earlier result as it is; the others are run
and written, and the exit status is 1 where one failed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.bench import BENCHES, Bench, Figure, Input
from tests.bench.results import FOLDER, Run, commit, record, save


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


def run(bench: Bench) -> tuple[Run | None, bool]:
    """The bench's result, None if it has no figures, and whether it came to its end."""
    name = f"{bench.id} {bench.run.__name__}"
    started, busy, before = time.monotonic(), os.getloadavg()[0], commit()

    def tell(line: str) -> None:
        print(f"{name}: [{time.monotonic() - started:5.1f} s] {line}", flush=True)

    figures: list[Figure] = []
    inputs: dict[str, str] = {}
    tell("start")
    try:
        for item in bench.run(tell):
            if isinstance(item, Input):
                inputs[item.name] = item.digest
            else:
                figures.append(item)
                tell(_line(item))
    except Exception:  # a bench may fail in any way, and the others are still wanted
        traceback.print_exc()
        tell("FAILED")
        return None, False
    return (record(bench, figures, inputs, before, busy) if figures else None), True


def _line(figure: Figure) -> str:
    peers = "".join(f"; {name} {value:.4g}" for name, value in figure.peers.items())
    goal = ""
    if figure.goal is not None:
        word = "at least" if figure.better == "higher" else "at most"
        missed = "" if figure.reached else ", MISSED"
        goal = f" (goal: {word} {figure.goal:g}{missed})"
    return f"{figure.figure}: {figure.value:.4g} {figure.unit}{goal}{peers}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 where all benches ran, 1 where one failed, 2 for an id that is not there."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", metavar="ID", default="", help="such as P7")
    parser.add_argument("--bench", metavar="NAME", default="", help="one of its functions")
    parser.add_argument("--out", metavar="FOLDER", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    broken = load()
    known = sorted({bench.id for bench in BENCHES})
    chosen = [
        bench
        for bench in BENCHES
        if options.only in ("", bench.id) and options.bench in ("", bench.run.__name__)
    ]
    if not chosen:
        words = f"{options.only} {options.bench}".strip()
        print(f"found no bench {words!r}, expected one of {', '.join(known)}", file=sys.stderr)
        return 2
    busy, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if busy > cores / 2:
        print(f"load average {busy:.1f} on {cores} cores before the start: times will be too long")
    failed = list(broken)
    for bench in chosen:
        result, whole = run(bench)
        failed += [] if whole else [f"{bench.id} {bench.run.__name__}"]
        # Written after each: a bench that takes the machine down does not take the results along.
        if result is not None:
            save(bench.id, bench.run.__name__, result, options.out)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
