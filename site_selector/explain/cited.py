"""A belief in words: value, spread, source, age, and how it is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from network_provisioner.units import format_rate, format_size
from site_selector.explain.reasons import seconds

# A deviation below this part of the value is not worth a reader's time.
_SPREAD = 0.05


def count(value: float) -> str:
    """Workers."""
    return f"{value:g}"


def rate(value: float) -> str:
    """Bits per second."""
    return format_rate(value)


def bytes_rate(value: float) -> str:
    """Bytes per second of one worker."""
    return f"{format_size(value)}/s"


SHOW: dict[str, Callable[[float], str]] = {
    "count": count,
    "seconds": seconds,
    "rate": rate,
    "bytes_rate": bytes_rate,
}


def value_of(belief: Mapping[str, Any], kind: str) -> str:
    """The value with its spread, where that says something."""
    value, show = belief["value"], SHOW[kind]
    if value is None:
        return "no bound" if kind in ("rate", "bytes_rate") else show(float("inf"))
    spread = belief.get("spread") or 0.0
    return show(value) + (f" ± {show(spread)}" if spread > _SPREAD * abs(value) else "")


def age_of(belief: Mapping[str, Any]) -> str:
    """Its age, empty for what was written down."""
    return seconds(belief["age_s"]) if belief.get("age_s") else ""


def cited(belief: Mapping[str, Any], kind: str) -> str:
    """Value, source, age where it was measured, and how it is known, in one line."""
    source = belief["source"] + (f" {age_of(belief)} ago" if age_of(belief) else "")
    source += f", {belief['note']}" if belief.get("note") else ""
    return f"{value_of(belief, kind)} [{source}]"
