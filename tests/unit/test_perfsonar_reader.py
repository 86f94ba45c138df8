"""Reading an esmond-style archive: everything once, whatever it answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from generated import any_json
from hypothesis import given, settings
from hypothesis import strategies as st
from test_perfsonar_results import AT, HOSTS, LATENCY, RUN, TCP, posted
from waiting import until

from monitors.archive.archive import Archive
from monitors.measurements.perfsonar import esmond, reader
from monitors.measurements.perfsonar.convert import FAILURE
from monitors.measurements.perfsonar.reader import (
    OVERLAP_S,
    FetchError,
    Reader,
    Readers,
    RefusedError,
    TooLargeError,
    fetch_of,
)
from monitors.measurements.perfsonar.results import measurements_of
from monitors.measurements.perfsonar.settings import Remote
from monitors.recording import of_agent
from network_provisioner.access import Principal, Role
from network_provisioner.base.errors import InputError
from tests.esmond_world import ROOT, Esmond, serving

NOW = AT + 2 * 86_400.0
MU, TACC = "ps-bw.mu.example.edu", "bw1.tacc.example.edu"


@pytest.fixture
def world() -> Iterator[Esmond]:
    made = Esmond()
    with serving(made):
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
        metric: sorted(
            (measurement.subject, measurement.at - AT, measurement.value)
            for measurement in archive.query(metric)
        )
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
    measurements = archive.query("tcp_throughput")
    assert len(measurements) == len({measurement.id for measurement in measurements}) == 51


def test_a_reader_that_comes_back_goes_on_where_it_was(world: Esmond, archive: Archive) -> None:
    world.add("a", MU, TACC)
    world.put("a", "throughput", {int(NOW) - 3600: 1e9})
    reader_of(world, archive, back_s=86_400.0).once(NOW)
    away = [int(NOW) + 3600 * n for n in range(1, 24 * 30)]  # a month, more than it looks back
    world.put("a", "throughput", dict.fromkeys(away, 9e8))
    assert reader_of(world, archive, back_s=86_400.0).once(NOW + 31 * 86_400) == len(away)
    again = world.asked[1 + next(n for n, path in enumerate(world.asked) if "/base" in path) :]
    first = next(path for path in again if "throughput/base" in path)
    assert f"time-start={int(NOW) - 3600 - int(OVERLAP_S)}&" in first


def test_what_one_kind_of_result_gave_hides_nothing_of_another(
    world: Esmond, archive: Archive
) -> None:
    world.add("a", MU, TACC)
    world.put("a", "failures", {int(NOW) - 60: {"error": "no answer"}})
    world.put("a", "throughput", {int(NOW) - 5 * 86_400: 1e9})
    assert reader_of(world, archive).once(NOW) == 2
    world.put("a", "packet-loss-rate", {int(NOW) - 5 * 86_400: 0.1})
    assert reader_of(world, archive).once(NOW) == 1  # another process


def test_nothing_is_asked_of_tests_that_have_nothing_new(world: Esmond, archive: Archive) -> None:
    world.add("a", MU, TACC)
    world.put("a", "throughput", {int(NOW) - 30 * 86_400: 1e9})
    assert reader_of(world, archive).once(NOW) == 0
    assert all("/base" not in path for path in world.asked)


def test_all_pages_are_read(
    world: Esmond, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "TESTS", 10)
    monkeypatch.setattr(reader, "RESULTS", 10)
    for n in range(25):
        world.add(f"k{n}", MU, TACC)
        times = range(int(NOW) - 12_000 - n, int(NOW) - n, 1000)
        world.put(f"k{n}", "throughput", dict.fromkeys(times, 1e9))
    world.put("k3", "throughput", dict.fromkeys(range(int(NOW) - 12_345, int(NOW), 100), 2e9))
    wanted = sum(len(points) for points in world.points.values())
    assert reader_of(world, archive).once(NOW) == wanted


@pytest.mark.parametrize("limit", [2, 5, 9, 20])
def test_an_archive_that_gives_always_the_same_does_not_hold_us_up(
    world: Esmond, archive: Archive, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(reader, "RESULTS", limit)
    world.add("a", MU, TACC)
    world.put("a", "throughput", dict.fromkeys(range(int(NOW) - 50, int(NOW), 10), 1e9))
    for path in (ROOT, f"{ROOT}a/throughput/base"):
        world.answers[path] = (200, json.dumps(world.answer(path, {})).encode())
    assert reader_of(world, archive).once(NOW) == 5
    assert len(world.asked) < 40  # not one for every second of a week


def test_an_archive_and_a_test_that_stop_are_silent(world: Esmond, archive: Archive) -> None:
    hour = 3600
    world.add("a", MU, TACC)
    world.put("a", "throughput", dict.fromkeys(range(int(NOW) - 5 * hour, int(NOW), hour), 1e9))
    perfsonar, now = reader_of(world, archive, every_s=600.0), NOW
    perfsonar.once(now)
    assert perfsonar.silent(lambda: now + 600) == {}
    for now in (NOW + hour, NOW + 2 * hour):
        perfsonar.once(now)
    assert list(perfsonar.silent(lambda: now)) == ["perfSONAR throughput mu>tacc"]
    world.put("a", "throughput", {int(now) - 60: 1e9})
    perfsonar.once(now)
    assert perfsonar.silent(lambda: now) == {}
    world.answers[ROOT] = (500, b"")
    with pytest.raises(FetchError):
        perfsonar.once(now + 600)
    assert perfsonar.silent(lambda: now + 900) == {}
    (silent,) = perfsonar.silent(lambda: now + 1300).values()
    assert silent == (now, "it does not answer")


class Counting:
    """An archive of one series that counts results as elmond does: those without a value are
    counted, and left out; and nothing comes after the ``most`` of an answer."""

    def __init__(self, points: dict[int, bool], most: int) -> None:
        self.points, self.most = points, most

    def __call__(self, url: str) -> Any:
        query = {
            key: int(value) for key, value in parse_qsl(urlsplit(url).query) if key != "format"
        }
        first, last = query["time-start"], query["time-end"]
        hits = [at for at in sorted(self.points) if first <= at <= last]
        return [{"ts": at, "val": 1} for at in hits[: query["limit"]] if self.points[at]]


@settings(max_examples=80, deadline=None)
@given(
    st.dictionaries(st.integers(0, 400_000), st.booleans(), max_size=60),
    st.integers(0, 200_000),
    st.integers(0, 500_000),
)
def test_results_left_out_of_an_answer_hide_no_others(
    points: dict[int, bool], first: int, last: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "RESULTS", 120)  # twice as many as there are
        pages = list(reader.listed_results(Counting(points, 120), "x", first, last))
    times = {point["ts"] for page in pages for point in page}
    assert times == {at for at, valued in points.items() if valued and first <= at <= last}


@settings(max_examples=80, deadline=None)
@given(st.sets(st.integers(0, 5000), max_size=80), st.integers(2, 12))
def test_every_result_is_found_however_few_are_given_at_once(times: set[int], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "RESULTS", most)
        pages = reader.listed_results(Counting(dict.fromkeys(times, True), most), "x", 0, 5000)
        assert {point["ts"] for page in pages for point in page} == times


def test_an_answer_that_is_too_large_is_asked_for_in_parts() -> None:
    def fetch(url: str) -> Any:
        query = dict(parse_qsl(urlsplit(url).query))
        if int(query["time-end"]) - int(query["time-start"]) > 1000:
            raise TooLargeError("too much")
        return Counting(dict.fromkeys(range(0, 10_000, 10), True), 100)(url)

    times = {point["ts"] for page in reader.listed_results(fetch, "x", 0, 9_999) for point in page}
    assert times == set(range(0, 10_000, 10))


@pytest.mark.parametrize("role", [Role.ENGINEER, Role.AGENT])
def test_what_was_posted_is_not_recorded_again_when_it_is_read(
    world: Esmond, archive: Archive, role: Role
) -> None:
    """Neither where an agent posted it, under ids of its own."""
    who = Principal("mu", role)
    for body in (posted("throughput", TCP), posted("latencybg", LATENCY)):
        archive.record_many(of_agent(who, measurements_of(body, HOSTS)))
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
    # Another run in the same second is another one.
    other = {at: {"href": "https://ps/pscheduler/tasks/1/runs/another"}}
    world.put("a", "pscheduler-run-href", other)
    assert reader_of(world, archive).once(NOW) == 1


def test_no_delay_where_the_clocks_do_not_allow_it(world: Esmond, archive: Archive) -> None:
    at = int(AT)
    world.add("a", MU, TACC)
    world.put("a", "histogram-owdelay", {at: {"2.5": 600}, at + 60: {"2.5": 600}})
    world.put("a", "time-error-estimates", {at: 0.27, at + 60: 3.1})
    assert reader_of(world, archive).once(NOW) == 3
    (measurement,) = archive.query("one_way_delay")
    assert (measurement.at, measurement.details["clock_error_s"]) == (AT, 0.00027)


@pytest.mark.parametrize(
    ("about", "delay"),
    [
        ({"pscheduler-test-type": "latencybg", "tool-name": "pscheduler/powstream"}, 0.00025),
        ({"pscheduler-test-type": "latency", "tool-name": "pscheduler/halfping"}, 0.0025),
        ({"tool-name": "powstream"}, 0.0025),
    ],
)
def test_delays_are_in_units_of_the_buckets(
    world: Esmond, archive: Archive, about: dict[str, str], delay: float
) -> None:
    world.add("a", MU, TACC, **about, **{"sample-bucket-width": "0.0001"})
    world.put("a", "histogram-owdelay", {int(AT): {"2.5": 600}})
    reader_of(world, archive).once(NOW)
    assert [measurement.value for measurement in archive.query("one_way_delay")] == [
        pytest.approx(delay)
    ]


def test_a_result_whose_run_is_not_there_yet_waits_for_it(world: Esmond, archive: Archive) -> None:
    at = int(NOW) - 60
    world.add("a", MU, TACC)
    world.put("a", "pscheduler-run-href", {at - 3600: {"href": "https://ps/runs/old"}})
    world.put("a", "throughput", {at: 9.4e8})
    reader = reader_of(world, archive)
    assert reader.once(NOW) == 0
    world.put("a", "pscheduler-run-href", {at: {"href": "https://ps/runs/new"}})
    assert reader.once(NOW + 60) == 1
    (measurement,) = archive.query("tcp_throughput")
    assert measurement.id == f"perfsonar:new:{at}:tcp_throughput"


def test_filters_and_the_token_are_shown(world: Esmond, archive: Archive, tmp_path: Any) -> None:
    (tmp_path / "token").write_text("secret\n")
    world.add("a", MU, TACC, **{"tool-name": "other"})
    world.add("b", MU, TACC)
    world.put("b", "throughput", {int(NOW) - 60: 1e9})
    only = {"tool-name": "pscheduler/iperf3"}
    reader = reader_of(world, archive, only=only, token_file=tmp_path / "token")
    assert reader.once(NOW) == 1
    assert all(headers["Authorization"] == "Token secret" for headers in world.headers)


# ---------------------------------------------------------------- perfSONAR 5's elmond


ELMOND = json.loads((Path(__file__).parent / "elmond_answers.json").read_text())
"""What elmond 5.2.1 answered of results that were made up, kept by a stand-in for OpenSearch."""
ELMOND_NOW = 1_763_000_000.0


def elmond(url: str) -> Any:
    path, query = urlsplit(url).path, dict(parse_qsl(urlsplit(url).query))
    first, last = float(query["time-start"]), float(query.get("time-end", "inf"))
    if path == ROOT:
        tests = [
            test for test in ELMOND["tests"]
            if "reverse" not in query or test["metadata-key"] in ELMOND["reverse"]
        ]  # fmt: skip
        return tests[int(query["offset"]) :][: int(query["limit"])]
    return [result for result in ELMOND["results"][path] if first <= result["ts"] <= last]


def elmonds(archive: Archive, fetch: Any = elmond) -> Reader:
    return Reader(Remote(f"http://ps.example.edu{ROOT}"), HOSTS, archive, fetch)


def test_everything_that_elmond_has(archive: Archive) -> None:
    reader = elmonds(archive)
    assert (reader.once(ELMOND_NOW), reader.once(ELMOND_NOW + 60)) == (19, 0)
    assert elmonds(archive).once(ELMOND_NOW + 120) == 0  # another process
    assert {
        metric: sorted(
            (measurement.subject, ELMOND_NOW - measurement.at, measurement.value)
            for measurement in archive.query(metric)
        )
        for metric in archive.metrics()
    } == {
        "tcp_throughput": [
            ("mu>tacc", 3600.0, 9.4e8 + 2),
            ("mu>tacc", 7200.0, 9.4e8 + 1),
            ("mu>tacc", 10_800.0, 9.4e8),
            ("tacc>mu", 5100.0, 3e8),  # done in reverse
        ],
        FAILURE: [("mu>tacc", 1800.0, 1.0)],
        "udp_throughput": [("mu>tacc", 5000.0, 5e7)],
        "throughput": [("mu>tacc", 5400.0, 2e8)],
        "one_way_delay": [("mu>tacc", at, pytest.approx(0.00257)) for at in (540.0, 900.0)],
        "jitter": [("mu>tacc", at, pytest.approx(0.00003)) for at in (540.0, 900.0)],
        "loss": [
            ("10.1.1.1>tacc", 5200.0, 0.2),  # it names no source: who measured it
            ("mu>tacc", 540.0, 0.005),
            ("mu>tacc", 720.0, 1.0),
            ("mu>tacc", 900.0, 0.005),
            ("mu>tacc", 5250.0, 0.0),
        ],
        "rtt": [("10.1.1.1>tacc", 5200.0, 0.0551), ("mu>tacc", 5250.0, 0.055)],
        "hops": [("mu>tacc", 5300.0, 4.0)],
    }
    assert archive.query("rtt")[0].details["is"] == "mean"


def test_what_was_posted_is_not_recorded_again_from_elmond(archive: Archive) -> None:
    good = posted("throughput", TCP) | {"id": "ffe51a3a-1762989200"}
    good["schedule"] = {"start": "2025-11-12T23:13:20Z"}
    bad = posted("throughput", {"succeeded": False, "error": "no answer"})
    bad["schedule"] = {"start": "2025-11-13T01:43:20Z"}
    for body in (good, bad):
        assert archive.record_many(measurements_of(body, HOSTS)) == 1
    assert elmonds(archive).once(ELMOND_NOW) == 17
    assert [measurement.details["run"] for measurement in archive.query(FAILURE)] == [RUN]


def test_results_that_elmond_cannot_give_cost_only_themselves(
    archive: Archive, caplog: pytest.LogCaptureFixture
) -> None:
    broken = True

    def fetch(url: str) -> Any:
        if broken and "packet-trace" in url:
            raise RefusedError(f"{url}: answered 500")
        return elmond(url)

    reader = elmonds(archive, fetch)
    assert reader.once(ELMOND_NOW) == 18
    assert "packet-trace/base/0" in caplog.text
    broken = False
    assert reader.once(ELMOND_NOW + 86_400) == 1


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
    now = [NOW]
    readers = Readers([reader_of(world, archive, every_s=0.1)], lambda: now[0])
    readers.start()
    try:
        until(archive.latest_seq, "the first result")
        now[0] -= 3600  # the clock is set back
        world.put("a", "throughput", {int(NOW) - 3700: 1e9})
        until(lambda: archive.latest_seq() == 2, "the second")
    finally:
        readers.stop()
    readers.stop()


Json = any_json(max_leaves=8)
Fields = st.sampled_from(
    ["metadata-key", "event-types", "source", "destination", "input-source", "tool-name"]
)
Point = st.fixed_dictionaries({"ts": st.integers(0, int(NOW)) | Json, "val": Json})


@settings(max_examples=80, deadline=None)
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


def test_what_nobody_believes_is_left_out(archive: Archive) -> None:
    link = {"base-uri": "/x/base", "event-type": "throughput"}
    test = {"metadata-key": "k", "source": MU, "destination": TACC, "event-types": [link]}
    values = {NOW - 60: 1e308, NOW - 30: 9e8, NOW + 86_400: 1e9}
    points = [{"ts": int(at), "val": value} for at, value in values.items()]
    answers = {"/": [test], "/x/base": points}
    remote = Remote("http://ps.example.edu/")
    reader = Reader(remote, HOSTS, archive, lambda url: answers[urlsplit(url).path])
    assert reader.once(NOW) == 1
    assert [measurement.value for measurement in archive.query("tcp_throughput")] == [9e8]
