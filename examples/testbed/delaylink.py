"""A point-to-point link with rate, delay, queue and loss, made of two TAP devices.

Debian kernels without ``netem`` have no delay of their own. Here a frame that the kernel or a
switch sends into one TAP device comes out of the other when a real link of that rate and length
would deliver it. The devices take segmentation offload (``IFF_VNET_HDR``), so that 64 kB of TCP
pass as one frame: Python handles hundreds of frames a second, not tens of thousands.

A datagram ``{"rate_bps": …, "delay_s": …, "limit_bytes": …, "loss": …, "up": …}`` (any of these
keys, or none) to the control socket changes the link while it runs; the answer holds the settings
and counters.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import math
import os
import random
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from examples.testbed.linkqueue import LinkQueue, wire_bytes
from network_provisioner.base.errors import AdonError, MissingError

# linux/if_tun.h
_TUNSETIFF = 0x400454CA
_TUNSETOFFLOAD = 0x400454D0
_TUNSETVNETHDRSZ = 0x400454D8
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000
_IFF_VNET_HDR = 0x4000
_TUN_F_CSUM_TSO4_TSO6_ECN = 0x01 | 0x02 | 0x04 | 0x08

# struct virtio_net_hdr: flags, gso_type, hdr_len, gso_size, csum_start, csum_offset
_VNET = struct.Struct("<BBHHHH")
_ETHERNET_BYTES = 14
_MAX_FRAME_BYTES = 70_000
_BATCH = 64
"""Frames taken from one device before the other is looked at."""


def open_tap(name: str) -> int:
    """Make TAP device ``name`` in this network namespace; it lives as long as the descriptor.

    Raises MissingError.
    """
    try:
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    except OSError as err:
        raise MissingError(f"cannot open /dev/net/tun: {err.strerror}") from err
    try:
        request = struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR)
        fcntl.ioctl(fd, _TUNSETIFF, request)
        fcntl.ioctl(fd, _TUNSETVNETHDRSZ, struct.pack("i", _VNET.size))
        fcntl.ioctl(fd, _TUNSETOFFLOAD, _TUN_F_CSUM_TSO4_TSO6_ECN)
    except OSError as err:
        os.close(fd)
        raise MissingError(f"cannot make TAP device {name}: {err.strerror}") from err
    return fd


def frame_wire_bytes(frame: bytes) -> int:
    """Bytes that a frame with its virtio-net header would take on a real wire."""
    _flags, kind, _length, segment, start, _offset = _VNET.unpack_from(frame)
    n_bytes = len(frame) - _VNET.size
    data_offset = _VNET.size + start + 12  # the TCP header's own length is in its byte 12
    if kind == 0 or segment == 0 or data_offset >= len(frame):
        return n_bytes
    return wire_bytes(n_bytes, segment, start + (frame[data_offset] >> 4) * 4)


class DelayLink:
    """Two TAP devices and a queue from each to the other."""

    def __init__(self, ends: tuple[int, int], queues: tuple[LinkQueue, LinkQueue]) -> None:
        self._ends = ends
        self._queues = queues
        self._flying: tuple[deque[tuple[float, bytes]], deque[tuple[float, bytes]]] = (
            deque(),
            deque(),
        )
        self.loss = 0.0
        self.up = True

    def run(self, control: socket.socket) -> None:
        """Carry frames and answer the control socket, for ever."""
        sources = [*self._ends, control.fileno()]
        while True:
            due = min((f[0][0] for f in self._flying if f), default=None)
            wait = None if due is None else max(0.0, due - time.monotonic())
            ready = select.select(sources, [], [], wait)[0]
            for side in (0, 1):
                if self._ends[side] in ready:
                    self._take(side)
            if control.fileno() in ready:
                self._answer(control)
            for side in (0, 1):
                self._deliver(side)

    def _take(self, side: int) -> None:
        queue, flying, end = self._queues[side], self._flying[side], self._ends[side]
        now = time.monotonic()
        for _ in range(_BATCH):
            try:
                frame = os.read(end, _MAX_FRAME_BYTES)
            except BlockingIOError:
                return
            n_bytes = frame_wire_bytes(frame)
            # A 64 kB frame stands for many packets, and is lost as a whole.
            lost = self.loss and random.random() < self.loss * max(1.0, n_bytes / 1500)
            if lost or not self.up:
                queue.drop()
                continue
            out_at = queue.offer(now, n_bytes)
            if out_at is not None:
                flying.append((out_at, frame))

    def _deliver(self, side: int) -> None:
        flying, end = self._flying[side], self._ends[1 - side]
        now = time.monotonic()
        while flying and flying[0][0] <= now:
            frame = flying.popleft()[1]
            try:
                os.write(end, frame)
            except OSError:  # the far device is down: on a real link, nobody listens
                self._queues[side].drop()

    def _answer(self, control: socket.socket) -> None:
        message, sender = control.recvfrom(65536)
        self.change(json.loads(message))
        # Nobody waits for the answer any more: that is the sender's business.
        with contextlib.suppress(OSError):
            control.sendto(json.dumps(self.state()).encode(), sender)

    def change(self, settings: Mapping[str, Any]) -> None:
        """Apply settings as they arrive over the control socket."""
        for queue in self._queues:
            queue.rate_bps = float(settings.get("rate_bps", queue.rate_bps))
            queue.delay_s = float(settings.get("delay_s", queue.delay_s))
            queue.limit_bytes = float(settings.get("limit_bytes", queue.limit_bytes))
        self.loss = float(settings.get("loss", self.loss))
        self.up = bool(settings.get("up", self.up))

    def state(self) -> dict[str, Any]:
        """Settings and, for both directions, counters."""
        queue = self._queues[0]
        return {
            "rate_bps": queue.rate_bps if math.isfinite(queue.rate_bps) else None,
            "delay_s": queue.delay_s,
            "limit_bytes": queue.limit_bytes,
            "loss": self.loss,
            "up": self.up,
            "directions": [
                {"packets": q.accepted, "bytes": q.accepted_bytes, "dropped": q.dropped}
                for q in self._queues
            ],
        }


def control(path: Path, timeout_s: float = 30.0, **settings: float | bool) -> dict[str, Any]:
    """Change a running link (or only look at it) through its control socket; returns its state.

    Raises AdonError if no link answers there.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        # A name in the file system: abstract ones do not reach into another network namespace.
        own = path.with_name(f"{path.name}.{os.getpid()}.{sock.fileno()}")
        sock.settimeout(timeout_s)
        try:
            sock.bind(str(own))
            sock.sendto(json.dumps(settings).encode(), str(path))
            answer: dict[str, Any] = json.loads(sock.recv(65536))
        except OSError as err:
            raise AdonError(f"no delay link answers at {path}: {err}") from err
        finally:
            own.unlink(missing_ok=True)
    return answer


def answers(path: Path) -> bool:
    """Whether the link with that control socket is there."""
    try:
        return bool(control(path))
    except AdonError:
        return False


def main() -> int:
    """``python -m examples.testbed.delaylink A B --control PATH …``"""
    parser = argparse.ArgumentParser(description="an emulated link between two TAP devices")
    parser.add_argument("ends", nargs=2)
    parser.add_argument("--rate-bps", type=float, default=math.inf)
    parser.add_argument("--delay-s", type=float, default=0.0)
    parser.add_argument("--limit-bytes", type=float, default=1e6)
    parser.add_argument("--control", type=Path, required=True)
    options = parser.parse_args()
    try:
        ends = (open_tap(options.ends[0]), open_tap(options.ends[1]))
        queues = [
            LinkQueue(options.rate_bps, options.delay_s, options.limit_bytes) for _ in range(2)
        ]
        link = DelayLink(ends, (queues[0], queues[1]))
    except AdonError as err:
        print(err, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    options.control.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
        sock.bind(str(options.control))
        link.run(sock)
    return 0


if __name__ == "__main__":
    sys.exit(main())
