"""Templates as the broker sends them, in words and tables."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from adon.cli.output import duration, table
from network_provisioner.base.units import format_rate, format_size

_HEAD = ("template", "version>", "origin", "needs>", "may have>", "priority>", "peak>", "for")

_MEANWHILE = {
    "wait": "waits for its path",
    "defer": "is put off by DAGMan",
    "best_effort": "goes without one",
}
_SMALL = {"best_effort": "goes without a path", "share": "shares a standing one"}
_VERSIONS = ("version>", "at", "origin", "made of", "needs>", "may have>")


def listed(entries: Sequence[Mapping[str, Any]]) -> str:
    """A line for each template."""
    return table(_HEAD, [_row(entry) for entry in entries])


def versions(found: Sequence[Mapping[str, Any]]) -> str:
    """A line for each version of one template."""
    return table(_VERSIONS, [_version(version) for version in found])


def described(entry: Mapping[str, Any]) -> str:
    """All figures of a template, a line each, and what was lowered for the site's policy."""
    figures = table(("", ""), [(key, value) for key, value in _figures(entry) if value])
    return "\n".join((figures.lstrip("\n "), *entry["lowered"]))


def _row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    t = entry["template"]
    return (
        entry["name"],
        str(entry["version"]),
        _origin(entry),
        format_rate(t["qspec"]["min_throughput"]),
        format_rate(t["rspec"]["max_throughput"]),
        str(t["priority"]),
        format_rate(t["peak"]) if t["peak"] else "-",
        _shortened(t["applications"]),
    )


def _version(found: Mapping[str, Any]) -> tuple[str, ...]:
    entry = found["entry"]
    when = (str(found["version"]), _at(found["at"]))
    if entry is None:
        return (*when, "deleted", "", "", "")
    t = entry["template"]
    rates = (format_rate(t["qspec"]["min_throughput"]), format_rate(t["rspec"]["max_throughput"]))
    return (*when, _origin(entry), _source(entry["source"]), *rates)


def _figures(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    t, learned = entry["template"], entry["learned"]
    qspec = t["qspec"]
    best = ""
    if learned:
        tuning = learned["tuning"]
        best = f" ({learned['transit']}, {tuning['streams']} streams, {_at(learned['at'])})"
    return [
        ("template", f"{entry['name']}, version {entry['version']}, {_origin(entry)}"),
        ("made of", _source(entry["source"])),
        ("for", ", ".join(t["applications"])),
        ("needs at least", format_rate(qspec["min_throughput"])),
        ("at most", ", ".join(_limit(key, qspec[key]) for key in qspec if key.startswith("max_"))),
        ("may have", format_rate(t["rspec"]["max_throughput"])),
        ("weights", ", ".join(f"{metric} {w:.3g}" for metric, w in t["weights"].items())),
        *(
            (f"scores of {metric}", _scores(metric, points))
            for metric, points in t["tables"].items()
        ),
        ("priority", str(t["priority"])),
        ("waits", duration(t["patience"])),
        ("smallest", _smallest(t)),
        ("meanwhile", _MEANWHILE[t["when_queued"]]),
        ("paths", str(t["paths"])),
        ("old after", duration(t["max_age"])),
        ("tuning", _tuning(t["tuning"])),
        ("peak", format_rate(t["peak"]) + best if t["peak"] else ""),
    ]


def _smallest(t: Mapping[str, Any]) -> str:
    least = "as computed" if t["break_even"] is None else _size(t["break_even"])
    return f"{least}; what is smaller {_SMALL[t['small']]}"


def _tuning(tuning: Mapping[str, Any]) -> str:
    threads = f", {tuning['threads']} threads" if tuning.get("threads") else ""
    return f"{tuning['streams']} streams of {_size(tuning['buffer'])}{threads}"


def _limit(key: str, value: float) -> str:
    metric = key.removeprefix("max_")
    return f"{metric} {value:g}" if metric == "loss" else f"{metric} {duration(value)}"


def _scores(metric: str, points: list[list[float]]) -> str:
    def words(value: float) -> str:
        if metric == "throughput":
            return format_rate(value)
        return f"{value:g}" if metric == "loss" else duration(value)

    return ", ".join(f"{words(value)} {score:g}" for value, score in points)


def _origin(entry: Mapping[str, Any]) -> str:
    return f"{entry['origin']} by {entry['by']}" if entry["by"] else str(entry["origin"])


def _source(source: Mapping[str, Any]) -> str:
    if "transit" in source:
        return f"transit {source['transit']} ({source['template']} {source['version']})"
    return f"version {source['restored']}" if "restored" in source else ""


def _shortened(patterns: list[str]) -> str:
    more = f" and {len(patterns) - 3} more" if len(patterns) > 3 else ""
    return ", ".join(patterns[:3]) + more


def _at(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _size(n_bytes: int) -> str:
    """As people say buffers: 1 MiB, not 1.05 MB."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n_bytes and n_bytes % scale == 0:
            return f"{n_bytes // scale} {unit}"
    return format_size(n_bytes)
