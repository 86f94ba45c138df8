"""Questions to the broker, which its certificate proves unless it is on loopback, and its answers:
whatever they hold, at worst an AdonError comes of it."""

from __future__ import annotations

import http.client
import json
import math
import re
import select
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

from monitors.measurements.agent.messages import Assignment, Role
from monitors.measurements.agent.settings import AgentSettings
from monitors.measurements.probes.tools import tool_of
from network_provisioner.base.clock import since_boot
from network_provisioner.base.errors import BrokerError, InputError, printable
from network_provisioner.client.http1 import quoted, trusting

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
            raise error_of(response.status, text)
        return Answer(decoded(text, self._name), asked, answered)

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


MOST_ASSIGNMENTS = 10_000
MOST_RESULTS = 50
"""Results in one question."""
_TEXT = re.compile(r"[!-~]{1,300}\Z")
_TWO_ENDS = ("client", "server")
_KEYS = ("id", "task", "tool", "role", "subject", "at", "duration_s", "peer", "port", "options")


@dataclass(frozen=True, slots=True)
class Orders:
    """All that is to be done until ``until`` (broker's clock), and what of it this agent cannot
    understand: by id its task and why."""

    version: int
    until: float
    assignments: tuple[Assignment, ...]
    strange: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Receipt:
    """Which results were taken, and which never will be, with the reason."""

    accepted: frozenset[str]
    refused: Mapping[str, str]


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


def instant(answer: Mapping[str, Any], key: str) -> float:
    """Raises BrokerError ``bad_answer``."""
    value = answer.get(key)
    if not _finite(value):
        raise _bad(f"{key} is {value!r:.80}, expected Unix seconds")
    return float(cast(float, value))


def orders_of(answer: Mapping[str, Any]) -> Orders:
    """Raises BrokerError ``bad_answer``. One assignment that cannot be understood does not spoil
    the others: it is named in :attr:`Orders.strange`."""
    version, listed = answer.get("version"), answer.get("assignments")
    if isinstance(version, bool) or not isinstance(version, int) or abs(version) > 2**63:
        raise _bad(f"version is {version!r:.80}, expected a whole number")
    if not isinstance(listed, list) or len(listed) > MOST_ASSIGNMENTS:
        raise _bad(f"expected a list of at most {MOST_ASSIGNMENTS} assignments")
    good: dict[str, Assignment] = {}
    strange: dict[str, tuple[str, str]] = {}
    for item in listed:
        key = item.get("id") if isinstance(item, dict) else None
        if not isinstance(key, str) or not _TEXT.match(key):
            raise _bad(f"found an assignment of id {key!r:.80}")
        try:
            good[key] = assignment_of(item)
        except InputError as error:
            task = item.get("task")
            strange[key] = (task if isinstance(task, str) else ""), str(error)
    return Orders(version, instant(answer, "until"), tuple(good.values()), strange)


def assignment_of(data: Mapping[str, Any]) -> Assignment:
    """Raises InputError."""
    lacking = [key for key in _KEYS if key not in data]
    if lacking:
        raise InputError(f"found no {lacking[0]!r}, expected it")
    for key in ("id", "task", "subject"):
        if not isinstance(data[key], str) or not _TEXT.match(data[key]):
            raise InputError(f"{key}: found {data[key]!r:.80}, expected a name")
    for key in ("at", "duration_s"):
        if not _finite(data[key]):
            raise InputError(f"{key}: found {data[key]!r:.80}, expected seconds")
    if data["duration_s"] <= 0:
        raise InputError(f"duration_s: found {data['duration_s']!r}, expected more than 0 s")
    tool = tool_of(data["tool"])
    roles = _TWO_ENDS if tool.ends == 2 else ("alone",)
    if data["role"] not in roles:
        raise InputError(f"role: found {data['role']!r:.80}, expected {' or '.join(roles)}")
    if not isinstance(data["options"], dict):
        raise InputError(f"options: found {data['options']!r:.80}, expected an object")
    return Assignment(
        id=data["id"],
        task=data["task"],
        tool=tool.name,
        role=cast(Role, data["role"]),
        subject=data["subject"],
        at=float(data["at"]),
        duration_s=float(data["duration_s"]),
        peer=_address(data["peer"], needed=tool.ends > 0),
        port=_port(data["port"], needed=tool.ends == 2),
        options=tool.checked(data["options"]),
    )


def receipt_of(answer: Mapping[str, Any]) -> Receipt:
    """Raises BrokerError ``bad_answer``."""
    accepted, refused = answer.get("accepted"), answer.get("refused")
    if not isinstance(accepted, list) or not isinstance(refused, dict):
        raise _bad("expected 'accepted' as a list and 'refused' as an object")
    why = {key: printable(str(reason))[:300] for key, reason in refused.items()}
    return Receipt(frozenset(str(key) for key in accepted), why)


def error_of(status: int, body: bytes) -> BrokerError:
    """What a refusal says."""
    try:
        error = json.loads(body)["error"]
        return BrokerError(printable(str(error["message"]))[:300], str(error["code"]))
    except (ValueError, RecursionError, KeyError, TypeError):
        said = printable(body[:80].decode(errors="replace"))
        return BrokerError(f"it answered {status} with {said!r}: is it a broker?", "bad_answer")


def _address(value: object, needed: bool) -> str:
    if value == "" and not needed:
        return ""
    try:
        return str(ip_address(value if isinstance(value, str) else ""))
    except ValueError:
        raise InputError(f"peer: found {value!r:.80}, expected an IP address") from None


def _port(value: object, needed: bool) -> int:
    least = 1 if needed else 0
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 65535:
        raise InputError(f"port: found {value!r:.80}, expected {least} to 65535")
    return value


def _finite(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < 1e12
        and math.isfinite(value)
    )


def _bad(message: str) -> BrokerError:
    return BrokerError(printable(f"the broker's answer is none: {message}"), "bad_answer")
