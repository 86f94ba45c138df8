"""TCP load in classes, switched on and off while it runs, and counted where it arrives.

    class_load.py sink ADDRESS PORT...      "ready"; then for each line on standard input one line
                                            of JSON: {"at": seconds, "bytes": {PORT: bytes so far}}
    class_load.py send ADDRESS PORT N       for each line "on" N streams to PORT, for "off" none

A class is a port. "on" opens new connections, as transfers do that begin; "off" cuts them, so that
nothing drains behind.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
import threading
import time
from collections import Counter

_CHUNK = bytes(256 * 1024)
# The kernel doubles it. 200 Mb/s over 53 ms are 1.3 MB; a stream may have to fill a link alone.
_SEND_BUFFER = 2 << 20
# As the paper's hosts had it. The machine's default may be another one.
_CONGESTION = b"cubic"


def sink(address: str, ports: list[int]) -> None:
    """Receive on all ports in one thread until standard input ends."""
    chooser = selectors.DefaultSelector()
    for port in ports:
        server = socket.create_server((address, port), family=_family(address), backlog=64)
        chooser.register(server, selectors.EVENT_READ, (True, port))
    chooser.register(sys.stdin, selectors.EVENT_READ, None)
    print("ready", flush=True)
    received: Counter[int] = Counter(dict.fromkeys(ports, 0))
    room = bytearray(1 << 20)
    while True:
        for key, _ in chooser.select():
            if key.data is None:
                if not sys.stdin.readline():
                    return
                print(json.dumps({"at": time.monotonic(), "bytes": received}), flush=True)
                continue
            listens, port = key.data
            assert isinstance(key.fileobj, socket.socket)
            if listens:
                stream, _ = key.fileobj.accept()
                chooser.register(stream, selectors.EVENT_READ, (False, port))
                continue
            try:
                count = key.fileobj.recv_into(room)
            except ConnectionResetError:
                count = 0
            received[port] += count
            if not count:
                chooser.unregister(key.fileobj)
                key.fileobj.close()


def send(address: str, port: int, streams: int) -> None:
    """Do as standard input says until it ends."""
    running: list[socket.socket] = []
    for line in sys.stdin:
        if line.strip() == "on" and not running:
            running = [socket.socket(_family(address)) for _ in range(streams)]
            for stream in running:
                threading.Thread(target=_pump, args=(stream, address, port), daemon=True).start()
        elif line.strip() == "off":
            for stream in running:
                _cut(stream)
            running = []


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _pump(stream: socket.socket, address: str, port: int) -> None:
    try:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _CONGESTION)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        stream.connect((address, port))
        while True:
            stream.sendall(_CHUNK)
    except OSError:
        return  # cut


def _cut(stream: socket.socket) -> None:
    """Reset the connection: what is in its buffer is not sent."""
    try:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # not connected yet
    stream.close()


if __name__ == "__main__":
    what, where, *words = sys.argv[1:]
    if what == "sink":
        sink(where, [int(word) for word in words])
    else:
        send(where, int(words[0]), int(words[1]))
