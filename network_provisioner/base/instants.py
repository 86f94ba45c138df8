"""Instants: Unix seconds inside, ISO 8601 for people."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from reprlib import repr as shown

from network_provisioner.base import fields
from network_provisioner.base.errors import InputError

_LATEST = 1e10  # Unix seconds: the year 2286; what is above was meant in milliseconds


def instant(value: object, what: str, local: bool = False) -> float:
    """Unix seconds from a number of them, or from ISO 8601 such as ``2026-11-21T14:00:00+01:00``.

    Without an offset it is UTC, or ``local``, in this machine's zone. Raises InputError.
    """
    expected = "ISO 8601 such as '2026-11-21T14:00:00Z', or Unix seconds"
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            raise InputError(f"{what} is {shown(value)}, expected {expected}") from None
        try:
            seconds = (moment if moment.tzinfo or local else moment.replace(tzinfo=UTC)).timestamp()
        except (OverflowError, ValueError):
            seconds = math.inf
    else:
        seconds = fields.number(value, what, expected)
    if not 0 <= seconds <= _LATEST:
        raise InputError(f"{what} is {shown(value)}, expected {expected}")
    return seconds


def iso(at: float) -> str:
    """A time for people: ``2026-11-21T14:00:00Z``; the number where no calendar has it."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{at:g}"


def local_time(at: float) -> str:
    """A time for people on this machine: ``2026-11-21 15:00:00``, in its own zone; the number
    where no calendar has it."""
    try:
        return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{at:g}"
