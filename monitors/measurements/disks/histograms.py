"""What hosts' disks did, as the Montage paper's Figures 6, 8, 10 and 11 show it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from monitors.base.measurement import Measurement

BINS = 10
LEAST_WRITE_BPS = 10e6  # less is of seconds in which something was computed


def io_wait_histogram(waits: Iterable[float]) -> list[float]:
    """Which share of I/O waits (0 to 1) is below 10 %, 20 %, … 100 %; zeros where there are
    none."""
    return _shares(int(wait * BINS) for wait in waits)


def write_histogram(rates_bps: Iterable[float], most_bps: float) -> list[float]:
    """Which share of write rates is in each tenth of the way to ``most_bps``, those below
    :data:`LEAST_WRITE_BPS` left out; zeros where there are none."""
    return _shares(int(r / most_bps * BINS) for r in rates_bps if r >= LEAST_WRITE_BPS)


def _shares(bins: Iterable[int]) -> list[float]:
    counts = Counter(min(one, BINS - 1) for one in bins)
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
