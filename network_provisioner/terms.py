"""What a request asks for: checked, completed from its template, and worth a circuit or not."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from network_provisioner.errors import BrokerError
from network_provisioner.model import TransitRequest
from network_provisioner.template import Template
from network_provisioner.units import format_rate, format_size

_ID = re.compile(r"[!-~]{1,200}\Z")
_MAX_TEXT = 1000  # characters of any other name


@dataclass(frozen=True, slots=True)
class Terms:
    """The rates a request settles for. ``asked`` says that the minimum is the caller's own."""

    min_bps: float
    max_bps: float
    asked: bool


def needless(request: TransitRequest, template: Template) -> str:
    """Why a transfer is better off without a circuit, in words; "" where one is worth it."""
    if request.src == request.dst:
        return f"both ends are {request.src}: nothing crosses the network"
    size = request.size_bytes
    if size is not None and size < template.break_even_bytes:
        return (
            f"{format_size(size)} is below {format_size(template.break_even_bytes)}, from where on "
            f"a circuit pays off (template {template.name!r})"
        )
    return ""


def check(request: TransitRequest) -> None:
    """Raises BrokerError ``bad_request`` for what cannot be a request whatever the network is."""
    if not _ID.match(request.id):
        raise BrokerError(
            f"id {request.id[:80]!r}, expected 1 to 200 printable ASCII characters without spaces",
            "bad_request",
        )
    for name in ("src", "dst", "template", "workflow", "job"):
        value = getattr(request, name)
        if len(value) > _MAX_TEXT or (value and not value.isprintable()):
            raise BrokerError(
                f"{name} {value[:80]!r}, expected at most {_MAX_TEXT} printable characters",
                "bad_request",
            )
    if request.size_bytes is not None and request.size_bytes < 0:
        raise BrokerError(f"size_bytes {request.size_bytes!r}, expected 0 or more", "bad_request")
    if request.lease_s is not None:
        check_lease(request.lease_s)


def check_lease(lease_s: float) -> None:
    """Raises BrokerError ``bad_request`` for a lease that is no time."""
    if not 0 < lease_s < float("inf"):
        raise BrokerError(f"lease_s {lease_s!r}, expected more than 0 s", "bad_request")


def settle(request: TransitRequest, template: Template) -> Terms:
    """The rates asked for, completed and bounded by QSpec and RSpec.

    The ceiling is never above the RSpec. A ceiling asked for below the QSpec's minimum lowers the
    minimum. Raises BrokerError ``impossible_rate`` for rates that contradict each other.
    """
    for name in ("min_bps", "max_bps"):
        value = getattr(request, name)
        if value is not None and not 0 < value < math.inf:
            raise BrokerError(f"{name} is {value!r}, expected more than 0 b/s", "impossible_rate")
    ceiling = template.rspec.max_bps
    high = ceiling if request.max_bps is None else min(request.max_bps, ceiling)
    if request.min_bps is None:
        return Terms(min(template.qspec.min_bps, high), high, asked=False)
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
    return Terms(request.min_bps, high, asked=True)
