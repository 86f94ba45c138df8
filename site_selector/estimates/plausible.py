"""Measurements that cannot be: a clock that jumped, a run of no time, bytes beyond the link's rate.

They are left out where measurements become estimates, so that what is declared is assumed instead,
and the note says so. One among many does no harm, for estimates are medians; this is for subjects
of which most was measured so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

from monitors.base.estimates import Estimate
from network_provisioner.base.units import MAX_SIZE_BYTES, format_rate
from site_selector.estimates.world import MeasurementSource, NoMeasurements

_SKEW_S = 300.0  # clocks of a broker and of a planner may be so far apart
_LEAST, _YEAR_S = 1e-3, 365 * 86400.0  # no process starts and ends in less than a millisecond
_MOST_BPS, _MOST_BYTES_PER_S = 1e13, 1e11  # no link and no core is faster
_BEYOND = 2.0  # times what a path carries: less may be a way of counting
_MOST_NAMED = 3
_RANGES: Mapping[str, tuple[float, float]] = {
    "throughput": (_LEAST, _MOST_BPS),
    **dict.fromkeys(("transfer_rate", "disk_rate"), (_LEAST, _MOST_BPS)),
    "free_space": (0.0, MAX_SIZE_BYTES),
    "compute_rate": (_LEAST, _MOST_BYTES_PER_S),
    "runtime": (_LEAST, _YEAR_S),
    **dict.fromkeys(("queue_wait", "transfer_setup", "transfer_start"), (0.0, _YEAR_S)),
    "file_start": (0.0, _YEAR_S),
    **dict.fromkeys(("dag_overhead", "output_ratio", "belief_error"), (0.0, _YEAR_S)),
}
_MADE_OF = dict.fromkeys(("transfer_rate", "transfer_start", "file_start"), "throughput")


@dataclass(slots=True)
class PlausibleMeasurements:
    """Those of ``source`` that can be. ``carries``: the bit/s of a path "src>dst", infinite where
    nobody knows."""

    source: MeasurementSource
    carries: Callable[[str], float]
    _found: bool = False
    _left_out: dict[tuple[str, str], str] = field(default_factory=dict)

    def estimate(self, metric: str, subject: str, now: float) -> Estimate | None:
        """As the source has it, None for what cannot be."""
        known = self.source.estimate(metric, subject, now)
        if known is None:
            return None
        self._found = True
        whole = (_MADE_OF.get(metric, ""), subject)
        if whole[0] and self.estimate(*whole, now) is None and whole in self._left_out:
            return None
        least, most = _RANGES.get(metric, (-inf, inf))
        if metric == "throughput":
            most = min(most, _BEYOND * self.carries(subject))
        if known.at > now + _SKEW_S:
            why = f"measured {known.at - now:.0f} s from now"
        elif not least <= known.value <= most:
            show = format_rate if known.unit == "bit/s" else f"{{:.3g}} {known.unit}".format
            edge = f"at least {show(least)}" if known.value < least else f"at most {show(most)}"
            why = f"found {show(known.value)}, expected {edge}"
        else:
            return known
        self._left_out[metric, subject] = f"{metric} of {subject}: {why}"
        return None

    @property
    def subjects(self) -> frozenset[str] | None:
        """What anything is known about; None if the source cannot say."""
        if isinstance(self.source, NoMeasurements):
            return frozenset()
        known = getattr(self.source, "known", None)
        return None if known is None else frozenset(subject for _, subject in known)

    @property
    def note(self) -> str:
        """One line: what was left out, that nothing is there, or what the source says."""
        reasons = list(self._left_out.values())
        more = len(reasons) - _MOST_NAMED
        lines = [
            getattr(self.source, "note", ""),
            *(
                [f"ignored, and the catalogs used: {', '.join(reasons[:_MOST_NAMED])}"]
                if reasons
                else []
            ),
            *([f"{more} more like it"] if more > 0 else []),
        ]
        if not self._found and not lines[0] and not isinstance(self.source, NoMeasurements):
            lines = ["no measurements yet; the catalogs are used"]
        return "; ".join(line for line in lines if line)
