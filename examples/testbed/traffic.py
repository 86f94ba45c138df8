"""Streams between two hosts, of a transfer or of others.

traffic.py sink ADDRESS PORT [--udp]               says "ready", then receives until it is ended
traffic.py send ADDRESS PORT --bytes N             ends when all has arrived
traffic.py send ADDRESS PORT --bytes-per-s R       sends for ever, also while nobody listens;
           [--udp | --streams N] [--on S --off S]  S seconds at a time, with S seconds between
"""

from __future__ import annotations

import argparse
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count

_CHUNK = bytes(256 * 1024)
_DATAGRAM = bytes(1400)
_BURST = 8  # of them at a time: waking up for each would cost more than they do
_PATIENCE_S = 1.0


def sink(address: str, port: int) -> None:
    """Receive streams, and tell each sender when its last byte has arrived."""
    with socket.create_server((address, port)) as server:
        print("ready", flush=True)
        while True:
            stream, _ = server.accept()
            threading.Thread(target=_receive, args=(stream,), daemon=True).start()


def _receive(stream: socket.socket) -> None:
    with stream, suppress(OSError):  # its sender was killed
        while stream.recv(len(_CHUNK)):
            pass
        stream.sendall(b".")


def udp_sink(address: str, port: int) -> None:
    """Be there for datagrams, so that nobody is told that they are unwanted; the kernel drops them
    where its buffer is full, which costs nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, port))
        print("ready", flush=True)
        threading.Event().wait()


def send(address: str, port: int, n_bytes: int) -> None:
    """Send ``n_bytes`` and wait until the other side has them all."""
    with socket.create_connection((address, port)) as stream:
        left = n_bytes
        while left > 0:
            left -= stream.send(_CHUNK[:left])
        stream.shutdown(socket.SHUT_WR)
        stream.recv(1)


def keep_sending(address: str, port: int, bytes_per_s: int, on_s: float, off_s: float) -> None:
    """Send by TCP until this process is ended, whatever breaks the connection. A chunk at a time,
    which switches and links forward whole: paced by the kernel, it would be packets."""
    size = max(1, min(len(_CHUNK) // 4, bytes_per_s // 4))
    for until in _turns(on_s, off_s):
        try:
            with socket.create_connection((address, port), timeout=_PATIENCE_S) as stream:
                stream.settimeout(None)
                due = time.monotonic()
                while (now := time.monotonic()) < until:
                    due = max(due, now - _PATIENCE_S) + size / bytes_per_s
                    stream.sendall(_CHUNK[:size])
                    time.sleep(max(0.0, due - time.monotonic()))
        except OSError:
            time.sleep(_PATIENCE_S)


def keep_sending_datagrams(
    address: str, port: int, bytes_per_s: int, on_s: float, off_s: float
) -> None:
    """Send by UDP until this process is ended, at an even rate."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for until in _turns(on_s, off_s):
            started = time.monotonic()
            for sent in count(step=_BURST):
                due = started + sent * len(_DATAGRAM) / bytes_per_s
                if due >= until:
                    break
                time.sleep(max(0.0, due - time.monotonic()))
                try:
                    for _ in range(_BURST):
                        sender.sendto(_DATAGRAM, (address, port))
                except OSError:  # no way there yet
                    time.sleep(_PATIENCE_S)


def _turns(on_s: float, off_s: float) -> Iterator[float]:
    """Until when to send (monotonic seconds), turn by turn; one without end without ``off_s``."""
    start = time.monotonic()
    for turn in count():
        begin = start + turn * (on_s + off_s)
        if not off_s:
            yield float("inf")  # and again, where the connection breaks
            continue
        if time.monotonic() < begin + on_s:
            time.sleep(max(0.0, begin - time.monotonic()))
            yield begin + on_s


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=("sink", "send"))
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("--bytes", type=int)
    parser.add_argument("--bytes-per-s", type=int)
    parser.add_argument("--udp", action="store_true")
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--on", type=float, default=0.0)
    parser.add_argument("--off", type=float, default=0.0)
    given = parser.parse_args()
    if given.role == "sink":
        (udp_sink if given.udp else sink)(given.address, given.port)
    elif given.bytes is not None:
        send(given.address, given.port, given.bytes)
    else:
        sender: Callable[..., None] = keep_sending_datagrams if given.udp else keep_sending
        rest = (given.address, given.port, given.bytes_per_s // given.streams, given.on, given.off)
        for _ in range(given.streams - 1):
            threading.Thread(target=sender, args=rest, daemon=True).start()
        sender(*rest)


if __name__ == "__main__":
    main()
