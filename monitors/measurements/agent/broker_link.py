"""Questions to the broker, which its certificate proves unless it is on loopback."""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlencode, urlsplit

from monitors.measurements.agent import answers as wire
from monitors.measurements.agent.settings import AgentSettings
from network_provisioner.clock import since_boot
from network_provisioner.errors import BrokerError, InputError
from network_provisioner.http1 import quoted, trusting

_MOST_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Answer:
    """What the broker answered, and when we asked and had it, by the clock that nobody sets."""

    data: Mapping[str, Any]
    asked: float
    answered: float


class Link:
    """One connection to the broker, kept open between questions. For one thread; only
    :meth:`close` may come from another."""

    def __init__(self, settings: AgentSettings, clock: Callable[[], float] = since_boot) -> None:
        """Raises InputError for a URL that is none or not safe, and files that cannot be read."""
        url = urlsplit(settings.broker)
        try:
            host, port = url.hostname or "", url.port
        except ValueError:
            host, port = "", None
        if url.scheme not in ("http", "https") or not host or url.query or url.fragment:
            raise InputError(
                f"broker: found {settings.broker!r}, expected one like 'https://broker:8470'"
            )
        if url.scheme == "http" and not _is_loopback(host):
            raise InputError(
                f"broker: found {settings.broker!r}, expected https: the token would be read on its"
                " way"
            )
        self._tls = trusting(settings.tls) if url.scheme == "https" else None
        self._address = host, port or (443 if self._tls else 80)
        self._path = f"{url.path.rstrip('/')}/v1/agents/{quoted(settings.name)}"
        self._name = settings.name
        # Where a certificate of ours says who we are, the token need not leave this machine.
        shown = self._tls is None or settings.tls.certificate is None
        self._headers = {"Authorization": f"Bearer {settings.token}"} if shown else {}
        self._clock = clock
        self._connection: http.client.HTTPConnection | None = None
        self._closed = threading.Event()

    def ask(
        self,
        what: str,
        timeout_s: float,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """GET, or POST with ``body``, of ``what``; the answer within ``timeout_s`` in all.

        Raises BrokerError: ``unreachable``, ``bad_answer``, or the code of a refusal.
        """
        headers = {**self._headers, "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        target = f"{self._path}/{what}" + (f"?{urlencode(query)}" if query else "")
        late = threading.Event()
        watch = threading.Timer(timeout_s, self._cut, (late,))
        watch.daemon = True
        watch.start()
        try:
            connection = self._connected(timeout_s)
            asked = self._clock()
            connection.request("POST" if body is not None else "GET", target, body, headers)
            response = connection.getresponse()
            text = response.read(_MOST_BYTES + 1)
            answered = self._clock()
            if late.is_set() or (response.length and len(text) <= _MOST_BYTES):
                raise ConnectionError("the answer ended too early")
            if response.will_close:
                self._drop()
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._drop()
            raise self._unreachable(error, timeout_s, late.is_set()) from error
        finally:
            watch.cancel()
        if len(text) > _MOST_BYTES:
            self._drop()
            raise BrokerError(f"the broker's answer is above {_MOST_BYTES} bytes", "bad_answer")
        if response.status != http.client.OK:
            raise wire.error_of(response.status, text)
        return Answer(wire.decoded(text, self._name), asked, answered)

    def close(self) -> None:
        """For ever; a question that is under way ends with an error."""
        self._closed.set()
        self._cut(None)

    def _connected(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._closed.is_set():
            raise ConnectionAbortedError("the agent was stopped")
        if self._connection is not None and _was_closed(self._connection.sock):
            self._drop()
        if self._connection is None:
            host, port = self._address
            made: http.client.HTTPConnection
            if self._tls is not None:
                made = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._tls)
            else:
                made = http.client.HTTPConnection(host, port, timeout=timeout_s)
            self._connection = made
            made.connect()
            made.auto_open = 0  # one that was closed is made anew here, with its own first instant
        elif self._connection.sock is not None:
            self._connection.sock.settimeout(timeout_s)
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _cut(self, late: threading.Event | None) -> None:
        """End whatever is waited for on the connection."""
        if late is not None:
            late.set()
        connection = self._connection
        sock = connection.sock if connection is not None else None
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it is closed already

    def _unreachable(self, error: Exception, timeout_s: float, late: bool) -> BrokerError:
        host, port = self._address
        if late or isinstance(error, TimeoutError):
            what = f"no answer within {timeout_s:g} s"
        elif isinstance(error, ssl.SSLCertVerificationError):
            what = f"its certificate is not to be trusted: {error.verify_message}"
        else:
            what = " ".join(str(error).split()) or type(error).__name__
        return BrokerError(f"the broker at {host} port {port} cannot be reached: {what}")


def _was_closed(sock: socket.socket | None) -> bool:
    """Whether the other end closed it meanwhile, as brokers do with connections that wait: there
    is something to read, though nothing was asked."""
    if sock is None:
        return True
    waiting = select.poll()
    waiting.register(sock, select.POLLIN)
    return bool(waiting.poll(0))


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
