"""What a request asks for: checked, completed from its template, and worth a circuit or not."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from network_provisioner.base.errors import BrokerError, printable
from network_provisioner.base.model import (
    ENDED,
    PORTS_AT,
    AgreedRequest,
    Transit,
    TransitGrant,
    TransitRequest,
    TransitState,
)
from network_provisioner.base.units import format_rate, format_size, transfer_time
from network_provisioner.templates.data import BUILT_IN, template_from_dict
from network_provisioner.templates.match import DEFAULT
from network_provisioner.templates.template import Template

_ID = re.compile(r"[!-~]{1,200}\Z")
_MAX_TEXT = 1000  # characters of any other name
_TEXTS = tuple(
    f.name
    for f in fields(TransitRequest)
    if f.type == "str" and f.name not in ("id", "best_effort", "ports_at")
)
_TIMES = ("start", "end")
# Whoever repeats a request may know less of its packets.
_UNASKED = ("id", "size_bytes", "best_effort", *_TIMES, "src_host", "dst_host", "ports_at")
_NOT_KEPT = ("best_effort", "src_host", "dst_host", "ports_at")
_ASKED = tuple(f.name for f in fields(TransitRequest) if f.name not in _UNASKED)


DEFAULT_PART = 0.1  # of what a path has: more is no minimum by default
_USUAL_MIN_BPS = template_from_dict(DEFAULT, BUILT_IN[DEFAULT]).qspec.min_bps
SMALL_PART = 0.1  # of what a path has: of a ceiling below it people are warned
LEASE_ENDS = "its lease, unless renewed, ends"


@dataclass(frozen=True, slots=True)
class AgreedRates:
    """What a request settles for. ``asked`` says that the minimum is the caller's own,
    ``uncapped`` that nobody set a ceiling."""

    min_bps: float
    max_bps: float
    asked: bool
    priority: int = 0
    uncapped: bool = False


def decline_reason(request: TransitRequest) -> str:
    """Why a transfer does without a circuit whatever its size, in words; "" where it does not."""
    if request.best_effort:
        return printable(request.best_effort)[:_MAX_TEXT]
    if request.src == request.dst:
        return f"both ends are {request.src}: nothing crosses the network"
    return ""


def below(template: Template, size_bytes: int) -> str:
    """Why a transfer is too small for a circuit by its template's own figure, in words; "" where it
    is not, or the template leaves it to be computed."""
    least = template.break_even_bytes
    if least is None or size_bytes >= least:
        return ""
    return (
        f"{format_size(size_bytes)} is below {format_size(least)}, from where on a circuit pays "
        f"off (template {template.name!r})"
    )


def check(request: TransitRequest) -> None:
    """Raises BrokerError ``bad_request`` for names that cannot be. Figures are the API's to check
    (:mod:`~.api.shapes`)."""
    if not _ID.match(request.id):
        raise BrokerError(
            f"id {request.id[:80]!r}, expected 1 to 200 printable ASCII characters without spaces",
            "bad_request",
        )
    for name in _TEXTS:
        value = getattr(request, name)
        if len(value) > _MAX_TEXT or (value and not value.isprintable()):
            raise BrokerError(
                f"{name} {value[:80]!r}, expected at most {_MAX_TEXT} printable characters",
                "bad_request",
            )
    if request.ports_at not in PORTS_AT:
        raise BrokerError(
            f"ports_at {request.ports_at[:80]!r}, expected one of {', '.join(PORTS_AT[1:])}",
            "bad_request",
        )


def fingerprint(request: TransitRequest) -> str:
    """Tells a request that is repeated from another one under the same id.

    The size is no part of it: it is an estimate, and may be known better when asked again.
    """
    return f"{_digest(request, _ASKED)}:{_digest(request, _TIMES)}"


def _digest(request: TransitRequest, names: Sequence[str]) -> str:
    # Numbers are written alike whether a client sent 5000000 or 5e6.
    values = [(name, getattr(request, name)) for name in names]
    plain = [(name, float(v) if isinstance(v, int) else v) for name, v in values]
    return hashlib.sha256(repr(plain).encode()).hexdigest()[:16]


def check_same(transit: Transit, request: TransitRequest) -> None:
    """Raises BrokerError ``conflict`` for a request on other terms than those of its id before, or
    of another user."""
    if transit.request.user != request.user:
        raise _taken(request.id)
    known = transit.request
    agreed = known.fingerprint in ("", fingerprint(request))  # "": of renamed sites
    if not (agreed and same_owner(transit, request)):
        raise BrokerError(
            f"id {request.id!r} is taken by a transit from {known.src!r} to {known.dst!r} that "
            "was asked for on other terms, expected an id of its own for each request",
            "conflict",
        )


def check_own(request: TransitRequest, find: Callable[[str], Transit | None]) -> None:
    """Raises BrokerError ``conflict`` for the next id of somebody else's transit."""
    base, _, number = request.id.rpartition(".")
    before = find(base) if base and number.isdecimal() else None
    if before is not None and before.request.user != request.user:
        raise _taken(request.id)


def _taken(name: str) -> BrokerError:
    return BrokerError(f"id {name!r} is taken, expected one of your own", "conflict")


def same_owner(transit: Transit, request: TransitRequest) -> bool:
    """Whether both are between the same sites, for the same user."""
    ours = (transit.request.src, transit.request.dst, transit.request.user)
    return ours == (request.src, request.dst, request.user)


def is_claim(transit: Transit, request: TransitRequest) -> bool:
    """Whether a request for now is for what the same caller reserved in advance, on these terms."""
    return (
        request.start is None
        and request.end is None
        and transit.state not in ENDED
        and bool(transit.request.start or transit.request.end)
        and (transit.request.src, transit.request.dst) == (request.src, request.dst)
        and transit.request.fingerprint.partition(":")[0] in ("", _digest(request, _ASKED))
    )


def is_recorded(transit: Transit | None, request: TransitRequest) -> bool:
    """Whether this was recorded before: who says why it goes without a path may say so twice."""
    return (
        transit is not None
        and bool(request.best_effort)
        and transit.state is TransitState.BEST_EFFORT
        and transit.request.fingerprint == fingerprint(request)
        and transit.reason.startswith(decline_reason(request))
    )


def settle(request: TransitRequest, template: Template, most_bps: float) -> AgreedRates:
    """The rates and the priority asked for, completed and bounded by the template.

    The ceiling is never above the RSpec, the priority never above the template's. Where neither
    request nor template sets a ceiling, it is ``most_bps``, all that the paths between the sites
    have. A ceiling asked for below the QSpec's minimum lowers the minimum; that of the built-in
    template, which nobody chose, is at most a tenth of ``most_bps``, so that slow paths have
    room for several. Raises BrokerError ``impossible_rate`` for rates that contradict each other.
    """
    for name in ("min_bps", "max_bps"):
        value = getattr(request, name)
        if value is not None and not 0 < value < math.inf:
            raise BrokerError(f"{name} is {value!r}, expected more than 0 b/s", "impossible_rate")
    priority = template.priority
    if request.priority is not None:
        priority = min(request.priority, priority)
    ceiling = math.inf if template.rspec.max_bps is None else template.rspec.max_bps
    limit = ceiling if request.max_bps is None else min(request.max_bps, ceiling)
    uncapped = limit == math.inf
    high = most_bps if uncapped else limit
    if request.min_bps is None:
        low = min(template.qspec.min_bps, limit)
        if template.name == DEFAULT and low == _USUAL_MIN_BPS and most_bps > 0:
            low = min(low, most_bps * DEFAULT_PART)
        return AgreedRates(low, max(low, high), False, priority, uncapped)
    if request.max_bps is not None and request.min_bps > request.max_bps:
        raise BrokerError(
            f"min_bps {format_rate(request.min_bps)} is above max_bps "
            f"{format_rate(request.max_bps)}, expected it not to be",
            "impossible_rate",
        )
    if request.min_bps > ceiling:
        raise BrokerError(
            f"min_bps {format_rate(request.min_bps)} is above what template {template.name!r} "
            f"allows, expected at most {format_rate(ceiling)}",
            "impossible_rate",
        )
    return AgreedRates(request.min_bps, max(request.min_bps, high), True, priority, uncapped)


def small_ceiling(template: Template, path_bps: float) -> str:
    """That a template's ceiling is far below what a path has, in words; "" where it is not."""
    ceiling = template.rspec.max_bps
    if ceiling is None or ceiling >= SMALL_PART * path_bps:
        return ""
    return (
        f"template {template.name!r} allows at most {format_rate(ceiling)} of the "
        f"{format_rate(path_bps)} that a path has; without rspec.max_throughput it allows all"
    )


def warnings(transit: Transit, template: Template, path_bps: float, lease_s: float) -> list[str]:
    """What makes a transfer slower than it could be, in words: a template's ceiling far below the
    capacity of its path, and a lease that ends before its bytes can have moved."""
    messages, request = list(transit.grant.warnings), transit.request
    if request.max_bps == template.rspec.max_bps and (words := small_ceiling(template, path_bps)):
        messages.append(words)
    rate_bps, size_bytes = min(request.max_bps, path_bps), request.size_bytes or 0
    needed_s = transfer_time(size_bytes, rate_bps)
    if needed_s > lease_s:
        what = "its end comes" if request.end else LEASE_ENDS
        messages.append(
            f"{what} after {lease_s:.0f} s, before {format_size(size_bytes)} can have moved: at "
            f"{format_rate(rate_bps)} they take {needed_s:.0f} s"
        )
    return list(dict.fromkeys(messages))


def new_transit(
    request: TransitRequest, template: Template, terms: AgreedRates, now: float
) -> Transit:
    """The transit of a request that was made at Unix second ``now``, with no path yet."""
    given = {f.name: getattr(request, f.name) for f in fields(TransitRequest)}
    completed: dict[str, Any] = {
        "template": template.name, "template_version": template.version,
        "min_bps": terms.min_bps, "max_bps": terms.max_bps, "uncapped": terms.uncapped,
        "priority": terms.priority, "requested_at": now, "fingerprint": fingerprint(request),
        # A start that has come by now is no start in advance.
        "start": 0.0 if request.start is None or request.start <= now else request.start,
        "end": request.end or 0.0,
        **dict.fromkeys(_NOT_KEPT, ""),
    }  # fmt: skip
    grant = TransitGrant(warnings=_cut(request, template))
    return Transit(AgreedRequest(**given | completed), TransitState.QUEUED, grant=grant)


def _cut(request: TransitRequest, template: Template) -> list[str]:
    ceiling = template.rspec.max_bps
    if ceiling is None or request.max_bps is None or request.max_bps <= ceiling:
        return []
    return [
        f"{format_rate(request.max_bps)} asked for: template {template.name!r} allows at most "
        f"{format_rate(ceiling)}"
    ]
