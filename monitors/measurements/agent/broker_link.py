"""Questions to the broker, which its certificate proves unless it is on loopback, and its answers:
whatever they hold, at worst an AdonError comes of it."""

from __future__ import annotations

import http.client
import json
import select
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode, urlsplit

from pydantic import ConfigDict, Field

from monitors.measurements.agent.messages import Assignment, Text
from monitors.measurements.agent.settings import AgentSettings
from monitors.measurements.probes.tools import tool_of
from network_provisioner.base.clock import since_boot
from network_provisioner.base.errors import BrokerError, InputError, printable
from network_provisioner.base.schema import Number, Schema, Whole, read
from network_provisioner.client.http1 import quoted, trusting

T = TypeVar("T")
Instant = Annotated[Number, Field(gt=-1e12, lt=1e12)]
_MOST_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Reply:
    """What the broker answered, and when we asked and had it, by the clock that nobody sets."""

    data: Mapping[str, Any]
    asked: float
    answered: float


class BrokerLink:
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
    ) -> Reply:
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
            raise error_of(response.status, text)
        return Reply(decoded(text, self._name), asked, answered)

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


MOST_RESULTS = 50
"""Results in one question."""


class _Stamped(Schema):
    """Every answer: whose it is, and when the question came and the answer left (Unix seconds, the
    broker's clock). What a newer broker says beside is left alone."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    agent: str
    received: Instant
    sent: Instant


class _Listed(_Stamped):
    version: Annotated[Whole, Field(ge=-(2**63), le=2**63)]
    assignments: Annotated[list[dict[str, Any]], Field(max_length=10_000)]


class _Named(Schema):
    model_config = ConfigDict(extra="ignore", frozen=True)

    id: Text
    task: Any = ""


class Receipt(_Stamped):
    """Which results were taken, and which never will be, with the reason."""

    accepted: frozenset[str]
    refused: dict[str, str]


@dataclass(frozen=True, slots=True)
class Orders:
    """All that is to be done, and what of it this agent cannot understand: by id its task and
    why."""

    version: int
    received: float
    sent: float
    assignments: tuple[Assignment, ...]
    strange: Mapping[str, tuple[str, str]]


def decoded(body: bytes, name: str) -> dict[str, Any]:
    """An answer to the agent ``name``. Raises BrokerError ``bad_answer``."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise _bad(f"found {body[:80]!r}, expected a JSON object")
    if answer.get("agent") != name:
        raise _bad(f"the answer is for agent {answer.get('agent')!r:.80}, expected {name!r}")
    return answer


def orders_of(answer: Mapping[str, Any]) -> Orders:
    """Raises BrokerError ``bad_answer``. One assignment that cannot be understood does not spoil
    the others: it is named in :attr:`Orders.strange`."""
    listed = _read(_Listed, answer)
    good: dict[str, Assignment] = {}
    strange: dict[str, tuple[str, str]] = {}
    for item in listed.assignments:
        named = _read(_Named, item)
        try:
            good[named.id] = assignment_of(item)
        except InputError as error:
            task = named.task if isinstance(named.task, str) else ""
            strange[named.id] = task, str(error)
    return Orders(listed.version, listed.received, listed.sent, tuple(good.values()), strange)


def assignment_of(data: Mapping[str, Any]) -> Assignment:
    """Raises InputError for what this version of the agent cannot do."""
    assignment = read(Assignment, data, "assignment")
    tool = tool_of(assignment.tool)
    roles = ("client", "server") if tool.ends == 2 else ("alone",)
    if assignment.role not in roles:
        raise InputError(f"role: found {assignment.role!r}, expected {' or '.join(roles)}")
    if tool.ends > 0 and not assignment.peer:
        raise InputError("peer: found none, expected an IP address")
    if tool.ends == 2 and not assignment.port:
        raise InputError("port: found 0, expected 1 to 65535")
    return replace(assignment, options=tool.checked(assignment.options))


def receipt_of(answer: Mapping[str, Any]) -> Receipt:
    """Raises BrokerError ``bad_answer``."""
    return _read(Receipt, answer)


def error_of(status: int, body: bytes) -> BrokerError:
    """What a refusal says."""
    try:
        error = json.loads(body)["error"]
        return BrokerError(printable(str(error["message"]))[:300], str(error["code"]))
    except (ValueError, RecursionError, KeyError, TypeError):
        said = printable(body[:80].decode(errors="replace"))
        return BrokerError(f"it answered {status} with {said!r}: is it a broker?", "bad_answer")


def _read(schema: type[T], data: Mapping[str, Any]) -> T:
    try:
        return read(schema, data, "it")
    except InputError as error:
        raise _bad(str(error)) from None


def _bad(message: str) -> BrokerError:
    return BrokerError(printable(f"the broker's answer is none: {message}"), "bad_answer")
