"""Templates as plain data: read with units and checked, and written again without loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from reprlib import repr as shown
from types import MappingProxyType
from typing import Any

from network_provisioner import fields
from network_provisioner.errors import InputError
from network_provisioner.template import (
    MAX_SCORE,
    METRICS,
    SMALL,
    WHEN_QUEUED,
    QSpec,
    RSpec,
    Table,
    Template,
    Tuning,
)
from network_provisioner.units import parse_duration, parse_rate, parse_size

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
_MOST_PATTERNS = 100
_MOST_TEXT = 200  # characters of a pattern
_QSPEC = ("min_throughput", "max_delay", "max_jitter", "max_loss")
_KEYS = (
    "version", "applications", "qspec", "rspec", "priority", "weights", "tables", "patience",
    "break_even", "when_queued", "small", "max_age", "paths", "tuning", "peak",
)  # fmt: skip


def templates_from_dict(data: Mapping[str, Any] | None) -> dict[str, Template]:
    """All templates by name: the built-in ones, replaced or added to by ``data`` (the
    ``templates`` section of adon.yml, name -> mapping). Raises InputError."""
    merged: dict[str, Any] = {**BUILT_IN, **_mapping({} if data is None else data, "templates")}
    return {str(name): template_from_dict(str(name), body) for name, body in merged.items()}


def template_from_dict(name: str, data: object) -> Template:
    """One template from plain data; quantities carry units, or are bits per second, seconds and
    bytes. Raises InputError.

    ``{version?, applications?: [pattern], qspec: {min_throughput, max_delay?, max_jitter?,
    max_loss?}, rspec: {max_throughput}, priority?, weights?: {metric: w}, tables?: {metric:
    [[value, score]]}, patience?, break_even?, when_queued?, small?, max_age?, paths?,
    tuning?: {streams?, buffer?, threads?}, peak?}``; ``break_even: null`` has it computed.
    """
    label = f"template {name!r}"
    body = _section({"t": data}, "t", _KEYS, label)
    qspec = _qspec(body, label)
    ceiling = _section(body, "rspec", ("max_throughput",), f"{label}: rspec")
    if "max_throughput" not in ceiling:
        raise InputError(f"{label}: rspec has no 'max_throughput', expected for example '1 Gb/s'")
    max_bps = parse_rate(ceiling["max_throughput"], f"{label}: rspec.max_throughput")
    if max_bps < qspec.min_bps:
        raise InputError(
            f"{label}: rspec.max_throughput {max_bps:g} b/s is below qspec.min_throughput "
            f"{qspec.min_bps:g} b/s"
        )
    tables = _tables(body, label)
    small = body.get("break_even")
    usual = Template("", qspec, RSpec(max_bps), {}, {})
    return Template(
        name=name,
        qspec=qspec,
        rspec=RSpec(max_bps),
        weights=_weights(body, qspec, tables, label),
        tables=tables,
        version=_integer(body.get("version", 1), f"{label}: version", 1, 2**53),
        priority=_integer(body.get("priority", 0), f"{label}: priority", 0, MOST_PRIORITY),
        patience_s=parse_duration(body.get("patience", usual.patience_s), f"{label}: patience"),
        break_even_bytes=None if small is None else parse_size(small, f"{label}: break_even"),
        when_queued=_word(body.get("when_queued", usual.when_queued), WHEN_QUEUED, label),
        small=_word(body.get("small", usual.small), SMALL, label),
        max_age_s=parse_duration(body.get("max_age", usual.max_age_s), f"{label}: max_age"),
        tuning=_tuning(body, usual.tuning, f"{label}: tuning"),
        paths=_integer(body.get("paths", usual.paths), f"{label}: paths", 1, MOST_PATHS),
        applications=_patterns(body.get("applications", ()), f"{label}: applications"),
        peak_bps=parse_rate(body.get("peak", 0), f"{label}: peak"),
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


def _tuning(body: Mapping[str, Any], usual: Tuning, what: str) -> Tuning:
    given = _section(body, "tuning", ("streams", "buffer", "threads"), what)
    return Tuning(
        _integer(given.get("streams", usual.streams), f"{what}.streams", 1, MOST_STREAMS),
        parse_size(given.get("buffer", usual.buffer_bytes), f"{what}.buffer"),
        _integer(given.get("threads", usual.threads), f"{what}.threads", 0, MOST_STREAMS),
    )


def _qspec(body: Mapping[str, Any], label: str) -> QSpec:
    spec = _section(body, "qspec", _QSPEC, f"{label}: qspec")
    if "min_throughput" not in spec:
        raise InputError(f"{label}: qspec has no 'min_throughput', expected for example '25 Mb/s'")
    min_bps = parse_rate(spec["min_throughput"], f"{label}: qspec.min_throughput")
    if min_bps <= 0:
        raise InputError(f"{label}: qspec.min_throughput is 0, expected more than 0 b/s")

    def seconds(key: str) -> float | None:
        return None if key not in spec else parse_duration(spec[key], f"{label}: qspec.{key}")

    loss = spec.get("max_loss")
    if loss is not None:
        loss = fields.number(loss, f"{label}: qspec.max_loss", "a fraction in [0, 1)")
        if not 0 <= loss < 1:
            raise InputError(f"{label}: qspec.max_loss is {loss!r}, expected a fraction in [0, 1)")
    return QSpec(min_bps, seconds("max_delay"), seconds("max_jitter"), loss)


def _tables(body: Mapping[str, Any], label: str) -> Mapping[str, Table]:
    tables = {}
    for metric, points in _section(body, "tables", METRICS, f"{label}: tables").items():
        what = f"{label}: tables.{metric}"
        if not isinstance(points, list | tuple) or not points:
            raise InputError(f"{what} is {shown(points)}, expected a list of [value, score]")
        tables[metric] = tuple(_point(point, metric, what) for point in points)
        values = [v for v, _ in tables[metric]]
        scores = [s if metric == "throughput" else -s for _, s in tables[metric]]
        if any(b <= a for a, b in pairwise(values)):
            raise InputError(f"{what}: values {shown(values)}, expected them to rise")
        if any(b < a for a, b in pairwise(scores)):
            better = "rise" if metric == "throughput" else "fall"
            raise InputError(
                f"{what}: scores must {better} as the value rises, found {shown(points)}"
            )
    return MappingProxyType(tables)


def _point(point: object, metric: str, what: str) -> tuple[float, float]:
    if not isinstance(point, list | tuple) or len(point) != 2:
        raise InputError(f"{what}: found {shown(point)}, expected [value, score]")
    value, score = point
    if metric == "throughput":
        x = parse_rate(value, what)
    elif metric == "loss":
        x = fields.number(value, what, "a fraction")
    else:
        x = parse_duration(value, what)
    y = fields.number(score, what, "a score from 0 to 10")
    if not 0 <= y <= MAX_SCORE:
        raise InputError(f"{what}: score {shown(score)}, expected a number from 0 to 10")
    return x, y


def _weights(
    body: Mapping[str, Any], qspec: QSpec, tables: Mapping[str, Table], label: str
) -> Mapping[str, float]:
    given = _section(body, "weights", METRICS, f"{label}: weights") or {"throughput": 1.0}
    weights = {m: fields.number(w, f"{label}: weights.{m}", "0 or more") for m, w in given.items()}
    total = sum(weights.values())
    if any(w < 0 for w in weights.values()) or not 0 < total < math.inf:
        raise InputError(
            f"{label}: weights {shown(weights)}, expected 0 or more, not all of them 0"
        )
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


def _patterns(value: object, what: str) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or len(found) > _MOST_PATTERNS:
        raise InputError(f"{what} is {shown(value)}, expected a list of patterns such as 'soykb*'")
    for pattern in found:
        if len(fields.name(pattern, f"{what}: a pattern")) > _MOST_TEXT:
            raise InputError(f"{what}: found {len(pattern)} characters, expected {_MOST_TEXT}")
    return tuple(found)


def _word(value: object, words: tuple[str, ...], label: str) -> str:
    if not isinstance(value, str) or value not in words:
        raise InputError(f"{label}: found {shown(value)}, expected one of {', '.join(words)}")
    return value


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{what} is {shown(value)}, expected a mapping")
    return value


def _section(
    body: Mapping[str, Any], key: str, known: tuple[str, ...], what: str
) -> Mapping[str, Any]:
    section = _mapping(body.get(key, {}), what)
    fields.known_keys(section, known, what)
    return section


def _integer(value: object, what: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(
            f"{what} is {shown(value)}, expected a whole number, {least} or more and at most {most}"
        )
    return value
