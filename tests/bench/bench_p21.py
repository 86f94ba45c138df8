"""P21: what accidents and people do to a network that carries transfers.

Six Open vSwitch switches, a ring whose first side is two parallel links, and a branch; the broker
as it is started by `adon broker`; four transits (one over two paths, one with IPv6) and best effort
between six sites, 100 packets a second each. Each fault is applied three times, with rates kept by
DSCP and HTB and, at the same time on a network of its own, by meters. What was done is kept in
``.adon/bench-p21.jsonl`` until all is done, so a bench that was stopped goes on where it was.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from adon.machine import box, packages
from tests.bench import Figure, Tell, bench

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".adon" / "bench-p21.jsonl"
BANDWIDTHS = ("dscp-htb", "meter")
ROUNDS = 3
REPORTED_S, BACK_S = 2.0, 5.0


@dataclass(frozen=True, slots=True)
class Run:
    """One fault, once.

    ``reported_s``  from the fault until health or the log reported it, None for never
    ``reports``     lines of the log
    ``own_gap_s``, ``other_gap_s``  the longest time without a packet of a flow that the fault
                    concerns, and of all others, of which ``other_lost`` packets were lost
    ``back_s``      from the end of the fault until all was as before, None for never
    ``last``        what it was that was as before last
    ``left``        what was there beside, or missing, when the transits had been given back and
                    asked for anew
    """

    bandwidth: str
    fault: str
    number: int
    is_news: bool
    reported_s: float | None = None
    report: str = ""
    reports: int = 0
    own_gap_s: float = 0.0
    other_gap_s: float = 0.0
    other_lost: int = 0
    back_s: float | None = None
    left: list[str] = field(default_factory=list)
    last: str = ""


@bench("P21")
def faults(tell: Tell) -> Iterable[Figure]:
    """A quarter of an hour; as root, in network namespaces of its own."""
    reason = box.can_box()
    if reason is not None:
        tell(f"not measured: it needs root and network namespaces of its own ({reason})")
        return
    # Downloads need the host's network, so before the box is made.
    packages.ensure("openvswitch", progress=tell)
    KEPT.parent.mkdir(exist_ok=True)
    runs = [Run(**json.loads(line)) for line in _lines()]
    if runs:
        tell(f"goes on after {len(runs)} runs of {KEPT}; without that file it begins anew")
    came: queue.Queue[str | None] = queue.Queue()
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as folder, KEPT.open("a") as kept:
        insides = [_start(b, Path(folder) / b, runs, came) for b in BANDWIDTHS]
        for _ in insides:
            while (line := came.get()) is not None:
                run = Run(**json.loads(line))
                kept.write(line)
                kept.flush()
                runs.append(run)
                tell(said(run))
        if any(inside.wait() for inside in insides):
            raise RuntimeError(f"a network ended before all was measured; what was is in {KEPT}")
    yield from figures(runs)
    for line in table(runs):
        tell(line)
    KEPT.unlink()


def _lines() -> list[str]:
    return KEPT.read_text().splitlines() if KEPT.exists() else []


def _start(
    bandwidth: str, folder: Path, runs: Sequence[Run], came: queue.Queue[str | None]
) -> subprocess.Popen[str]:
    done = [f"{run.fault}/{run.number}" for run in runs if run.bandwidth == bandwidth]
    words = ["-m", "tests.bench.faults_inside", bandwidth, str(folder), str(ROUNDS), *done]
    inside = subprocess.Popen(
        [*box.command(), sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert inside.stdout is not None

    def read(lines: Iterable[str]) -> None:
        for line in lines:
            came.put(line)
        came.put(None)

    threading.Thread(target=read, args=[inside.stdout], daemon=True).start()
    return inside


def said(run: Run) -> str:
    """A run in a line."""
    report = "" if not run.is_news else f"reported after {_seconds(run.reported_s)}"
    report += f" ({run.report[:120]}), " if run.report else ", " if report else ""
    return (
        f"{run.fault}, {run.bandwidth}, {run.number + 1}: {report}"
        f"gap {run.own_gap_s:.2f} s, others' {run.other_gap_s:.2f} s ({run.other_lost} lost), "
        f"as before {_seconds(run.back_s)} after it"
        + (f", the last was {run.last[:200]}" if (run.back_s or 0) > BACK_S else "")
        + (f"; LEFT {len(run.left)}: {' | '.join(run.left[:4])}" if run.left else "")
    )


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"


def figures(runs: Sequence[Run]) -> Iterable[Figure]:
    """What the runs say: for each fault the worst of its runs."""
    for name, these in _by_fault(runs):
        if these[0].is_news:
            worst = _worst([run.reported_s for run in these])
            yield Figure(f"{name}: reported", worst, "s", "lower", REPORTED_S)
        yield Figure(f"{name}: gap", max(run.own_gap_s for run in these), "s", "lower")
        lost = max(run.other_lost for run in these)
        yield Figure(f"{name}: others' packets lost", lost, "packets", "lower", 0.0)
        yield Figure(
            f"{name}: as before", _worst([run.back_s for run in these]), "s", "lower", BACK_S
        )
        yield Figure(f"{name}: left", max(len(r.left) for r in these), "entries", "lower", 0.0)


def table(runs: Sequence[Run]) -> Iterable[str]:
    """The same in Markdown."""
    yield "| fault | reported, s | gap, s | others lost | as before, s | left |"
    yield "|---|---|---|---|---|---|"
    for name, these in _by_fault(runs):
        reported = [run.reported_s for run in these] if these[0].is_news else []
        cells = [
            _range(reported),
            _range([run.own_gap_s for run in these]),
            str(max(run.other_lost for run in these)),
            _range([run.back_s for run in these]),
            str(max(len(run.left) for run in these)),
        ]
        yield f"| {name} | {' | '.join(cells)} |"


def _by_fault(runs: Sequence[Run]) -> Iterable[tuple[str, list[Run]]]:
    for name in dict.fromkeys(run.fault for run in runs):
        yield name, [run for run in runs if run.fault == name]


def _worst(values: Sequence[float | None]) -> float:
    """The largest; more than a minute where one has none."""
    return max(60.0 if value is None else value for value in values)


def _range(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "never" if values else "–"
    text = f"{min(known):.1f}–{max(known):.1f}"
    return text + (f", {len(values) - len(known)} never" if len(known) < len(values) else "")
