"""Round trip and loss to anything that answers ICMP echo.

By an ICMP socket of ours where the kernel allows it (net.ipv4.ping_group_range, or root), else by
the program ``ping``, which usually may.
"""

from __future__ import annotations

import math
import os
import re
import select
import socket
import struct
import time

from monitors.measurements.probes import delays, programs
from monitors.measurements.probes.delays import Trip
from monitors.measurements.probes.echo import family_of, receive, stamped
from monitors.measurements.probes.probe import ProbeError, ProbeRequest, Reading

PROGRAM = "ping"
_LINGER_S = 1.0
_LAST_S = 0.1
_HEAD = struct.Struct("!BBHHH")  # type, code, checksum, identifier, number
_MARK_BYTES = 8  # random ones at the start of the payload: an identifier of 16 bits says too little
_REQUEST = {socket.AF_INET: 8, socket.AF_INET6: 128}
_REPLY = {socket.AF_INET: 0, socket.AF_INET6: 129}
_PROTOCOL = {socket.AF_INET: socket.IPPROTO_ICMP, socket.AF_INET6: socket.IPPROTO_ICMPV6}
_LEAST_INTERVAL_S = 0.2  # what ping allows everybody
_ANSWER = re.compile(rb"icmp_seq=(\d+) .*time=([0-9.]+) ms")
_SUMMARY = re.compile(rb"(\d+) packets transmitted, (\d+) (?:packets )?received")


def checksum(data: bytes) -> int:
    """The Internet checksum, RFC 1071."""
    padded = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def request(family: socket.AddressFamily, identifier: int, number: int, payload: bytes) -> bytes:
    """An echo request. The kernel fills in what belongs to it: the identifier of an unprivileged
    socket, the checksum of IPv6."""
    kind = _REQUEST[family]
    head = _HEAD.pack(kind, 0, 0, identifier, number & 0xFFFF)
    return _HEAD.pack(kind, 0, checksum(head + payload), identifier, number & 0xFFFF) + payload


def answered_number(
    data: bytes, family: socket.AddressFamily, raw: bool, mark: bytes
) -> int | None:
    """The number of the request that ``data`` answers; None where it answers none of ours."""
    if raw and family == socket.AF_INET:
        data = data[(data[0] & 0xF) * 4 :] if data else b""  # behind the header of IP
    if len(data) < _HEAD.size + len(mark) or data[0] != _REPLY[family]:
        return None
    if data[_HEAD.size : _HEAD.size + len(mark)] != mark:
        return None
    return int(_HEAD.unpack_from(data)[4])


def measure(order: ProbeRequest) -> list[Reading]:
    """Raises ProbeError where nothing can be sent there."""
    family = family_of(order.peer)
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            sock = socket.socket(family, kind, _PROTOCOL[family])
        except PermissionError:
            continue
        except OSError as error:
            raise ProbeError(f"no ICMP socket: {error.strerror or error}") from None
        with sock:
            return _by_socket(order, sock, family, kind == socket.SOCK_RAW)
    return _by_program(order)


def _by_socket(
    order: ProbeRequest, sock: socket.socket, family: socket.AddressFamily, raw: bool
) -> list[Reading]:
    options = order.options
    try:
        stamped(sock)
        if order.bind:
            sock.bind((order.bind, 0))
        sock.connect((order.peer, 0))
    except OSError as error:
        raise ProbeError(f"cannot reach {order.peer}: {error.strerror or error}") from None
    mark = os.urandom(_MARK_BYTES)
    payload = mark.ljust(options["length"], b"\0")
    room = math.floor(max(0.0, order.left_s - _LINGER_S - _LAST_S) / options["interval"]) + 1
    count = min(room, options["count"] or room, 0xFFFF)
    unset = delays.UnsetClock()
    left: dict[int, tuple[int, int]] = {}
    trips: dict[int, Trip] = {}
    refusal = ""
    begin = time.monotonic()
    for turn in range(count + 1):
        last = turn == count
        until = begin + turn * options["interval"] if not last else time.monotonic() + _LINGER_S
        while len(trips) < count and time.monotonic() < min(until, order.end):
            if not order.halt.ready({sock.fileno(): select.POLLIN}, min(until, order.end)):
                order.halt.check()
                continue
            try:
                arrived = receive(sock)
            except OSError as error:
                refusal = error.strerror or str(error)
                continue
            number = answered_number(arrived[0], family, raw, mark) if arrived else None
            if arrived and number in left and number not in trips:
                sent, began = left[number]
                trips[number] = Trip(number, sent, arrived[3], time.monotonic_ns() - began)
        if not last:
            left[turn] = time.time_ns(), time.monotonic_ns()
            try:
                sock.send(request(family, os.getpid() & 0xFFFF, turn, payload))
            except OSError as error:
                refusal = error.strerror or str(error)
    if not trips and refusal:
        raise ProbeError(f"cannot reach {order.peer}: {refusal}")
    return _findings(list(trips.values()), len(left), unset.holds())


def _findings(trips: list[Trip], sent: int, trusted: bool) -> list[Reading]:
    lost = delays.loss(sent, len(trips), direction="there and back")
    return [lost, delays.rtt(trips, trusted)] if trips else [lost]


def _by_program(order: ProbeRequest) -> list[Reading]:
    program = programs.find(PROGRAM)
    if program is None:
        raise ProbeError(
            "ICMP is not allowed here (net.ipv4.ping_group_range) and ping is not installed"
            " (Debian package iputils-ping)"
        )
    interval_s = max(_LEAST_INTERVAL_S, order.options["interval"])
    room = math.floor(max(0.0, order.left_s - _LINGER_S - _LAST_S) / interval_s) + 1
    count = min(room, order.options["count"] or room)
    argv = [program, "-n", "-c", str(count), "-i", f"{interval_s:g}", "-W", f"{_LINGER_S:g}"]
    argv += ["-s", str(order.options["length"])] + (["-I", order.bind] if order.bind else [])
    ended = programs.run([*argv, order.peer], order.end, order.halt, {**os.environ, "LC_ALL": "C"})
    if not ended.in_time:
        raise ProbeError(ended.how(PROGRAM))
    return read(ended.out, ended)


def read(output: bytes, ended: programs.ProgramResult) -> list[Reading]:
    """What the program ping said. Raises ProbeError."""
    summary = _SUMMARY.search(output)
    if summary is None or int(summary[1]) == 0:
        raise ProbeError(ended.how(PROGRAM))
    times = {int(number): float(ms) for number, ms in _ANSWER.findall(output)}
    trips = [Trip(number, 0, 0, int(ms * 1e6)) for number, ms in times.items()]
    return _findings(trips, int(summary[1]), trusted=False)
