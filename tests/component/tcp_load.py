"""TCP streams for measurements: one line of JSON per stream on standard output.

tcp_load.py sink ADDRESS PORT [FILE]      says "ready", then the bytes and seconds of each stream,
                                          whose bytes it writes to FILE, over and over its start
tcp_load.py send ADDRESS PORT N SECONDS   N streams at once

A stream begins with the sender's monotonic clock, so that its seconds are all those in which it was
on its way: a receiver that had to wait for a processor would begin to count too late, and find a
rate that never was. However late the senders are, they send ``LEAST`` chunks together.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading
import time
from pathlib import Path

CHUNK = bytes(128 * 1024)
LEAST = 8
MOST_FILE_BYTES = 200_000_000
CLOCK = struct.Struct("!d")
_TELLING = threading.Lock()  # print writes a line in two pieces


def sink(address: str, port: int, file: str = os.devnull) -> None:
    """Receive until killed."""
    with socket.create_server((address, port), family=_family(address), backlog=64) as server:
        print("ready", flush=True)
        while True:
            stream, _ = server.accept()
            threading.Thread(target=_receive, args=(stream, file), daemon=True).start()


def _receive(stream: socket.socket, path: str) -> None:
    total, head = 0, b""
    with stream, Path(path).open("wb", buffering=0) as file:
        while data := stream.recv(len(CHUNK)):
            head += data[: CLOCK.size - len(head)]
            total += len(data)
            file.write(data)
            if file.tell() > MOST_FILE_BYTES:
                file.seek(0)
    (first,) = CLOCK.unpack(head)
    with _TELLING:
        print(json.dumps({"bytes": total, "seconds": time.monotonic() - first}), flush=True)


def send(address: str, port: int, streams: int, seconds: float) -> None:
    """Send as fast as TCP lets us; returns when all streams have ended."""
    threads = [
        threading.Thread(target=_send, args=(address, port, streams, seconds))
        for _ in range(streams)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _send(address: str, port: int, streams: int, seconds: float) -> None:
    with socket.socket(_family(address)) as stream:
        # The kernel doubles it: enough for 200 Mb/s over 53 ms, with as much again for streams that
        # are few on their way. More would be draining long after the end.
        buffer = (1 << 20) // min(streams, 8)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        stream.connect((address, port))
        begin = time.monotonic()
        stream.sendall(CLOCK.pack(begin))
        for _ in range(max(1, LEAST // streams)):
            stream.sendall(CHUNK)
        while time.monotonic() < begin + seconds:
            stream.send(CHUNK)


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


if __name__ == "__main__":
    what, where, number, *more = sys.argv[1:]
    if what == "sink":
        sink(where, int(number), *more)
    else:
        send(where, int(number), int(more[0]), float(more[1]))
