"""Transits by the names that their fields are stored and published under."""

from __future__ import annotations

from typing import Any

from network_provisioner.base.model import Transit


def made_transit(
    id: str, src: str, dst: str, state: str, template: str = "default", **more: Any
) -> Transit:
    """A transit with these fields, and all others as they are usually."""
    named = {"id": id, "src": src, "dst": dst, "state": state, "template": template}
    return Transit.from_dict(named | more)


def changed(transit: Transit, **published: Any) -> Transit:
    """A copy of a transit with other fields."""
    return Transit.from_dict(transit.as_dict() | published)
