"""Estimates: values with where they come from, how old they are, and what they are worth now.

The archive is behind :class:`MeasurementSource`, so that site selection never opens a file of
measurements itself. Fresh and steady measurements are taken as they are. Three things are not:

- An **old** one (more than a day) is weighed against what the topology or the catalog says now: its
  weight halves every week. It is not thrown away, for what a host's disk or TCP could do then is
  mostly what it can do now; nor is it estimated for ever, for networks are rebuilt. Between rates
  the mean is geometric, so that half as fast and twice as fast weigh alike.
- A **widely spread** rate (deviation above 30 % of it) is planned with less than its median. A
  transfer takes S/Γ seconds, and the mean of 1/Γ over rates with a relative deviation c is about
  (1 + c²)/Γ: slow transfers lose more time than fast ones gain.
- Where nothing else is known an old measurement stays, and is told to be old.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Protocol

from monitors.base.estimates import Estimate
from network_provisioner.base.units import format_rate

ELSEWHERE = "elsewhere"
SOURCES = ("collector", "schedd", "archive", ELSEWHERE, "topology", "catalog", "default")
ERRORS_OF = ("queue_wait", "runtime", "throughput")
"""Of which estimates it is learned how far off they are, each by :data:`SOURCES`."""
# A typical deviation (MAD) covers half of what is drawn, and half a uniform range is e/2.
SPREADS = 2.0
DAY_S = 86400.0
FRESH_S = DAY_S
HALF_LIFE_S = 7 * DAY_S
WIDE = 0.3  # relative deviation above which a rate is planned with less than its median
_MOST_SPREAD = 1.0  # beyond it the measurements disagree too much to say by how much less


class MeasurementSource(Protocol):
    """Where measurements come from. None if nothing was measured up to ``now``."""

    def estimate(self, metric: str, subject: str, now: float) -> Estimate | None:
        """The estimate of ``metric`` ("throughput", "runtime", …) for ``subject``."""


class PoolSite(Protocol):
    """What HTCondor says of one site now, as ``condor_plugins.collector.SitePool`` has it."""

    @property
    def at(self) -> float:
        """Unix second of the reading."""

    @property
    def slots(self) -> int:
        """Jobs of one core that can run at once: N."""

    @property
    def memory_bytes(self) -> int:
        """Of its slots together; 0 if unknown."""

    @property
    def idle_slots(self) -> int:
        """Those of them that could start a job now."""

    @property
    def ahead(self) -> float | None:
        """Idle jobs that want these slots; None if no schedd was asked."""

    @property
    def before(self) -> float | None:
        """How many of them start before a new one of this user, by shares and priorities; None
        where that is not known."""

    @property
    def claim_s(self) -> float:
        """For how many seconds a user who has jobs keeps a slot; less than 0: for ever."""

    @property
    def share(self) -> float:
        """What this user can have of the slots while others want them, 0 to 1."""

    @property
    def kept(self) -> int:
        """Slots of jobs that have run for much longer than is usual, and go on."""

    @property
    def run_s(self) -> float | None:
        """How long a job holds a slot here, in seconds; None if unknown."""

    @property
    def start_s(self) -> float | None:
        """What a job waits here without jobs ahead of it; None if unknown."""

    @property
    def mips(self) -> float | None:
        """Speed of one core (Dhrystone); None if machines do not say."""

    @property
    def stalled(self) -> float:
        """Cores of its machines that have stood still for minutes, waiting for disks."""

    @property
    def runtimes(self) -> Mapping[str, tuple[float, int]]:
        """By transformation: median seconds of the jobs that ended here, and how many."""


class NoMeasurements:
    """A source that has measured nothing."""

    def estimate(self, metric: str, subject: str, now: float) -> Estimate | None:
        """Always None."""
        return None


@dataclass(frozen=True, slots=True)
class EstimatedValue:
    """A value and where it comes from.

    ``source``: "collector" or "schedd" (HTCondor), "archive", "topology", "catalog", "default".
    ``at`` is the Unix second of a measurement, None for what was written down. ``spread`` has the
    value's unit and is comparable to a standard deviation; ``count`` is the number of measurements
    behind both.
    """

    value: float
    source: str
    at: float | None = None
    spread: float = 0.0
    note: str = ""
    count: int = field(default=0, compare=False)

    def noted(self, note: str, value: float | None = None) -> EstimatedValue:
        """With a further note, and another value where that is given."""
        joined = f"{self.note}; {note}" if self.note else note
        return replace(self, note=joined, value=self.value if value is None else value)

    def as_dict(self, now: float) -> dict[str, Any]:
        """JSON-ready: value (None if infinite), source, age_s (0 for what was written down)."""
        more = {"spread": self.spread, "count": self.count, "note": self.note}
        return {
            "value": self.value if isfinite(self.value) else None,
            "source": self.source,
            "age_s": 0.0 if self.at is None else round(max(0.0, now - self.at), 3),
            **{key: value for key, value in more.items() if value},
        }


NOTHING = EstimatedValue(0.0, "default")


def origin(estimate: Mapping[str, Any]) -> str:
    """The source of an estimate as :meth:`EstimatedValue.as_dict` has it; what was measured at
    another site, or by probes, is told apart."""
    other = str(estimate.get("note", "")).startswith(("measured ", "by "))
    return ELSEWHERE if other and estimate["source"] == "archive" else str(estimate["source"])


@dataclass(frozen=True, slots=True)
class ComputeEstimate:
    """How fast a transformation runs at a site: seconds per job, or bytes per second (Γ_c)."""

    kind: str  # "rate" or "runtime"
    estimated: EstimatedValue

    def seconds(self, s_c_bytes: float) -> float:
        """Time of one job with ``s_c_bytes`` of input on one worker."""
        value = self.estimated.value
        return max(s_c_bytes, 1.0) / value if self.kind == "rate" else value


@dataclass(frozen=True, slots=True)
class SiteEstimate:
    """N and T_q of a site. T_q is infinite where N is zero. ``lacks`` says of what nothing is left
    now, and who holds it; empty if there is. ``space``: bytes free for the files that its jobs
    share; None if unknown."""

    workers: EstimatedValue
    queue_wait: EstimatedValue
    lacks: str = ""
    space: EstimatedValue | None = None


@dataclass(frozen=True, slots=True)
class PathEstimate:
    """Γ_a and Γ_t from one site to another, with what Γ_t was computed from.

    A transfer takes three things besides its bytes, in seconds: ``setup``, its job's wait and
    start,
    ``first``, the tool's handshakes, and ``further``, what each further file takes. Γ cannot tell
    them, and they decide whether moving small files is worth while.

    ``link_bps`` is the most that one gets, by the link and the template's ceiling; ``room_bps`` is
    what several get together where one alone gets Γ_a, None where Γ_a is all there is.
    ``bottleneck`` is the link that bounds Γ_a and that no other path between the two avoids, as
    (from, to); paths with the same one share it.
    """

    gamma_a: EstimatedValue
    gamma_t: EstimatedValue
    link_bps: float
    rtt_s: float
    streams: int
    buffer_bytes: int
    loss: float
    room_bps: float | None = None
    bottleneck: tuple[str, str] | None = None
    setup: EstimatedValue = NOTHING
    first: EstimatedValue = NOTHING
    further: EstimatedValue = NOTHING

    @property
    def rate_bps(self) -> float:
        """min(Γ_t, Γ_a)."""
        return min(self.gamma_a.value, self.gamma_t.value)

    @property
    def start_s(self) -> float:
        """Seconds until the first file's bytes move, from when its job could run."""
        return self.setup.value + self.first.value

    @property
    def bound(self) -> str:
        """Which of the two binds."""
        return "Γ_t" if self.gamma_t.value < self.gamma_a.value else "Γ_a"


@dataclass(frozen=True, slots=True)
class World:
    """All estimates at the Unix second ``now``. ``paths`` has every ordered pair of places;
    ``waits`` has T_q of transformations that wait otherwise at a site than its jobs on the whole;
    ``dag_overhead`` is what a workflow takes besides its jobs, in seconds; ``errors`` says to
    within which ``e`` estimates turned out to be true (``uncertainty.py``), by :data:`ERRORS_OF`
    and source;
    ``note`` says in one line where measurements could not be asked for; ``planned`` has by site the
    workers that other plans will take of it: (seconds from ``now``, how many from then on), the
    last of them 0."""

    now: float
    sites: Mapping[str, SiteEstimate]
    paths: Mapping[tuple[str, str], PathEstimate]
    compute: Mapping[tuple[str, str], ComputeEstimate]
    output_ratio: Mapping[str, EstimatedValue] = field(default_factory=dict)
    dag_overhead: EstimatedValue = NOTHING
    note: str = ""
    errors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    waits: Mapping[tuple[str, str], EstimatedValue] = field(default_factory=dict)
    planned: Mapping[str, tuple[tuple[float, int], ...]] = field(default_factory=dict)

    def wait(self, transformation: str, site: str) -> EstimatedValue:
        """T_q of such a job at a site."""
        return self.waits.get((transformation, site)) or self.sites[site].queue_wait


def estimates_dict(world: World, places: Collection[str] | None = None) -> dict[str, Any]:
    """All estimates, JSON-ready: ``sites``, ``paths`` ("src>dst"), ``compute`` ("xform@site");
    those of paths between some ``places`` only, where these are given."""
    now = world.now
    return {
        "now": now,
        "sites": {
            name: {
                "n": b.workers.as_dict(now),
                "t_q": b.queue_wait.as_dict(now),
                **({} if b.space is None else {"space": b.space.as_dict(now)}),
            }
            for name, b in world.sites.items()
        },
        "paths": {
            f"{src}>{dst}": {
                "gamma_a": b.gamma_a.as_dict(now),
                "gamma_t": b.gamma_t.as_dict(now),
                "setup": b.setup.as_dict(now),
                "first": b.first.as_dict(now),
                "further": b.further.as_dict(now),
                "rtt_s": b.rtt_s,
            }
            for (src, dst), b in world.paths.items()
            if places is None or (src in places and dst in places)
        },
        "compute": {
            f"{name}@{site}": {"kind": b.kind, **b.estimated.as_dict(now)}
            for (name, site), b in world.compute.items()
        },
        **({"note": world.note} if world.note else {}),
        **({"errors": world.errors} if world.errors else {}),
        "waits": {f"{name}@{site}": b.as_dict(now) for (name, site), b in world.waits.items()},
    }


def weight(age_s: float) -> float:
    """What a measurement of this age in seconds counts for, 1 down to 0."""
    return float(0.5 ** (max(0.0, age_s - FRESH_S) / HALF_LIFE_S))


def archived(estimate: Estimate, note: str = "") -> EstimatedValue:
    """A measurement as it is."""
    return EstimatedValue(
        estimate.value, "archive", estimate.at, estimate.spread, note, estimate.count
    )


def seconds_now(estimate: Estimate, other: EstimatedValue, now: float) -> EstimatedValue:
    """A measured time in seconds, weighed by its age against what else is known."""
    return _aged(estimate, other, now, _seconds, lambda a, b, w: w * a + (1 - w) * b)


def rate_now(estimate: Estimate, other: EstimatedValue, now: float) -> EstimatedValue:
    """A measured rate in bit/s, weighed by its age against what else is known, and less where it
    is widely spread."""
    known = other if other.value > 0 else None
    aged = _aged(estimate, known, now, format_rate, lambda a, b, w: a**w * b ** (1 - w))
    spread = estimate.spread / estimate.value if estimate.value > 0 else 0.0
    if spread <= WIDE:
        return aged
    c = min(spread, _MOST_SPREAD)
    return aged.noted(
        f"widely spread: {format_rate(estimate.value)} ± {format_rate(estimate.spread)}, planned "
        "with what takes as long as such transfers do on average",
        aged.value / (1 + c * c),
    )


def _aged(
    estimate: Estimate,
    other: EstimatedValue | None,
    now: float,
    show: Callable[[float], str],
    mean: Callable[[float, float, float], float],
) -> EstimatedValue:
    measured, age_s = archived(estimate, getattr(estimate, "note", "")), now - estimate.at
    if age_s <= FRESH_S:
        return measured
    if other is None or other.source == "default" or not isfinite(other.value):
        return measured.noted("old, and there is no other")
    w = weight(age_s)
    return measured.noted(
        f"old: measured {show(measured.value)} weighs {w:.2g} beside {show(other.value)} "
        f"({other.source})",
        mean(measured.value, other.value, w),
    )


def _seconds(value: float) -> str:
    return f"{value:.3g} s"
