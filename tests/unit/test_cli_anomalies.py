"""``adon monitor anomalies``: what was noticed, and what measurements are judged by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from api_rig import serving
from cli_world import adon
from test_anomaly_service import DAY_S, DROP, T0, Clock, Told, series
from test_api_workflows import Web

from monitors.alerts.anomalies.model import Anomaly, to_measurement
from monitors.alerts.anomalies.service import AnomalyService
from monitors.alerts.anomalies.settings import WatchedMetrics
from monitors.archive.archive import Archive


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An archive in which there is one anomaly; it is that very evening."""
    now = T0 + 6 * DAY_S
    monkeypatch.setattr("time.time", lambda: now)
    path = tmp_path / "a.sqlite"
    with Archive(path) as archive:
        archive.record_many(series(T0, 6, DROP))
        AnomalyService(archive, WatchedMetrics(), Told(), Clock(now)).catch_up()
    return str(path)


def test_anomalies_are_listed(file: str) -> None:
    listing = adon("monitor", "anomalies", "--archive", file)
    (line,) = listing.out.splitlines()
    assert listing.code == 0
    assert line.startswith("level   tcp_throughput of mu>tacc fell from 898 Mb/s to 505 Mb/s at ")
    listed = json.loads(adon("monitor", "anomalies", "--archive", file, "--json").out)
    (anomaly,) = listed["anomalies"]
    assert (anomaly["kind"], anomaly["subject"]) == ("level", "mu>tacc")
    mistyped = adon("monitor", "anomalies", "--archive", file, "--metric", "tcp_troughput").out
    assert mistyped == (
        "no anomalies: no tcp_troughput was measured, did you mean 'tcp_throughput'?\n"
    )
    for narrow in (("--subject", "a>b"), ("--since", str(int(T0 + 6 * DAY_S)))):
        assert adon("monitor", "anomalies", "--archive", file, *narrow).out == "no anomalies\n"


def test_the_newest_come_first_from_archive_or_broker(tmp_path: Path) -> None:
    web = Web(tmp_path)
    kinds = ("dip", "level")
    for n, kind in enumerate(kinds):
        change = Anomaly("rtt", "mu>tacc", kind, T0 + n, T0 + n, 1.0, 2.0, 1.0, 0.9, "slow")
        for archive in (web.archive, *map(Archive, [tmp_path / "a.sqlite"])):
            archive.record(to_measurement(change))
    with serving(web.app) as port:
        for source in (("--broker", f"http://127.0.0.1:{port}"),
                       ("--archive", str(tmp_path / "a.sqlite"))):  # fmt: skip
            listed = json.loads(adon("monitor", "anomalies", *source, "--json").out)["anomalies"]
            assert [anomaly["kind"] for anomaly in listed] == ["level", "dip"]
            newest = adon("monitor", "anomalies", *source, "--limit", "1")
            assert newest.out.startswith("level ") and newest.out.count("\n") == 1
            assert newest.err == "adon: there are more than 1: see --limit\n"
            none = adon("monitor", "anomalies", *source, "--metric", "anomly").out
            assert none == "no anomalies: no anomly was measured, did you mean 'anomaly'?\n"
    mixed = adon("monitor", "anomalies", "--explain", "--broker")
    assert mixed.err.startswith("adon: --explain: found with --broker")


def test_limits_are_explained(file: str) -> None:
    listing = adon("monitor", "anomalies", "--archive", file, "--explain")
    first, *rest = listing.out.splitlines()
    assert first == "tcp_throughput of mu>tacc (from iperf3)"
    text = "\n".join(rest)
    assert "864 measurements in 6 d, usually one every 10 min" in text
    assert "an anomaly is a median of 24 measurements below 43" in text
    assert "min_change = 15.0%" in text
    explanation = json.loads(
        adon("monitor", "anomalies", "--archive", file, "--explain", "--json").out
    )
    assert explanation["series"][0]["ready"] is True


def test_what_is_not_there(tmp_path: Path) -> None:
    none = str(tmp_path / "none.sqlite")
    for words in ((), ("--explain",)):
        refused = adon("monitor", "anomalies", "--archive", none, *words)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert "none.sqlite: found no such file" in refused.err
    Archive(none).close()
    output = adon("monitor", "anomalies", "--archive", none, "--since", "2 d").out
    assert output == "no anomalies: no measurements of watched metrics\n"
    explained = adon("monitor", "anomalies", "--archive", none, "--explain")
    assert explained.out == "no measurements of watched metrics\n"
    bad = tmp_path / "bad.sqlite"
    bad.write_text("no archive")
    refused = adon("monitor", "anomalies", "--archive", str(bad))
    assert (refused.code, refused.err.count("\n")) == (2, 1)
