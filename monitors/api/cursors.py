"""Where a page of a list ended, as clients say it to have the next one."""

from __future__ import annotations

from network_provisioner.base.errors import InputError


def read_cursor(cursor: str, kind: str) -> tuple[float, str]:
    """The Unix second and the id of the last of a page, from ``SECOND:ID``; ``kind`` names what
    is listed. Raises InputError."""
    second, _, key = cursor.partition(":")
    try:
        return float(second), key
    except ValueError:
        raise InputError(f"cursor: found {cursor!r:.100}, expected SECOND:ID of {kind}") from None
