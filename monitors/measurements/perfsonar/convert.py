"""What perfSONAR measures, in the metrics and units of the archive.

    perfSONAR's test          metrics
    throughput                tcp_throughput, or udp_throughput, loss and jitter
    rtt                       rtt, loss
    latency, latencybg        one_way_delay, jitter, loss
    trace                     hops
    disk-to-disk              throughput

A run that failed is one of ``custom:perfsonar_failure``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from reprlib import repr as shown
from statistics import median
from typing import Any

from monitors.measurements.probes.probe import Reading, reading
from network_provisioner.base.errors import InputError, printable
from network_provisioner.base.units import goodput

FAILURE = "custom:perfsonar_failure"
_LONGEST = 500  # characters of an error
_MOST_HOPS = 255
_DURATION = re.compile(
    r"P(?:(\d+(?:\.\d+)?)W)?(?:(\d+(?:\.\d+)?)D)?"
    r"(?:T(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?)?\Z"
)
_PARTS_S = (604_800.0, 86_400.0, 3600.0, 60.0, 1.0)
_MOST_BUCKETS = 100_000


def throughput(summary: Mapping[str, Any], udp: bool) -> Iterator[Reading]:
    """The summary of a throughput test: bits per second as the receiver counted them where it
    did. Raises InputError."""
    sent = number(summary.get("throughput-bits"), "throughput-bits")
    received = summary.get("receiver-throughput-bits")
    bits = sent if received is None else number(received, "receiver-throughput-bits")
    if bits < 0:
        raise InputError(f"throughput-bits is {bits!r}, expected no negative number")
    details: dict[str, Any] = {"sent_bps": sent}
    if summary.get("retransmits") is not None:
        details["retransmits"] = int(number(summary["retransmits"], "retransmits"))
    if bits > 0:
        yield reading("udp_throughput" if udp else "tcp_throughput", bits, **details)
    if udp:
        yield from lost_share(summary.get("lost"), summary.get("sent"))
        if summary.get("jitter") is not None:
            yield reading("jitter", number(summary["jitter"], "jitter") / 1000)


def lost_share(count: object, of: object) -> Iterator[Reading]:
    """The share of packets that were lost, where both numbers are known. Raises InputError."""
    if count is None or of is None:
        return
    packets = number(of, "packets sent")
    if packets > 0:
        share = number(count, "packets lost") / packets
        yield reading("loss", min(1.0, max(0.0, share)), **{"packets": int(packets)})


def round_trips(result: Mapping[str, Any]) -> Iterator[Reading]:
    """The result of an rtt test: the median round trip. One of 0 s is none: nothing came back, or
    the clock is too coarse. Raises InputError."""
    trips = result.get("roundtrips")
    each = [
        took
        for trip in (trips if isinstance(trips, list) else ())
        if isinstance(trip, Mapping) and trip.get("rtt") and (took := seconds(trip["rtt"], "rtt"))
    ]
    if each:
        details = {"count": len(each), "least_s": min(each), "most_s": max(each)}
        yield reading("rtt", median(each), **details)
    elif result.get("mean") and (mean := seconds(result["mean"], "mean")):
        yield reading("rtt", mean)
    if result.get("loss") is not None:
        yield reading("loss", min(1.0, max(0.0, number(result["loss"], "loss"))))
    else:
        yield from lost_share(result.get("lost"), result.get("sent"))


def trip_statistics(value: Mapping[str, Any]) -> Iterator[Reading]:
    """Milliseconds of round trips of which only statistics are known: their median, or the mean
    where there is none. Raises InputError."""
    middle = next((name for name in ("median", "mean") if value.get(name) is not None), "mean")
    middle_s = number(value.get(middle), middle)
    details: dict[str, Any] = {"is": middle}
    for name, known in (("least_s", "minimum"), ("most_s", "maximum")):
        if value.get(known) is not None:
            details[name] = number(value[known], known) / 1000
    if middle_s > 0:
        yield reading("rtt", middle_s / 1000, **details)


def bucket_ms(width: object, tool: str) -> float:
    """The milliseconds that a one-way delay of 1 stands for in a histogram: a test's bucket
    ``width`` in seconds, by which all its tools divide but halfping. Raises InputError."""
    if width is None or tool.endswith("halfping"):
        return 1.0
    known = number(width, "bucket-width")
    if known <= 0:
        raise InputError(f"bucket-width is {known!r}, expected a positive number of seconds")
    return known * 1000


def delays(
    value: object, metric: str, clock_error_ms: object = None, unit_ms: float = 1.0
) -> Iterator[Reading]:
    """A histogram of delays in units of ``unit_ms`` milliseconds: their median, and as jitter how
    far the 95th percentile is above it. Raises InputError.

    A one-way delay is only as good as the clocks at both ends: where they may differ by as much as
    the delay itself, or it is negative, there is none. Differences of delays remain.
    """
    counted = histogram(value, "histogram")
    middle = quantile(counted, 0.5) * unit_ms
    spread = quantile(counted, 0.95) * unit_ms - middle
    details: dict[str, Any] = {"count": sum(count for _, count in counted)}
    error_ms = 0.0
    if clock_error_ms is not None:
        error_ms = number(clock_error_ms, "clock error")
        details["clock_error_s"] = error_ms / 1000
    if middle > 0 and abs(error_ms) < middle:
        yield reading(metric, middle / 1000, **details)
    if metric == "one_way_delay":
        yield reading("jitter", spread / 1000, **{"is": "95th percentile less median"})


def hops(path: object) -> Iterator[Reading]:
    """A path as its hops in order, each with what is known of it; those that said nothing count
    where others answered. Raises InputError."""
    if not isinstance(path, Sequence) or isinstance(path, str) or len(path) > _MOST_HOPS:
        raise InputError(f"a path is {path!r:.80}, expected a list of hops")
    route = [hop.get("ip") if isinstance(hop, Mapping) else None for hop in path]
    if any(route):
        shown = [ip if isinstance(ip, str) and _is_name(ip) else None for ip in route]
        yield reading("hops", float(len(route)), **{"route": shown})


def _is_name(text: str) -> bool:
    return len(text) <= 100 and text.isprintable()


def disk_to_disk(result: Mapping[str, Any]) -> Iterator[Reading]:
    """The result of a disk-to-disk test, bits per second: its throughput, else bytes by time.
    Raises InputError."""
    rate = 0.0
    if result.get("throughput") is not None:
        rate = number(result["throughput"], "throughput")
    sent = result.get("bytes-sent", result.get("bytessent"))
    if rate <= 0 and sent is not None and result.get("time") is not None:
        rate = goodput(number(sent, "bytes-sent"), seconds(result["time"], "time"))
    if rate > 0:
        yield reading("throughput", rate)


def failed_reading(error: object) -> Reading:
    """A run that did not come to a result."""
    text = error if isinstance(error, str) and error else "no reason was given"
    return reading(FAILURE, 1.0, **{"error": printable(text[:_LONGEST])})


def checked_reading(result: Reading) -> Reading:
    """Raises InputError for a value that no archive takes."""
    if not math.isfinite(result.value):
        raise InputError(f"{result.metric} is {result.value!r}, expected a finite number")
    return result


def seconds(value: object, what: str) -> float:
    """Seconds of a duration such as ``PT0.0002S`` or ``P1DT2H``. Raises InputError."""
    match = _DURATION.match(value) if isinstance(value, str) and len(value) <= 100 else None
    if match is None or not any(match.groups()):
        raise InputError(f"{what} is {shown(value)}, expected a duration such as PT0.02S")
    return sum(float(n) * part for n, part in zip(match.groups(), _PARTS_S, strict=True) if n)


def number(value: object, what: str) -> float:
    """A finite number, also one written as text. Raises InputError."""
    converted = math.nan
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            converted = float(value)
    if not math.isfinite(converted):
        raise InputError(f"{what} is {shown(value)}, expected a number")
    return converted


def histogram(value: object, what: str) -> list[tuple[float, int]]:
    """Values and how often each was seen, in order of the values. Raises InputError."""
    if not isinstance(value, Mapping) or not 0 < len(value) <= _MOST_BUCKETS:
        raise InputError(f"{what} is {shown(value)}, expected counts by value")
    counted = []
    for bucket, count in value.items():
        often = number(count, f"{what}: a count")
        if often < 0 or often != int(often):
            raise InputError(f"{what}: a count is {shown(count)}, expected a whole number")
        counted.append((number(bucket, f"{what}: a value"), int(often)))
    return sorted(counted)


def quantile(counted: Sequence[tuple[float, int]], share: float) -> float:
    """The smallest value that ``share`` of what was counted does not exceed. Raises InputError
    where nothing was counted."""
    total = sum(count for _, count in counted)
    if total == 0:
        raise InputError("found a histogram of nothing, expected at least one packet")
    reached = 0
    for value, count in counted:
        reached += count
        if reached >= share * total:
            return value
    return counted[-1][0]
