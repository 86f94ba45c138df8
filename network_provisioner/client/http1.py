"""One question over HTTP and its answer, all of it within one deadline.

The standard library's client takes longer to import than most questions take to be answered, and
its timeout starts anew with every byte. This one asks in HTTP/1.0: one request on one connection,
which the server closes; no answer comes in chunks.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from network_provisioner.base.errors import BrokerError, InputError

if TYPE_CHECKING:
    import ssl
    from urllib.parse import SplitResult

_URL = re.compile(
    r"(?P<scheme>(?i:https?))://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?"
    r"(?P<prefix>/[!-~]*)?\Z"
)
_EXPECTED = "expected one like 'http://127.0.0.1:8470'"
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: |\Z)")
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


class Server:
    """Where to ask. Holds no connection, so it may be shared, forked and forgotten."""

    def __init__(self, url: str, timeout_s: float, headers: Mapping[str, str], tls: Tls) -> None:
        """Raises InputError for a URL, a timeout or a header that is none."""
        found = _URL.match(url)
        if found is None or any(mark in url for mark in "?#"):
            raise InputError(f"broker URL {url!r}, {_EXPECTED}")
        is_https = found["scheme"].lower() == "https"
        host, port = found["host"], int(found["port"] or (443 if is_https else 80))
        if not 0 < port < 65536:
            raise InputError(f"broker URL {url!r}: port {port}, {_EXPECTED}")
        if not 0 < timeout_s < float("inf"):
            raise InputError(f"broker timeout {timeout_s!r}, expected more than 0 s")
        self.url = url.rstrip("/")
        self._host, self._port = host.strip("[]"), port
        self._prefix = (found["prefix"] or "").rstrip("/")
        self._timeout_s = timeout_s
        self._tls = tls if is_https else None
        lines = {"Host": f"{host}:{port}", "Accept": "application/json", **headers}
        if bad := next((k for k, v in lines.items() if not (v.isascii() and v.isprintable())), ""):
            raise InputError(f"{bad} of requests to the broker: expected printable ASCII")
        self._head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._context: ssl.SSLContext | None = None

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Status and body of the answer to ``path`` with ``body`` as JSON.

        Raises BrokerError ``unreachable``, and InputError for a certificate that cannot be read.
        """
        context = self._trusted()
        deadline = Deadline(self._timeout_s)
        data = b"" if body is None else json.dumps(body).encode()
        kind = "" if body is None else "Content-Type: application/json\r\n"
        length = "" if method == "GET" else f"Content-Length: {len(data)}\r\n"
        head = f"{method} {self._prefix}{path} HTTP/1.0\r\n{self._head}{kind}{length}\r\n"
        try:
            with _connect(self._host, self._port, deadline) as plain:
                sock = plain
                if context is not None:
                    plain.settimeout(deadline.left())  # the handshake as a whole keeps it
                    sock = context.wrap_socket(plain, server_hostname=self._host)
                with sock:
                    return _exchange(sock, head.encode() + data, deadline)
        except (OSError, ValueError) as error:
            what = " ".join(str(error).split()) or type(error).__name__
            if isinstance(error, TimeoutError):
                what = f"no answer within {self._timeout_s:g} s"
            elif self._tls and not self._tls.certificate and isinstance(error, ConnectionError):
                what += "; it may ask for a certificate of ours (ADON_CERTIFICATE, ADON_KEY)"
            raise BrokerError(f"the broker at {self.url} cannot be reached: {what}") from error

    def _trusted(self) -> ssl.SSLContext | None:
        if self._tls is not None and self._context is None:
            self._context = trusting(self._tls)
        return self._context


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
) -> tuple[int, dict[str, str]]:
    """Status and headers, by their names in small letters, of what a server says to HEAD of ``url``
    before ``until`` of the monotonic clock. ``place`` is one of ``socket.getaddrinfo``, ``context``
    None for http. Raises OSError, ValueError."""
    deadline = Deadline(until - time.monotonic())
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    words = f"HEAD {target} HTTP/1.0\r\nHost: {url.netloc.rpartition('@')[2]}\r\n\r\n"
    family, kind, proto, _, address = place
    with socket.socket(family, kind, proto) as plain:
        sock = plain
        plain.settimeout(deadline.left())
        plain.connect(address)
        if context is not None:
            plain.settimeout(deadline.left())
            sock = context.wrap_socket(plain, server_hostname=url.hostname)
        with sock:
            sock.settimeout(deadline.left())
            sock.sendall(words.encode("ascii"))
            first, *lines = _split_head(sock, deadline)[0].decode("latin-1").split("\r\n")
    status = _STATUS.match(first.encode())
    if status is None:
        raise ValueError(f"found {first[:80]!r}, expected HTTP")
    parts = (line.partition(":") for line in lines)
    return int(status[1]), {name.lower(): value.strip() for name, _, value in parts}


def quoted(text: str) -> str:
    """``text`` as one segment of a path, or one value of a query."""
    return "".join(chr(b) if b in _PLAIN else f"%{b:02X}" for b in text.encode())


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


def _connect(host: str, port: int, deadline: Deadline) -> socket.socket:
    failed: OSError = OSError(f"no address for {host!r}")
    name = host.encode("ascii")  # a str would load the tables of international names
    for family, kind, proto, _, address in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, proto)
        try:
            sock.settimeout(deadline.left())
            sock.connect(address)
        except OSError as error:
            sock.close()
            failed = error
        else:
            return sock
    raise failed


def _exchange(sock: socket.socket, request: bytes, deadline: Deadline) -> tuple[int, bytes]:
    """Raises OSError, and ValueError for what is no answer in HTTP."""
    view = memoryview(request)
    while view:
        sock.settimeout(deadline.left())
        try:
            view = view[sock.send(view) :]
        except (BrokenPipeError, ConnectionResetError):
            break  # refused before it was all sent: the answer may say why
    head, body = _split_head(sock, deadline)
    lines = head.split(b"\r\n")
    status = _STATUS.match(lines[0])
    if status is None:
        raise ValueError(f"found {lines[0][:80].decode(errors='replace')!r}, expected HTTP")
    length = _length(lines[1:])
    want = _MOST_BYTES if length is None else min(length, _MOST_BYTES)
    parts, size = [body], len(body)
    while size < want and (more := _receive(sock, deadline)):
        parts.append(more)
        size += len(more)
    if length is not None and size < length:
        raise ValueError(f"the answer ended {length - size} bytes too early")
    return int(status[1]), b"".join(parts)[:length]


def _split_head(sock: socket.socket, deadline: Deadline) -> tuple[bytes, bytes]:
    got = b""
    while b"\r\n\r\n" not in got:
        more = _receive(sock, deadline)
        if not more:
            if not got:
                raise ConnectionError("it closed the connection without response")
            return got, b""
        got += more
        if len(got) > _MOST_HEAD_BYTES:
            raise ValueError(f"found {got[:80]!r} and no end of its head, expected HTTP")
    head, _, body = got.partition(b"\r\n\r\n")
    return head, body


def _receive(sock: socket.socket, deadline: Deadline) -> bytes:
    sock.settimeout(deadline.left())
    return sock.recv(65536)


def _length(lines: list[bytes]) -> int | None:
    for line in lines:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length" and value.strip().isdigit():
            return int(value)
    return None
