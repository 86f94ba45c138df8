"""Policies as people write them: read, checked, and acted on. Pure.

The form is Listing 1 of the application-aware SDN paper; what an action does to the policies there
are is its Algorithm 1 (AA-DNS): :func:`policy_change`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from reprlib import repr as shown
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.instants import instant, iso
from network_provisioner.base.schema import Name, Number, Schema, checked, listed, read
from network_provisioner.base.units import parse_rate
from network_provisioner.policies.policy import (
    EVERYBODY_ELSE,
    PARTS,
    TYPES,
    Policy,
    PolicyState,
    policy_id,
)
from network_provisioner.policies.strategies import Amount, strategies

API_VERSION = "v1"
ACTIONS = ("start", "modify", "stop")
_MOST_NAME = 100
_MOST_LINKS = 1000
# A start that lies less than this before now is now: clocks differ, and requests take time.
_LATE_S = 60.0
_PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*\Z")
_PAIR = listed(2, "pairs of neighbours such as [['s1', 's2']]")
_Instant = Annotated[float, checked(instant)] | None
_Part = Annotated[Number, Field(ge=1e-6, le=1e6)]
_Links = Annotated[
    tuple[Annotated[tuple[Name, Name], _PAIR], ...], Field(min_length=1, max_length=_MOST_LINKS)
]


def _strategy(value: object, what: str) -> str:
    names = strategies()
    if not isinstance(value, str) or value not in names:
        raise InputError(f"{what} is {shown(value)}, expected one of {', '.join(names)}")
    return value


def _amount(value: object, what: str) -> Amount:
    percent = _PERCENT.match(value) if isinstance(value, str) else None
    if percent is None:
        return Amount(bps=parse_rate(value, what))
    share = float(percent[1]) / 100
    if share > 1:
        raise InputError(f"{what}: found {shown(value)}, expected at most 100 %")
    return Amount(share=share)


def _stripped(name: str) -> str:
    if len(name) > _MOST_NAME or name != name.strip():
        raise ValueError(
            f"found {shown(name)}, expected at most {_MOST_NAME} characters without spaces around "
            "them"
        )
    return name


_Amount = Annotated[Amount, checked(_amount)]


class _PolicySchema(Schema):
    """Listing 1, and three keys of ours. Which of them must be there depends on the action."""

    name: Annotated[Name, AfterValidator(_stripped)]
    type: Literal["user", "project", "experiment"] | None = None
    strategy: Annotated[str, checked(_strategy)] | None = None
    action: Literal["start", "modify", "stop"] = "start"
    specs: Annotated[tuple[Name, Name], listed(2, "two names such as ['cms', 'ligo']")] | None = (
        None
    )
    time: (
        Annotated[tuple[_Instant, _Instant], listed(2, "[start, end], each may be null")] | None
    ) = None
    links: _Links | None = None
    parts: Annotated[tuple[_Part, _Part], listed(2, "two numbers such as [7, 3]")] | None = None
    guarantees: (
        Annotated[tuple[_Amount, _Amount], listed(2, "two rates such as ['50 Mb/s', '10 %']")]
        | None
    ) = None


KEYS = tuple(_PolicySchema.model_fields)


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """What an action makes of a policy; ``before`` is None where there was none of that name."""

    policy: Policy
    before: Policy | None


def policy_change(body: object, known: Mapping[str, Policy], now: float) -> PolicyChange:
    """What the action in ``body`` does, at Unix second ``now``, where ``known`` is there by id.

    ``start``   a new policy; where there is one of that name, this one replaces it under its id
    ``modify``  changes what is given of a policy that has not ended, and leaves the rest
    ``stop``    ends it; of one that has ended nothing changes

    Raises BrokerError: ``bad_request``, ``bad_time`` (a time that is past, an end that is not after
    the start), ``unknown_policy``.
    """
    try:
        doc = read(_PolicySchema, body, "policy")
        label = f"policy {doc.name!r}"
        before = known.get(policy_id(doc.name))
        if doc.action == "start":
            return PolicyChange(_started(doc, label, now), before)
        if before is None:
            raise BrokerError(
                f"{label} is unknown, expected one that was started before its action "
                f"{doc.action!r}",
                "unknown_policy",
            )
        if doc.action == "stop":
            return PolicyChange(stopped_policy(before, now), before)
        return PolicyChange(_modified(doc, before, label, now), before)
    except InputError as error:
        raise BrokerError(str(error), "bad_request") from error


def stopped_policy(policy: Policy, now: float) -> Policy:
    """The policy, ended at ``now`` unless it has ended before."""
    if policy.state(now) in (PolicyState.EXPIRED, PolicyState.STOPPED):
        return policy
    return replace(policy, stopped_at=now, changed_at=now)


def _started(doc: _PolicySchema, label: str, now: float) -> Policy:
    for key in ("type", "strategy", "specs"):
        if getattr(doc, key) is None:
            raise InputError(f"{label} has no {key!r}, expected it to start one")
    start, end = _times(doc, label, now, None)
    policy = Policy(
        id=policy_id(doc.name),
        name=doc.name,
        start=start,
        end=end,
        created_at=now,
        changed_at=now,
        **_given(doc),
    )
    return _consistent(policy, doc, label)


def _modified(doc: _PolicySchema, before: Policy, label: str, now: float) -> Policy:
    state = before.state(now)
    if state not in (PolicyState.RUNNING, PolicyState.SCHEDULED):
        raise InputError(f"{label} is {state}, expected one that has not ended; start it again")
    changes = {"changed_at": now, **_given(doc)}
    if "time" in doc.model_fields_set:
        changes["start"], changes["end"] = _times(doc, label, now, before)
    if changes.get("strategy", before.strategy) != before.strategy:
        changes = {"parts": PARTS, "guarantees": None} | changes
    return _consistent(replace(before, **changes), doc, label)


def _given(doc: _PolicySchema) -> dict[str, Any]:
    """What is said of a policy but for its times; null stands for what is usual."""
    fields = {key: getattr(doc, key) for key in ("type", "strategy", "specs")}
    given = {key: value for key, value in fields.items() if value is not None}
    usual = {"links": (), "parts": PARTS, "guarantees": None}
    for key in doc.model_fields_set & usual.keys():
        value = getattr(doc, key)
        given[key] = usual[key] if value is None else value
    if "links" in given:
        given["links"] = tuple(dict.fromkeys(given["links"]))
    return given


def _consistent(policy: Policy, doc: _PolicySchema, label: str) -> Policy:
    first, second = policy.specs
    if first == second:
        raise InputError(f"{label}: specs names {first!r} twice, expected two that differ")
    for key in ("parts", "guarantees"):
        if policy.strategy in ("7-3", "10-3") and getattr(doc, key) is not None:
            raise InputError(
                f"{label}: {key} is given, expected none with the strategy {policy.strategy!r}, "
                "which fixes the rates"
            )
    if sum(amount.share for amount in policy.guaranteed()) > 1 + 1e-9:
        raise InputError(f"{label}: guarantees are above 100 % together, expected at most that")
    return policy


def _times(
    doc: _PolicySchema, label: str, now: float, before: Policy | None
) -> tuple[float, float]:
    begins, ends = doc.time or (None, None)
    start = now if begins is None else begins
    end = math.inf if ends is None else ends
    if before is not None and doc.time is not None and begins in (None, before.start):
        start = before.start
    elif start < now - _LATE_S:
        raise BrokerError(
            f"{label}: time: its start {iso(start)} is past, expected one after now, {iso(now)}",
            "bad_time",
        )
    else:
        start = max(start, now)
    if end <= now:
        raise BrokerError(
            f"{label}: time: its end {iso(end)} is past, expected one after now, {iso(now)}",
            "bad_time",
        )
    if end <= start:
        raise BrokerError(
            f"{label}: time: its end {iso(end)} is not after its start {iso(start)}", "bad_time"
        )
    return start, end


def api_details(version: str) -> dict[str, Any]:
    """What one version of the policies' interface understands (Table I, first row).

    Raises BrokerError ``not_found`` for another version than :data:`API_VERSION`.
    """
    if version != API_VERSION:
        raise BrokerError(
            f"no version {version[:80]!r} of the policies' interface, expected {API_VERSION}",
            "not_found",
        )
    return {
        "version": API_VERSION,
        "keys": list(KEYS),
        "types": list(TYPES),
        "strategies": sorted(strategies()),
        "actions": list(ACTIONS),
        "everybody_else": EVERYBODY_ELSE,
        "calls": {
            "GET /v1/policies/": "list all current policies",
            "POST /v1/policies/": "establish, modify or stop a policy",
            "GET /v1/policies/{policy_id}": "show a policy",
            "DELETE /v1/policies/{policy_id}": "delete a policy",
            "GET /v1/policies/{api_version}": "this",
        },
    }
