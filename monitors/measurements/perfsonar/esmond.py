"""The answers of an esmond-style archive as measurements.

``GET <archive>/`` lists *metadata*: one object for each test, with its source and destination and
its ``event-types``, each of which has a ``base-uri``. ``GET <base-uri>?time-start=&time-end=``
gives the results of one event type as ``[{"ts": 1397421672, "val": …}, …]``.

Two programs answer so: esmond, and elmond, which perfSONAR 5 has in its place. Elmond's links end
in ``/base/0``; it has no histograms of round trips, only their statistics; a run is a link alone;
and it does not say that a test was done in reverse, but can be asked for those that were.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as shown
from typing import Any
from urllib.parse import urljoin, urlsplit

from monitors.base.measurement import Measurement
from monitors.measurements.perfsonar import convert
from monitors.measurements.perfsonar.convert import number
from monitors.measurements.perfsonar.results import REVERSIBLE, measurement
from monitors.measurements.perfsonar.settings import Hosts
from monitors.measurements.probes.probe import Reading, reading
from network_provisioner.base.errors import InputError, printable
from network_provisioner.base.instants import instant

RUNS, CLOCKS = "pscheduler-run-href", "time-error-estimates"
BESIDE = (RUNS, CLOCKS)
"""Event types that say something about the results of others at the same time."""

DELAYS, TRIPS, FAILURES = "histogram-owdelay", "histogram-rtt", "failures"
READ = (
    "throughput", DELAYS, TRIPS, "packet-loss-rate",
    "packet-loss-rate-bidir", "packet-trace", FAILURES,
)  # fmt: skip
"""Event types that become measurements."""


@dataclass(frozen=True, slots=True)
class Series:
    """The results of one event type of one test: ``url`` of them, ``statistics`` of what stands in
    for histograms, "" where there is none."""

    key: str
    event_type: str
    url: str
    subject: str
    udp: bool
    tool: str
    test: str
    statistics: str = ""
    unit_ms: float = 1.0

    @property
    def id(self) -> str:
        """Of the archive's own."""
        return f"{self.key}/{self.event_type}"


def hides_reverse(metadata: object) -> bool:
    """Whether a test may have been done in reverse without its metadata saying so: elmond's."""
    return (
        isinstance(metadata, Mapping)
        and metadata.get("pscheduler-test-type") in REVERSIBLE
        and isinstance(events := metadata.get("event-types"), list)
        and any(
            isinstance(event, Mapping) and _is_elmonds(event.get("base-uri")) for event in events
        )
    )


def _is_elmonds(uri: object) -> bool:
    return isinstance(uri, str) and uri.endswith("/base/0")


def series_of(
    metadata: object, archive: str, hosts: Hosts, reverse: Container[str] = ()
) -> list[Series]:
    """What of a test there is to read, and its runs. Nothing for what is measured at one host.
    ``reverse``: the keys of tests whose data went from the destination to the source.

    Raises InputError for what is no metadata, or points elsewhere than to the archive.
    """
    if not isinstance(metadata, Mapping):
        raise InputError(f"found {shown(metadata)}, expected an object of metadata")
    key = metadata.get("metadata-key")
    events = metadata.get("event-types")
    if not isinstance(key, str) or not _is_name(key) or not isinstance(events, list):
        raise InputError(f"found {shown(dict(metadata))}, expected a metadata-key and event-types")
    ends = (metadata.get("input-destination"), metadata.get("destination"))
    if ends == (None, None):
        return []
    source = hosts.name(metadata.get("input-source"), metadata.get("source"))
    target = hosts.name(*ends)
    if key in reverse:
        source, target = target, source
    tool = printable(str(metadata.get("tool-name") or "")[:100])
    test = printable(str(metadata.get("pscheduler-test-type") or "")[:100])
    # Toolkits before pScheduler wrote milliseconds, whatever the width.
    width = metadata.get("sample-bucket-width") if test else None
    series = []
    for event in events:
        name = event.get("event-type") if isinstance(event, Mapping) else None
        if name not in READ and name not in BESIDE:
            continue
        series.append(
            Series(
                key,
                name,
                _inside(archive, event.get("base-uri")),
                f"{source}>{target}",
                metadata.get("ip-transport-protocol") == "udp",
                tool,
                test,
                _statistics(event, archive) if name == TRIPS else "",
                convert.bucket_ms(width, tool) if name == DELAYS else 1.0,
            )
        )
    return series


def points_of(answer: object) -> list[tuple[int, Any]]:
    """Time stamps and values, in order. Raises InputError."""
    if not isinstance(answer, list):
        raise InputError(f"found {shown(answer)}, expected a list of results")
    points = []
    for point in answer:
        if not isinstance(point, Mapping) or "ts" not in point:
            raise InputError(f"found {shown(point)}, expected a result with ts and val")
        points.append((int(instant(number(point["ts"], "ts"), "ts")), point.get("val")))
    return sorted(points, key=lambda pair: pair[0])


def runs_of(points: Iterable[tuple[int, Any]]) -> dict[int, str]:
    """The ids of pScheduler's runs by their time stamps: under these their results may have been
    posted as well."""
    runs = {}
    for at, value in points:
        href = value.get("href") if isinstance(value, Mapping) else value
        run = href.rstrip("/").rpartition("/")[2] if isinstance(href, str) else ""
        if _is_name(run):
            runs[at] = run
    return runs


def measurements(
    series: Series,
    points: Sequence[tuple[int, Any]],
    runs: Mapping[int, str],
    clocks: Mapping[int, Any],
) -> tuple[list[Measurement], str]:
    """The results of a series, and a line about those that cannot be understood, "" where all
    can. ``clocks``: by how many milliseconds those of both ends may differ, by time stamp."""
    details = {
        "archive_key": series.key,
        "archive_type": series.event_type,
        "tool": series.tool,
        "test": series.test,
    }
    taken: list[Measurement] = []
    problem, bad = "", 0
    for at, value in points:
        # Where no run is known, the archive's own key and the time stamp identify a result.
        run = runs.get(at, series.key)
        about = {**details, "run": run} if at in runs else details
        try:
            for result in _readings(series, value, clocks.get(at)):
                taken.append(
                    measurement(convert.checked_reading(result), run, at, series.subject, about)
                )
        except InputError as error:
            bad += 1
            problem = f"{series.id}: {bad} of {len(points)} results cannot be read: {error}"
    return taken, problem


def _readings(series: Series, value: Any, clock_error_ms: Any) -> Iterator[Reading]:
    kind = series.event_type
    if kind == "throughput":
        if series.test == "disk-to-disk":
            yield from convert.disk_to_disk({"throughput": value})
        else:
            yield from convert.throughput({"throughput-bits": value}, series.udp)
    elif kind == DELAYS:
        yield from convert.delays(value, "one_way_delay", clock_error_ms, series.unit_ms)
    elif kind == TRIPS:
        known = isinstance(value, Mapping) and "mean" in value
        yield from convert.trip_statistics(value) if known else convert.delays(value, "rtt")
    elif kind in ("packet-loss-rate", "packet-loss-rate-bidir"):
        yield from _loss(value)
    elif kind == "packet-trace":
        yield from _trace(value)
    elif kind == FAILURES:
        yield convert.failed_reading(value.get("error") if isinstance(value, Mapping) else value)


def _loss(value: Any) -> Iterator[Reading]:
    """A share, or the numbers it is made of."""
    if isinstance(value, Mapping):
        yield from convert.lost_share(value.get("numerator"), value.get("denominator"))
    else:
        yield reading("loss", min(1.0, max(0.0, number(value, "packet-loss-rate"))))


def _trace(value: Any) -> Iterator[Reading]:
    """Probes of hops: those of the first query of each time to live are the path."""
    if not isinstance(value, list):
        raise InputError(f"packet-trace is {shown(value)}, expected a list of probes")
    path: dict[int, Any] = {}
    for probe in value:
        if isinstance(probe, Mapping):
            path.setdefault(int(number(probe.get("ttl"), "ttl")), probe)
    if path:
        most = min(max(path), 255)
        yield from convert.hops([path.get(ttl) for ttl in range(1, most + 1)])


def _inside(archive: str, uri: object) -> str:
    """A link of the archive's. It must lead to the same server: an answer must not make the broker
    ask others, with the archive's token."""
    if not isinstance(uri, str):
        raise InputError(f"base-uri is {shown(uri)}, expected a link")
    url = urljoin(archive, uri)
    ours, theirs = urlsplit(archive), urlsplit(url)
    if (theirs.scheme, theirs.netloc) != (ours.scheme, ours.netloc):
        raise InputError(f"base-uri is {shown(uri)}, expected one at {ours.scheme}://{ours.netloc}")
    return url


def _is_name(text: str) -> bool:
    return 0 < len(text) <= 200 and text.isprintable()


def _statistics(event: Mapping[str, Any], archive: str) -> str:
    """The link to the statistics of single results, "" where there is none."""
    summaries = event.get("summaries")
    for summary in summaries if isinstance(summaries, list) else ():
        if not isinstance(summary, Mapping):
            continue
        if (summary.get("summary-type"), str(summary.get("summary-window"))) == ("statistics", "0"):
            return _inside(archive, summary.get("uri"))
    return ""
