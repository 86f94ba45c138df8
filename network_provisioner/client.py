"""The broker's client: standard library only, quick to import, never slower than its timeout.

Hooks and plug-ins use it inside running workflows, so every call ends within ``timeout_s`` in all,
from connecting to the last byte of the answer, whatever the other side does.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import time
from dataclasses import asdict
from typing import Any
from urllib.parse import quote, urlsplit

from network_provisioner.errors import BrokerError, InputError
from network_provisioner.model import Transit, TransitRequest

_MOST_BYTES = 64 * 2**20  # of one answer; no list of transits comes near


class BrokerClient:
    """Speaks to one broker. Holds no connection, so it may be shared, forked and forgotten.

    Every method raises BrokerError: with the broker's own ``code`` where it refused,
    ``unreachable`` where it did not answer in time, ``bad_answer`` where what came was none.
    """

    def __init__(self, url: str, timeout_s: float = 2.0, token: str | None = None) -> None:
        """``url`` as ``http://127.0.0.1:8470``; name a host by address, for the look-up of a name
        is the one thing the timeout cannot cut short. Raises InputError for a URL that is none."""
        expected = "expected one like 'http://127.0.0.1:8470'"
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise InputError(f"broker URL {url!r}: {error}, {expected}") from error
        if parts.scheme != "http" or not host or parts.query or parts.fragment:
            raise InputError(f"broker URL {url!r}, {expected}")
        if not 0 < timeout_s < float("inf"):
            raise InputError(f"broker timeout {timeout_s!r}, expected more than 0 s")
        self.url = url.rstrip("/")
        self._host, self._port = host, port or 80
        self._prefix = parts.path.rstrip("/")
        self._timeout_s = timeout_s
        self._headers = {"Accept": "application/json", "Connection": "close"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def request(self, request: TransitRequest) -> Transit:
        """Ask for a path; asking again with the same id gives the same transit."""
        body = {k: v for k, v in asdict(request).items() if v is not None}
        return _transit(self._call("POST", "/v1/transits", body))

    def release(
        self, transit_id: str, bytes_moved: int = 0, seconds: float = 0.0, outcome: str = ""
    ) -> Transit:
        """Give a path back, with what the transfer moved in bytes and seconds."""
        body = {"bytes": bytes_moved, "seconds": seconds, "outcome": outcome}
        return _transit(self._call("POST", f"/v1/transits/{_quoted(transit_id)}/release", body))

    def renew(self, transit_id: str, lease_s: float) -> Transit:
        """Make a lease last at least ``lease_s`` from now."""
        path = f"/v1/transits/{_quoted(transit_id)}/renew"
        return _transit(self._call("POST", path, {"lease_s": lease_s}))

    def get(self, transit_id: str) -> Transit:
        """The transit as it is now."""
        return _transit(self._call("GET", f"/v1/transits/{_quoted(transit_id)}"))

    def list(self, state: str | None = None, workflow: str | None = None) -> list[Transit]:
        """All transits, or those in a state, of a workflow; oldest first."""
        given = (("state", state), ("workflow", workflow))
        query = "&".join(f"{key}={_quoted(value)}" for key, value in given if value is not None)
        answer = self._call("GET", "/v1/transits" + (f"?{query}" if query else ""))
        if not isinstance(answer, list):
            raise BrokerError(f"the broker sent {answer!r:.200}, expected a list", "bad_answer")
        return [_transit(item) for item in answer]

    def topology(self) -> dict[str, Any]:
        """Nodes, links, and what is reserved on them now."""
        return _mapping(self._call("GET", "/v1/topology"))

    def counters(self) -> dict[str, Any]:
        """Bytes sent on each direction of a link, and the circuits on the switches now."""
        return _mapping(self._call("GET", "/v1/counters"))

    def health(self) -> dict[str, Any]:
        """``{"status", "controller", "live", ...}``."""
        return _mapping(self._call("GET", "/v1/health"))

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        deadline = _Deadline(self._timeout_s)
        connection = http.client.HTTPConnection(self._host, self._port)
        data = None if body is None else json.dumps(body).encode()
        headers = dict(self._headers)
        if data is not None:
            headers["Content-Type"] = "application/json"
        try:
            with _connect(self._host, self._port, deadline) as sock:
                # The calls that http.client makes on its socket are those of _TimedSocket.
                connection.sock = _TimedSocket(sock, deadline)
                connection.request(method, self._prefix + path, data, headers)
                response = connection.getresponse()
                text = response.read(_MOST_BYTES)
                if response.length:
                    raise ValueError(f"the answer ended {response.length} bytes too early")
        except (OSError, ValueError, http.client.HTTPException) as error:
            what = " ".join(str(error).split()) or type(error).__name__
            if isinstance(error, TimeoutError):
                what = f"no answer within {self._timeout_s:g} s"
            raise BrokerError(f"the broker at {self.url} cannot be reached: {what}") from error
        return self._understand(response.status, text)

    def _understand(self, status: int, text: bytes) -> Any:
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            raise BrokerError(
                f"{self.url} answered {status} with {text[:80]!r}, expected JSON: is it a broker?",
                "bad_answer",
            ) from None
        if 200 <= status < 300:
            return answer
        error = answer.get("error") if isinstance(answer, dict) else None
        if not isinstance(error, dict):
            raise BrokerError(f"{self.url} answered {status}: {answer!r:.200}", "bad_answer")
        raise BrokerError(str(error.get("message", status)), str(error.get("code", "bad_answer")))


class _Deadline:
    """The instant by which everything must be done."""

    def __init__(self, timeout_s: float) -> None:
        self._end = time.monotonic() + timeout_s

    def left(self) -> float:
        """Seconds left; raises TimeoutError where none are."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


class _TimedSocket:
    """As much of a socket as http.client needs, every call of it within the deadline.

    A plain socket timeout starts anew with every byte that arrives: a server that sends one byte a
    second would hold the caller for ever.
    """

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock, self._deadline = sock, deadline

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self._deadline.left())
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._sock, self._deadline))

    def close(self) -> None:
        """Nothing: http.client calls this before it has read the answer."""


class _TimedReader(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock, self._deadline = sock, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(self._deadline.left())
        return self._sock.recv_into(buffer)


def _connect(host: str, port: int, deadline: _Deadline) -> socket.socket:
    failed: OSError = OSError(f"no address for {host!r}")
    for family, kind, proto, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
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


def _quoted(text: str) -> str:
    return quote(text, safe="")


def _mapping(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise BrokerError(f"the broker sent {answer!r:.200}, expected an object", "bad_answer")
    return answer


_TEXTS = ("id", "src", "dst", "state", "template", "workflow", "job", "layer", "reason")
_NUMBERS = (
    "requested_bps", "granted_bps", "max_bps", "requested_at", "installed_at", "released_at",
    "lease_until", "seconds", "goodput_bps", "retry", "bytes", "switch_bytes",
)  # fmt: skip


def _transit(answer: Any) -> Transit:
    data = _mapping(answer)
    try:
        for key in _TEXTS:
            _typed(data, key, str)
        for key in _NUMBERS:
            _typed(data, key, int | float)
        for key, kind in (("path", str), ("candidates", dict)):
            _typed(data, key, list)
            if not all(isinstance(item, kind) for item in data.get(key, ())):
                raise TypeError(f"{key!r} holds something else than {kind.__name__}")
        return Transit.from_dict(data)
    except (KeyError, TypeError, ValueError) as error:
        raise BrokerError(f"the broker sent no transit: {error!r}", "bad_answer") from error


def _typed(data: dict[str, Any], key: str, kind: Any) -> None:
    if key in data and not isinstance(data[key], kind):
        raise TypeError(f"{key!r} is a {type(data[key]).__name__}")
