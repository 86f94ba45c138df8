"""How long the hosts of sites wait for their disks, as their agents report it. No effects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FRESH_S = 30.0  # an agent reports more often, also when nothing moves
_MEAN_S = 3.0


@dataclass(frozen=True, slots=True)
class DiskSample:
    """One second of a host that ended ``at`` (Unix seconds): what its disks read and wrote (bit/s),
    and which share of it the processes that did so waited for them, 0 to 1."""

    at: float
    read_bps: float
    write_bps: float
    io_wait: float


@dataclass(frozen=True, slots=True)
class _Report:
    """What one agent said last, and the seconds before that still count."""

    site: str
    at: float
    samples: tuple[DiskSample, ...]
    source: str


class ReportedDisks:
    """What agents reported last. Not thread-safe."""

    def __init__(self) -> None:
        self._last: dict[str, _Report] = {}

    def take_in(
        self, agent: str, site: str, samples: Sequence[DiskSample], source: str, now: float
    ) -> None:
        """What an agent at a site saw since its last report. ``source``: where I/O wait is from,
        ``delay``, ``pressure`` or ``iowait``."""
        fresh = {name: r for name, r in self._last.items() if now - r.at < FRESH_S}
        before = fresh[agent].samples if agent in fresh else ()
        kept = tuple(s for s in (*before, *samples) if now - s.at < _MEAN_S)
        self._last = fresh | {agent: _Report(site, now, kept, source)}

    def io_wait(self, site: str, now: float) -> float | None:
        """Mean I/O wait of the last seconds at the busiest host of a site; None where nobody
        reports. A host that says nothing for a few seconds waits for nothing."""
        shares = []
        for report in self._last.values():
            if report.site == site and now - report.at < FRESH_S:
                waits = [s.io_wait for s in report.samples if now - s.at < _MEAN_S]
                shares.append(sum(waits) / len(waits) if waits else 0.0)
        return max(shares, default=None)
