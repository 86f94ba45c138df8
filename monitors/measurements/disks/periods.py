"""What agents report of their hosts' disks each second, in the archive as a row per ten,
and as the Montage paper's Figures 6, 8, 10 and 11 show it."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from monitors.archive.outbox import Outbox
from monitors.base.measurement import Measurement
from network_provisioner.state.disks import DiskSample

METRIC = "disk_io"
PERIOD_S = 10.0
MOST_SECONDS = 20  # of one report; what waits for longer at an agent is thrown away
MOST_PROCESSES = 20  # of a second, the busiest

BINS = 10
LEAST_WRITE_BPS = 10e6  # less is of seconds in which something was computed


@dataclass(frozen=True, slots=True)
class ProcessSecond:
    """What a process read and wrote in a second (bit/s), and the share of it that it waited for
    disks; None where delay accounting is off."""

    name: str
    pid: int
    read_bps: float
    write_bps: float
    io_wait: float | None


@dataclass(frozen=True, slots=True)
class DiskReport:
    """Seconds of a host, oldest first, and the busiest processes in them. ``source``: where I/O
    wait is from, ``delay``, ``pressure`` or ``iowait``."""

    source: str
    seconds: Sequence[DiskSample]
    processes: Sequence[ProcessSecond]

    def __add__(self, later: DiskReport) -> DiskReport:
        """Both, from the same source."""
        processes = [*self.processes, *later.processes]
        return DiskReport(self.source, [*self.seconds, *later.seconds], processes)


class DiskPeriods:
    """Hands on what agents report at once, and archives it by tens of seconds. Thread-safe."""

    def __init__(
        self, hand_on: Callable[[str, Sequence[DiskSample], str], None], outbox: Outbox
    ) -> None:
        self._hand_on, self._outbox = hand_on, outbox
        self._lock = threading.Lock()
        self._open: dict[str, DiskReport] = {}

    def take_in(self, agent: str, report: DiskReport) -> None:
        """A report of an agent; the first of ten new seconds has those before it archived."""
        self._hand_on(agent, report.seconds, report.source)
        with self._lock:
            before = self._open.get(agent)
            same = before is not None and _period(before) == _period(report)
            self._open[agent] = before + report if before and same else report
        if before is None or same:
            return
        self._outbox.record_many([row(agent, before)])


def _period(report: DiskReport) -> tuple[str, float]:
    return report.source, report.seconds[0].at // PERIOD_S


def row(agent: str, report: DiskReport) -> Measurement:
    """As the archive has it, at the end of the last second; rates without fractions."""
    at = report.seconds[-1].at
    seconds = [
        [round(s.at, 3), round(s.read_bps), round(s.write_bps), round(s.io_wait, 3)]
        for s in report.seconds
    ]
    processes = [
        [p.name, p.pid, round(p.read_bps), round(p.write_bps), p.io_wait and round(p.io_wait, 3)]
        for p in report.processes
    ]
    return Measurement(
        f"{METRIC}:{agent}:{at:.3f}", METRIC, agent, fmean(s.io_wait for s in report.seconds), "1",
        at, f"agent:{agent}",
        details={"source": report.source, "seconds": seconds, "processes": processes},
    )  # fmt: skip


def io_wait_histogram(waits: Iterable[float]) -> list[float]:
    """Which share of I/O waits (0 to 1) is below 10 %, 20 %, … 100 %; zeros where there are
    none."""
    return _shares(int(wait * BINS) for wait in waits)


def write_histogram(rates_bps: Iterable[float], most_bps: float) -> list[float]:
    """Which share of write rates is in each tenth of the way to ``most_bps``, those below
    :data:`LEAST_WRITE_BPS` left out; zeros where there are none."""
    return _shares(int(r / most_bps * BINS) for r in rates_bps if r >= LEAST_WRITE_BPS)


def _shares(bins: Iterable[int]) -> list[float]:
    counts = Counter(min(bin_number, BINS - 1) for bin_number in bins)
    return [counts[i] / max(1, counts.total()) for i in range(BINS)]


def hosts_disks(rows: Iterable[Measurement]) -> list[dict[str, Any]]:
    """Of measurements ``disk_io`` (:func:`~.periods.row`), by host: ``mean`` and ``p95`` of its
    seconds, and histograms of its processes' seconds: ``io_waits`` where they are known, and
    ``writes`` up to ``most_write_bps``. JSON-ready."""
    by_host: dict[str, list[Measurement]] = {}
    for row in rows:
        by_host.setdefault(row.subject, []).append(row)
    return [_host(host, by_host[host]) for host in sorted(by_host)]


def _host(host: str, rows: Sequence[Measurement]) -> dict[str, Any]:
    seconds = [second for row in rows for second in row.details["seconds"]]
    processes = [process for row in rows for process in row.details["processes"]]
    writes = [write_bps for _, _, _, write_bps, _ in processes]
    most_bps = max([LEAST_WRITE_BPS, *writes])
    return {
        "host": host,
        "seconds": len(seconds),
        "sources": sorted({row.details["source"] for row in rows}),
        "io_wait": _spread([io_wait for *_, io_wait in seconds]),
        "read_bps": _spread([read_bps for _, read_bps, _, _ in seconds]),
        "write_bps": _spread([write_bps for _, _, write_bps, _ in seconds]),
        "io_waits": io_wait_histogram(wait for *_, wait in processes if wait is not None),
        "writes": write_histogram(writes, most_bps),
        "most_write_bps": most_bps,
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": fmean(values), "p95": sorted(values)[math.ceil(0.95 * len(values)) - 1]}
