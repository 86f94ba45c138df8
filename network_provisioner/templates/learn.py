"""What transfers teach a template: which succeed, the best of them, and a template made of one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from network_provisioner.model import Transit, TransitState
from network_provisioner.store import Document
from network_provisioner.template import Template, Tuning


def failure(transit: Transit) -> str:
    """Why a transit teaches nothing, in words; "" for one that succeeded and was measured."""
    if transit.state is not TransitState.RELEASED:
        return f"is {transit.state}"
    if not transit.path or not transit.installed_at:
        return "had no path of its own"
    if transit.outcome not in ("", "success"):
        return f"ended with {transit.outcome!r}"
    if not 0 < transit.goodput_bps < math.inf:
        return "reported no bytes and seconds"
    return ""


def made_of(name: str, base: Template, transit: Transit) -> Template:
    """The template under which a transit succeeded, with the rates and the rank it had, and for
    its application alone."""
    low, high = transit.requested_bps, max(transit.max_bps, transit.requested_bps)
    return replace(
        base,
        name=name,
        qspec=replace(base.qspec, min_bps=low),
        rspec=replace(base.rspec, max_bps=high),
        priority=transit.priority,
        applications=(transit.application,) if transit.application else (),
    )


def lesson(transit: Transit, tuning: Tuning) -> dict[str, Any]:
    """The body of a document that keeps a transfer as the best so far."""
    return {
        "transit": transit.id,
        "version": transit.template_version,
        "peak": transit.goodput_bps,
        "tuning": {"streams": tuning.streams, "buffer": tuning.buffer_bytes},
    }


def best(history: Iterable[Document]) -> Mapping[str, Any]:
    """The best of the lessons kept, with when it was; empty for none. Not simply the last: another
    broker may have written a smaller one in between."""
    found: Mapping[str, Any] = {}
    for document in history:
        peak = document.body.get("peak")
        if document.deleted:
            found = {}
        elif isinstance(peak, int | float) and peak > found.get("peak", 0.0):
            found = {**document.body, "at": document.at}
    return found
