"""Templates as plain data: read with units and checked, and written again without loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from reprlib import repr as shown
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from network_provisioner.base.errors import InputError
from network_provisioner.base.schema import (
    Duration,
    Fraction,
    Name,
    Number,
    Rate,
    Schema,
    Size,
    Whole,
    listed,
    read,
)
from network_provisioner.base.units import format_rate
from network_provisioner.templates.match import Specification
from network_provisioner.templates.template import MAX_SCORE, QSpec, RSpec, Table, Template, Tuning

BUILT_IN: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "default": {
            "qspec": {"min_throughput": "5 Mb/s", "max_delay": "500 ms", "max_loss": 0.01},
            "rspec": {"max_throughput": "1 Gb/s"},
            "weights": {"throughput": 0.7, "delay": 0.15, "loss": 0.15},
        },
        # Bulk transfers of reads and alignments between data store, campus and HPC centre: time
        # taken counts, jitter does not (thesis, §5.2).
        "soykb": {
            "applications": ["soykb", "soykb[-_:.]*"],
            "qspec": {"min_throughput": "25 Mb/s", "max_delay": "200 ms", "max_loss": 0.01},
            "rspec": {"max_throughput": "150 Mb/s"},
            "weights": {"throughput": 0.8, "delay": 0.1, "loss": 0.1},
            "priority": 5,
            "patience": "30 s",
            "tuning": {"streams": 4, "buffer": "1 MiB"},
        },
        # Mosaics of the sky: many files between one storage and the workers (Mandal et al., NDM
        # 2013, §3.1, Figures 5 and 6). From 100 Mb/s, the least they tried, to 2 Gb/s, a run gets
        # four times as fast; beyond, its disks are the limit and twice the rate gains 6 %. The
        # table's scores between are ours: steep first, for the gain per Mb/s falls all along.
        "montage": {
            "applications": [
                "montage", "montage[-_:.]*", "mproject*", "mdiff*", "mfitplane*", "mconcatfit*",
                "mbgmodel*", "mbackground*", "mimgtbl*", "madd*", "mshrink*", "mjpeg*", "mviewer*",
            ],
            "qspec": {"min_throughput": "100 Mb/s", "max_delay": "200 ms", "max_loss": 0.01},
            "rspec": {"max_throughput": "2 Gb/s"},
            "weights": {"throughput": 0.8, "delay": 0.1, "loss": 0.1},
            "tables": {
                "throughput": [
                    ["100 Mb/s", 1], ["300 Mb/s", 4], ["500 Mb/s", 6], ["900 Mb/s", 8],
                    ["2 Gb/s", 10],
                ],
            },
            "patience": "20 s",
            "break_even": "1 MiB",
            "tuning": {"streams": 4, "buffer": "4 MiB"},
        },
    }
)  # fmt: skip
"""Templates that are always there. Figures of the papers where they give some; loss and delay are
bounds beyond which one TCP stream no longer fills such a path."""

MOST_PRIORITY = 1000
MOST_PATHS = 16
MOST_STREAMS = 1024

Positive = Annotated[Rate, Field(gt=0)]
Weight = Annotated[Number, Field(ge=0)]
Score = Annotated[Number, Field(ge=0, le=MAX_SCORE)]
_POINT = listed(2, "[value, score]")
Pattern = Annotated[Name, StringConstraints(max_length=200)]


class _QSpec(Schema):
    min_throughput: Positive
    max_delay: Duration | None = None
    max_jitter: Duration | None = None
    max_loss: Fraction | None = None


class _RSpec(Schema):
    max_throughput: Rate


class _Weights(Schema):
    throughput: Weight = 0.0
    delay: Weight = 0.0
    jitter: Weight = 0.0
    loss: Weight = 0.0


_Rates = Annotated[list[Annotated[tuple[Rate, Score], _POINT]], Field(min_length=1)]
_Times = Annotated[list[Annotated[tuple[Duration, Score], _POINT]], Field(min_length=1)]
_Losses = Annotated[list[Annotated[tuple[Number, Score], _POINT]], Field(min_length=1)]


class _Tables(Schema):
    throughput: _Rates | None = None
    delay: _Times | None = None
    jitter: _Times | None = None
    loss: _Losses | None = None


class _Tuning(Schema):
    streams: Annotated[Whole, Field(ge=1, le=MOST_STREAMS)] = Tuning().streams
    buffer: Size = Tuning().buffer_bytes
    threads: Annotated[Whole, Field(ge=0, le=MOST_STREAMS)] = Tuning().threads


class _Template(Schema):
    """A template as people write it; ``break_even: null`` has it computed."""

    qspec: _QSpec
    rspec: _RSpec
    weights: _Weights = _Weights()
    tables: _Tables = _Tables()
    tuning: _Tuning = _Tuning()
    applications: Annotated[
        tuple[Pattern, ...],
        Field(max_length=100),
        BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    ] = ()
    version: Annotated[Whole, Field(ge=1, le=2**53)] = 1
    priority: Annotated[Whole, Field(ge=0, le=MOST_PRIORITY)] = 0
    patience: Duration = 0.0
    break_even: Size | None = None
    when_queued: Literal["wait", "defer", "best_effort"] = "wait"
    small: Literal["best_effort", "share"] = "best_effort"
    max_age: Duration = 0.0
    paths: Annotated[Whole, Field(ge=1, le=MOST_PATHS)] = 1
    peak: Rate = 0.0


_NAMES = {
    "version": "version",
    "priority": "priority",
    "patience": "patience_s",
    "break_even": "break_even_bytes",
    "when_queued": "when_queued",
    "small": "small",
    "max_age": "max_age_s",
    "paths": "paths",
    "peak": "peak_bps",
}
"""What a template calls what is written and may be left out."""


class _Wanted(Schema):
    min_throughput: Positive | None = None
    max_throughput: Positive | None = None
    max_delay: Duration | None = None
    max_jitter: Duration | None = None
    max_loss: Fraction | None = None


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
    doc = read(_Template, data, label)
    q, max_bps = doc.qspec, doc.rspec.max_throughput
    if max_bps < q.min_throughput:
        raise InputError(
            f"{label}: rspec.max_throughput {max_bps:g} b/s is below qspec.min_throughput "
            f"{q.min_throughput:g} b/s"
        )
    qspec = QSpec(q.min_throughput, q.max_delay, q.max_jitter, q.max_loss)
    given = {_NAMES[key]: getattr(doc, key) for key in doc.model_fields_set & _NAMES.keys()}
    tables = _tables(doc.tables, label)
    return Template(
        name=name,
        qspec=qspec,
        rspec=RSpec(max_bps),
        weights=_weights(doc.weights, qspec, tables, label),
        tables=tables,
        tuning=Tuning(doc.tuning.streams, doc.tuning.buffer, doc.tuning.threads),
        applications=doc.applications,
        **given,
    )


def template_to_dict(template: Template) -> dict[str, Any]:
    """Plain data, JSON-ready, in bits per second, seconds and bytes; :func:`template_from_dict`
    makes exactly the same template of it."""
    t = template
    limits = {
        "max_delay": t.qspec.max_delay_s,
        "max_jitter": t.qspec.max_jitter_s,
        "max_loss": t.qspec.max_loss,
    }
    return {
        "version": t.version,
        "applications": list(t.applications),
        "qspec": {
            "min_throughput": t.qspec.min_bps,
            **{key: value for key, value in limits.items() if value is not None},
        },
        "rspec": {"max_throughput": t.rspec.max_bps},
        "priority": t.priority,
        "weights": dict(t.weights),
        "tables": {metric: [list(point) for point in table] for metric, table in t.tables.items()},
        "patience": t.patience_s,
        "break_even": t.break_even_bytes,
        "when_queued": t.when_queued,
        "small": t.small,
        "max_age": t.max_age_s,
        "paths": t.paths,
        "tuning": tuning_to_dict(t.tuning),
        "peak": t.peak_bps,
    }


def tuning_to_dict(tuning: Tuning) -> dict[str, int]:
    """As the section ``tuning`` of a template."""
    return {
        "streams": tuning.streams,
        "buffer": tuning.buffer_bytes,
        "threads": tuning.threads,
    }


def wanted_from_dict(data: Mapping[str, Any], what: str = "specification") -> Specification:
    """``{min_throughput?, max_throughput?, max_delay?, max_jitter?, max_loss?}`` with units, or in
    bits per second and seconds. Raises InputError."""
    doc = read(_Wanted, data, what)
    low, high = doc.min_throughput, doc.max_throughput
    if low is not None and high is not None and low > high:
        raise InputError(
            f"{what}: min_throughput {format_rate(low)} is above max_throughput "
            f"{format_rate(high)}, expected it not to be"
        )
    return Specification(low, high, doc.max_delay, doc.max_jitter, doc.max_loss)


def _tables(doc: _Tables, label: str) -> Mapping[str, Table]:
    tables = {metric: tuple(points) for metric, points in doc if points is not None}
    for metric, points in tables.items():
        what = f"{label}: tables.{metric}"
        if any(b <= a for (a, _), (b, _) in pairwise(points)):
            raise InputError(f"{what}: values of {shown(points)}, expected them to rise")
        better, sign = ("rise", 1) if metric == "throughput" else ("fall", -1)
        if any(sign * b < sign * a for (_, a), (_, b) in pairwise(points)):
            raise InputError(
                f"{what}: scores must {better} as the value rises, found {shown(points)}"
            )
    return MappingProxyType(tables)


def _weights(
    doc: _Weights, qspec: QSpec, tables: Mapping[str, Table], label: str
) -> Mapping[str, float]:
    weights = dict(doc) if doc.model_fields_set else {"throughput": 1.0}
    total = sum(weights.values())
    if not 0 < total < math.inf:
        raise InputError(f"{label}: weights {shown(weights)}, expected not all of them 0")
    for metric, weight in weights.items():
        scored = metric == "throughput" or metric in tables or qspec.limit(metric) is not None
        if weight > 0 and not scored:
            raise InputError(
                f"{label}: weights.{metric} counts, but nothing says how to score it: expected "
                f"qspec.max_{metric} or tables.{metric}"
            )
    # What adds up to 1 already stays as it is: dividing again would change its last digits.
    scale = 1.0 if math.isclose(total, 1, abs_tol=1e-9) else total
    return MappingProxyType({m: w / scale for m, w in weights.items() if w > 0})
