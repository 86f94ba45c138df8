"""What hooks take for the broker, and which can be slow, dumb or silly."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

Answer = Callable[[socket.socket, "Door"], None]


class Door:
    """What hooks take for the broker: passes everything on, or does something else."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self.how: Answer = passes
        self._held: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._held.append(connection)
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the hook went away, or the broker is not there
            self.how(connection, self)

    def answer(self, connection: socket.socket) -> bytes:
        """What the broker says to the request that comes from ``connection``."""
        request = b""
        while b"\r\n\r\n" not in request:
            more = connection.recv(65536)
            if not more:
                return b""
            request += more
        head, _, body = request.partition(b"\r\n\r\n")
        length = next(
            (int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.startswith(b"Content-Length")),
            0,
        )
        while len(body) < length:
            more = connection.recv(65536)
            if not more:  # the hook was killed
                return b""
            body += more
        with socket.create_connection(("127.0.0.1", self._port)) as broker:
            head = head.replace(b"Connection: keep-alive", b"Connection: close")
            broker.sendall(head + b"\r\n\r\n" + body)
            data = b""
            while more := broker.recv(65536):
                data += more
        return data

    def close(self) -> None:
        """Close all that is open."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for connection in self._held:
            connection.close()


# -- ways to answer ------------------------------------------------------------------------------


def passes(connection: socket.socket, door: Door) -> None:
    """As if there were no door."""
    connection.sendall(door.answer(connection))
    connection.close()


def never_answers(connection: socket.socket, _door: Door) -> None:
    """Takes the question and does nothing."""
    connection.recv(65536)


def swallows(connection: socket.socket, door: Door) -> None:
    """The broker does what was asked, and nobody hears of it."""
    door.answer(connection)


def dribbles(connection: socket.socket, door: Door) -> None:
    """A byte every tenth of a second."""
    for byte in door.answer(connection):
        connection.sendall(bytes([byte]))
        time.sleep(0.1)


def says_500(connection: socket.socket, _door: Door) -> None:
    """Something is wrong with it."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops")
    connection.close()


def hangs_up(connection: socket.socket, door: Door) -> None:
    """The broker does what was asked, and the line goes dead."""
    door.answer(connection)
    connection.close()


def cuts(connection: socket.socket, door: Door) -> None:
    """Half an answer."""
    data = door.answer(connection)
    connection.sendall(data[: len(data) - 20])
    connection.close()


WAYS: dict[str, Answer] = {
    "never answers": never_answers,
    "does it and never answers": swallows,
    "does it and dribbles": dribbles,
    "answers 500": says_500,
    "does it and hangs up": hangs_up,
    "does it and cuts the answer": cuts,
}
