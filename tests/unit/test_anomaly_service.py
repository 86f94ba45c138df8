"""Anomalies from the archive and into it: each told once, whatever is stopped and started."""

from __future__ import annotations

import contextlib
import math
import random
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_rig import bearer
from broker_rig import Clock, Rig, demo_network
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from monitoring_rig import monitored
from test_perfsonar_results import RTT, posted

from adon.config.monitoring import check_monitoring
from adon.config.sections import MonitoringConfig
from adon.service.monitoring import documented_routes
from monitors.alerts.anomalies.model import (
    METRIC,
    Anomaly,
    from_measurement,
    to_measurement,
    together,
)
from monitors.alerts.anomalies.service import AnomalyService, SeriesDetectors
from monitors.alerts.anomalies.settings import (
    WATCHED,
    Sensitivity,
    WatchedMetrics,
    watch_from_dict,
)
from monitors.archive.archive import Archive, ArchiveError, Measurement
from network_provisioner.base.errors import InputError

DAY_S = 86_400.0
PERIOD_S = 600.0
T0 = 1_700_000_000.0 - 1_700_000_000.0 % DAY_S


class Told:
    """What people were told: kind, key and text."""

    def __init__(self) -> None:
        self.all: list[tuple[str, str, str]] = []
        self.details: list[Mapping[str, Any]] = []

    def __call__(self, kind: str, key: str, text: str, details: Mapping[str, Any]) -> None:
        self.all.append((kind, key, text))
        self.details.append(details)


def series(
    first: float, days: float, levels: Mapping[float, float], subject: str = "mu>tacc"
) -> Iterator[Measurement]:
    """Throughput every ten minutes; ``levels`` by the day they begin on."""
    draw = random.Random(subject)
    for n in range(int(days * DAY_S / PERIOD_S)):
        at = first + n * PERIOD_S
        day = (at - T0) / DAY_S
        level = levels[max(start for start in levels if start <= day)]
        value = level * math.exp(draw.gauss(0, 0.02))
        yield Measurement(
            f"t:{subject}:{at}", "tcp_throughput", subject, value, "bit/s", at, "iperf3"
        )


DROP = {0.0: 9e8, 5.0: 5e8}


def run(
    archive: Archive, clock: Clock, notices: Told, watch: WatchedMetrics | None = None
) -> AnomalyService:
    """A service that has read all there is; not in a thread."""
    service = AnomalyService(archive, watch or WatchedMetrics(), notices, clock)
    service.catch_up()
    return service


def test_what_is_recorded_is_watched_and_told_once(archive: Archive) -> None:
    clock, notices = Clock(T0), Told()
    service = run(archive, clock, notices)
    for measurement in series(T0, 6, DROP):
        archive.record(measurement)
        clock.now = measurement.at
        if (measurement.at - T0) % (100 * PERIOD_S) == 0:
            service.read_new()
    service.read_new()
    ((kind, key, text),) = notices.all
    assert (kind, key) == ("anomaly", f"anomaly:tcp_throughput:mu>tacc:{int(T0 + 5 * DAY_S)}")
    assert text.startswith("tcp_throughput of mu>tacc fell from ")
    assert "Mb/s" in text
    details = notices.details[0]
    assert (details["kind"], details["subject"]) == ("level", "mu>tacc")
    (anomaly,) = archive.query(METRIC)
    assert (anomaly.id, anomaly.subject, anomaly.unit) == (key, "mu>tacc", "1")
    assert anomaly.value == pytest.approx(-4 / 9, abs=0.03)
    assert anomaly.details["why"]


def test_an_archive_that_takes_nothing_for_a_while_loses_none(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: Measurement) -> bool:
        raise ArchiveError("away")

    clock, notices = Clock(T0 + 5.9 * DAY_S), Told()
    service = run(archive, clock, notices)
    archive.record_many(series(T0, 6, DROP))
    with monkeypatch.context() as patched:
        patched.setattr(archive, "record", away)
        for _ in range(3):
            with contextlib.suppress(ArchiveError):
                while not service.read_new():
                    pass
    service.read_new()
    assert len(notices.all) == 1 and len(archive.query(METRIC)) == 1


def test_a_restart_finds_the_same_under_the_same_key(archive: Archive) -> None:
    archive.record_many(series(T0, 6, DROP))
    first, again = Told(), Told()
    clock = Clock(T0 + 5.5 * DAY_S)
    run(archive, clock, first)
    assert len(first.all) == 1
    before = archive.query(METRIC)
    run(archive, clock, again)
    assert again.all == first.all  # under the same key, by which the notifier knows it
    assert archive.query(METRIC) == before


@pytest.mark.parametrize("forgotten_days", [1.0, 2.3, 4.0])
def test_a_restart_that_knows_less_of_the_past_takes_it_for_the_same(
    archive: Archive, forgotten_days: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = {0.0: 9e8, 9.0: 7e8, 9.2: 9e8, 11.0: 6e8}
    archive.record_many(series(T0, 12, levels))
    clock = Clock(T0 + 12 * DAY_S)
    run(archive, clock, Told())
    before = archive.query(METRIC)
    assert [anomaly.kind for anomaly in together(before)] == ["dip", "level"]
    monkeypatch.setattr("monitors.alerts.anomalies.service.MEMORY_S", (12 - forgotten_days) * DAY_S)
    again = Told()
    run(archive, clock, again)
    assert {key for _, key, _ in again.all} <= {measurement.id for measurement in before}
    assert archive.query(METRIC) == before


def test_what_is_old_is_recorded_and_nobody_is_told(archive: Archive) -> None:
    archive.record_many(series(T0, 9, DROP))
    notices = Told()
    run(archive, Clock(T0 + 9 * DAY_S), notices)
    assert notices.all == []
    assert len(archive.query(METRIC)) == 1


def test_an_outage_is_told_while_it_lasts_and_its_end_is_recorded(archive: Archive) -> None:
    archive.record_many(series(T0, 2, {0.0: 9e8}))
    notices, clock = Told(), Clock(T0 + 2 * DAY_S)
    service = run(archive, clock, notices)
    clock.now += 5 * PERIOD_S
    service.tick(clock.now)
    assert notices.all == []
    clock.now += 2 * PERIOD_S
    service.tick(clock.now)
    service.tick(clock.now + 1)
    ((_, key, text),) = notices.all
    assert "outage since" in text
    clock.now = T0 + 3.1 * DAY_S
    archive.record_many(series(T0 + 3 * DAY_S, 0.1, {0.0: 9e8}))
    service.read_new()
    (anomaly,) = together(archive.query(METRIC))
    assert (anomaly.id, anomaly.kind, anomaly.until) == (key, "outage", T0 + 3 * DAY_S)
    assert len(notices.all) == 1


def test_after_a_pause_of_ours_nothing_is_missing_at_once(archive: Archive) -> None:
    archive.record_many(series(T0, 2, {0.0: 9e8}))
    notices, clock = Told(), Clock(T0 + 4 * DAY_S)
    service = run(archive, clock, notices)
    service.tick(clock.now)
    assert archive.query(METRIC) == []
    clock.now += 7 * PERIOD_S
    service.tick(clock.now)
    assert len(notices.all) == 1


def test_what_was_missing_while_others_were_measured_is_told_at_once(archive: Archive) -> None:
    archive.record_many(series(T0, 2, {0.0: 9e8}))
    archive.record_many(series(T0, 2.2, {0.0: 9e8}, "mu>iplant"))
    notices = Told()
    run(archive, Clock(T0 + 2.2 * DAY_S), notices)
    ((_, key, text),) = notices.all
    assert key.startswith("anomaly:tcp_throughput:mu>tacc:")
    assert "outage since" in text


def test_a_measurement_from_the_future_does_not_end_a_series(archive: Archive) -> None:
    wrong = Measurement("w", "tcp_throughput", "mu>tacc", 9e8, "bit/s", T0 + 9e8, "iperf3")
    archive.record(wrong)
    notices, clock = Told(), Clock(T0 + 5.5 * DAY_S)
    service = run(archive, clock, notices)
    archive.record(replace(wrong, id="w2"))
    archive.record_many(series(T0, 5.5, DROP))
    service.read_new()
    assert len(notices.all) == 1


@pytest.mark.parametrize("value", [1.7e308, -1.7e308])
def test_what_nobody_can_have_measured_ends_nothing(archive: Archive, value: float) -> None:
    rtt = [
        Measurement(f"{n}", "rtt", "mu>tacc", value if n % 7 == 0 else 0.05, "s", T0 + n, "ping")
        for n in range(400)
    ]
    archive.record_many(rtt)
    service = run(archive, Clock(T0 + 500), Told())
    assert service.up_to_date.is_set()


def test_paths_and_tools_are_told_apart(archive: Archive) -> None:
    good = list(series(T0, 6, {0.0: 9e8}, "mu>iplant"))
    slow_tool = [
        Measurement(f"o:{m.id}", m.metric, "mu>tacc", m.value / 3, m.unit, m.at + 60, "other")
        for m in good
    ]
    archive.record_many([*series(T0, 6, DROP), *good, *slow_tool])
    notices = Told()
    service = run(archive, Clock(T0 + 5.5 * DAY_S), notices)
    assert [key.split(":")[2] for _, key, _ in notices.all] == ["mu>tacc"]
    assert set(service.limits("tcp_throughput", "mu>tacc")) == {"iperf3", "other"}
    assert set(service.limits("tcp_throughput", "mu>iplant")) == {"iperf3"}
    assert service.limits("rtt", "mu>tacc") == {}


def test_the_thread_follows_the_archive(archive: Archive) -> None:
    clock, heard = Clock(T0 + 5.5 * DAY_S), threading.Event()
    service = AnomalyService(archive, WatchedMetrics(), lambda *_: heard.set(), clock)
    service.start()
    try:
        assert service.up_to_date.wait(120)
        archive.record_many(series(T0, 5.5, DROP))
        assert heard.wait(120)
    finally:
        service.stop()
    service.stop()  # harmless


def test_the_series_that_was_silent_longest_is_forgotten_first() -> None:
    watcher = SeriesDetectors(WatchedMetrics(), most=2)
    for n, subject in enumerate(("a>b", "a>c", "a>b", "a>d")):
        watcher.add(Measurement(f"{n}", "rtt", subject, 0.1, "s", T0 + n, "ping"))
    assert len(watcher) == 2
    assert set(watcher.limits("rtt", "a>b", T0)) == {"ping"}
    assert watcher.limits("rtt", "a>c", T0) == {}


# ---------------------------------------------------------------- records


Moments = st.floats(0, 4e9)
Anomalies = st.builds(
    Anomaly,
    metric=st.sampled_from(["rtt", "custom:x"]),
    subject=st.text(st.characters(exclude_categories=("C",)), min_size=1, max_size=20),
    kind=st.sampled_from(["level", "dip", "outage"]),
    since=Moments,
    noticed=Moments,
    before=st.floats(-1e12, 1e12),
    after=st.none() | st.floats(-1e12, 1e12),
    change=st.floats(-1e6, 1e6),
    confidence=st.sampled_from([0.0, 0.5, 0.9654, 1.0]),
    why=st.text(max_size=50),
    until=st.none() | Moments,
    limits=st.just({}) | st.just({"threshold": 0.2}),
)


@given(Anomalies)
def test_an_anomaly_comes_back_from_the_archive_as_it_was(anomaly: Anomaly) -> None:
    with Archive(":memory:") as archive:
        assert archive.record(to_measurement(anomaly))
        (measurement,) = archive.query(METRIC)
    assert from_measurement(measurement) == anomaly


def test_what_is_no_anomaly_of_ours_is_passed_over() -> None:
    assert together([Measurement("x", METRIC, "a>b", 1.0, "1", 5.0, "somebody")]) == []


# ---------------------------------------------------------------- settings


def test_what_is_watched_where_nothing_is_said() -> None:
    watch = watch_from_dict({})
    assert all(watch.of(metric) is not None for metric in WATCHED)
    assert watch.of("cpu_use") is None
    assert watch.of("custom:queue") is None
    loss, rtt = watch.of("loss"), watch.of("rtt")
    assert loss is not None
    assert rtt is not None
    assert (loss.min_change, rtt.min_change) == (0.01, Sensitivity().min_change)


def test_settings_of_metrics_and_patterns() -> None:
    watch = watch_from_dict(
        {
            "default": {"noise": 8, "learn": "1 d"},
            "rtt": {"min_change": "30 %", "dip_within": "2 h"},
            "custom:*": {"samples": 3},
            "jitter": "off",
            "loss": False,
            "cpu_use": {},
        }
    )
    assert watch.of("rtt") == Sensitivity(0.3, 8, dip_within_s=7200.0, learn_s=DAY_S)
    assert watch.of("custom:queue") == Sensitivity(noise=8, samples=3, learn_s=DAY_S)
    assert watch.of("jitter") is watch.of("loss") is None
    assert watch.of("cpu_use") is not None


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"rt": {}}, "unknown key 'rt', did you mean 'rtt'?"),
        ({"rtt": {"nois": 3}}, "anomalies.rtt has the unknown key 'nois', did you mean 'noise'?"),
        (
            {"rtt": {"min_change": "much"}},
            "min_change: found 'much', expected a part such as '15 %'",
        ),
        ({"rtt": {"noise": 0}}, "noise: found 0, expected 1 or more"),
        ({"rtt": {"samples": 1}}, "samples: found 1, expected 2 or more"),
        ({"rtt": {"samples": 99}}, "samples: found 99, expected at most 24"),
        ({"rtt": {"learn": "soon"}}, "anomalies.rtt: learn: found"),
        ({"rtt": 5}, "anomalies.rtt is 5, expected a mapping"),
    ],
)
def test_settings_that_cannot_be_meant(section: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refused:
        watch_from_dict(section)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


SECTION: dict[str, Any] = {
    "anomalies": {"rtt": {"min_change": "30 %"}},
    "perfsonar": [{"hosts": {"*.mu.example.edu": "mu", "*.tacc.example.edu": "tacc/dtn"}}],
}
WAIT_S = 120.0


def test_what_perfsonar_posts_is_judged(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s.sqlite", demo_network())
    rig.clock.now = 1_455_860_000.0  # a little later than what was posted
    with monitored(tmp_path, rig, SECTION) as (app, _), TestClient(app) as client:
        body = posted("rtt", RTT)
        answer = client.post("/v1/perfsonar/results", json=body, headers=bearer("engineer"))
        assert answer.json() == {"recorded": 2, "known": 0, "ignored": ""}
        body |= {"id": "2", "schedule": {"start": rig.clock.now}}
        assert client.post(
            "/v1/perfsonar/results", json=body, headers=bearer("engineer")
        ).is_success
        route = "/v1/anomalies/limits?metric=rtt&subject=mu>tacc/dtn"
        until = time.monotonic() + WAIT_S
        while (got := client.get(route, headers=bearer("operator"))).status_code == 404:
            assert time.monotonic() < until
        (limits,) = got.json()["limits"]
        assert (limits["source"], limits["min_change"]) == ("perfsonar", 0.3)
        assert client.get("/v1/anomalies", headers=bearer("operator")).json() == {"anomalies": []}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"anomalies": {"rtt": {"noize": 3}}}, "did you mean 'noise'?"),
        ({"perfsonar": [{"hosts": {"a": "mars"}}]}, "found site 'mars'"),
    ],
)
def test_a_section_that_cannot_be_meant(section: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        check_monitoring(MonitoringConfig(**section), demo_network())
    assert message in str(refused.value)


def test_routes_are_described_without_anything_behind_them() -> None:
    paths = {
        getattr(route, "path", "") for router in documented_routes() for route in router.routes
    }
    assert {"/v1/anomalies", "/v1/perfsonar/results"} <= paths
