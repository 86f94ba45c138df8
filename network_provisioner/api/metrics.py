"""``/metrics``: what Prometheus scrapes. All names begin with ``adon_``."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client import Counter as Count
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from network_provisioner.access import Principal
from network_provisioner.base.errors import AdonError, BrokerError
from network_provisioner.base.model import RequestAnswer, Transit, TransitRequest
from network_provisioner.broker import Broker

log = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Seconds. A decision alone takes milliseconds; with switches that confirm, tenths.
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
SCRAPING: ContextVar[Principal | None] = ContextVar("adon_scraping", default=None)
"""Who asks for the metrics, for collectors that do not show everything to everybody."""
Ask = Callable[[Sequence[TransitRequest]], list[RequestAnswer]]
Submit = Callable[[TransitRequest], tuple[Transit, bool]]


class Metrics:
    """Counts decisions, and asks the broker for the rest when it is scraped."""

    def __init__(self, broker: Broker, collectors: Sequence[Collector] = ()) -> None:
        """``collectors`` are asked as well, whatever they measure."""
        self._broker = broker
        # A registry of its own: the library's global one is shared by all brokers of a process.
        self._registry = CollectorRegistry()
        self._decisions = Count(
            "adon_decisions", "Requests decided, by the state they got or the code of the refusal.",
            ("outcome",), registry=self._registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "adon_decision_seconds", "Time to decide a request and to install its path.",
            buckets=_BUCKETS, registry=self._registry,
        )  # fmt: skip
        self._registry.register(self)
        for collector in collectors:
            self._registry.register(collector)

    def timed(self, submit: Submit, request: TransitRequest) -> tuple[Transit, bool]:
        """``submit(request)``, counted. Raises what it raises."""
        started = time.perf_counter()
        try:
            transit, new = submit(request)
        except BrokerError as error:
            self._decisions.labels(error.code).inc()
            raise
        if new:
            self._decisions.labels(str(transit.state)).inc()
            self._seconds.observe(time.perf_counter() - started)
        return transit, new

    def timed_batch(self, ask: Ask, requests: Sequence[TransitRequest]) -> list[RequestAnswer]:
        """``ask(requests)``, each counted. Raises what it raises."""
        started = time.perf_counter()
        answers = ask(requests)
        for answer in answers:
            if answer.error is not None:
                self._decisions.labels(answer.error.code).inc()
            elif answer.new and answer.transit is not None:
                self._decisions.labels(str(answer.transit.state)).inc()
        if any(answer.new for answer in answers):
            self._seconds.observe(time.perf_counter() - started)
        return answers

    def text(self, caller: Principal | None = None) -> bytes:
        """All metrics in the text format, as far as ``caller`` may see them."""
        token = SCRAPING.set(caller)
        try:
            return generate_latest(self._registry)
        finally:
            SCRAPING.reset(token)

    def describe(self) -> list[Metric]:
        """Nothing: a registry would else collect once when this is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Everything the broker and its switches say now."""
        health = self._broker.health()
        yield _gauge("adon_leader", "1 where this broker decides.", health["leads"])
        if not health["leads"]:
            yield from self._transits()
            return
        yield _gauge("adon_up_to_date", "1 where store and switches are as decided.",
                     health["status"] == "ok")  # fmt: skip
        yield _gauge("adon_queue_length", "Transits that wait for room.", health["queued"])
        relayed = self._broker.relaying.count()
        yield _gauge("adon_transits_relayed", "Transits that relays carry.", relayed)
        yield _by_state(
            "adon_promises",
            "Transits with a guaranteed rate, by what becomes of it.",
            self._broker.promises.states(),
        )
        yield from self._transits()
        yield from self._links(health)
        yield from self._switches(health)

    def _transits(self) -> Iterator[Metric]:
        states: Mapping[str, int] = {}
        up = float(self._broker.store_works())
        try:
            states = self._broker.count()
        except AdonError as error:
            log.warning("the transits cannot be counted: %s", error)
            up = 0.0
        yield _gauge("adon_store_up", "1 where the store can be read and written.", up)
        yield _by_state("adon_transits", "Transits by state.", states)

    def _links(self, health: dict[str, Any]) -> Iterator[Metric]:
        names = ("adon_link_capacity_bps", "adon_link_reservable_bps", "adon_link_reserved_bps")
        texts = ("Capacity", "What may be reserved", "What is reserved now")
        families = [
            GaugeMetricFamily(name, f"{text} of a link in one direction.", labels=("src", "dst"))
            for name, text in zip(names, texts, strict=True)
        ]
        up = GaugeMetricFamily(
            "adon_link_up",
            "1 where a link works, 0 where it has failed, NaN where nobody knows; both directions.",
            labels=("src", "dst"),
        )
        families.append(up)
        broken = {failure["link"] for failure in health["links_failed"]}
        for link in self._broker.describe_topology()["links"]:
            if self._broker.topology.label_of(link["a"], link["b"]) in broken:
                works = 0.0
            else:  # nobody knows of a link that is drained, or whose switch is away
                works = math.nan if link["failed"] or link["unknown"] else 1.0
            for load in link["load"]:
                rates = link["capacity_bps"], load["reservable_bps"], load["reserved_bps"]
                for family, value in zip(families, (*rates, works), strict=True):
                    family.add_metric((load["from"], load["to"]), value)
        yield from families

    def _switches(self, health: dict[str, Any]) -> Iterator[Metric]:
        connected = GaugeMetricFamily(
            "adon_switch_up", "1 where a switch is connected and as it should be; NaN: drained.",
            labels=("switch",),
        )  # fmt: skip
        repairs = CounterMetricFamily(
            "adon_repairs", "What was missing on a switch and was put back.",
            labels=("switch", "kind"),
        )  # fmt: skip
        drained = {drain["element"] for drain in self._broker.drains() if drain["active"]}
        for switch in health["switches"]:
            works = math.nan if switch["name"] in drained else float(not switch["problem"])
            connected.add_metric((switch["name"],), works)
            for kind, count in switch["repairs"].items():
                repairs.add_metric((switch["name"], kind), count)
        yield connected
        yield repairs
        sent = CounterMetricFamily(
            "adon_link_sent_bytes", "Bytes sent on a link in one direction, as the switch says.",
            labels=("src", "dst"),
        )  # fmt: skip
        up = GaugeMetricFamily(
            "adon_controller_up",
            "1 where a switch answers the controller, NaN where it is drained; without a name, the "
            "controller itself.",
            labels=("controller", "switch"),
        )
        circuits = None
        try:
            state = self._broker.on_switches()
        except BrokerError as error:
            log.warning("the switches cannot be asked: %s", error)
        else:
            circuits = float(len(state["installed"]))
            for counter in state["counters"]:
                sent.add_metric((counter["a"], counter["b"]), counter["bytes"])
        up.add_metric((health["controller"]["name"], ""), circuits is not None)
        for switch in health["switches"]:
            answers = math.nan if switch["name"] in drained else float(switch["connected"])
            up.add_metric((health["controller"]["name"], switch["name"]), answers)
        yield up
        yield sent
        if circuits is not None:
            yield _gauge("adon_circuits", "Circuits on the switches.", circuits)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, float(value))


def _by_state(name: str, text: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=("state",))
    for state, value in sorted(values.items()):
        family.add_metric((state,), value)
    return family
