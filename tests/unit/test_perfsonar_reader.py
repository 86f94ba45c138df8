"""Reading an esmond-style archive: everything once, whatever it answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_perfsonar_results import AT, HOSTS, LATENCY, RUN, TCP, posted

from monitors.archive import Archive
from monitors.perfsonar import esmond
from monitors.perfsonar import reader as reading
from monitors.perfsonar.convert import FAILURE
from monitors.perfsonar.data import Remote
from monitors.perfsonar.fetch import FetchError, fetch_of
from monitors.perfsonar.reader import OVERLAP_S, Reader, Readers
from monitors.perfsonar.results import measurements_of
from network_provisioner.errors import InputError
from tests.esmond_world import ROOT, Esmond, serving

NOW = AT + 2 * 86_400.0
MU, TACC = "ps-bw.mu.example.edu", "bw1.tacc.example.edu"


@pytest.fixture
def world() -> Iterator[Esmond]:
    made = Esmond()
    with serving(made):
        yield made


@pytest.fixture
def archive() -> Iterator[Archive]:
    with Archive(":memory:") as made:
        yield made


def reader_of(world: Esmond, archive: Archive, **more: Any) -> Reader:
    remote = Remote(world.url, **more)
    return Reader(remote, HOSTS, archive, fetch_of(remote))


def test_every_kind_of_result(world: Esmond, archive: Archive) -> None:
    at = int(AT)
    world.add("a", MU, TACC)
    world.put("a", "throughput", {at: 9.4e8, at + 3600: 9.1e8})
    world.put("a", "packet-retransmits", {at: 5})
    world.put("a", "failures", {at + 7200: {"error": "no answer"}})
    world.add("b", MU, TACC, **{"ip-transport-protocol": "udp"})
    world.put("b", "throughput", {at: 5e7})
    world.put("b", "packet-loss-rate", {at: {"numerator": 17, "denominator": 34000}})
    world.add("c", TACC, MU, **{"tool-name": "pscheduler/powstream"})
    world.put("c", "histogram-owdelay", {at: {"34.4": 506, "34.5": 85, "34.6": 5, "34.7": 4}})
    world.put("c", "packet-loss-rate", {at: 0.046})
    world.add("d", MU, TACC)
    world.put("d", "histogram-rtt", {at: {"52.9": 3, "53.1": 5, "60": 2}})
    world.put("d", "packet-loss-rate-bidir", {at: "0.1"})
    world.add("e", MU, TACC)
    probes = [
        {"error_message": None, "ip": "198.124.238.65", "query": q, "rtt": "0.2", "ttl": "1"}
        for q in ("1", "2")
    ]
    world.put("e", "packet-trace", {at: [*probes, {"ip": "134.55.38.77", "ttl": "3"}]})
    assert reader_of(world, archive).once(NOW) == 11
    assert {
        metric: sorted((one.subject, one.at - AT, one.value) for one in archive.query(metric))
        for metric in archive.metrics()
    } == {
        "tcp_throughput": [("mu>tacc", 0.0, 9.4e8), ("mu>tacc", 3600.0, 9.1e8)],
        FAILURE: [("mu>tacc", 7200.0, 1.0)],
        "udp_throughput": [("mu>tacc", 0.0, 5e7)],
        "loss": [("mu>tacc", 0.0, 0.0005), ("mu>tacc", 0.0, 0.1), ("tacc>mu", 0.0, 0.046)],
        "one_way_delay": [("tacc>mu", 0.0, pytest.approx(0.0344))],
        "jitter": [("tacc>mu", 0.0, pytest.approx(0.0001))],
        "rtt": [("mu>tacc", 0.0, pytest.approx(0.0531))],
        "hops": [("mu>tacc", 0.0, 3.0)],
    }
    (route,) = archive.query("hops")
    assert route.details["route"] == ["198.124.238.65", None, "134.55.38.77"]
    assert route.details["archive_key"] == "e"


def test_reading_again_and_later_records_everything_once(world: Esmond, archive: Archive) -> None:
    world.add("a", MU, TACC)
    times = [int(NOW) - 3600 * n for n in range(1, 50)]
    world.put("a", "throughput", {at: 1e9 + at % 7 for at in times})
    reader = reader_of(world, archive)
    assert (reader.once(NOW), reader.once(NOW + 60)) == (49, 0)
    late = int(NOW) - 1800  # before what was read last: it came late
    world.put("a", "throughput", {late: 5e8, int(NOW) + 60: 6e8})
    assert reader.once(NOW + 120) == 2
    assert reader_of(world, archive).once(NOW + 180) == 0  # another process
    found = archive.query("tcp_throughput")
    assert len(found) == len({one.id for one in found}) == 51


def test_a_reader_that_comes_back_goes_on_where_it_was(world: Esmond, archive: Archive) -> None:
    world.add("a", MU, TACC)
    world.put("a", "throughput", {int(NOW) - 3600: 1e9})
    reader_of(world, archive, back_s=86_400.0).once(NOW)
    away = [int(NOW) + 3600 * n for n in range(1, 24 * 30)]  # a month, more than it looks back
    world.put("a", "throughput", dict.fromkeys(away, 9e8))
    assert reader_of(world, archive, back_s=86_400.0).once(NOW + 31 * 86_400) == len(away)
    first = next(path for path in reversed(world.asked) if "throughput/base" in path)
    assert f"time-start={int(NOW) - 3600 - int(OVERLAP_S)}&" in first


def test_nothing_is_asked_of_tests_that_have_nothing_new(world: Esmond, archive: Archive) -> None:
    world.add("a", MU, TACC)
    world.put("a", "throughput", {int(NOW) - 30 * 86_400: 1e9})
    assert reader_of(world, archive).once(NOW) == 0
    assert all("/base" not in path for path in world.asked)


def test_all_pages_are_read(
    world: Esmond, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PAGE", 10)
    for n in range(25):
        world.add(f"k{n}", MU, TACC)
        times = range(int(NOW) - 12_000 - n, int(NOW) - n, 1000)
        world.put(f"k{n}", "throughput", dict.fromkeys(times, 1e9))
    world.put("k3", "throughput", dict.fromkeys(range(int(NOW) - 12_345, int(NOW), 100), 2e9))
    wanted = sum(len(points) for points in world.points.values())
    assert reader_of(world, archive).once(NOW) == wanted


def test_an_archive_that_knows_no_offset_does_not_hold_us_up(
    world: Esmond, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PAGE", 2)
    world.add("a", MU, TACC)
    world.put("a", "throughput", dict.fromkeys(range(int(NOW) - 50, int(NOW), 10), 1e9))
    answer = json.dumps(world.answer(f"{ROOT}a/throughput/base", {})).encode()
    world.answers[f"{ROOT}a/throughput/base"] = (200, answer)
    assert reader_of(world, archive).once(NOW) == 5


def test_what_was_posted_is_not_recorded_again_when_it_is_read(
    world: Esmond, archive: Archive
) -> None:
    archive.record_many(measurements_of(posted("throughput", TCP), HOSTS))
    archive.record_many(measurements_of(posted("latencybg", LATENCY), HOSTS))
    at = int(AT)
    href = {at: {"href": f"https://ps/pscheduler/tasks/1/runs/{RUN}"}}
    world.add("a", MU, TACC, **{"pscheduler-test-type": "throughput"})
    world.put("a", "throughput", {at: 9.4e8})
    world.add("b", MU, TACC, **{"pscheduler-test-type": "latencybg"})
    world.put("b", "histogram-owdelay", {at: LATENCY["histogram-latency"]})
    world.put("b", "packet-loss-rate", {at: {"numerator": 3, "denominator": 600}})
    for key in ("a", "b"):
        world.put(key, "pscheduler-run-href", href)
    assert reader_of(world, archive).once(NOW) == 0


def test_no_delay_where_the_clocks_do_not_allow_it(world: Esmond, archive: Archive) -> None:
    at = int(AT)
    world.add("a", MU, TACC)
    world.put("a", "histogram-owdelay", {at: {"2.5": 600}, at + 60: {"2.5": 600}})
    world.put("a", "time-error-estimates", {at: 0.27, at + 60: 3.1})
    assert reader_of(world, archive).once(NOW) == 3
    (found,) = archive.query("one_way_delay")
    assert (found.at, found.details["clock_error_s"]) == (AT, 0.00027)


def test_a_result_whose_run_is_not_there_yet_waits_for_it(world: Esmond, archive: Archive) -> None:
    at = int(NOW) - 60
    world.add("a", MU, TACC)
    world.put("a", "pscheduler-run-href", {at - 3600: {"href": "https://ps/runs/old"}})
    world.put("a", "throughput", {at: 9.4e8})
    reader = reader_of(world, archive)
    assert reader.once(NOW) == 0
    world.put("a", "pscheduler-run-href", {at: {"href": "https://ps/runs/new"}})
    assert reader.once(NOW + 60) == 1
    (found,) = archive.query("tcp_throughput")
    assert found.id == f"perfsonar:new:{at}:tcp_throughput"


def test_filters_and_the_token_are_shown(world: Esmond, archive: Archive, tmp_path: Any) -> None:
    (tmp_path / "token").write_text("secret\n")
    world.add("a", MU, TACC, **{"tool-name": "other"})
    world.add("b", MU, TACC)
    world.put("b", "throughput", {int(NOW) - 60: 1e9})
    only = {"tool-name": "pscheduler/iperf3"}
    reader = reader_of(world, archive, only=only, token_file=tmp_path / "token")
    assert reader.once(NOW) == 1
    assert all(headers["Authorization"] == "Token secret" for headers in world.headers)


# ---------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (500, b"oops", "answered 500"),
        (302, b"", "answered 302"),
        (200, b"<html>", "answered no JSON"),
        (200, b'{"detail": "no"}', "expected a list"),
        (200, b"[" * 100_000, "answered no JSON"),
    ],
)
def test_an_archive_that_does_not_answer(
    world: Esmond, archive: Archive, status: int, body: bytes, said: str
) -> None:
    world.answers[ROOT] = (status, body)
    with pytest.raises(FetchError) as failed:
        reader_of(world, archive).once(NOW)
    assert said in str(failed.value)


def test_nobody_there(archive: Archive) -> None:
    remote = Remote("http://127.0.0.1:9/esmond/")
    with pytest.raises(FetchError):
        Reader(remote, HOSTS, archive, fetch_of(remote)).once(NOW)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    ca, token = tmp_path / "ca.pem", tmp_path / "token"
    for remote in (
        Remote("https://ps.example/esmond/", ca=ca),
        Remote("https://ps.example/esmond/", token_file=token),
    ):
        with pytest.raises(InputError, match=r"(ca\.pem|token): No such file or directory$"):
            fetch_of(remote)


def test_garbage_among_results_costs_only_itself(
    world: Esmond, archive: Archive, caplog: pytest.LogCaptureFixture
) -> None:
    at = int(NOW) - 100
    world.add("a", MU, TACC)
    world.put("a", "throughput", {at: 1e9, at + 1: "fast", at + 2: None, at + 3: [1]})
    world.put("a", "histogram-rtt", {at: {"x": 1}, at + 1: {}, at + 2: {"53": 2}})
    world.put("a", "failures", {at: {"error": "no\0thing\ud800"}})
    world.add("no\0name", MU, TACC)
    world.add("bad", "a > b", "c > d")
    world.tests["bad"] |= {"source": 5, "destination": "x > y"}
    world.add("one", MU, TACC)
    world.tests["one"]["destination"] = None
    world.tests["worse"] = {"metadata-key": 5}
    assert reader_of(world, archive).once(NOW) == 3
    assert "3 of 4 results cannot be read" in caplog.text
    assert "\n\n" not in caplog.text


def test_links_to_other_servers_are_not_followed(
    world: Esmond, archive: Archive, caplog: pytest.LogCaptureFixture
) -> None:
    world.add("a", MU, TACC)
    world.put("a", "throughput", {int(NOW) - 60: 1e9})
    listed = world.answer(ROOT, {})
    listed[0]["event-types"][0]["base-uri"] = "http://169.254.169.254/latest"
    world.answers[ROOT] = (200, json.dumps(listed).encode())
    assert reader_of(world, archive).once(NOW) == 0
    assert "expected one at http://127.0.0.1" in caplog.text


def test_the_thread_reads_and_ends(world: Esmond, archive: Archive) -> None:
    world.add("a", MU, TACC)
    world.put("a", "throughput", {int(NOW) - 60: 1e9})
    readers = Readers([reader_of(world, archive)], lambda: NOW)
    readers.start()
    try:
        for _ in range(2000):
            if archive.latest_seq():
                break
            readers._stop.wait(0.01)
    finally:
        readers.stop()
    assert archive.latest_seq() == 1
    readers.stop()


Json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)
Fields = st.sampled_from(
    ["metadata-key", "event-types", "source", "destination", "input-source", "tool-name"]
)
Point = st.fixed_dictionaries({"ts": st.integers(0, int(NOW)) | Json, "val": Json})


@settings(max_examples=200, deadline=None)
@given(
    st.lists(Json | st.dictionaries(Fields, Json, max_size=6), max_size=3),
    st.lists(Point | Json, max_size=4),
    st.sampled_from(esmond.READ),
)
def test_whatever_an_archive_answers(listed: list[Any], points: Any, kind: str) -> None:
    link = {"base-uri": "/x/base", "event-type": kind}
    good = {"metadata-key": "k", "source": MU, "destination": TACC, "event-types": [link]}
    answers = {"/": [*listed, good], "/x/base": points}
    remote = Remote("http://ps.example.edu/")
    with Archive(":memory:") as archive:
        reader = Reader(remote, HOSTS, archive, lambda url: answers[urlsplit(url).path])
        assert reader.once(NOW) == archive.latest_seq()
