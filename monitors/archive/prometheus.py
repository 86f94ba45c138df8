"""The archive for Prometheus: the newest of what is measured again and again, and the archive's own
state. All names begin with ``adon_``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from monitors.archive.archive import Archive, ArchiveError, Measurement
from monitors.base.measurement import anonymous_source
from monitors.rules import Rules
from network_provisioner.api.metrics import SCRAPING

# What sites, paths and the pool are like. What belongs to somebody's workflow is not told to whom
# a scraper tells it; ``workflows`` counts them.
SHOWN = (
    "throughput", "path_throughput", "transfer_latency", "tcp_throughput", "udp_throughput", "rtt",
    "loss", "one_way_delay", "jitter", "hops", "cpu_use", "memory_use", "io_wait", "disk_io",
    "free_space", "queue_wait", "compute_rate", "runtime", "pool_slots", "pool_busy", "pool_demand",
)  # fmt: skip
MOST_SUBJECTS = 1000
RECENT_S = 86400.0
_CUSTOM = "custom:"


class ArchiveMetrics:
    """A collector, asked when Prometheus scrapes. Shows what is at most ``recent_s`` old: what
    nobody measures any more is absent, as Prometheus wants it."""

    def __init__(
        self,
        archive: Archive,
        rules: Rules,
        clock: Callable[[], float],
        recent_s: float = RECENT_S,
    ) -> None:
        self._archive = archive
        self._rules = rules
        self._clock = clock
        self._recent_s = recent_s

    def describe(self) -> list[Metric]:
        """Nothing is asked of the archive before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Called by the library. ``adon_archive_up`` is 0 where the archive cannot be read now."""
        up = GaugeMetricFamily("adon_archive_up", "Whether the archive of measurements answers.")
        metrics: list[Metric] = []
        with suppress(ArchiveError):
            metrics = [*self._newest(), *self._workflows(), self._recorded()]
        up.add_metric([], 1.0 if metrics else 0.0)
        yield up
        yield from metrics

    def _recorded(self) -> Metric:
        return CounterMetricFamily(
            "adon_archive_measurements",
            "Number of the newest measurement: how many were recorded.",
            value=self._archive.latest_seq(),
        )

    def _newest(self) -> list[Metric]:
        labels = ["metric", "subject", "unit", "source"]
        value = GaugeMetricFamily(
            "adon_measurement", "Newest value of a metric of a subject, in its unit.", labels=labels
        )
        at = GaugeMetricFamily(
            "adon_measurement_time_seconds", "When it was measured, Unix seconds.", labels=labels
        )
        oldest = self._clock() - self._recent_s
        for metric in self._archive.metrics():
            if metric not in SHOWN and not metric.startswith(_CUSTOM):
                continue
            newest = self._archive.latest(metric).values()
            shown = [
                measurement
                for measurement in newest
                if measurement.at >= oldest and self._may_see(measurement)
            ]
            for measurement in shown[:MOST_SUBJECTS]:
                names = [
                    measurement.metric,
                    measurement.subject,
                    measurement.unit,
                    anonymous_source(measurement.source),
                ]
                value.add_metric(names, measurement.value)
                at.add_metric(names, measurement.at)
        return [value, at]

    def _may_see(self, measurement: Measurement) -> bool:
        who = SCRAPING.get()
        return who is None or self._rules.may_see_series(
            who, measurement.metric, measurement.subject
        )

    def _workflows(self) -> list[Metric]:
        states = GaugeMetricFamily(
            "adon_workflows", "Workflows by state, of those that changed lately.", labels=["state"]
        )
        oldest = self._clock() - self._recent_s
        counts: dict[str, int] = {}
        for measurement in self._archive.latest("status").values():
            if measurement.at >= oldest:
                counts[_state(measurement)] = counts.get(_state(measurement), 0) + 1
        for state, count in sorted(counts.items()):
            states.add_metric([state], count)
        return [states]


def _state(measurement: Measurement) -> str:
    return str(measurement.details.get("state", "unknown"))
