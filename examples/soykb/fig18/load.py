"""One TCP transfer of a known size: ``load.py sink ADDRESS PORT`` receives, says "ready" and ends
with the stream; ``load.py send ADDRESS PORT BYTES`` sends and ends when all has arrived."""

from __future__ import annotations

import socket
import sys

_CHUNK = bytes(256 * 1024)


def sink(address: str, port: int) -> None:
    """Receive one stream to its end, and say so to the sender."""
    with socket.create_server((address, port)) as server:
        print("ready", flush=True)
        stream, _ = server.accept()
        with stream:
            while stream.recv(len(_CHUNK)):
                pass
            stream.sendall(b".")


def send(address: str, port: int, n_bytes: int) -> None:
    """Send ``n_bytes`` and wait until the other side has them all."""
    with socket.create_connection((address, port)) as stream:
        left = n_bytes
        while left > 0:
            left -= stream.send(_CHUNK[:left])
        stream.shutdown(socket.SHUT_WR)
        stream.recv(1)


if __name__ == "__main__":
    what, host, number, *size = sys.argv[1:]
    if what == "sink":
        sink(host, int(number))
    else:
        send(host, int(number), int(size[0]))
