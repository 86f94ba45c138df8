"""Results of pScheduler's as measurements: shapes as its own validators and tests have them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from broker_rig import demo_network
from generated import any_json
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement
from monitors.measurements.perfsonar.convert import FAILURE, histogram, quantile, seconds
from monitors.measurements.perfsonar.results import KNOWN, left_out, measurements_of
from monitors.measurements.perfsonar.settings import Hosts, Remote, settings_from_list
from network_provisioner.base.errors import InputError

RUN = "d206c24d-f44d-4d0a-a13c-0ab5eed91313"
AT = 1_455_856_550.0  # 2016-02-19T04:35:50Z
HOSTS = Hosts(
    (("ps-bw.mu.example.edu", "mu"), ("*.tacc.example.edu", "tacc"), ("10.3.0.0/16", "iplant/dtn"))
)

# Of iperf3's by way of pScheduler's parser; numbers as its own test data have them.
TCP = {
    "schema": 1,
    "succeeded": True,
    "diags": "…",
    "intervals": [
        {
            "streams": [{"stream-id": 5, "start": 0, "end": 1.0, "throughput-bits": 15852550.77}],
            "summary": {"start": 0, "end": 1.0, "throughput-bits": 15852550.77},
        }
    ],
    "summary": {
        "streams": [{"stream-id": 5, "start": 0, "end": 10, "throughput-bits": 9.4e8}],
        "summary": {
            "start": 0, "end": 10.0, "throughput-bytes": 1175000000, "throughput-bits": 9.4e8,
            "retransmits": 4, "omitted": False, "receiver-throughput-bits": 9.3e8,
        },
    },
}  # fmt: skip
UDP = {
    "schema": 1,
    "succeeded": True,
    "diags": "",
    "intervals": [],
    "summary": {
        "streams": [],
        "summary": {"throughput-bits": 50e6, "jitter": 0.21, "lost": 17, "sent": 34000},
    },
}
RTT = {
    "schema": 1,
    "succeeded": True,
    "sent": 5, "received": 4, "lost": 1, "loss": 0.2, "duplicates": 0, "reorders": 0,
    "min": "PT0.0527S", "max": "PT0.061S", "mean": "PT0.0551S", "stddev": "PT0.0041S",
    "roundtrips": [
        {"seq": 1, "length": 64, "ip": "10.3.0.9", "ttl": 55, "rtt": "PT0.0531S"},
        {"seq": 2, "length": 64, "ip": "10.3.0.9", "ttl": 55, "rtt": "PT0.0527S"},
        {"seq": 3, "error": "net-unreachable"},
        {"seq": 4, "length": 64, "ip": "10.3.0.9", "ttl": 55, "rtt": "PT0.0533S"},
        {"seq": 5, "length": 64, "ip": "10.3.0.9", "ttl": 55, "rtt": "PT0.061S"},
    ],
}  # fmt: skip
LATENCY = {
    "schema": 1, "succeeded": True, "max-clock-error": 0.27, "packets-duplicated": 0,
    "packets-sent": 600, "packets-reordered": 0, "packets-lost": 3, "packets-received": 597,
    "histogram-latency": {"2.52": 200, "2.57": 200, "2.60": 170, "2.81": 26, "88.21": 1},
    "histogram-ttl": {"252": 597},
}  # fmt: skip
TRACE = {
    "schema": 1,
    "succeeded": True,
    "paths": [
        [
            {"ip": "10.0.2.2", "rtt": "PT0.0002S"},
            {"ip": "192.52.179.65", "rtt": "PT0.0015S", "hostname": "rtr.example.",
             "as": {"number": 10886, "owner": "MAX-GIGAPOP"}},
            {},
            {"ip": "206.196.177.5", "rtt": "PT0.0119S", "mtu": 9000},
        ]
    ],
}  # fmt: skip


def posted(kind: str, result: Any, participants: Any = None, **spec: Any) -> dict[str, Any]:
    """What the HTTP archiver posts."""
    full = {"source": "ps-bw.mu.example.edu", "dest": "bw1.tacc.example.edu", "schema": 1} | spec
    return {
        "id": RUN,
        "schedule": {"start": "2016-02-19T04:35:50+00:00", "duration": "PT31S"},
        "test": {"type": kind, "spec": {key: v for key, v in full.items() if v is not None}},
        "tool": {"name": "iperf3", "version": "1.0"},
        "run": {"href": "https://ps/pscheduler/tasks/1/runs/2", "state": "finished"},
        "task": {"href": "https://ps/pscheduler/tasks/1", "detail": {}},
        "participants": participants or ["ps-bw.mu.example.edu", "bw1.tacc.example.edu"],
        "result": result,
        "reference": None,
    }


def values(body: dict[str, Any]) -> dict[str, float]:
    return {measurement.metric: measurement.value for measurement in measurements_of(body, HOSTS)}


def test_tcp_throughput_is_what_the_receiver_counted() -> None:
    (measurement,) = measurements_of(posted("throughput", TCP, parallel=4), HOSTS)
    assert measurement == Measurement(
        f"perfsonar:{RUN}:{int(AT)}:tcp_throughput", "tcp_throughput", "mu>tacc", 9.3e8, "bit/s",
        AT, "perfsonar",
        details={"run": RUN, "test": "throughput", "tool": "iperf3", "duration_s": 31.0,
                 "parallel": 4, "sent_bps": 9.4e8, "retransmits": 4},
    )  # fmt: skip


def test_halfping_writes_milliseconds_whatever_its_buckets_are() -> None:
    body = posted("latency", LATENCY, **{"bucket-width": 0.25}) | {"tool": {"name": "halfping"}}
    assert values(body)["one_way_delay"] == pytest.approx(0.00257)


SENT = {key: n for key, n in TCP["summary"]["summary"].items() if "receiver" not in key}
DELAYS = {"one_way_delay": 0.00257, "jitter": 0.00003, "loss": 0.005}
CLOCKLESS = {"jitter": 0.00003, "loss": 0.005}


@pytest.mark.parametrize(
    ("kind", "result", "spec", "expected"),
    [
        ("throughput", TCP | {"summary": {"summary": SENT}}, {}, {"tcp_throughput": 9.4e8}),
        ("throughput", UDP, {"udp": True, "schema": 3},
         {"udp_throughput": 50e6, "loss": 0.0005, "jitter": 0.00021}),
        ("rtt", RTT, {"dest": "10.3.0.9"}, {"rtt": 0.0532, "loss": 0.2}),
        ("rtt", RTT | {"roundtrips": []}, {}, {"rtt": 0.0551, "loss": 0.2}),
        ("latency", LATENCY, {}, DELAYS),
        ("latencybg", LATENCY, {}, DELAYS),
        ("latency", LATENCY | {"max-clock-error": 4.0}, {}, CLOCKLESS),
        ("latency", LATENCY | {"histogram-latency": {"-3.1": 600}}, {}, CLOCKLESS | {"jitter": 0}),
        ("latency", LATENCY | {"histogram-latency": {}, "packets-lost": 600}, {}, {"loss": 1.0}),
        ("latency", LATENCY, {"bucket-width": 0.0005},
         {"one_way_delay": 0.001285, "jitter": 0.000015, "loss": 0.005}),
        ("latencybg", LATENCY, {"bucket-width": 0.001}, DELAYS),
        ("dns", {"succeeded": True}, {}, {}),
        ("rtt", RTT | {"roundtrips": [], "mean": "PT0S", "loss": 1.0}, {}, {"loss": 1.0}),
        ("rtt", RTT | {"roundtrips": [{"rtt": "PT0S"}, {"rtt": "PT0.001S"}]}, {},
         {"rtt": 0.001, "loss": 0.2}),
        ("disk-to-disk", {"succeeded": True, "time": "PT8S", "bytes-sent": 1e9}, {},
         {"throughput": 1e9}),
        ("disk-to-disk", {"succeeded": True, "time": "PT8S", "bytes-sent": "1000", "throughput": 0},
         {}, {"throughput": 1e3}),
        ("disk-to-disk", {"succeeded": True, "time": "PT0S", "bytes-sent": 1e9}, {}, {}),
        ("disk-to-disk", {"succeeded": True, "time": "PT8S"}, {}, {}),
        ("trace", {"succeeded": True, "paths": [[]]}, {}, {}),
        ("trace", {"succeeded": True, "paths": []}, {}, {}),
        ("trace", {"succeeded": True, "paths": [[], [{"ip": "10.0.2.2"}]]}, {}, {"hops": 1}),
        ("trace", {"succeeded": True, "paths": [[{}, {"error": "net-unreachable"}]]}, {}, {}),
        ("throughput", {"succeeded": True, "summary": {"streams": [
            {"throughput-bits": 1e9}, {"throughput-bits": 2e9}]}}, {}, {"tcp_throughput": 3e9}),
        ("throughput", {"succeeded": True, "summary": {"summary": {"throughput-bits": 0}}}, {}, {}),
    ],
)  # fmt: skip
def test_what_each_test_measured(
    kind: str, result: Any, spec: dict[str, Any], expected: dict[str, float]
) -> None:
    body = posted(kind, result, **spec)
    assert values(body) == pytest.approx(expected)
    mainly = {
        "rtt": "rtt",
        "trace": "hops",
        "latency": "one_way_delay",
        "latencybg": "one_way_delay",
    }
    lacks = not any(name.endswith(mainly.get(kind, "throughput")) for name in expected)
    assert bool(left_out(body, measurements_of(body, HOSTS))) == lacks


def test_a_reverse_test_is_of_the_other_direction() -> None:
    for kind, result in (("throughput", TCP), ("latency", LATENCY)):
        (measurement, *_) = measurements_of(posted(kind, result, reverse=True), HOSTS)
        assert measurement.subject == "tacc>mu"


def test_a_delay_has_the_error_of_its_clocks() -> None:
    by_metric = {
        measurement.metric: measurement
        for measurement in measurements_of(posted("latency", LATENCY), HOSTS)
    }
    assert by_metric["one_way_delay"].details["clock_error_s"] == 0.00027


def test_a_trace_is_its_hops() -> None:
    (measurement,) = measurements_of(posted("trace", TRACE, source=None), HOSTS)
    assert (measurement.metric, measurement.value, measurement.unit) == ("hops", 4.0, "1")
    assert measurement.subject == "mu>tacc"  # from the first participant
    assert measurement.details["route"] == ["10.0.2.2", "192.52.179.65", None, "206.196.177.5"]


def test_disk_to_disk_is_goodput() -> None:
    body = posted(
        "disk-to-disk",
        {"succeeded": True, "time": "PT9S", "bytes-sent": 10**9, "throughput": "888888888"},
        source="gsiftp://ps-bw.mu.example.edu:2811/data/1g",
        dest="gsiftp://10.3.4.5/data/1g",
    )
    (measurement,) = measurements_of(body, HOSTS)
    assert (measurement.metric, measurement.subject, measurement.value) == (
        "throughput",
        "mu>iplant/dtn",
        888888888,
    )
    body["test"]["spec"]["dest"] = "file:///data/1g"
    body["participants"] = ["10.3.4.5"]  # it ran where the file went
    assert measurements_of(body, HOSTS)[0].subject == "mu>iplant/dtn"


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ({"succeeded": False, "error": "iperf3 timed out", "diags": "…"}, "iperf3 timed out"),
        ({"succeeded": False, "diags": "only this"}, "only this"),
        ({"succeeded": False}, "no reason was given"),
        (None, "no reason was given"),
    ],
)
def test_a_run_that_failed_is_recorded_as_such(result: Any, error: str) -> None:
    (measurement,) = measurements_of(posted("throughput", result), HOSTS)
    assert (measurement.metric, measurement.value, measurement.details["error"]) == (
        FAILURE,
        1.0,
        error,
    )


def test_old_participants_and_tools() -> None:
    body = posted("rtt", RTT, [{"host": "ps-bw.mu.example.edu", "result": {}}], source=None)
    body["tool"] = "ping"
    (measurement, _) = measurements_of(body, HOSTS)
    assert (measurement.subject, measurement.details["tool"]) == ("mu>tacc", "ping")


# ---------------------------------------------------------------- hosts


@pytest.mark.parametrize(
    ("written", "end"),
    [
        ("ps-bw.mu.example.edu", "mu"),
        ("PS-BW.mu.example.edu.", "mu"),
        ("ps-bw.mu.example.edu:861", "mu"),
        ("x.tacc.example.edu", "tacc"),
        ("10.3.255.1", "iplant/dtn"),
        ("10.3.255.1:861", "iplant/dtn"),
        ("elsewhere.example.org", "elsewhere.example.org"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:DB8::1]:861", "2001:db8::1"),
    ],
)
def test_hosts_are_found_however_they_are_written(written: str, end: str) -> None:
    assert HOSTS.name(written) == end


def test_of_several_names_the_known_one_counts() -> None:
    assert HOSTS.name("198.51.100.7", "bw1.tacc.example.edu") == "tacc"
    assert HOSTS.name(None, "", "a>b", "who") == "who"
    with pytest.raises(InputError):
        HOSTS.name(None, 5, "a > b")


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("text", "expected"),
    [("PT0.0002S", 0.0002), ("PT1M30S", 90), ("P1DT2H", 93_600), ("P2W", 1_209_600), ("PT0S", 0)],
)
def test_durations(text: str, expected: float) -> None:
    assert seconds(text, "x") == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "P", "PT", "5 s", "PT-1S", "PT1S1S", None, 5, "PT1e3S"])
def test_what_is_no_duration(text: Any) -> None:
    with pytest.raises(InputError):
        seconds(text, "x")


@given(st.dictionaries(st.floats(-1e6, 1e6).map(str), st.integers(1, 50), min_size=1, max_size=40))
def test_quantiles_are_those_of_all_values_written_out(counts: dict[str, int]) -> None:
    counted = histogram(counts, "x")
    written = [value for value, count in counted for _ in range(count)]
    for share in (0.05, 0.5, 0.95, 1.0):
        assert quantile(counted, share) == written[max(0, math.ceil(share * len(written)) - 1)]


Json = any_json()
Keys = st.sampled_from(
    ["summary", "throughput-bits", "lost", "sent", "jitter", "roundtrips", "rtt", "mean", "loss",
     "histogram-latency", "packets-lost", "packets-sent", "max-clock-error", "paths", "throughput"]
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(KNOWN),
    st.dictionaries(Keys, Json | st.dictionaries(Keys, Json, max_size=4), max_size=6),
    st.dictionaries(st.sampled_from(["source", "dest", "udp", "reverse", "parallel"]), Json),
    Json,
)
def test_whatever_is_posted_is_taken_or_refused(
    kind: str, result: dict[str, Any], spec: dict[str, Any], participants: Any
) -> None:
    body = posted(kind, {"succeeded": True, **result}, participants, **spec)
    try:
        measurements = measurements_of(body, HOSTS)
    except InputError as error:
        assert "\n" not in str(error)
        return
    with Archive(":memory:") as archive:
        archive.record_many(measurements)


# ---------------------------------------------------------------- settings


def test_settings(tmp_path: Any) -> None:
    section = [
        {"hosts": {"*.mu.example.edu": "mu/dtn"}},
        {
            "archive": "https://ps.example.edu/esmond/perfsonar/archive",
            "every": "5 min",
            "back": "1 d",
            "only": {"event-type": "throughput"},
            "ca": "ca.pem",
        },
    ]
    made = settings_from_list(section, demo_network(), tmp_path)
    assert made.hosts.name("ps.mu.example.edu") == "mu/dtn"
    assert made.hosts.name("TACC") == "tacc"
    assert made.remotes == [
        Remote(
            "https://ps.example.edu/esmond/perfsonar/archive/", 300.0, 86_400.0,
            {"event-type": "throughput"}, tmp_path / "ca.pem",
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, "expected an archive or hosts"),
        ({"archiv": "x"}, "unknown key 'archiv', did you mean 'archive'?"),
        ({"archive": "ps.example.edu"}, "expected a URL such as https://"),
        ({"archive": "http://[x"}, "expected a URL such as https://"),
        ({"archive": "https://x/", "every": "1 s"}, "every: found 1 s, expected at least 10 s"),
        ({"archive": "https://x/", "only": []}, "only: found [], expected a mapping"),
        ({"hosts": {"a": "mars"}}, "found site 'mars', expected one of"),
        ({"hosts": {"a": "mu"}, "every": "5 min"}, "expected an archive beside it"),
    ],
)
def test_settings_that_cannot_be_meant(entry: dict[str, Any], said: str, tmp_path: Any) -> None:
    with pytest.raises(InputError) as refused:
        settings_from_list([entry], demo_network(), tmp_path)
    assert said in str(refused.value)
