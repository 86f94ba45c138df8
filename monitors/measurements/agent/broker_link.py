"""Questions to the broker, which its certificate proves unless it is on loopback, and its answers:
whatever they hold, at worst an AdonError comes of it."""

from __future__ import annotations

from collections.abc import Mapping
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
from network_provisioner.client.broker import BrokerClient, Reply
from network_provisioner.client.http1 import quoted, trusting

T = TypeVar("T")
Instant = Annotated[Number, Field(gt=-1e12, lt=1e12)]
MOST_RESULTS = 50
"""Results in one question."""


class BrokerLink:
    """An agent's connection to its broker. For one thread; only :meth:`close` may come from
    another."""

    def __init__(self, settings: AgentSettings) -> None:
        """Raises InputError for an invalid or unsafe URL, and for files that cannot be read."""
        # Where a certificate of ours says who we are, the token need not leave this machine.
        is_https = settings.broker.lower().startswith("https:")
        token = None if is_https and settings.tls.certificate else settings.token
        self._client = BrokerClient(
            settings.broker, token=token, tls=settings.tls, keeps_connection=True, clock=since_boot
        )
        if is_https:
            trusting(settings.tls)  # the client would read them with its first request
        elif not _is_loopback(urlsplit(settings.broker).hostname or ""):
            raise InputError(
                f"broker: found {settings.broker!r}, expected https: others could read the"
                " token on its way"
            )
        self._name = settings.name
        self.close = self._client.close

    def ask(
        self,
        what: str,
        timeout_s: float,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Reply:
        """GET, or POST with ``body``, of ``what``; the answer within ``timeout_s`` in all, and
        when we asked and had it, by the clock that nobody sets.

        Raises BrokerError: ``unreachable``, ``bad_answer``, or the code of a refusal.
        """
        path = f"/v1/agents/{quoted(self._name)}/{what}" + (f"?{urlencode(query)}" if query else "")
        method = "GET" if body is None else "POST"
        reply = self._client.reply(method, path, body, timeout_s)
        check_receiver(reply.data, self._name)
        return reply


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


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
    """The accepted results, and the refused ones with reasons."""

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


def check_receiver(answer: Any, name: str) -> None:
    """Raises BrokerError ``bad_answer`` for an answer that is not for the agent ``name``."""
    if not isinstance(answer, dict):
        raise _bad(f"found {answer!r:.80}, expected a JSON object")
    if answer.get("agent") != name:
        raise _bad(f"the answer is for agent {answer.get('agent')!r:.80}, expected {name!r}")


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


def _read(schema: type[T], data: Mapping[str, Any]) -> T:
    try:
        return read(schema, data, "it")
    except InputError as error:
        raise _bad(str(error)) from None


def _bad(message: str) -> BrokerError:
    return BrokerError(printable(f"the broker's answer is invalid: {message}"), "bad_answer")
