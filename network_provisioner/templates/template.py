"""Templates: what an application needs from the network, and how its paths are judged.

A template holds (thesis, §3.1 and §3.3):

    QSpec     what the application needs at least: throughput, and limits for delay, jitter, loss
    RSpec     what it may have at most: the ceiling of its throughput, where one is set
    weights   W, how much each metric counts in Q = Σ w_i·s_i; scaled here to add up to 1
    tables    metric value -> score, 0 to 10; linear between QSpec -> 1 and RSpec -> 10 by default

and beside them what the broker needs to serve it (priority, patience, how many paths), what worked
for the transfers themselves (tuning), the best that was seen so far (peak), and which applications
it is meant for. :mod:`~.templates.data` reads and writes templates as plain data.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints
from typing_extensions import TypedDict

from network_provisioner.base.schema import (
    STRICT,
    As,
    Duration,
    Fraction,
    Name,
    Number,
    Rate,
    Size,
    Whole,
    listed,
)

METRICS = ("throughput", "delay", "jitter", "loss")
MIN_SCORE = 1.0  # of a path that just meets the QSpec (thesis, Table 2)
MAX_SCORE = 10.0  # of a path that gives all that the RSpec allows (thesis, Table 2)

MOST_PRIORITY = 1000
MOST_PATHS = 16
MOST_STREAMS = 1024

Table = tuple[tuple[float, float], ...]
Positive = Annotated[Rate, Field(gt=0)]
Weight = Annotated[Number, Field(ge=0)]
Score = Annotated[Number, Field(ge=0, le=MAX_SCORE)]
Pattern = Annotated[Name, StringConstraints(max_length=200)]
_POINT = listed(2, "[value, score]")
_Rates = Annotated[tuple[Annotated[tuple[Rate, Score], _POINT], ...], Field(min_length=1)]
_Times = Annotated[tuple[Annotated[tuple[Duration, Score], _POINT], ...], Field(min_length=1)]
_Losses = Annotated[tuple[Annotated[tuple[Number, Score], _POINT], ...], Field(min_length=1)]


class _Weights(TypedDict, total=False):
    __pydantic_config__ = STRICT  # type: ignore[misc]
    throughput: Weight
    delay: Weight
    jitter: Weight
    loss: Weight


class _Tables(TypedDict, total=False):
    __pydantic_config__ = STRICT  # type: ignore[misc]
    throughput: _Rates
    delay: _Times
    jitter: _Times
    loss: _Losses


@dataclass(frozen=True, slots=True)
class QSpec:
    """The least quality that is useful. ``max_delay_s`` is a round-trip time, ``max_loss`` a
    fraction; None sets no limit."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    min_bps: Annotated[Positive, Field(alias="min_throughput")]
    max_delay_s: Annotated[Duration | None, Field(alias="max_delay")] = None
    max_jitter_s: Annotated[Duration | None, Field(alias="max_jitter")] = None
    max_loss: Fraction | None = None

    def limit(self, metric: str) -> float | None:
        """The most that is allowed of delay, jitter or loss; None where nothing was said."""
        limits = {"delay": self.max_delay_s, "jitter": self.max_jitter_s, "loss": self.max_loss}
        return limits.get(metric)


@dataclass(frozen=True, slots=True)
class RSpec:
    """The most the application may take; None for all that its path has. Of compute, for site
    selection: the ``sites`` that may run its jobs (empty: all), how many ``cores`` of each, and the
    ``memory`` that each of these takes in bytes (None: nobody says)."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    max_bps: Annotated[Rate | None, Field(alias="max_throughput")] = None
    sites: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()
    cores: Annotated[Whole | None, Field(ge=1)] = None
    memory: Annotated[Size | None, Field(gt=0)] = None


@dataclass(frozen=True, slots=True)
class Trigger:
    """What is done about a running transit, the ``action``, once a metric of its path has been
    worse than ``limit`` for ``for_s`` seconds. None is the QSpec's limit; of throughput, what the
    transit was granted."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    limit: float | None = None
    for_s: Annotated[Duration, Field(alias="for")] = 5.0
    action: Literal["move", "split", "reduce", "report", "ignore"] = "move"


@dataclass(frozen=True, slots=True)
class _RateTrigger(Trigger):
    limit: Positive | None = None


@dataclass(frozen=True, slots=True)
class _TimeTrigger(Trigger):
    limit: Duration | None = None


@dataclass(frozen=True, slots=True)
class _LossTrigger(Trigger):
    limit: Fraction | None = None


class _Triggers(TypedDict, total=False):
    __pydantic_config__ = STRICT  # type: ignore[misc]
    throughput: _RateTrigger
    delay: _TimeTrigger
    jitter: _TimeTrigger
    loss: _LossTrigger


@dataclass(frozen=True, slots=True)
class Tuning:
    """What worked for the transfer itself: parallel TCP streams, buffer of each in bytes, and how
    many files or parts of files move at once (0: as many as the transfer tool chooses)."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    streams: Annotated[Whole, Field(ge=1, le=MOST_STREAMS)] = 4
    buffer_bytes: Annotated[Size, Field(alias="buffer")] = 1 << 20
    threads: Annotated[Whole, Field(ge=0, le=MOST_STREAMS)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One application's needs. Built, and checked, by
    :func:`~network_provisioner.templates.data.template_from_dict`; people write it under the
    aliases.

    ``version``           counts the changes of the template of this name
    ``applications``      patterns of the applications and transformations it is meant for, as a
                          shell's (``*``, ``?``, ``[...]``); upper and lower case are one
    ``priority``          higher is served first
    ``patience_s``        how long a request may wait in the queue before it goes best effort
    ``break_even_bytes``  transfers smaller than this end before a circuit would pay off; None has
                          it computed from what setting one up takes
    ``when_queued``       what a transfer does while its request is queued
    ``small``             what becomes of those below the break-even; ``share``: a standing circuit
                          per pair of sites
    ``triggers``          what a running transit does when its path gets worse, by metric
    ``better_path``       what a transit does when a better path becomes free
    ``io_aware``          whether a transit's rates follow what the disks at its ends take
    ``relay``             whether relays carry its connections: ``auto`` where that helps,
                          ``always`` where it can be
    ``relay_tls``         whether they encrypt what they carry
    ``max_age_s``         a measurement older than this counts as missing
    ``paths``             how many paths one request may be split over where none alone carries it
    ``peak_bps``          the best goodput that a transfer with it reached so far; 0 for none
    ``reached``           scores of bandwidth by what transfers reached with it; empty for none.
                          The table that people write counts more
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: str
    version: Annotated[Whole, Field(ge=1, le=2**53)] = 1
    applications: Annotated[
        tuple[Pattern, ...],
        Field(max_length=100),
        BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    ] = ()
    qspec: QSpec
    rspec: RSpec = RSpec()
    priority: Annotated[Whole, Field(ge=0, le=MOST_PRIORITY)] = 0
    weights: Annotated[Mapping[str, float], As(_Weights)] = field(default_factory=dict)
    tables: Annotated[Mapping[str, Table], As(_Tables)] = field(default_factory=dict)
    patience_s: Annotated[Duration, Field(alias="patience")] = 20.0
    break_even_bytes: Annotated[Size | None, Field(alias="break_even")] = None
    when_queued: Literal["wait", "defer", "best_effort"] = "wait"
    small: Literal["best_effort", "share"] = "best_effort"
    triggers: Annotated[Mapping[str, Trigger], As(_Triggers)] = field(default_factory=dict)
    better_path: Literal["stay", "move"] = "stay"
    io_aware: bool = False
    relay: Literal["never", "auto", "always"] = "never"
    relay_tls: bool = False
    max_age_s: Annotated[Duration, Field(alias="max_age")] = 900.0
    paths: Annotated[Whole, Field(ge=1, le=MOST_PATHS)] = 1
    tuning: Tuning = Tuning()
    peak_bps: Annotated[Rate, Field(alias="peak")] = 0.0
    reached: Annotated[Table, Field(exclude=True)] = ()

    def trigger(self, metric: str) -> Trigger:
        """What is done when this metric of a path gets worse; its limit is None where there is
        none."""
        trigger = self.triggers.get(metric, _USUAL)
        if trigger.limit is None and metric != "throughput":
            trigger = replace(trigger, limit=self.qspec.limit(metric))
        return trigger

    def score(
        self,
        metric: str,
        value: float,
        min_bps: float | None = None,
        max_bps: float | None = None,
    ) -> float:
        """The score s_i of a metric's value, 0 to 10 (thesis, Algorithm 3 and Table 2).

        The template's own table where it has one, else what transfers taught. Otherwise linear:
        throughput scores 1 at ``min_bps`` and 10 at ``max_bps`` (both default to QSpec and RSpec;
        without a ceiling all that meets the QSpec scores 10); delay, jitter and loss score 1 at the
        QSpec's limit and 10
        at zero. What misses the QSpec scores 0.
        """
        table = self.tables.get(metric)
        if table is None and metric == "throughput" and value >= self.qspec.min_bps:
            table = self.reached or None
        if table is not None:
            return interpolate(table, value)
        if metric == "throughput":
            low = self.qspec.min_bps if min_bps is None else min_bps
            high = self.rspec.max_bps if max_bps is None else max_bps
            return _linear(value - low, 0.0 if high is None else high - low)
        limit = self.qspec.limit(metric)
        if limit is None:
            return MIN_SCORE
        return _linear(limit - value, limit)


_USUAL = Trigger()


def _linear(above: float, span: float) -> float:
    """1 at ``above`` = 0, 10 at ``above`` >= ``span``, 0 below."""
    if above < 0:
        return 0.0
    if span <= 0:
        return MAX_SCORE
    return MIN_SCORE + (MAX_SCORE - MIN_SCORE) * min(1.0, above / span)


def interpolate(table: Table, value: float) -> float:
    """The score at ``value``: linear between breakpoints, constant outside them."""
    at = bisect_right(table, value, key=lambda point: point[0])
    if at == 0:
        return table[0][1]
    if at == len(table):
        return table[-1][1]
    (x0, y0), (x1, y1) = table[at - 1], table[at]
    # Clamped, because rounding must not carry a score past its breakpoints.
    between = y0 + (y1 - y0) * (value - x0) / (x1 - x0)
    return min(max(between, min(y0, y1)), max(y0, y1))
