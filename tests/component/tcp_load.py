"""TCP streams for measurements: one line of JSON per stream on standard output.

tcp_load.py sink ADDRESS PORT             says "ready", then the bytes and seconds of each stream
tcp_load.py send ADDRESS PORT N SECONDS   N streams at once
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time

CHUNK = bytes(128 * 1024)


def sink(address: str, port: int) -> None:
    """Receive until killed."""
    with socket.create_server((address, port), backlog=64) as server:
        print("ready", flush=True)
        while True:
            stream, _ = server.accept()
            threading.Thread(target=_receive, args=(stream,), daemon=True).start()


def _receive(stream: socket.socket) -> None:
    total, first = 0, 0.0
    with stream:
        while data := stream.recv(len(CHUNK)):
            first = first or time.monotonic()
            total += len(data)
    print(json.dumps({"bytes": total, "seconds": time.monotonic() - first}), flush=True)


def send(address: str, port: int, streams: int, seconds: float) -> None:
    """Send as fast as TCP lets us; returns when all streams have ended."""
    threads = [
        threading.Thread(target=_send, args=(address, port, seconds)) for _ in range(streams)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _send(address: str, port: int, seconds: float) -> None:
    with socket.socket() as stream:
        # The kernel doubles it: enough for 200 Mb/s over 53 ms. More would be draining long after
        # the end.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        stream.connect((address, port))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            stream.send(CHUNK)


if __name__ == "__main__":
    what, where, number, *more = sys.argv[1:]
    if what == "sink":
        sink(where, int(number))
    else:
        send(where, int(number), int(more[0]), float(more[1]))
