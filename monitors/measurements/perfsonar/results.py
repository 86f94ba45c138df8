"""A result of pScheduler's, as its HTTP archiver posts it, as measurements.

The body is what pScheduler gives to archivers as ``result``: the run's ``id``, its ``schedule``,
the ``test`` with its type and specification, the ``participants``, and as ``result`` what came of
it. Schemas of specifications differ in options that do not matter here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from reprlib import repr as shown
from typing import Any

from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement
from monitors.measurements.perfsonar import convert
from monitors.measurements.perfsonar.convert import seconds
from monitors.measurements.perfsonar.settings import Hosts
from monitors.measurements.probes.probe import Reading
from network_provisioner.base.errors import InputError, printable
from network_provisioner.base.instants import instant

SOURCE = "perfsonar"
KNOWN = ("throughput", "rtt", "latency", "latencybg", "trace", "disk-to-disk")
_NO_DELAY = "no histogram of delays, or none larger than what the clocks may differ by"
_NOTHING = {
    "throughput": ("throughput", "no throughput above 0"),
    "rtt": ("rtt", "no round trip above 0 s"),
    "latency": ("one_way_delay", _NO_DELAY),
    "latencybg": ("one_way_delay", _NO_DELAY),
    "trace": ("hops", "an empty path, or one of which no hop answered"),
    "disk-to-disk": ("throughput", "neither a throughput nor bytes and a time above 0"),
}
"""What a test is made for, and what was found in a result that has none of it."""
REVERSIBLE = ("throughput", "latency", "latencybg")
"""Types of tests whose data may go from the destination to the source."""


def measurements_of(body: Mapping[str, Any], hosts: Hosts) -> list[Measurement]:
    """What a run measured; nothing for a test of another type than :data:`KNOWN`.

    Ids follow from the run: the same result posted again, or read from an archive, gives the same.
    Raises InputError for what is no result of pScheduler's.
    """
    test = _mapping(body, "test")
    kind = test.get("type")
    if not isinstance(kind, str):
        raise InputError(f"test: type is {shown(kind)}, expected a type such as 'throughput'")
    run = body.get("id")
    if not isinstance(run, str) or not 0 < len(run) <= 200 or not run.isprintable():
        raise InputError(f"id is {shown(run)}, expected that of a run")
    schedule = _mapping(body, "schedule")
    start = instant(schedule.get("start"), "schedule: start")
    if kind not in KNOWN:
        return []
    spec = _mapping(test, "spec")
    subject = _subject(kind, spec, body.get("participants"), hosts)
    details: dict[str, Any] = {"run": run, "test": kind, "tool": _tool(body.get("tool"))}
    if schedule.get("duration") is not None:
        details["duration_s"] = seconds(schedule["duration"], "schedule: duration")
    if isinstance(spec.get("parallel"), int):
        details["parallel"] = spec["parallel"]
    return [
        measurement(finding, run, start, subject, details) for finding in findings(kind, spec, body)
    ]


def left_out(body: Mapping[str, Any], measurements: Iterable[Measurement]) -> str:
    """Why a run gave no measurement of what its test is made for, "" where it did or failed."""
    kind = body["test"]["type"]
    if kind not in KNOWN:
        return f"nothing is read from tests of type {kind!r:.80}"
    metric, why = _NOTHING[kind]
    is_measured = any(
        kept.metric.endswith(metric) or kept.metric == convert.FAILURE for kept in measurements
    )
    return "" if is_measured else f"found {why}"


def findings(kind: str, spec: Mapping[str, Any], body: Mapping[str, Any]) -> list[Reading]:
    """What a run found, or that it failed. Raises InputError."""
    result = body.get("result")
    if not isinstance(result, Mapping):
        return [convert.failed_reading(None)]
    if result.get("succeeded") is not True:
        return [convert.failed_reading(result.get("error") or result.get("diags"))]
    readings = _readings(kind, spec, result, _tool(body.get("tool")))
    return [convert.checked_reading(reading) for reading in readings]


def _readings(
    kind: str, spec: Mapping[str, Any], result: Mapping[str, Any], tool: str
) -> Iterable[Reading]:
    if kind == "throughput":
        return convert.throughput(_summary(_mapping(result, "summary")), spec.get("udp") is True)
    if kind == "rtt":
        return convert.round_trips(result)
    if kind in ("latency", "latencybg"):
        lost = list(convert.lost_share(result.get("packets-lost"), result.get("packets-sent")))
        if not result.get("histogram-latency"):
            return lost
        error_ms = result.get("max-clock-error")
        unit_ms = convert.bucket_ms(spec.get("bucket-width"), tool)
        counted = result["histogram-latency"]
        return [*convert.delays(counted, "one_way_delay", error_ms, unit_ms), *lost]
    if kind == "trace":
        paths = result.get("paths")
        if not isinstance(paths, list):
            raise InputError(f"paths is {shown(paths)}, expected a list of paths")
        routes = (list(convert.hops(path)) for path in paths)
        return next(filter(None, routes), [])
    return convert.disk_to_disk(result)


def _summary(whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of all streams together; some tools give it of each alone."""
    streams = whole.get("streams")
    if "summary" in whole or not (isinstance(streams, list) and streams):
        return _mapping(whole, "summary")
    rates = [_mapping({"stream": stream}, "stream").get("throughput-bits") for stream in streams]
    return {"throughput-bits": sum(convert.number(rate, "throughput-bits") for rate in rates)}


def measurement(
    reading: Reading, run: str, start: float, subject: str, details: Mapping[str, Any]
) -> Measurement:
    """One metric of a run that began at ``start``."""
    return Measurement(
        f"{SOURCE}:{run}:{int(start)}:{reading.metric}",
        reading.metric,
        subject,
        reading.value,
        reading.unit,
        start,
        SOURCE,
        details={**details, **reading.details},
    )


def not_yet(measurements: Sequence[Measurement], archive: Archive) -> list[Measurement]:
    """Those that the archive does not have from the same run: what an agent posted has ids of the
    agent's, so one run may come under two. The same are metric, subject, run and the second in
    which it began; an archive has no more of an instant."""
    series: defaultdict[tuple[str, str], list[Measurement]] = defaultdict(list)
    for new in measurements:
        if "run" in new.details:
            series[new.metric, new.subject].append(new)
    known: set[tuple[str, str, Any, int]] = set()
    for (metric, subject), some in series.items():
        since, until = int(min(new.at for new in some)), int(max(new.at for new in some)) + 1
        known |= {
            (metric, subject, kept.details["run"], int(kept.at))
            for kept in archive.query(metric, subject, since=since, until=until)
            if kept.source == SOURCE and isinstance(kept.details.get("run"), str)
        }
    return [
        new
        for new in measurements
        if (new.metric, new.subject, new.details.get("run"), int(new.at)) not in known
    ]


def _subject(kind: str, spec: Mapping[str, Any], participants: object, hosts: Hosts) -> str:
    """From where to where data went. Without a source it is the first participant."""
    ends = participants if isinstance(participants, list) else []
    named = [end.get("host") if isinstance(end, Mapping) else end for end in ends]
    first = named[0] if named else None
    # A disk-to-disk test runs at one of its ends, and the other alone may be named.
    last = named[-1] if len(named) > 1 or (named and kind == "disk-to-disk") else None
    source = hosts.name(spec.get("source"), spec.get("source-node"), first)
    target = hosts.name(spec.get("dest"), spec.get("dest-node"), last)
    if spec.get("reverse") is True and kind in REVERSIBLE:
        source, target = target, source
    return f"{source}>{target}"


def _tool(tool: object) -> str:
    name = tool.get("name") if isinstance(tool, Mapping) else tool
    return printable(name[:100]) if isinstance(name, str) else ""


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    if not isinstance(value, Mapping):
        raise InputError(f"{key} is {shown(value)}, expected an object")
    return value
