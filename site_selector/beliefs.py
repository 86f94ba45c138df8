"""Beliefs: values with where they come from and how old they are, and what measurements look like.

The archive stands behind :class:`MeasurementSource`, so that site selection never opens a file of
measurements itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Protocol


class Measured(Protocol):
    """A robust estimate from measurements, as ``monitors.archive`` gives it."""

    @property
    def value(self) -> float:
        """In the unit of the metric."""
        ...

    @property
    def spread(self) -> float:
        """Typical deviation, same unit."""
        ...

    @property
    def count(self) -> int:
        """Number of measurements behind it."""
        ...

    @property
    def at(self) -> float:
        """Unix second of the latest of them."""
        ...


class MeasurementSource(Protocol):
    """Where measurements come from. None where nothing was measured up to ``now``."""

    def estimate(self, metric: str, subject: str, now: float) -> Measured | None:
        """The estimate of ``metric`` ("throughput", "runtime", …) for ``subject``."""
        ...


class NoMeasurements:
    """A source that has measured nothing."""

    def estimate(self, metric: str, subject: str, now: float) -> Measured | None:
        """Always None."""
        return None


@dataclass(frozen=True, slots=True)
class Belief:
    """A value and where it comes from.

    ``source``: pool is "collector", then "archive", "topology", "catalog", "default". ``at`` is the
    Unix second of a measurement, None for what was written down. ``spread`` has the value's unit.
    """

    value: float
    source: str
    at: float | None = None
    spread: float = 0.0
    note: str = ""

    def as_dict(self, now: float) -> dict[str, Any]:
        """JSON-ready: value (None where infinite), source, age_s (0 for what was written down)."""
        out: dict[str, Any] = {
            "value": self.value if isfinite(self.value) else None,
            "source": self.source,
            "age_s": 0.0 if self.at is None else round(max(0.0, now - self.at), 3),
        }
        if self.spread:
            out["spread"] = self.spread
        if self.note:
            out["note"] = self.note
        return out


@dataclass(frozen=True, slots=True)
class ComputeBelief:
    """How fast a transformation runs at a site: seconds per job, or bytes per second (Γ_c)."""

    kind: str  # "rate" or "runtime"
    belief: Belief

    def seconds(self, s_c_bytes: float) -> float:
        """Time of one job with ``s_c_bytes`` of input on one worker."""
        value = self.belief.value
        return max(s_c_bytes, 1.0) / value if self.kind == "rate" else value


@dataclass(frozen=True, slots=True)
class SiteBelief:
    """N and T_q of a site. T_q is infinite where N is zero."""

    workers: Belief
    queue_wait: Belief


@dataclass(frozen=True, slots=True)
class PathBelief:
    """Γ_a and Γ_t from one site to another, with what Γ_t was computed from.

    ``setup`` is how long a transfer takes beside moving its bytes, in seconds: the stage job's own
    wait and start. Γ cannot tell it, and it decides whether moving small files is worth while.
    """

    gamma_a: Belief
    gamma_t: Belief
    link_bps: float
    rtt_s: float
    streams: int
    buffer_bytes: int
    loss: float
    setup: Belief = field(default_factory=lambda: Belief(0.0, "default"))

    @property
    def rate_bps(self) -> float:
        """min(Γ_t, Γ_a)."""
        return min(self.gamma_a.value, self.gamma_t.value)

    @property
    def bound(self) -> str:
        """Which of the two binds."""
        return "Γ_t" if self.gamma_t.value < self.gamma_a.value else "Γ_a"


@dataclass(frozen=True, slots=True)
class World:
    """All beliefs at the Unix second ``now``. ``paths`` has every ordered pair of places."""

    now: float
    sites: Mapping[str, SiteBelief]
    paths: Mapping[tuple[str, str], PathBelief]
    compute: Mapping[tuple[str, str], ComputeBelief]
    output_ratio: Mapping[str, Belief] = field(default_factory=dict)
