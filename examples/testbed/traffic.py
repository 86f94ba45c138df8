"""TCP between two hosts, of a transfer or of others.

traffic.py sink ADDRESS PORT                       says "ready", then receives until it is ended
traffic.py send ADDRESS PORT --bytes N             ends when all has arrived
traffic.py send ADDRESS PORT --bytes-per-s R       sends for ever, also while nobody listens
"""

from __future__ import annotations

import argparse
import socket
import time

_CHUNK = bytes(256 * 1024)
_PATIENCE_S = 1.0
_SO_MAX_PACING_RATE = 47  # asm-generic/socket.h


def sink(address: str, port: int) -> None:
    """Receive stream after stream, and tell each sender when its last byte has arrived."""
    with socket.create_server((address, port)) as server:
        print("ready", flush=True)
        while True:
            stream, _ = server.accept()
            with stream:
                try:
                    while stream.recv(len(_CHUNK)):
                        pass
                    stream.sendall(b".")
                except OSError:
                    pass  # its sender was killed: the next one


def send(address: str, port: int, n_bytes: int) -> None:
    """Send ``n_bytes`` and wait until the other side has them all."""
    with socket.create_connection((address, port)) as stream:
        left = n_bytes
        while left > 0:
            left -= stream.send(_CHUNK[:left])
        stream.shutdown(socket.SHUT_WR)
        stream.recv(1)


def keep_sending(address: str, port: int, bytes_per_s: int) -> None:
    """Send at most ``bytes_per_s`` until this process is ended, whatever breaks the connection."""
    while True:
        try:
            with socket.create_connection((address, port), timeout=_PATIENCE_S) as stream:
                stream.settimeout(None)
                stream.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, bytes_per_s)
                while True:
                    stream.sendall(_CHUNK)
        except OSError:
            time.sleep(_PATIENCE_S)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=("sink", "send"))
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("--bytes", type=int)
    parser.add_argument("--bytes-per-s", type=int)
    given = parser.parse_args()
    if given.role == "sink":
        sink(given.address, given.port)
    elif given.bytes is not None:
        send(given.address, given.port, given.bytes)
    else:
        keep_sending(given.address, given.port, given.bytes_per_s)


if __name__ == "__main__":
    main()
