"""The broker's answers as values: whatever they hold, at worst an AdonError comes of it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, cast

from monitors.measurements.messages import Assignment, Role
from monitors.measurements.probes.tools import tool_of
from network_provisioner.errors import BrokerError, InputError, printable

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
