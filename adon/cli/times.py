"""Instants as people write them on a command line."""

from __future__ import annotations

import re

# Unix seconds as programs print them, with a fraction or without.
_SECONDS = re.compile(r"\d+(\.\d*)?", re.ASCII)


def instant_of(text: str | None, option: str, now: float) -> float | None:
    """Unix seconds from ISO 8601 (UTC without an offset), from Unix seconds, or from ``+2 h``,
    which counts from ``now``; None where nothing was said. Raises InputError."""
    from network_provisioner.base.instants import instant
    from network_provisioner.base.units import parse_duration

    if text is None:
        return None
    if text.startswith("+"):
        return now + parse_duration(text[1:], option)
    return instant(float(text) if _SECONDS.fullmatch(text) else text, option)


def moment_of(text: str | None, option: str, now: float) -> float | None:
    """The same, or how long before ``now`` as ``2 h``. Raises InputError."""
    from network_provisioner.base.errors import InputError
    from network_provisioner.base.units import parse_duration

    if text is not None and not _SECONDS.fullmatch(text):  # no unit: these are no duration
        try:
            return now - parse_duration(text, option)
        except InputError:  # an instant, then, or neither
            pass
    try:
        return instant_of(text, option, now)
    except InputError as error:
        raise InputError(f"{error}, or how long ago such as '2 h'") from None
