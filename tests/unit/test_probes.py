"""Probes: what their tools say, and what follows from it. With real ones: test_agents_real.py."""

from __future__ import annotations

import json
import math
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from generated import any_json
from hypothesis import given
from hypothesis import strategies as st

from examples.testbed.ports import free_port
from monitors.base.measurement import UNITS, Measurement, to_row
from monitors.measurements.probes import (
    delays,
    echo,
    hostload,
    iperf,
    ping,
    programs,
    trace,
)
from monitors.measurements.probes.delays import Trip
from monitors.measurements.probes.echo import HELLO, LEAST_BYTES, Packet, packed, unpacked
from monitors.measurements.probes.probe import Halt, ProbeError, ProbeRequest, Reading
from monitors.measurements.probes.tools import TOOLS
from network_provisioner.base.errors import InputError


def order(tool: str, seconds: float = 5.0, **more: Any) -> ProbeRequest:
    options = TOOLS[tool].checked(more.pop("options", {}))
    plain: dict[str, Any] = {"role": "client", "peer": "127.0.0.1", "port": 5201}
    return ProbeRequest(
        tool=tool, end=time.monotonic() + seconds, options=options, **{**plain, **more}
    )


def row(finding: Reading) -> tuple[object, ...]:
    """As the archive takes it. Raises InputError."""
    name = f"{finding.metric}:a"
    return to_row(
        Measurement(name, finding.metric, "mu>tacc", finding.value, finding.unit, 1.0, "agent:mu",
                    details=finding.details)
    )  # fmt: skip


# -- tools and options ---------------------------------------------------------------------------


def test_every_metric_of_every_tool_has_a_unit() -> None:
    for tool in TOOLS.values():
        assert all(metric in UNITS or metric == "custom:" for metric in tool.metrics)
        assert tool.checked({}) == tool.checked(tool.checked({}))


def test_options_come_with_units_and_go_as_numbers() -> None:
    read = TOOLS["udp"].checked({"rate": "20 Mb/s", "length": "1 kB", "seconds": 5})
    assert read == {"rate": 20e6, "length": 1000, "seconds": 5, "window": None}


@pytest.mark.parametrize(
    ("tool", "options", "said"),
    [
        ("tcp", {"stream": 2}, "unknown option 'stream' of tcp, did you mean 'streams'"),
        ("host", {"x": 2}, "unknown option 'x' of host, expected one of folder"),
        ("tcp", {"streams": 0}, "expected a whole number from 1 to 64"),
        ("tcp", {"streams": True}, "expected a whole number from 1 to 64"),
        ("udp", {"rate": "10 b/s"}, "expected 1 kb/s or more"),
        ("echo", {"interval": 0}, "expected 0.01 to 60 s"),
        ("echo", {"key": "secret"}, "expected 16 to 128 hexadecimal digits"),
        ("command", {"command": "../sh"}, "expected the name of a command"),
    ],
)
def test_options_that_cannot_be(tool: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        TOOLS[tool].checked(options)


# -- iperf3 --------------------------------------------------------------------------------------


@given(
    left_s=st.floats(0, 4000),
    limit_s=st.none() | st.integers(1, 3600),
    omit=st.integers(0, 60),
)
def test_a_test_leaves_time_to_set_up_and_take_down(
    left_s: float, limit_s: int | None, omit: int
) -> None:
    seconds = iperf.seconds_of_test(left_s, limit_s, omit)
    assert seconds >= 0
    if seconds:
        assert seconds + omit + max(1.0, left_s / 10) <= left_s + 1e-6
        assert limit_s is None or seconds <= limit_s


def test_command_lines() -> None:
    tcp = order("tcp", options={"streams": 4, "omit": 1}, most_bps=1e9, bind="127.0.0.2")
    assert iperf.client_argv("iperf3", tcp, 7) == [
        "iperf3", "-c", "127.0.0.1", "-p", "5201", "-J", "-t", "7", "--connect-timeout", "3000",
        "-B", "127.0.0.2", "-b", "250000000", "-O", "1", "-P", "4",
    ]  # fmt: skip
    udp = order("udp", options={"rate": "2 Gb/s", "window": "1 MB"}, most_bps=1e9)
    assert iperf.client_argv("iperf3", udp, 7)[10:] == [
        "-w", "1000000", "-b", "1000000000", "-u", "-l", "1400",
    ]  # fmt: skip
    assert iperf.server_argv("iperf3", tcp)[-2:] == ["--server-bitrate-limit", "1250000000"]
    nothing = order("udp", options={}, most_bps=0.0)  # to iperf3, 0 is no limit
    assert iperf.client_argv("iperf3", nothing, 7)[10:12] == ["-b", "1"]
    assert iperf.server_argv("iperf3", nothing)[-2:] == ["--server-bitrate-limit", "1"]


def tcp_report(**received: Any) -> dict[str, Any]:
    plain = {"seconds": 2.0, "bytes": 5_000_000, "bits_per_second": 20e6}
    sent = plain | {"bits_per_second": 20.1e6, "retransmits": 7}
    end = {"streams": [{}, {}], "sum_sent": sent, "sum_received": plain | received}
    return {"end": end | {"sender_tcp_congestion": "bbr"}}


def test_what_tcp_moved() -> None:
    (reading,) = iperf.tcp_findings(tcp_report())
    assert (reading.metric, reading.value, reading.unit) == ("tcp_throughput", 20e6, "bit/s")
    assert reading.details["retransmits"] == 7
    assert reading.details["streams"] == 2
    row(reading)
    with pytest.raises(ProbeError, match="transferred nothing"):
        iperf.tcp_findings(tcp_report(bits_per_second=0))


@pytest.mark.parametrize("bps", [10**400, float("nan"), float("inf"), "5", None])
def test_a_report_without_a_number_is_refused(bps: object) -> None:
    with pytest.raises(ProbeError, match="no number 'bits_per_second'"):
        iperf.tcp_findings(tcp_report(bits_per_second=bps))


@pytest.mark.parametrize("streams", [None, 5, {}, []])
def test_what_is_no_list_of_streams_is_one(streams: object) -> None:
    report = tcp_report()
    report["end"]["streams"] = streams
    (reading,) = iperf.tcp_findings(report)
    assert reading.details["streams"] == 1


def test_what_udp_lost() -> None:
    total = {"seconds": 2.0, "packets": 900, "lost_packets": 90, "jitter_ms": 0.5,
             "bits_per_second": 5e6}  # fmt: skip
    rate, loss, jitter = iperf.udp_findings({"end": {"sum": total}})
    assert rate.value == pytest.approx(4.5e6)
    assert loss.value == pytest.approx(0.1)
    assert jitter.value == pytest.approx(0.0005)
    received = {"bits_per_second": 4.6e6}
    assert iperf.udp_findings({"end": {"sum": total, "sum_received": received}})[0].value == 4.6e6
    only_loss = iperf.udp_findings({"end": {"sum": total | {"lost_packets": 900}}})
    assert [f.metric for f in only_loss] == ["udp_throughput", "loss"]


JSON = any_json(st.sampled_from(["end", "sum", "sum_sent", "error", "packets"]))


@given(JSON | st.binary(max_size=60))
def test_any_report_is_findings_or_one_error(report: Any) -> None:
    text = report if isinstance(report, bytes) else json.dumps(report).encode()
    for findings in (iperf.tcp_findings, iperf.udp_findings):
        try:
            for finding in findings(iperf.read(text)):
                row(finding)
        except ProbeError as error:
            assert "\n" not in str(error)


def test_an_error_of_iperf3_is_named() -> None:
    with pytest.raises(ProbeError, match="iperf3: unable to connect"):
        iperf.read(b'{"error": "unable to connect to server: Connection refused"}')


# -- delays --------------------------------------------------------------------------------------

MS = 10**6


def trip(number: int, there_ms: float = 20.0, back_ms: float = 30.0, ahead_ms: float = 0.0) -> Trip:
    """One whose other end's clock is ahead by so much, and answers after 5 ms."""
    sent = number * 100 * MS
    there = sent + int((there_ms + ahead_ms) * MS)
    returned = there + 5 * MS
    away = int((there_ms + 5 + back_ms) * MS)
    return Trip(number, sent, sent + away, away, there, returned)


@given(
    st.lists(st.tuples(st.floats(0, 500), st.floats(0, 500)), min_size=1, max_size=30),
    st.floats(-1e6, 1e6),
)
def test_delays_whatever_the_clocks_say(ways: list[tuple[float, float]], ahead: float) -> None:
    trips = [trip(n, there, back, ahead) for n, (there, back) in enumerate(ways)]
    expected = statistics.median((there + back) / 1e3 for there, back in ways)
    for trusted in (True, False):
        assert delays.rtt(trips, trusted).value == pytest.approx(expected, abs=1e-4)
    jitter = delays.jitter(trips)
    if len(ways) > 1:
        steps = [abs(b[0] - a[0]) / 1e3 for a, b in pairwise(ways)]
        assert jitter is not None
        assert jitter.value == pytest.approx(statistics.fmean(steps), abs=1e-4)
    else:
        assert jitter is None
    one_way = delays.one_way(trips, 0.001)
    assert one_way.value == pytest.approx(
        statistics.median(there + ahead for there, _ in ways) / 1e3, abs=1e-3
    )
    row(one_way)


def test_a_clock_that_was_set_while_packets_were_away_changes_no_round_trip() -> None:
    set_back = Trip(0, sent=10**12, back=10**12 - 3600 * 10**9, steady=50 * MS)
    assert delays.rtt([set_back]).value == pytest.approx(0.05)
    set_ahead = Trip(0, sent=10**12, back=10**12 + 3600 * 10**9, steady=50 * MS)
    assert delays.rtt([set_ahead], trusted=False).value == pytest.approx(0.05)


TRIPS = {n: trip(n) for n in range(8)}


def metrics(readings: list[Reading]) -> dict[str, Reading]:
    return {f.metric: f for f in readings}


def test_loss_is_of_one_direction_where_the_other_end_said_how_many_came() -> None:
    by_metric = metrics(echo.findings(TRIPS, 10, 9, 0, True, 0.002, 0.01))
    assert by_metric["loss"].value == pytest.approx(0.1)
    assert by_metric["loss"].details["direction"] == "one way"
    assert by_metric["one_way_delay"].details["error_s"] == 0.002
    unsaid = metrics(echo.findings(TRIPS, 10, None, 0, True, 0.002, 0.01))
    assert unsaid["loss"].value == pytest.approx(0.2)
    assert unsaid["loss"].details["direction"] == "there and back"
    assert set(metrics(echo.findings({}, 10, 0, 0, True, 0.0, 0.01))) == {"loss"}


@pytest.mark.parametrize(
    ("trusted", "error_s", "why"),
    [
        (True, 0.02, "both clocks together may be off by 0.020000 s, more than 0.01 s"),
        (True, math.inf, "both clocks together may be off by an unknown time, more than 0.01 s"),
        (False, 0.0, "this machine's clock was set meanwhile"),
    ],
)
def test_no_one_way_delay_without_good_clocks(trusted: bool, error_s: float, why: str) -> None:
    by_metric = metrics(echo.findings(TRIPS, 8, 8, 0, trusted, error_s, 0.01))
    assert "one_way_delay" not in by_metric
    assert by_metric["rtt"].details["one_way"] == f"not measured: {why}"
    assert ("jitter" in by_metric) == trusted


def test_what_the_kernel_says_of_its_clock() -> None:
    assert delays.known_clock_error_s(0, 0x2001, 1500) == pytest.approx(0.0015)
    assert delays.known_clock_error_s(5, 0, 1500) == math.inf  # TIME_ERROR
    assert delays.known_clock_error_s(0, 0x40, 1500) == math.inf  # STA_UNSYNC
    assert delays.known_clock_error_s(-1, 0, 0) == math.inf
    assert delays.clock_error_s() > 0
    assert delays.UnsetClock().holds()


# -- our own echo --------------------------------------------------------------------------------


@given(
    st.builds(
        Packet, st.integers(0, 255), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1),
        st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1),
        st.just(math.inf) | st.integers(0, 10**6).map(lambda us: us / 1e6),
    ),
    st.binary(min_size=1, max_size=40), st.integers(0, 3000),
)  # fmt: skip
def test_packets_come_as_they_went(packet: Packet, secret: bytes, length: int) -> None:
    data = packed(packet, secret, length)
    assert len(data) == max(length, LEAST_BYTES)
    back = unpacked(data, secret)
    assert back is not None
    assert back.error_s == pytest.approx(packet.error_s, abs=1e-8)
    assert (back.kind, back.number, back.sent) == (packet.kind, packet.number, packet.sent)
    assert unpacked(data, secret + b"x") is None
    assert unpacked(data[:-1] + bytes([data[-1] ^ 1]), secret) is None


@given(
    left_s=st.floats(-1, 100),
    limit=st.none() | st.integers(1, 1000),
    interval_s=st.floats(0.01, 10),
    rtt_s=st.floats(0, 5),
)
def test_a_stream_ends_in_time(
    left_s: float, limit: int | None, interval_s: float, rtt_s: float
) -> None:
    waits = echo.timeouts_for(rtt_s)
    count = echo.packets_in(left_s, limit, interval_s, waits)
    assert 1 <= count <= (limit or math.inf)
    last_s = (count - 1) * interval_s
    assert count == 1 or last_s + min(waits.all_s, 0.6 * left_s) <= left_s + 1e-9


@pytest.fixture
def port() -> int:
    return free_port()


def both(serve: Callable[[], Any], ask: Callable[[], Any]) -> tuple[Any, Any]:
    """What server and client say; errors are values."""
    said: list[Any] = []

    def served() -> None:
        try:
            said.append(serve())
        except ProbeError as error:
            said.append(error)

    thread = threading.Thread(target=served)
    thread.start()
    try:
        answer = ask()
    except ProbeError as error:
        answer = error
    thread.join()
    return said[0], answer


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1"])
def test_echo_between_two_ends(port: int, peer: str) -> None:
    if ":" in peer and not _has_ipv6():
        pytest.skip("this machine has no IPv6 on loopback")
    shared: dict[str, Any] = {"port": port, "secret": b"s", "peer": peer}
    served, findings = both(
        lambda: echo.server(order("echo", 900.0, role="server", **shared), 0.001),
        lambda: echo.client(
            order("echo", 900.0, options={"interval": 0.01, "count": 20}, **shared), 0.001, 0.01
        ),
    )
    assert served == []
    by_name = metrics(findings)
    assert set(by_name) == {"loss", "rtt", "jitter", "one_way_delay"}
    assert by_name["loss"].value == 0
    for finding in findings:
        row(finding)


def test_echo_answers_nobody_else(port: int) -> None:
    other = {"port": port, "options": {"interval": 0.01}}
    served, failure = both(
        lambda: echo.server(order("echo", 1.5, role="server", secret=b"mine", **other), 0.0),
        lambda: echo.client(order("echo", 1.0, secret=b"theirs", **other), 0.0, 0.01),
    )
    assert str(served) == f"nobody came to port {port}"
    assert f"127.0.0.1 port {port} does not answer" in str(failure)


def test_who_comes_from_elsewhere_with_the_right_key_is_named(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server's time is up once somebody has come, however late that is.
    clock = {"monotonic": iter([0.0, math.inf]).__next__, "time_ns": time.time_ns}
    monkeypatch.setattr(echo, "time", SimpleNamespace(**clock))
    hello, named = packed(Packet(HELLO, 1, 0), b"s"), threading.Event()

    def come() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            while not named.wait(0.05):
                sock.sendto(hello, ("127.0.0.1", port))

    thread = threading.Thread(target=come)
    thread.start()
    expected = {"role": "server", "port": port, "secret": b"s", "peer": "127.0.0.9"}
    try:
        with pytest.raises(ProbeError) as said:
            echo.server(order("echo", 900.0, **expected), 0.0)
    finally:
        named.set()
        thread.join()
    why = "the right key came from 127.0.0.1, expected 127.0.0.9"
    assert str(said.value) == f"nobody came to port {port}: {why}"


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_a_halt_ends_what_waits(port: int) -> None:
    halt = Halt()
    threading.Timer(0.2, halt.set).start()
    with pytest.raises(ProbeError, match="the agent was stopped"):
        echo.server(order("echo", 600.0, role="server", port=port, secret=b"s", halt=halt), 0.0)


# -- ping and trace ------------------------------------------------------------------------------


MARK = b"12345678"


def test_echo_replies_of_ours_and_of_others() -> None:
    sent = ping.request(socket.AF_INET, 7, 300, MARK + b"rest")
    assert ping.checksum(sent) == 0
    reply = b"\0" + sent[1:]
    assert ping.answered_number(reply, socket.AF_INET, False, MARK) == 300
    with_ip = b"\x45" + bytes(19) + reply
    assert ping.answered_number(with_ip, socket.AF_INET, True, MARK) == 300
    assert ping.answered_number(sent, socket.AF_INET, False, MARK) is None
    assert ping.answered_number(reply, socket.AF_INET, False, b"87654321") is None


@given(st.binary(max_size=60), st.booleans())
def test_any_datagram_is_a_reply_or_none(data: bytes, raw: bool) -> None:
    for family in (socket.AF_INET, socket.AF_INET6):
        ping.answered_number(data, family, raw, MARK)


PINGED = b"""PING 10.78.2.2 (10.78.2.2) 56(84) bytes of data.
64 bytes from 10.78.2.2: icmp_seq=1 ttl=62 time=40.6 ms
64 bytes from 10.78.2.2: icmp_seq=3 ttl=62 time=42.6 ms

--- 10.78.2.2 ping statistics ---
3 packets transmitted, 2 received, 33.3333% packet loss, time 2003ms
rtt min/avg/max/mdev = 40.600/41.600/42.600/1.000 ms
"""


def test_what_the_program_ping_says() -> None:
    by_metric = metrics(ping.read(PINGED, programs.ProgramResult(0, PINGED, b"")))
    assert by_metric["rtt"].value == pytest.approx(0.0416)
    assert by_metric["loss"].value == pytest.approx(1 / 3)
    failed = programs.ProgramResult(2, b"", b"ping: connect: Network is unreachable\n")
    with pytest.raises(ProbeError, match="exit code 2: ping: connect: Network is unreachable"):
        ping.read(b"", failed)


Said = trace.HopAnswer


def test_routes() -> None:
    heard = {
        1: Said("10.0.0.1", 0.001),
        3: Said("10.0.3.1", 0.003),
        4: Said("10.0.4.9", 0.004, "reached"),
    }
    route, end = trace.route_of(heard, 4)
    assert [hop["address"] for hop in route] == ["10.0.0.1", None, "10.0.3.1", "10.0.4.9"]
    assert end == "reached"
    route, end = trace.route_of({1: Said("10.0.0.1", 0.001)}, 8)
    assert (len(route), end) == (1, "no answer beyond hop 1 of 8")
    # Packets for later hops reach the end, too: the first that did says how far it is.
    both_there = {2: Said("10.0.4.9", 0.1, "reached"), 3: Said("10.0.4.9", 0.1, "reached")}
    assert len(trace.route_of(both_there, 3)[0]) == 2


@given(
    st.dictionaries(
        st.integers(1, 30),
        st.builds(Said, st.just("a"), st.just(0.1), st.sampled_from(["", "reached", "code 1"])),
    )
)
def test_a_route_has_every_hop_once_and_ends_at_its_end(heard: dict[int, trace.HopAnswer]) -> None:
    route, end = trace.route_of(heard, 30)
    assert [hop["hop"] for hop in route] == list(range(1, len(route) + 1))
    reached = [hop for hop, said in heard.items() if said.end == "reached"]
    assert (end == "reached") == bool(reached)
    if reached:
        assert len(route) == min(reached)


def test_what_icmp_says() -> None:
    four, six = socket.AF_INET, socket.AF_INET6
    assert trace.hop_end(four, 2, 11, 0) == ""
    assert trace.hop_end(four, 2, 3, 3) == "reached"
    assert trace.hop_end(four, 2, 3, 13) == "unreachable, code 13"
    assert trace.hop_end(four, 1, 0, 0) is None  # of this machine
    assert trace.hop_end(six, 3, 3, 0) == ""
    assert trace.hop_end(six, 3, 1, 4) == "reached"


def test_the_route_to_this_machine() -> None:
    (hops,) = trace.measure(order("trace", 900.0, role="alone"))
    assert hops.value == 1
    assert hops.details["reached"]
    row(hops)


def test_no_address_no_probe() -> None:
    with pytest.raises(ProbeError, match="expected an IP address"):
        echo.family_of("tacc")


# -- host and command ----------------------------------------------------------------------------


NAMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest")
TIMES = st.fixed_dictionaries({name: st.floats(0, 1e9) for name in NAMES})


@given(TIMES, TIMES)
def test_shares_of_time_add_up(before: dict[str, float], after: dict[str, float]) -> None:
    try:
        share = hostload.shares(before, after)
    except ProbeError:
        assert all(after[name] <= before[name] for name in NAMES if name != "guest")
        return
    assert sum(share.values()) == pytest.approx(1)
    assert all(0 <= part <= 1 for part in share.values())


def test_free_space_is_measured_where_a_folder_is_given(tmp_path: Path) -> None:
    readings = hostload.measure(order("host", 0.2, options={"folder": str(tmp_path)}))
    (space,) = [r for r in readings if r.metric == "free_space"]
    assert (space.unit, space.details["folder"]) == ("byte", str(tmp_path))
    assert 0 <= space.value <= space.details["total_bytes"]
    with pytest.raises(ProbeError, match="/nowhere: No such file or directory"):
        hostload.free_space("/nowhere")
    with pytest.raises(InputError, match=r"options.folder: found 'scratch', expected an absolute"):
        TOOLS["host"].checked({"folder": "scratch"})


DISK = programs.Command("disk", ("disk",), "ms")


def test_what_commands_say() -> None:
    assert programs.read_output(b" 4.5\n", DISK) == Reading("custom:disk", 4.5, "ms", {})
    said = b'{"value": 3, "unit": "s", "details": {"reads": 7}}'
    assert programs.read_output(said, DISK) == Reading("custom:disk", 3.0, "s", {"reads": 7})


@pytest.mark.parametrize(
    "said",
    [b"", b"fast", b"NaN", b"1e999", b"true", b"[1]", b'{"value": "1"}', b'{"unit": "s"}',
     b'{"value": 1, "unit": 5}', b'{"value": 1, "details": []}', b"9" * 400, b"\xff"],
)  # fmt: skip
def test_what_is_no_number_is_refused(said: bytes) -> None:
    with pytest.raises(ProbeError, match="disk"):
        programs.read_output(said, DISK)


@given(JSON)
def test_any_output_is_a_finding_or_one_error(said: Any) -> None:
    try:
        row(programs.read_output(json.dumps(said).encode(), DISK))
    except ProbeError as error:
        assert "\n" not in str(error)


def commanded(script: str, timeout_s: float = 900.0) -> list[Reading]:
    command = programs.Command("disk", ("sh", "-c", script), timeout_s=timeout_s)
    assignment = order("command", 900.0, role="alone", peer="", options={"command": "disk"})
    return programs.measure_by_command(assignment, {"disk": command}, "mu")


def test_a_command_runs_with_its_subject_and_fails_in_words() -> None:
    assert commanded("echo ${#ADON_SUBJECT}")[0].value == 2
    with pytest.raises(ProbeError, match="disk ended with exit code 3: no disk here"):
        commanded("echo no disk here >&2; exit 3")
    with pytest.raises(ProbeError, match="disk did not end in time"):
        commanded("sleep 60", timeout_s=0.3)
    with pytest.raises(ProbeError, match="sh said more than 65536 bytes"):
        commanded("yes")
    with pytest.raises(ProbeError, match="there is no command 'other' here"):
        programs.measure_by_command(
            order("command", role="alone", options={"command": "other"}), {"disk": DISK}, "mu"
        )


# -- other programs ------------------------------------------------------------------------------


def gone(mark: str) -> bool:
    """Whether no process has ``mark`` among its words."""
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and mark.encode() in (folder / "cmdline").read_bytes():
                return False
        except OSError:
            continue
    return True


def test_nothing_of_a_program_outlives_its_time() -> None:
    mark = f"4{os.getpid()}{time.monotonic_ns() % 10**6}"
    script = f"(setsid sleep {mark}1 >/dev/null 2>&1 &); sleep {mark}2 & sleep {mark}3"
    ended = programs.run(["sh", "-c", script], time.monotonic() + 0.5, Halt())
    assert not ended.in_time
    assert gone(mark)


def test_what_a_program_leaves_behind_is_ended_with_it() -> None:
    mark = f"5{os.getpid()}{time.monotonic_ns() % 10**6}"
    script = f"(setsid sleep {mark} &); echo done"
    ended = programs.run(["sh", "-c", script], time.monotonic() + 900, Halt())
    assert (ended.code, ended.out) == (0, b"done\n")
    assert gone(mark)


def test_how_programs_end() -> None:
    soon = time.monotonic() + 900
    assert programs.run(["sh", "-c", "exit 3"], soon, Halt()).code == 3
    killed = programs.run(["sh", "-c", "kill -9 $$"], soon, Halt())
    assert killed.how("sh") == "sh was ended by signal 9"
    missing = programs.run(["/no/such/program"], soon, Halt())
    assert missing.how("it").endswith("cannot run /no/such/program: No such file or directory")


def test_a_halt_ends_a_program() -> None:
    halt = Halt()
    threading.Timer(0.2, halt.set).start()
    mark = f"6{os.getpid()}{time.monotonic_ns() % 10**6}"
    with pytest.raises(ProbeError, match="the agent was stopped"):
        programs.run(["sleep", mark], time.monotonic() + 60, halt)
    assert gone(mark)
