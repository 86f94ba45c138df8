"""Templates as plain data: read with units and checked, and written again without loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from reprlib import repr as shown
from types import MappingProxyType
from typing import Any

from network_provisioner.base.errors import InputError
from network_provisioner.base.schema import adapter, read
from network_provisioner.base.units import format_rate
from network_provisioner.templates.match import Specification
from network_provisioner.templates.template import Table, Template, Tuning

BUILT_IN: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # For every network: no ceiling, no path left out, and a minimum that is lowered where paths
        # are slow (:func:`~network_provisioner.selection.terms.settle`).
        "default": {
            "qspec": {"min_throughput": "5 Mb/s"},
            "weights": {"throughput": 0.7, "delay": 0.15, "loss": 0.15},
            "tables": {"delay": [["0 s", 10], ["500 ms", 1]], "loss": [[0, 10], [0.01, 1]]},
        },
    }
)
"""Templates that are always there."""


def templates_from_dict(data: Mapping[str, Any] | None) -> dict[str, Template]:
    """All templates by name: the built-in ones, replaced or added to by ``data`` (the
    ``templates`` section of adon.yml, name -> mapping). Raises InputError."""
    if data is not None and not isinstance(data, Mapping):
        raise InputError(f"templates is {shown(data)}, expected a mapping")
    merged = {**BUILT_IN, **(data or {})}
    return {str(name): template_from_dict(str(name), body) for name, body in merged.items()}


def template_from_dict(name: str, data: object) -> Template:
    """One template from plain data; quantities carry units, or are bits per second, seconds and
    bytes. Raises InputError."""
    label = f"template {name!r}"
    if isinstance(data, Mapping):
        for key in {"name", "reached"} & data.keys():  # those are not for people to write
            raise InputError(f"{label} has the unknown key {key!r}")
        data = {**data, "name": name}
    template = read(Template, data, label)
    low, high = template.qspec.min_bps, template.rspec.max_bps
    if high is not None and high < low:
        raise InputError(
            f"{label}: rspec.max_throughput {high:g} b/s is below qspec.min_throughput {low:g} b/s"
        )
    _check_tables(template.tables, label)
    _check_triggers(template, label)
    return replace(template, weights=_weights(template, label))


def template_to_dict(template: Template) -> dict[str, Any]:
    """Plain data, JSON-ready, in bits per second, seconds and bytes; :func:`template_from_dict`
    makes exactly the same template of it."""
    out = plain(template)
    del out["name"]
    for spec in ("qspec", "rspec"):
        out[spec] = {key: limit for key, limit in out[spec].items() if limit not in (None, [])}
    return out


def plain(written: Template | Tuning) -> dict[str, Any]:
    """As people write it."""
    out: dict[str, Any] = adapter(type(written)).dump_python(written, by_alias=True, mode="json")
    return out


def wanted_from_dict(data: Mapping[str, Any]) -> Specification:
    """``{min_throughput?, max_throughput?, max_delay?, max_jitter?, max_loss?}`` with units, or in
    bits per second and seconds. Raises InputError."""
    wanted = read(Specification, data, "specification")
    low, high = wanted.min_bps, wanted.max_bps
    if low is not None and high is not None and low > high:
        raise InputError(
            f"specification: min_throughput {format_rate(low)} is above max_throughput "
            f"{format_rate(high)}, expected it not to be"
        )
    return wanted


def _check_triggers(template: Template, label: str) -> None:
    """What no trigger can mean."""
    for metric, trigger in template.triggers.items():
        what, most_bps = f"{label}: triggers.{metric}", template.rspec.max_bps
        if trigger.action == "reduce" and metric != "throughput":
            raise InputError(f"{what}.action: found 'reduce', which is for throughput alone")
        if trigger.action == "split" and template.paths < 2:
            raise InputError(f"{what}.action: found 'split' with paths 1, expected paths above 1")
        if metric == "throughput" and most_bps is not None and (trigger.limit or 0) > most_bps:
            raise InputError(
                f"{what}.limit: found {format_rate(trigger.limit or 0)}, above "
                f"rspec.max_throughput {format_rate(most_bps)}: it would always be missed"
            )


def _check_tables(tables: Mapping[str, Table], label: str) -> None:
    for metric, points in tables.items():
        what = f"{label}: tables.{metric}"
        if any(b <= a for (a, _), (b, _) in pairwise(points)):
            raise InputError(f"{what}: values of {shown(points)}, expected them to rise")
        better, sign = ("rise", 1) if metric == "throughput" else ("fall", -1)
        if any(sign * b < sign * a for (_, a), (_, b) in pairwise(points)):
            raise InputError(
                f"{what}: scores must {better} as the value rises, found {shown(points)}"
            )


def _weights(template: Template, label: str) -> Mapping[str, float]:
    """Scaled, without those that do not count."""
    weights = template.weights or {"throughput": 1.0}
    total = sum(weights.values())
    if not 0 < total < math.inf:
        raise InputError(f"{label}: weights {shown(weights)}, expected not all of them 0")
    for metric, weight in weights.items():
        limited = metric in template.tables or template.qspec.limit(metric) is not None
        if weight > 0 and not (limited or metric == "throughput"):
            raise InputError(
                f"{label}: weights.{metric} counts, but nothing says how to score it: expected "
                f"qspec.max_{metric} or tables.{metric}"
            )
    # What adds up to 1 already stays as it is: dividing again would change its last digits.
    scale = 1.0 if math.isclose(total, 1, abs_tol=1e-9) else total
    return {metric: weight / scale for metric, weight in weights.items() if weight > 0}
