"""Policies as people write them: read, checked, and acted on. Pure.

The form is Listing 1 of the application-aware SDN paper; what an action does to the policies there
are is its Algorithm 1 (AA-DNS): :func:`acted`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from reprlib import repr as shown
from typing import Any

from network_provisioner import fields
from network_provisioner.errors import BrokerError, InputError
from network_provisioner.instants import instant, iso
from network_provisioner.policies.policy import (
    EVERYBODY_ELSE,
    PARTS,
    TYPES,
    Policy,
    PolicyState,
    policy_id,
)
from network_provisioner.policies.strategies import Amount, strategies
from network_provisioner.units import parse_rate

API_VERSION = "v1"
ACTIONS = ("start", "modify", "stop")
KEYS = ("name", "type", "strategy", "action", "specs", "time", "links", "parts", "guarantees")
_MOST_NAME = 100
_MOST_LINKS = 1000
# A start that lies less than this before now is now: clocks differ, and requests take time.
_LATE_S = 60.0
_PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*\Z")


@dataclass(frozen=True, slots=True)
class Change:
    """What an action makes of a policy; ``before`` is None where there was none of that name."""

    policy: Policy
    before: Policy | None


def acted(body: object, known: Mapping[str, Policy], now: float) -> Change:
    """What the action in ``body`` does, at Unix second ``now``, where ``known`` is there by id.

    ``start``   a new policy; where there is one of that name, this one replaces it under its id
    ``modify``  changes what is given of a policy that has not ended, and leaves the rest
    ``stop``    ends it; of one that has ended nothing changes

    Raises BrokerError: ``bad_request``, ``bad_time`` (a time that is past, an end that is not after
    the start), ``unknown_policy``.
    """
    try:
        if not isinstance(body, Mapping):
            raise InputError(f"policy is {shown(body)}, expected a mapping")
        fields.known_keys(body, KEYS, "policy")
        name = _name(body)
        label = f"policy {name!r}"
        action = _one_of(body.get("action", "start"), ACTIONS, f"{label}: action")
        before = known.get(policy_id(name))
        if action == "start":
            return Change(_started(body, name, label, now), before)
        if before is None:
            raise BrokerError(
                f"{label} is unknown, expected one that was started before its action {action!r}",
                "unknown_policy",
            )
        if action == "stop":
            return Change(stopped(before, now), before)
        return Change(_modified(body, before, label, now), before)
    except InputError as error:
        raise BrokerError(str(error), "bad_request") from error


def stopped(policy: Policy, now: float) -> Policy:
    """The policy, ended at ``now`` unless it has ended before."""
    if policy.state(now) in (PolicyState.EXPIRED, PolicyState.STOPPED):
        return policy
    return replace(policy, stopped_at=now, changed_at=now)


def _started(body: Mapping[str, Any], name: str, label: str, now: float) -> Policy:
    for key in ("type", "strategy", "specs"):
        if key not in body:
            raise InputError(f"{label} has no {key!r}, expected it to start one")
    start, end = _times(body.get("time"), label, now, None)
    policy = Policy(
        id=policy_id(name),
        name=name,
        type=_one_of(body["type"], TYPES, f"{label}: type"),
        strategy=_one_of(body["strategy"], tuple(strategies()), f"{label}: strategy"),
        specs=_specs(body["specs"], f"{label}: specs"),
        start=start,
        end=end,
        links=_links(body.get("links"), f"{label}: links"),
        parts=_parts(body.get("parts"), f"{label}: parts"),
        guarantees=_guarantees(body.get("guarantees"), f"{label}: guarantees"),
        created_at=now,
        changed_at=now,
    )
    return _consistent(policy, body, label)


def _modified(body: Mapping[str, Any], before: Policy, label: str, now: float) -> Policy:
    state = before.state(now)
    if state not in (PolicyState.RUNNING, PolicyState.SCHEDULED):
        raise InputError(f"{label} is {state}, expected one that has not ended; start it again")
    changes: dict[str, Any] = {"changed_at": now}
    if "type" in body:
        changes["type"] = _one_of(body["type"], TYPES, f"{label}: type")
    if "strategy" in body:
        changes["strategy"] = _one_of(body["strategy"], tuple(strategies()), f"{label}: strategy")
    readers = {"specs": _specs, "links": _links, "parts": _parts, "guarantees": _guarantees}
    for key, read in readers.items():
        if key in body:
            changes[key] = read(body[key], f"{label}: {key}")
    if "time" in body:
        changes["start"], changes["end"] = _times(body["time"], label, now, before)
    if changes.get("strategy", before.strategy) != before.strategy:
        changes = {"parts": PARTS, "guarantees": None} | changes
    return _consistent(replace(before, **changes), body, label)


def _consistent(policy: Policy, body: Mapping[str, Any], label: str) -> Policy:
    if policy.strategy in ("7-3", "10-3"):
        for key in ("parts", "guarantees"):
            if body.get(key) is not None:
                raise InputError(
                    f"{label}: {key} is {shown(body[key])}, expected none with the strategy "
                    f"{policy.strategy!r}, which fixes the rates"
                )
    if sum(amount.share for amount in policy.guaranteed()) > 1 + 1e-9:
        raise InputError(f"{label}: guarantees are above 100 % together, expected at most that")
    return policy


def _name(body: Mapping[str, Any]) -> str:
    name = fields.text(body, "name", "policy")
    if len(name) > _MOST_NAME or name != name.strip():
        raise InputError(
            f"policy: name is {shown(name)}, expected at most {_MOST_NAME} characters without "
            "spaces around them"
        )
    return name


def _one_of(value: object, allowed: tuple[str, ...], what: str) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"{what} is {shown(value)}, expected one of {', '.join(allowed)}")
    return value


def _specs(value: object, what: str) -> tuple[str, str]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise InputError(f"{what} is {shown(value)}, expected two names such as ['cms', 'ligo']")
    first, second = (fields.name(item, what) for item in value)
    if first == second:
        raise InputError(f"{what} names {first!r} twice, expected two that differ")
    return first, second


def _links(value: object, what: str) -> tuple[tuple[str, str], ...]:
    expected = "expected pairs of neighbours such as [['s1', 's2']]"
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not value or len(value) > _MOST_LINKS:
        raise InputError(f"{what} is {shown(value)}, {expected}")
    found = []
    for pair in value:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise InputError(f"{what}: found {shown(pair)}, {expected}")
        a, b = (fields.name(end, what) for end in pair)
        found.append((a, b))
    return tuple(dict.fromkeys(found))


def _parts(value: object, what: str) -> tuple[float, float]:
    expected = "two numbers above 0 such as [7, 3]"
    if value is None:
        return PARTS
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise InputError(f"{what} is {shown(value)}, expected {expected}")
    first, second = (fields.number(item, what, expected) for item in value)
    if not (1e-6 <= first <= 1e6 and 1e-6 <= second <= 1e6):
        raise InputError(f"{what} is {shown(value)}, expected {expected}")
    return first, second


def _guarantees(value: object, what: str) -> tuple[Amount, Amount] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise InputError(
            f"{what} is {shown(value)}, expected two rates such as ['50 Mb/s', '10 %']"
        )
    first, second = (_amount(item, what) for item in value)
    return first, second


def _amount(value: object, what: str) -> Amount:
    percent = _PERCENT.match(value) if isinstance(value, str) else None
    if percent is None:
        return Amount(bps=parse_rate(value, what))
    share = float(percent[1]) / 100
    if share > 1:
        raise InputError(f"{what}: found {shown(value)}, expected at most 100 %")
    return Amount(share=share)


def _times(value: object, label: str, now: float, before: Policy | None) -> tuple[float, float]:
    what = f"{label}: time"
    if value is None:
        return now, math.inf
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise InputError(f"{what} is {shown(value)}, expected [start, end], each may be null")
    start = now if value[0] is None else instant(value[0], what)
    end = math.inf if value[1] is None else instant(value[1], what)
    if before is not None and (value[0] is None or start == before.start):
        start = before.start
    elif start < now - _LATE_S:
        raise BrokerError(f"{what}: its start {_said(value[0])} is past, {_now(now)}", "bad_time")
    else:
        start = max(start, now)
    if end <= now:
        raise BrokerError(f"{what}: its end {_said(value[1])} is past, {_now(now)}", "bad_time")
    if end <= start:
        raise BrokerError(
            f"{what}: its end {_said(value[1])} is not after its start {_said(value[0])}",
            "bad_time",
        )
    return start, end


def _said(value: object) -> str:
    return "now" if value is None else shown(value)


def _now(now: float) -> str:
    return f"expected one after now, {iso(now)}"


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
