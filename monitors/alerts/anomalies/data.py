"""Section ``monitoring.anomalies`` of adon.yml: what is watched, and how sensitively.

anomalies:
  default: {min_change: 15 %, noise: 5.5, samples: 5, outage_after: 5, learn: 3 d}
  rtt: {min_change: 30 %}
  loss: {min_change: 1 %}
  "custom:*": {noise: 8}
  jitter: off
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from reprlib import repr as shown
from typing import Any

from monitors.alerts.anomalies.model import Sensitivity
from monitors.alerts.anomalies.scales import SHARES
from monitors.archive.measurement import UNITS
from network_provisioner.base import fields
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import parse_duration

WATCHED = (
    "throughput", "path_throughput", "tcp_throughput", "udp_throughput",
    "rtt", "one_way_delay", "jitter", "loss",
)  # fmt: skip
"""What is watched where the configuration says nothing. Use of hosts is none of it: that a host is
busy is no trouble."""

_SHARE_CHANGE = 0.01  # of loss: one packet in a hundred; the ratio of two losses says little
_CUSTOM = "custom:"


@dataclass(frozen=True)
class Watch:
    """Which metrics are watched, by name or pattern, the first that fits counts."""

    sensitivities: Mapping[str, Sensitivity | None] = field(default_factory=dict)
    default: Sensitivity = field(default_factory=Sensitivity)

    def of(self, metric: str) -> Sensitivity | None:
        """How sensitively a metric is watched; None where it is not."""
        for pattern, sensitivity in self.sensitivities.items():
            if fnmatchcase(metric, pattern):
                return sensitivity
        return _usual(metric, self.default) if metric in WATCHED else None

    def anyway(self, metric: str) -> Sensitivity:
        """The same, also for a metric that is not watched: what it would be."""
        return self.of(metric) or _usual(metric, self.default)


def watch_from_dict(section: Mapping[str, Any]) -> Watch:
    """The section as values. Raises InputError for what cannot be meant."""
    default = Sensitivity()
    if "default" in section:
        default = _sensitivity(section["default"], Sensitivity(), "anomalies.default")
    known = ["default", *UNITS, f"{_CUSTOM}*"]
    found: dict[str, Sensitivity | None] = {}
    for name, settings in section.items():
        if name == "default":
            continue
        if not str(name).startswith(_CUSTOM) and "*" not in str(name):
            fields.known_keys({name: settings}, known, "anomalies")
        what = f"anomalies.{name}"
        if settings is False or settings == "off":
            found[name] = None
        else:
            found[name] = _sensitivity(settings, _usual(name, default), what)
    return Watch(found, default)


def _usual(metric: str, default: Sensitivity) -> Sensitivity:
    return replace(default, min_change=_SHARE_CHANGE) if metric in SHARES else default


def _sensitivity(settings: object, usual: Sensitivity, what: str) -> Sensitivity:
    fields.known_keys(settings, list(_READ), what)
    assert isinstance(settings, Mapping)
    values = {
        _READ[key][0]: _READ[key][1](value, f"{what}.{key}") for key, value in settings.items()
    }
    return replace(usual, **values)


def _part(value: object, what: str) -> float:
    number = value
    if isinstance(value, str) and value.endswith("%"):
        try:
            number = float(value[:-1]) / 100
        except ValueError:
            number = None
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= 10:
        raise InputError(f"{what} is {shown(value)}, expected a part such as '15 %'")
    return float(number)


def _times(value: object, what: str) -> float:
    number = fields.number(value, what, "a number from 1 to 100")
    if not 1 <= number <= 100:
        raise InputError(f"{what} is {shown(value)}, expected a number from 1 to 100")
    return number


def _count(least: int, most: int) -> Callable[[object, str], int]:
    def read(value: object, what: str) -> int:
        number = fields.whole(value, what, most)
        if number < least:
            raise InputError(f"{what} is {number}, expected at least {least}")
        return number

    return read


_READ: Mapping[str, tuple[str, Callable[[object, str], Any]]] = {
    "min_change": ("min_change", _part),
    "noise": ("noise", _times),
    "samples": ("samples", _count(2, 24)),
    "outage_after": ("outage_after", _count(2, 1000)),
    "dip_within": ("dip_within_s", parse_duration),
    "learn": ("learn_s", parse_duration),
}
