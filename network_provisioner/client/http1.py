"""Requests over HTTP/1.1 and their answers, each within one deadline.

The standard library's client takes longer to import than most requests take to be answered, and
its timeout starts anew with every byte.
"""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from network_provisioner.base.errors import InputError

if TYPE_CHECKING:
    import ssl
    from urllib.parse import SplitResult

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: |\Z)")
_MOST_BYTES = 64 * 2**20  # of one answer; no list of transits comes near
_MOST_HEAD_BYTES = 64 * 2**10
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files for https: whose signature the server's certificate must bear (None: what the
    system trusts), and our own certificate and key where the server asks for one."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, with headers by their names in small letters; when its request left and when it
    was there, in seconds of the caller's clock."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    requested_at: float
    answered_at: float


class Deadline:
    """The instant by which everything must be done."""

    def __init__(self, timeout_s: float) -> None:
        self._end = time.monotonic() + timeout_s

    def left(self) -> float:
        """Seconds left; raises TimeoutError where none are."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


class Connection:
    """A connection for one request after the other."""

    def __init__(
        self, sock: socket.socket, host: str | None, context: ssl.SSLContext | None, by: Deadline
    ) -> None:
        """Owns the socket, with TLS where there is a ``context``. Raises OSError, ValueError."""
        self._sock, self._buffer = sock, bytearray()
        self.n_bytes = 0
        """Bytes that came in answer to the last request."""
        self.is_usable = False
        """Whether the next request may follow."""
        if context is not None:
            with sock:  # which is empty where TLS has taken it over
                sock.settimeout(by.left())  # the handshake as a whole keeps it
                self._sock = context.wrap_socket(sock, server_hostname=host)

    def exchange(
        self, request: bytes, by: Deadline, clock: Callable[[], float], has_body: bool = True
    ) -> Answer:
        """Send a request and read its answer. Raises OSError, and ValueError for an answer that is
        not HTTP."""
        self.n_bytes, self.is_usable, requested_at = 0, False, clock()
        view = memoryview(request)
        while view:
            self._sock.settimeout(by.left())
            try:
                view = view[self._sock.send(view) :]
            except (BrokenPipeError, ConnectionResetError):
                break  # refused before it was all sent: the answer may say why
        version, status, headers = self._head(by)
        while status < 200:  # an answer is still to come
            version, status, headers = self._head(by)
        body, is_delimited = b"", True
        length = headers.get("content-length", "")
        if has_body and status not in (204, 304):
            if headers.get("transfer-encoding", "").lower() == "chunked":
                body = b"".join(self._chunks(by))
            elif length.isdecimal():
                body = self._exactly(int(length), by)
            else:
                is_delimited = False
                while self._receive(by):
                    pass
                body = self._exactly(len(self._buffer), by)
        closes = version == b"0" or "close" in headers.get("connection", "").lower()
        self.is_usable = is_delimited and not (closes or self._buffer)
        return Answer(status, headers, body, requested_at, clock())

    def has_ended(self) -> bool:
        """Whether the server closed it meanwhile: there is something to read, though nothing was
        asked."""
        waiting = select.poll()
        waiting.register(self._sock, select.POLLIN)
        return bool(waiting.poll(0))

    def shut_down(self) -> None:
        """End what another thread waits for."""
        with suppress(OSError):  # it is closed already
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        self._sock.close()

    def _head(self, by: Deadline) -> tuple[bytes, int, dict[str, str]]:
        """Minor version, status and headers."""
        first, *lines = self._until(b"\r\n\r\n", by).split(b"\r\n")
        match = _STATUS.match(first)
        if match is None:
            raise ValueError(f"found {first[:80].decode(errors='replace')!r}, expected HTTP")
        parts = (line.decode("latin-1").partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in parts}
        return match[1], int(match[2]), headers

    def _chunks(self, by: Deadline) -> Iterator[bytes]:
        while size := int(self._until(b"\r\n", by).partition(b";")[0], 16):
            yield self._exactly(size, by)
            self._until(b"\r\n", by)
        while self._until(b"\r\n", by):  # trailers
            pass

    def _until(self, mark: bytes, by: Deadline) -> bytes:
        """What comes before ``mark``, or before the end of everything."""
        while mark not in self._buffer:
            if len(self._buffer) > _MOST_HEAD_BYTES:
                raise ValueError(f"found {self._buffer[:80]!r} and no end of it, expected HTTP")
            if not self._receive(by):
                if not self._buffer:
                    raise ConnectionError("it closed the connection without response")
                break
        before, _, self._buffer = self._buffer.partition(mark)
        return bytes(before)

    def _exactly(self, n_bytes: int, by: Deadline) -> bytes:
        while len(self._buffer) < n_bytes:
            if not self._receive(by):
                raise ValueError(f"the answer ended {n_bytes - len(self._buffer)} bytes too early")
        data = bytes(self._buffer[:n_bytes])
        del self._buffer[:n_bytes]
        return data

    def _receive(self, by: Deadline) -> int:
        """How many bytes came; 0 at the end."""
        self._sock.settimeout(by.left())
        data = self._sock.recv(65536)
        self._buffer += data
        self.n_bytes += len(data)
        if self.n_bytes > _MOST_BYTES:
            raise ValueError(f"the answer is longer than {_MOST_BYTES} bytes")
        return len(data)


def connected(
    host: str, port: int, context: ssl.SSLContext | None, deadline: Deadline
) -> Connection:
    """A connection, with TLS where there is a ``context``. Raises OSError, ValueError."""
    failure: OSError = OSError(f"no address for {host!r}")
    name = host.encode("ascii")  # a str would load the tables of international names
    for place in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM):
        try:
            sock = _socket_to(place, deadline)
        except OSError as error:
            failure = error
        else:
            return Connection(sock, host, context, deadline)
    raise failure


def trusting(tls: Tls) -> ssl.SSLContext:
    """TLS of a client that trusts, and shows, what ``tls`` says.

    Raises InputError for files that cannot be read.
    """
    import ssl  # noqa: PLC0415  -- takes long to load, and most brokers are on loopback

    try:
        context = ssl.create_default_context(cafile=tls.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if tls.certificate is not None:
            # Without a password: nobody is there to type one, and OpenSSL would ask.
            context.load_cert_chain(tls.certificate, tls.key, password="")
    except (OSError, ValueError) as error:
        files = ", ".join(f for f in (tls.ca, tls.certificate, tls.key) if f)
        raise InputError(f"{files}: {error}, expected readable PEM files") from None
    return context


def head(
    url: SplitResult, place: tuple[Any, ...], until: float, context: ssl.SSLContext | None
) -> Answer:
    """What a server says to HEAD of ``url`` before ``until`` of the monotonic clock. ``place`` is
    one of ``socket.getaddrinfo``, ``context`` None for http. Raises OSError, ValueError."""
    deadline = Deadline(until - time.monotonic())
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    host = url.netloc.rpartition("@")[2]
    request = f"HEAD {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    data = request.encode("ascii")
    sock = _socket_to(place, deadline)
    with closing(Connection(sock, url.hostname, context, deadline)) as connection:
        return connection.exchange(data, deadline, time.monotonic, has_body=False)


def quoted(text: str) -> str:
    """``text`` as one segment of a path, or one value of a query."""
    return "".join(chr(b) if b in _PLAIN else f"%{b:02X}" for b in text.encode())


def _socket_to(place: tuple[Any, ...], deadline: Deadline) -> socket.socket:
    family, kind, protocol, _, address = place
    sock = socket.socket(family, kind, protocol)
    try:
        sock.settimeout(deadline.left())
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock
