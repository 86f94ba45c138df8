"""Section ``monitoring.anomalies`` of adon.yml: what is watched, and how sensitively.

anomalies:
  default: {min_change: 15 %, noise: 5.5, samples: 5, outage_after: 5, learn: 3 d}
  rtt: {min_change: 30 %}
  loss: {min_change: 1 %}
  "custom:*": {noise: 8}
  jitter: off
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from reprlib import repr as shown
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from monitors.alerts.anomalies.model import SHARES
from monitors.base.measurement import UNITS
from network_provisioner.base import fields
from network_provisioner.base.errors import InputError
from network_provisioner.base.schema import (
    STRICT,
    Duration,
    Number,
    Whole,
    adapter,
    checked,
    read,
)

WATCHED = (
    "throughput", "path_throughput", "tcp_throughput", "udp_throughput",
    "rtt", "one_way_delay", "jitter", "loss", "forecast", "belief_error",
)  # fmt: skip
"""What is watched where the configuration says nothing. Use of hosts is none of it: that a host is
busy is no trouble."""

_SHARE_CHANGE = 0.01  # of loss: one packet in a hundred; the ratio of two losses says little
_CUSTOM = "custom:"


def _part(value: object, what: str) -> float:
    part = value
    if isinstance(value, str) and value.endswith("%"):
        try:
            part = float(value[:-1]) / 100
        except ValueError:
            part = None
    if isinstance(part, bool) or not isinstance(part, int | float) or not 0 < part <= 10:
        raise InputError(f"{what} is {shown(value)}, expected a part such as '15 %'")
    return float(part)


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What counts as an anomaly of a metric.

    ``min_change``  smallest change that matters, as a share of the value before (0.15: 15 %); for
                    shares such as loss the difference itself
    ``noise``       a change must be so many times the noise of a mean of as many samples
    ``samples``     fewest samples in a row that say so; what is shorter is noise
    ``outage_after``  so many measurements in a row that are missing, or fail, are an outage
    ``dip_within_s``  what has come back within so many seconds was a dip
    ``learn_s``     nothing is said before so many seconds of measurements, but outages
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    min_change: Annotated[float, checked(_part)] = 0.15
    noise: Annotated[Number, Field(ge=1, le=100)] = 5.5
    samples: Annotated[Whole, Field(ge=2, le=24)] = 5
    outage_after: Annotated[Whole, Field(ge=2, le=1000)] = 5
    dip_within_s: Annotated[Duration, Field(alias="dip_within")] = 12 * 3600.0
    learn_s: Annotated[Duration, Field(alias="learn")] = 3 * 86_400.0


@dataclass(frozen=True)
class WatchedMetrics:
    """Which metrics are watched, by name or pattern, the first that fits counts."""

    sensitivities: Mapping[str, Sensitivity | None] = field(default_factory=dict)
    default: Sensitivity = field(default_factory=Sensitivity)

    def of(self, metric: str) -> Sensitivity | None:
        """How sensitively a metric is watched; None where it is not."""
        for pattern, sensitivity in self.sensitivities.items():
            if fnmatchcase(metric, pattern):
                return sensitivity
        return _usual(metric, self.default) if metric in WATCHED else None


def watch_from_dict(section: Mapping[str, Any]) -> WatchedMetrics:
    """The section as values. Raises InputError for what cannot be meant."""
    default = _sensitivity(section.get("default", {}), Sensitivity(), "anomalies.default")
    known = ["default", *UNITS, f"{_CUSTOM}*"]
    sensitivities: dict[str, Sensitivity | None] = {}
    for name, settings in section.items():
        if name == "default":
            continue
        if not str(name).startswith(_CUSTOM) and "*" not in str(name):
            fields.known_keys({name: settings}, known, "anomalies")
        what = f"anomalies.{name}"
        if settings is False or settings == "off":
            sensitivities[name] = None
        else:
            sensitivities[name] = _sensitivity(settings, _usual(name, default), what)
    return WatchedMetrics(sensitivities, default)


def _usual(metric: str, default: Sensitivity) -> Sensitivity:
    return replace(default, min_change=_SHARE_CHANGE) if metric in SHARES else default


def _sensitivity(settings: object, usual: Sensitivity, what: str) -> Sensitivity:
    if isinstance(settings, Mapping):
        settings = {**adapter(Sensitivity).dump_python(usual, by_alias=True), **settings}
    return read(Sensitivity, settings, what)
