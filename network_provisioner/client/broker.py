"""The broker's client: standard library only, quick to import, never slower than its timeout.

Hooks and plug-ins use it inside running workflows, so every call ends within ``timeout_s`` in all,
from connecting to the last byte of the answer, whatever the other side does.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import RequestAnswer, Service, Transit, TransitRequest
from network_provisioner.base.release import HEADER, other_release
from network_provisioner.client.http1 import (
    Answer,
    Connection,
    Deadline,
    Tls,
    connected,
    quoted,
    trusting,
)

if TYPE_CHECKING:
    import ssl

_URL = re.compile(
    r"(?P<scheme>(?i:https?))://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?"
    r"(?P<prefix>/[!-~]*)?\Z"
)
_EXPECTED = "expected one like 'http://127.0.0.1:8470'"
# How OpenSSL names an answer that is not TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")
Mappings = list[dict[str, Any]]
_PROXY = frozenset({502, 503, 504})  # what a proxy answers that reaches no broker
_BAD = "bad_request"  # of what is not of the shape that a broker takes
_LONGEST_REASON = 1000  # characters: all that a broker takes
_SERVICE = frozenset(f.name for f in fields(Service))
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reply:
    """JSON that the broker answered; when it was asked and had answered, by the client's clock."""

    data: Any
    requested_at: float
    answered_at: float


@contextmanager
def bad_answer(url: str, what: str) -> Iterator[None]:
    """Taking apart what the broker at ``url`` sent: what does not fit is its fault. Raises
    BrokerError."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BrokerError(
            f"the broker at {url} sent an answer that is not a {what} "
            f"({type(error).__name__} {error}): is it an ADON broker of this version?",
            "bad_answer",
        ) from None


class BrokerClient:
    """Speaks to one broker. Unless it ``keeps_connection`` it holds none, so it may be shared,
    forked and forgotten; with it, one thread alone may ask.

    Every method raises BrokerError: with the broker's own ``code`` where it refused,
    ``unreachable`` where it did not answer in time, ``bad_answer`` where what came was none.
    """

    def __init__(
        self,
        url: str,
        timeout_s: float = 2.0,
        token: str | None = None,
        tls: Tls | None = None,
        keeps_connection: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``url`` as ``http://127.0.0.1:8470``, or https with ``tls``; name a host by address, for
        the look-up of a name is the one thing the timeout cannot cut short. Raises InputError for a
        URL, a timeout or a token that is none."""
        parts = _URL.match(url)
        if parts is None or any(mark in url for mark in "?#"):
            raise InputError(f"broker URL {url!r}, {_EXPECTED}")
        is_https = parts["scheme"].lower() == "https"
        host, port = parts["host"], int(parts["port"] or (443 if is_https else 80))
        if not 0 < port < 65536:
            raise InputError(f"broker URL {url!r}: port {port}, {_EXPECTED}")
        if not 0 < timeout_s < float("inf"):
            raise InputError(f"broker timeout {timeout_s!r}, expected more than 0 s")
        if token and not (token.isascii() and token.isprintable()):
            raise InputError("Authorization of requests to the broker: expected printable ASCII")
        self.url = url.rstrip("/")
        self._host, self._port = host.strip("[]"), port
        self._prefix = (parts["prefix"] or "").rstrip("/")
        self._head = f"Host: {host}:{port}\r\nAccept: application/json\r\n"
        self._head += f"Authorization: Bearer {token}\r\n" if token else ""
        self._head += "" if keeps_connection else "Connection: close\r\n"
        self._timeout_s, self._clock = timeout_s, clock
        self._tls = (tls or Tls()) if is_https else None
        self._context: ssl.SSLContext | None = None
        self._keeps_connection = keeps_connection
        self._connection: Connection | None = None
        self._is_closed = False
        self._release = ""  # of the broker, as its last answer says

    # -- transits ----------------------------------------------------------------------------

    def request(self, request: TransitRequest) -> Transit:
        """Ask for a path; asking again with the same id gives the same transit."""
        return self.read(Transit.from_dict, "POST", "/v1/transits", _body(request))

    def ask(self, requests: Sequence[TransitRequest]) -> list[RequestAnswer]:
        """Ask for several paths at once, each of which is answered for itself, in their order.

        An id whose transit has ended (a workflow that is run again) is asked for anew under the
        first free one of ``ID.2``, ``ID.3``, …; one reserved in advance is begun where it can be.
        """
        body = {"requests": [*map(_body, requests)]}
        try:
            return self.read(partial(_answers, requests), "POST", "/v1/transits/ask", body)
        except BrokerError as error:
            if error.code != _BAD or not requests:
                raise
            # One that no broker takes makes all of them wrong: jobs, and not callers, name things.
            if len(requests) == 1:
                return [RequestAnswer(None, Service(), error)]
        half = len(requests) // 2
        return [*self.ask(requests[:half]), *self.ask(requests[half:])]

    def release(
        self,
        transit_id: str,
        bytes_moved: int = 0,
        seconds: float = 0.0,
        outcome: str = "",
        **used: int | str,
    ) -> Transit:
        """Give a path back, with what the transfer moved in bytes and seconds, and what it
        ``used``: ``streams``, ``buffer_bytes``, ``threads``, and its failed attempts, ``retries``,
        and ``files``; a ``note`` says why it was slow.
        """
        body = {"bytes": bytes_moved, "seconds": seconds, "outcome": outcome, **used}
        return self._transit("POST", transit_id, "/release", body)

    def shift(
        self, transit_id: str, start: float, end: float, size_bytes: int | None = None
    ) -> Transit:
        """Move what was reserved in advance to other times (Unix seconds), all or nothing."""
        body = {"start": start, "end": end, "size_bytes": size_bytes}
        return self._transit("POST", transit_id, "/shift", body)

    def renew(self, transit_id: str, lease_s: float) -> Transit:
        """Make a lease last at least ``lease_s`` from now."""
        return self._transit("POST", transit_id, "/renew", {"lease_s": lease_s})

    def change(
        self, transit_id: str, min_bps: float | None = None, max_bps: float | None = None
    ) -> Transit:
        """Raise or lower minimum and ceiling (b/s; None leaves one as it is), all or nothing."""
        return self._transit("PATCH", transit_id, "", {"min_bps": min_bps, "max_bps": max_bps})

    def report_flows(self, transit_id: str, flows: Iterable[Flow]) -> Transit:
        """Say which packets a transit carries, once the application knows its ports."""
        body = {"flows": [f.as_dict() for f in flows]}
        return self._transit("PUT", transit_id, "/flows", body)

    def report_progress(self, transit_id: str, n_bytes: int) -> Transit:
        """Say what a transfer has moved until now."""
        return self._transit("POST", transit_id, "/progress", {"bytes": n_bytes})

    def get(self, transit_id: str) -> Transit:
        """The transit as it is now."""
        return self._transit("GET", transit_id)

    def _transit(
        self, method: str, transit_id: str, below: str = "", body: dict[str, Any] | None = None
    ) -> Transit:
        path = f"/v1/transits/{quoted(transit_id)}{below}"
        return self.read(Transit.from_dict, method, path, body)

    def list(
        self,
        state: str | None = None,
        workflow: str | None = None,
        user: str | None = None,
        project: str | None = None,
        since: float | None = None,
        limit: int | None = None,
        before: str | None = None,
        ended: bool = True,
    ) -> list[Transit]:
        """The newest transits that are all of this, before the one with the id ``before``, without
        those that have ``ended`` or with them, oldest first; ``since`` in Unix seconds."""
        given = {
            "state": state, "workflow": workflow, "user": user, "project": project,
            "since": since, "limit": limit, "before": before, "ended": None if ended else "false",
        }  # fmt: skip
        return self.read(_transits, "GET", "/v1/transits" + _query(given))

    # -- the network -------------------------------------------------------------------------

    def topology(self, at: float | None = None, until: float | None = None) -> dict[str, Any]:
        """Nodes, links, and what is reserved on them now or ``at`` a later time; with ``until``
        also who holds it until then. Unix seconds."""
        return self.read(dict, "GET", "/v1/topology" + _query({"at": at, "until": until}))

    def routes(self, site: str = "") -> Mappings:
        """Who goes where and why, between all sites, or from and to one."""
        return self.read(list, "GET", "/v1/topology/routes" + _query({"site": site or None}))

    def advice(
        self, src: str, dst: str, rate_bps: float | None = None, template: str = "default"
    ) -> dict[str, Any]:
        """How a transfer between two sites is tuned best, and by which figures."""
        given = {"src": src, "dst": dst, "rate_bps": rate_bps, "template": template}
        return self.read(dict, "GET", "/v1/advice" + _query(given))

    def discovered(self) -> dict[str, Any]:
        """What the controller finds where it looks around, and ``differences`` in words."""
        return self.read(dict, "GET", "/v1/topology/discovered")

    def counters(self) -> dict[str, Any]:
        """Bytes sent on each direction of a link, and the circuits on the switches now."""
        return self.read(dict, "GET", "/v1/counters")

    def health(self) -> dict[str, Any]:
        """``{"status", "controller", "live", ...}``."""
        return self.read(dict, "GET", "/v1/health")

    def drains(self) -> Mappings:
        """Links and switches that are or will be out of service, the next first."""
        return self.read(list, "GET", "/v1/drains")

    def drain(self, element: str, at: float, until: float, note: str) -> dict[str, Any]:
        """Take a link or switch out of service; Unix seconds, 0 for now and for no end."""
        body = {"element": element, "at": at, "until": until, "note": note}
        return self.read(dict, "POST", "/v1/drains", body)

    def cancel_drain(self, element: str) -> dict[str, Any]:
        """Put a link or switch back into service."""
        return self.read(dict, "DELETE", f"/v1/drains/{quoted(element)}")

    def accounting(self, by: str = "user", **only: Any) -> Mappings:
        """Bytes and byte-seconds per ``user``, ``project`` or ``experiment``."""
        return self.read(list, "GET", "/v1/accounting" + _query({"by": by, **only}))

    # -- policies and templates --------------------------------------------------------------

    def policies(self, ended: bool = False) -> Mappings:
        """The policies that run or will; with ``ended`` also those that did."""
        return self.read(list, "GET", "/v1/policies/" + ("?ended=true" if ended else ""))

    def policy(self, policy_id: str) -> dict[str, Any]:
        """One policy."""
        return self.read(dict, "GET", f"/v1/policies/{quoted(policy_id)}")

    def put_policy(self, policy: Mapping[str, Any]) -> dict[str, Any]:
        """Start, modify or stop a policy, as its ``action`` says."""
        return self.read(dict, "POST", "/v1/policies/", dict(policy))

    def delete_policy(self, policy_id: str) -> dict[str, Any]:
        """End a policy and forget it."""
        return self.read(dict, "DELETE", f"/v1/policies/{quoted(policy_id)}")

    def templates(self) -> Mappings:
        """All templates in their newest version."""
        return self.read(list, "GET", "/v1/templates")

    def template(self, name: str, version: int | None = None) -> dict[str, Any]:
        """One template, the newest version of it or an older one."""
        return self._template("GET", name, _query({"version": version}))

    def save_template(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Save a new version of a template."""
        return self._template("PUT", name, body=dict(body))

    def save_template_from(self, name: str, transit_id: str) -> dict[str, Any]:
        """Save what worked for a transit as a new version of a template."""
        return self._template("POST", name, "/from", {"transit": transit_id})

    def restore_template(self, name: str, version: int) -> dict[str, Any]:
        """Save an old version of a template anew."""
        return self._template("POST", name, "/restore", {"version": version})

    def reset_template(self, name: str) -> dict[str, Any]:
        """Forget what transfers taught a template."""
        return self._template("POST", name, "/reset")

    def _template(
        self, method: str, name: str, below: str = "", body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        return self.read(dict, method, f"/v1/templates/{quoted(name)}{below}", body)

    def template_history(self, name: str) -> Mappings:
        """Every version of a template that is kept, oldest first."""
        return self.read(list, "GET", f"/v1/templates/{quoted(name)}/history")

    def match_template(self, query: Mapping[str, Any]) -> dict[str, Any]:
        """Which template fits an ``application`` and what it asks for, and why."""
        return self.read(dict, "POST", "/v1/templates/match", dict(query))

    def try_template(
        self, name: str, body: Mapping[str, Any] | None, limit: int, of: str | None = None
    ) -> Mappings:
        """What a template, or one with the figures of ``body``, would have chosen for the last
        transfers, ``of`` one template alone."""
        path = f"/v1/templates/{quoted(name)}/try{_query({'limit': limit, 'of': of})}"
        return self.read(list, "POST", path, None if body is None else dict(body))

    def delete_template(self, name: str) -> dict[str, Any] | None:
        """Forget a template that was saved; the configured one that stands there again, or None."""
        left: dict[str, Any] | None = self.call("DELETE", f"/v1/templates/{quoted(name)}")
        return left

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The JSON that any other route of the service answers with."""
        return self.reply(method, path, body).data

    def read(
        self,
        read: Callable[[Any], T],
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
    ) -> T:
        """What ``read`` makes of the same; where it raises, the answer was none."""
        answer = self.call(method, path, body)
        try:
            return read(answer)
        except (AttributeError, LookupError, TypeError, ValueError):
            raise BrokerError(
                f"{self.url} answered {answer!r:.200}: is it a broker?"
                + other_release(self._release),
                "bad_answer",
            ) from None

    def reply(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | bytes | None = None,
        timeout_s: float | None = None,
    ) -> Reply:
        """An answer with its times; ``body`` may be JSON already. Raises InputError for a
        certificate that cannot be read."""
        answer = self._answer(method, path, body, timeout_s or self._timeout_s)
        status, text = answer.status, answer.body
        self._release = answer.headers.get(HEADER, "")
        try:
            data = json.loads(text)
            if 200 <= status < 300:
                return Reply(data, answer.requested_at, answer.answered_at)
            error = data["error"]
            message = str(error["message"]) + other_release(self._release)
            refusal = BrokerError(message, str(error["code"]))
        except (ValueError, RecursionError):
            if status in _PROXY:
                raise BrokerError(
                    f"the broker at {self.url} cannot be reached: a proxy answered {status}"
                ) from None
            location = answer.headers.get("location", "")
            what = f"and sends to {location[:200]!r}" if location else f"with {text[:80]!r}"
            raise BrokerError(
                f"{self.url} answered {status} {what}, expected JSON: is it a broker?",
                "bad_answer",
            ) from None
        except (LookupError, TypeError):
            raise BrokerError(
                f"{self.url} answered {status}: {data!r:.200}", "bad_answer"
            ) from None
        raise refusal

    def close(self) -> None:
        """End what is asked over the kept connection, and all that would be asked. Any thread
        may."""
        self._is_closed = True
        if (connection := self._connection) is not None:
            connection.shut_down()

    # -- within ------------------------------------------------------------------------------

    def _answer(
        self, method: str, path: str, body: dict[str, Any] | bytes | None, timeout_s: float
    ) -> Answer:
        if self._tls is not None and self._context is None:
            self._context = trusting(self._tls)
        deadline = Deadline(timeout_s)
        data = body if isinstance(body, bytes) else _json(body)
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._head}"
        head += "" if body is None else "Content-Type: application/json\r\n"
        head += "" if method == "GET" else f"Content-Length: {len(data)}\r\n"
        try:
            return self._exchange(f"{head}\r\n".encode() + data, deadline)
        except (OSError, ValueError) as error:
            what = " ".join(str(error).split()) or type(error).__name__
            if isinstance(error, TimeoutError):
                what = f"no answer within {timeout_s:g} s"
            elif reason := getattr(error, "verify_message", ""):  # ssl.SSLCertVerificationError
                what = f"its certificate is not trusted: {reason} (ADON_CA names its CA)"
            elif getattr(error, "reason", "") in _NO_TLS:
                what = "found no TLS there, expected an address that begins with http://"
            elif isinstance(error, ConnectionRefusedError):
                pass  # nobody is there
            elif isinstance(error, ConnectionError) and self._tls is None:
                what += "; it may expect TLS, with an address that begins with https://"
            elif isinstance(error, ConnectionError) and self._tls and not self._tls.certificate:
                what += "; it may ask for a certificate of ours (ADON_CERTIFICATE, ADON_KEY)"
            raise BrokerError(f"the broker at {self.url} cannot be reached: {what}") from error

    def _exchange(self, request: bytes, deadline: Deadline, is_last: bool = False) -> Answer:
        kept = self._connection
        if kept is not None and kept.has_ended():
            self._drop(kept)
            kept = None
        connection = kept or connected(self._host, self._port, self._context, deadline)
        if self._keeps_connection:
            self._connection = connection
        try:
            if self._is_closed:
                raise ConnectionAbortedError("this client was closed")
            return connection.exchange(request, deadline, self._clock)
        except ConnectionError:
            # The broker closed what was kept, or begins anew. It knows requests by their ids: what
            # it is asked twice it does once.
            if self._is_closed or connection.n_bytes or (is_last and kept is None):
                raise
        finally:
            if self._is_closed or not (self._keeps_connection and connection.is_usable):
                self._drop(connection)
        return self._exchange(request, deadline, is_last=True)

    def _drop(self, connection: Connection) -> None:
        connection.close()
        self._connection = None


def _json(body: Mapping[str, Any] | None) -> bytes:
    return b"" if body is None else json.dumps(body).encode()


def _body(request: TransitRequest) -> dict[str, Any]:
    values = {f.name: getattr(request, f.name) for f in fields(request)}
    body = {name: value for name, value in values.items() if value not in (None, "")}
    body["flows"] = [flow.as_dict() for flow in request.flows]
    body["best_effort"] = request.best_effort[:_LONGEST_REASON]
    return body


def _answers(requests: Sequence[TransitRequest], answer: Any) -> list[RequestAnswer]:
    return [
        _asked(item["transit"], item["error"], item["service"])
        for item, _ in zip(answer["answers"], requests, strict=True)
    ]


def _asked(transit: Any, error: Any, service: Any) -> RequestAnswer:
    served = Service(**{k: v for k, v in service.items() if k in _SERVICE})
    if transit is not None:
        return RequestAnswer(Transit.from_dict(transit), served)
    return RequestAnswer(None, served, BrokerError(error["message"], error["code"]))


def _transits(answer: Any) -> list[Transit]:
    return [Transit.from_dict(item) for item in answer]


def _query(given: Mapping[str, Any]) -> str:
    pairs = [f"{key}={quoted(str(value))}" for key, value in given.items() if value is not None]
    return f"?{'&'.join(pairs)}" if pairs else ""
