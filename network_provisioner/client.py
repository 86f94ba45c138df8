"""The broker's client: standard library only, quick to import, never slower than its timeout.

Hooks and plug-ins use it inside running workflows, so every call ends within ``timeout_s`` in all,
from connecting to the last byte of the answer, whatever the other side does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from network_provisioner.errors import BrokerError
from network_provisioner.flows import Flow
from network_provisioner.http1 import Server, Tls, quoted
from network_provisioner.model import Service, Transit, TransitRequest

Mappings = list[dict[str, Any]]
_LONGEST_REASON = 1000  # characters: all that a broker takes


@dataclass(frozen=True, slots=True)
class Asked:
    """The answer to one of several requests: a transit or why there is none, and how its template
    wants it served."""

    transit: Transit | None
    service: Service
    error: BrokerError | None = None


class BrokerClient:
    """Speaks to one broker. Holds no connection, so it may be shared, forked and forgotten.

    Every method raises BrokerError: with the broker's own ``code`` where it refused,
    ``unreachable`` where it did not answer in time, ``bad_answer`` where what came was none.
    """

    def __init__(
        self, url: str, timeout_s: float = 2.0, token: str | None = None, tls: Tls | None = None
    ) -> None:
        """``url`` as ``http://127.0.0.1:8470``, or https with ``tls``; name a host by address, for
        the look-up of a name is the one thing the timeout cannot cut short. Raises InputError for a
        URL or a token that is none."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._server = Server(url, timeout_s, headers, tls or Tls())
        self.url = self._server.url

    # -- transits ----------------------------------------------------------------------------

    def request(self, request: TransitRequest) -> Transit:
        """Ask for a path; asking again with the same id gives the same transit."""
        return _transit(self._call("POST", "/v1/transits", _body(request)))

    def ask(self, requests: Sequence[TransitRequest]) -> list[Asked]:
        """Ask for several paths at once, each of which is answered for itself, in their order.

        An id whose transit has ended (a workflow that is run again) is asked for anew under the
        first free one of ``ID.2``, ``ID.3``, …; one reserved in advance is begun where it can be.
        """
        answer = self._call("POST", "/v1/transits/ask", {"requests": [*map(_body, requests)]})
        answers = _items(_mapping(answer).get("answers"))
        if len(answers) != len(requests):
            raise BrokerError(
                f"the broker sent {len(answers)} answers to {len(requests)} requests", "bad_answer"
            )
        return [_asked(_mapping(item)) for item in answers]

    def release(
        self,
        transit_id: str,
        bytes_moved: int = 0,
        seconds: float = 0.0,
        outcome: str = "",
        **used: int,
    ) -> Transit:
        """Give a path back, with what the transfer moved in bytes and seconds, and what it
        ``used``: ``streams``, ``buffer_bytes``, ``threads``, and its failed attempts, ``retries``.
        """
        body = {"bytes": bytes_moved, "seconds": seconds, "outcome": outcome, **used}
        return _transit(self._call("POST", f"/v1/transits/{quoted(transit_id)}/release", body))

    def shift(
        self, transit_id: str, start: float, end: float, size_bytes: int | None = None
    ) -> Transit:
        """Move what was reserved in advance to other times (Unix seconds), all or nothing."""
        body = {"start": start, "end": end, "size_bytes": size_bytes}
        path = f"/v1/transits/{quoted(transit_id)}/shift"
        return _transit(self._call("POST", path, body))

    def renew(self, transit_id: str, lease_s: float) -> Transit:
        """Make a lease last at least ``lease_s`` from now."""
        path = f"/v1/transits/{quoted(transit_id)}/renew"
        return _transit(self._call("POST", path, {"lease_s": lease_s}))

    def report_flows(self, transit_id: str, flows: Iterable[Flow]) -> Transit:
        """Say which packets a transit carries, once the application knows its ports."""
        path = f"/v1/transits/{quoted(transit_id)}/flows"
        return _transit(self._call("PUT", path, {"flows": [f.as_dict() for f in flows]}))

    def get(self, transit_id: str) -> Transit:
        """The transit as it is now."""
        return _transit(self._call("GET", f"/v1/transits/{quoted(transit_id)}"))

    def list(
        self,
        state: str | None = None,
        workflow: str | None = None,
        user: str | None = None,
        project: str | None = None,
        since: float | None = None,
        limit: int | None = None,
    ) -> list[Transit]:
        """The newest transits that are all of this, oldest first; ``since`` in Unix seconds."""
        given = {
            "state": state, "workflow": workflow, "user": user, "project": project,
            "since": since, "limit": limit,
        }  # fmt: skip
        return [
            _transit(item) for item in _items(self._call("GET", "/v1/transits" + _query(given)))
        ]

    # -- the network -------------------------------------------------------------------------

    def topology(self, at: float | None = None, until: float | None = None) -> dict[str, Any]:
        """Nodes, links, and what is reserved on them now or ``at`` a later time; with ``until``
        also who holds it until then. Unix seconds."""
        return _mapping(self._call("GET", "/v1/topology" + _query({"at": at, "until": until})))

    def discovered(self) -> dict[str, Any]:
        """What the controller finds where it looks around, and ``differences`` in words."""
        return _mapping(self._call("GET", "/v1/topology/discovered"))

    def counters(self) -> dict[str, Any]:
        """Bytes sent on each direction of a link, and the circuits on the switches now."""
        return _mapping(self._call("GET", "/v1/counters"))

    def health(self) -> dict[str, Any]:
        """``{"status", "controller", "live", ...}``."""
        return _mapping(self._call("GET", "/v1/health"))

    def accounting(self, by: str = "user", **only: Any) -> Mappings:
        """Bytes and byte-seconds per ``user``, ``project`` or ``experiment``."""
        query = _query({"by": by, **only})
        return [_mapping(item) for item in _items(self._call("GET", f"/v1/accounting{query}"))]

    # -- policies and templates --------------------------------------------------------------

    def policies(self, ended: bool = False) -> Mappings:
        """The policies that run or will; with ``ended`` also those that did."""
        path = "/v1/policies/" + ("?ended=true" if ended else "")
        return [_mapping(item) for item in _items(self._call("GET", path))]

    def policy(self, policy_id: str) -> dict[str, Any]:
        """One policy."""
        return _mapping(self._call("GET", f"/v1/policies/{quoted(policy_id)}"))

    def put_policy(self, policy: Mapping[str, Any]) -> dict[str, Any]:
        """Start, modify or stop a policy, as its ``action`` says."""
        return _mapping(self._call("POST", "/v1/policies/", dict(policy)))

    def delete_policy(self, policy_id: str) -> dict[str, Any]:
        """End a policy and forget it."""
        return _mapping(self._call("DELETE", f"/v1/policies/{quoted(policy_id)}"))

    def templates(self) -> Mappings:
        """All templates in their newest version."""
        return [_mapping(item) for item in _items(self._call("GET", "/v1/templates"))]

    def template(self, name: str, version: int | None = None) -> dict[str, Any]:
        """One template, the newest version of it or an older one."""
        path = f"/v1/templates/{quoted(name)}{_query({'version': version})}"
        return _mapping(self._call("GET", path))

    def save_template(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Save a new version of a template."""
        return _mapping(self._call("PUT", f"/v1/templates/{quoted(name)}", dict(body)))

    def save_template_from(self, name: str, transit_id: str) -> dict[str, Any]:
        """Save what worked for a transit as a new version of a template."""
        path = f"/v1/templates/{quoted(name)}/from"
        return _mapping(self._call("POST", path, {"transit": transit_id}))

    def restore_template(self, name: str, version: int) -> dict[str, Any]:
        """Save an old version of a template anew."""
        path = f"/v1/templates/{quoted(name)}/restore"
        return _mapping(self._call("POST", path, {"version": version}))

    def template_history(self, name: str) -> Mappings:
        """Every version of a template that is kept, oldest first."""
        path = f"/v1/templates/{quoted(name)}/history"
        return [_mapping(item) for item in _items(self._call("GET", path))]

    def match_template(self, query: Mapping[str, Any]) -> dict[str, Any]:
        """Which template fits an ``application`` and what it asks for, and why."""
        return _mapping(self._call("POST", "/v1/templates/match", dict(query)))

    def delete_template(self, name: str) -> dict[str, Any] | None:
        """Forget a template that was saved; the configured one that stands there again, or None."""
        answer = self._call("DELETE", f"/v1/templates/{quoted(name)}")
        return None if answer is None else _mapping(answer)

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The JSON that any other route of the service answers with."""
        return self._call(method, path, body)

    # -- within ------------------------------------------------------------------------------

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        status, text = self._server.ask(method, path, body)
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


def _body(request: TransitRequest) -> dict[str, Any]:
    values = {f.name: getattr(request, f.name) for f in fields(request)}
    body = {name: value for name, value in values.items() if value is not None}
    body["flows"] = [flow.as_dict() for flow in request.flows]
    body["best_effort"] = request.best_effort[:_LONGEST_REASON]
    return body


def _asked(item: Mapping[str, Any]) -> Asked:
    error, transit, said = item.get("error"), item.get("transit"), item.get("service")
    known = {f.name for f in fields(Service)}
    try:
        service = Service(**{k: v for k, v in (said or {}).items() if k in known})
    except (TypeError, AttributeError) as problem:
        raise BrokerError(f"the broker sent no service: {problem}", "bad_answer") from problem
    if transit is not None:
        return Asked(_transit(transit), service)
    if not isinstance(error, dict):
        raise BrokerError(f"the broker sent {dict(item)!r:.200}, expected a transit", "bad_answer")
    refusal = BrokerError(str(error.get("message")), str(error.get("code", "bad_answer")))
    return Asked(None, service, refusal)


def _query(given: Mapping[str, Any]) -> str:
    pairs = [f"{key}={quoted(str(value))}" for key, value in given.items() if value is not None]
    return f"?{'&'.join(pairs)}" if pairs else ""


def _items(answer: Any) -> list[Any]:
    if not isinstance(answer, list):
        raise BrokerError(f"the broker sent {answer!r:.200}, expected a list", "bad_answer")
    return answer


def _mapping(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise BrokerError(f"the broker sent {answer!r:.200}, expected an object", "bad_answer")
    return answer


_KINDS: Mapping[str, Any] = {"str": str, "TransitState": str, "int": int, "float": int | float}
_ITEMS: Mapping[str, type] = {"path": str, "candidates": dict, "flows": dict, "parts": dict,
                              "blocking": dict}  # fmt: skip
# What an answer must have in each field, by the annotations of the model.
_FIELDS = {f.name: _KINDS[str(f.type)] for f in fields(Transit) if str(f.type) in _KINDS}


def _transit(answer: Any) -> Transit:
    data = _mapping(answer)
    try:
        for key, kind in _FIELDS.items():
            _typed(data, key, kind)
        for key, kind in _ITEMS.items():
            _typed(data, key, list)
            if not all(isinstance(item, kind) for item in data.get(key, ())):
                raise TypeError(f"{key!r} holds something else than {kind.__name__}")
        return Transit.from_dict(data)
    except (KeyError, TypeError, ValueError) as error:
        raise BrokerError(f"the broker sent no transit: {error!r}", "bad_answer") from error


def _typed(data: dict[str, Any], key: str, kind: Any) -> None:
    if key in data and not isinstance(data[key], kind):
        raise TypeError(f"{key!r} is a {type(data[key]).__name__}")
