"""Which release of ADON this is."""

from __future__ import annotations

from functools import cache

HEADER = "x-adon-release"  # of the broker's answers


@cache
def release() -> str:
    """Such as ``0.1.0``. Looking it up takes longer than many commands."""
    from importlib import metadata  # noqa: PLC0415

    return metadata.version("adon-wms")


def other_release(there: str) -> str:
    """In words, that the other end is another release; "" where it is this one, or does not say."""
    if not there or there == release():
        return ""
    return f" (the broker is ADON {there}, this is ADON {release()})"
