"""TCP and UDP throughput by iperf3: one server for one test, and a client that waits for it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from monitors.measurements.probes import programs
from monitors.measurements.probes.probe import ProbeError, ProbeRequest, Reading, reading
from network_provisioner.base.errors import printable
from network_provisioner.base.fields import plain_address

PROGRAM = "iperf3"
_AGAIN_S = 0.2  # between attempts to reach a server, or to listen on a port that is still taken
_CONNECT_S = 3.0
_OVER_LIMIT = 1.25  # the server's own bound lies above the client's: bursts are no breach
_MOST = 1e18  # of any number in a report
_MARGIN_S, _MARGIN = 1.0, 0.1
_COMES_LATER = ("connection refused", "unable to start listener", "server is busy")


def seconds_of_test(left_s: float, requested_s: int | None, omit_s: int) -> int:
    """Whole seconds that are measured (iperf3 knows no others) where so many are left for all.

    What is kept for setting up and taking down is 1 s or a tenth, whichever is more.
    """
    room = math.floor(left_s - max(_MARGIN_S, _MARGIN * left_s)) - omit_s
    return max(0, room if requested_s is None else min(room, requested_s))


def client_argv(program: str, order: ProbeRequest, seconds: int) -> list[str]:
    """The client's command line."""
    options = order.options
    rate = min(options["rate"] or math.inf, order.most_bps)
    argv = [program, "-c", order.peer, "-p", str(order.port), "-J", "-t", str(seconds)]
    argv += ["--connect-timeout", str(int(_CONNECT_S * 1e3))]
    argv += ["-B", order.bind] if order.bind else []
    argv += ["-w", str(options["window"])] if options["window"] else []
    if math.isfinite(rate):  # iperf3 takes the rate of each stream, and 0 for any
        argv += ["-b", str(max(1, int(rate / options.get("streams", 1))))]
    if order.tool == "udp":
        return [*argv, "-u", "-l", str(options["length"])]
    argv += ["-O", str(options["omit"])] if options["omit"] else []
    return [*argv, "-P", str(options["streams"])]


def server_argv(program: str, order: ProbeRequest) -> list[str]:
    """The server's: it ends after one test."""
    argv = [program, "-s", "-1", "-J", "-p", str(order.port)]
    argv += ["-B", order.bind] if order.bind else []
    if math.isfinite(order.most_bps):
        argv += ["--server-bitrate-limit", str(max(1, int(order.most_bps * _OVER_LIMIT)))]
    return argv


def read(output: bytes) -> dict[str, Any]:
    """What iperf3 said. Raises ProbeError where it is no report, or one of an error."""
    try:
        report = json.loads(output)
    except (ValueError, RecursionError):
        report = None
    if not isinstance(report, dict):
        raise ProbeError(f"iperf3 said {printable(output[:80].decode(errors='replace'))!r}")
    if "error" in report:
        raise ProbeError(f"iperf3: {printable(str(report['error']))[:200]}")
    return report


def tcp_findings(report: Mapping[str, Any]) -> list[Reading]:
    """Throughput as the receiver saw it. Raises ProbeError."""
    end = _part(report, "end")
    sent, received = _part(end, "sum_sent"), _part(end, "sum_received")
    value = _number(received, "bits_per_second")
    if value <= 0:
        raise ProbeError("iperf3 transferred nothing")
    streams = end.get("streams")
    details = {
        "seconds": _number(received, "seconds"),
        "bytes": int(_number(received, "bytes")),
        "sent_bps": _number(sent, "bits_per_second"),
        "streams": max(1, len(streams)) if isinstance(streams, list) else 1,
    }
    if isinstance(sent.get("retransmits"), int):
        details["retransmits"] = sent["retransmits"]
    if isinstance(end.get("sender_tcp_congestion"), str):
        details["congestion"] = end["sender_tcp_congestion"][:40]
    return [reading("tcp_throughput", value, **details)]


def udp_findings(report: Mapping[str, Any]) -> list[Reading]:
    """Throughput, loss and jitter as the receiver saw them. Raises ProbeError.

    jitter as in RFC 3550, 6.4.1.
    """
    end = _part(report, "end")
    total = _part(end, "sum")
    packets = int(_number(total, "packets"))
    if packets <= 0:
        raise ProbeError("iperf3 sent no packet")
    lost = min(packets, max(0, int(_number(total, "lost_packets"))))
    offered = _number(total, "bits_per_second")
    details = {"seconds": _number(total, "seconds"), "packets": packets, "lost": lost}
    received = end.get("sum_received")
    # Older ones have no sum of the receiver's.
    value = (
        _number(received, "bits_per_second")
        if isinstance(received, dict)
        else offered * (1 - lost / packets)
    )
    found_all = [
        reading("udp_throughput", value, offered_bps=offered, **details),
        reading("loss", lost / packets, direction="one way", **details),
    ]
    if lost < packets:
        found_all.append(reading("jitter", _number(total, "jitter_ms") / 1e3, **details))
    return found_all


def client(order: ProbeRequest) -> list[Reading]:
    """Measure towards the peer's server, which may begin to listen a little later.

    Raises ProbeError.
    """
    program = _program()
    omit_s = order.options.get("omit", 0)
    refusal = "no time is left for a test of a second"
    while seconds := seconds_of_test(order.left_s, order.options["seconds"], omit_s):
        argv = client_argv(program, order, seconds)
        ended = programs.run(argv, order.end, order.halt)
        if not ended.in_time:
            raise ProbeError(f"iperf3 did not end in time: {refusal}")
        report, refusal = _report(ended)
        if report is not None:
            return udp_findings(report) if order.tool == "udp" else tcp_findings(report)
        if not order.pause(_AGAIN_S):
            break
    order.halt.check()
    raise ProbeError(refusal)


def server(order: ProbeRequest) -> list[Reading]:
    """Take one test of the peer. There are no findings at this end: the client has them.

    Raises ProbeError.
    """
    program = _program()
    refusal = f"nobody came to port {order.port}"
    while order.go_on():
        ended = programs.run(server_argv(program, order), order.end, order.halt)
        if not ended.in_time:
            break
        report, refusal = _report(ended)
        if report is None:
            order.pause(_AGAIN_S)
            continue
        who = _visitor(report)
        if who == order.peer:
            return []
        refusal = f"somebody else came to port {order.port}: {who}"
    order.halt.check()
    raise ProbeError(refusal)


def _report(ended: programs.ProgramResult) -> tuple[dict[str, Any] | None, str]:
    """What iperf3 reports; None, and why, where another attempt may go better. Raises ProbeError
    where none can."""
    try:
        return read(ended.out), ""
    except ProbeError as error:
        refusal = str(error) if ended.out else ended.how(PROGRAM)
        if not any(words in refusal.lower() for words in _COMES_LATER):
            raise ProbeError(refusal) from None
        return None, refusal


def _program() -> str:
    program = programs.find(PROGRAM)
    if program is None:
        raise ProbeError("iperf3 is not installed here (Debian package iperf3)")
    return program


def _visitor(report: Mapping[str, Any]) -> str:
    """Whose test it was: an address as text, without the mark of IPv4 in IPv6."""
    accepted = _part(_part(report, "start"), "accepted_connection")
    try:
        return plain_address(str(accepted.get("host", "")))
    except ValueError:
        return printable(str(accepted.get("host")))[:60]


def _part(report: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = report.get(key)
    if not isinstance(part, dict):
        raise ProbeError(f"iperf3's report has no {key!r}")
    return part


def _number(part: Mapping[str, Any], key: str) -> float:
    value = part.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MOST:
        raise ProbeError(f"iperf3's report has no number {key!r}")
    return float(value)
