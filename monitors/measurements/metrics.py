"""Agents and runs for Prometheus. All names begin with ``adon_``."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from monitors.measurements.coordinator import Coordinator
from network_provisioner.base.errors import AdonError

_log = logging.getLogger(__name__)


class RunMetrics:
    """A collector, asked when Prometheus scrapes."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def describe(self) -> list[Metric]:
        """Nothing is asked before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Called by the library. Where the coordinator's store does not answer, runs are absent."""
        present = GaugeMetricFamily(
            "adon_agent_present", "1 where the agent asks regularly.", labels=("agent",)
        )
        offset = GaugeMetricFamily(
            "adon_agent_clock_offset_seconds",
            "The broker's clock less the agent's, as the agent knows it.",
            labels=("agent",),
        )
        for agent in self._coordinator.agents():
            present.add_metric((agent["name"],), float(agent["present"]))
            if agent["offset_s"] is not None:
                offset.add_metric((agent["name"],), agent["offset_s"])
        yield from (present, offset)
        runs = GaugeMetricFamily(
            "adon_measurement_runs", "Runs of the last week by state.", labels=("state",)
        )
        try:
            for state, number in sorted(self._coordinator.counts().items()):
                runs.add_metric((state,), number)
        except AdonError as error:
            _log.warning("the runs of measurements cannot be counted: %s", error)
            return
        yield runs
