"""Fields that workflows and catalogs write alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from network_provisioner.errors import InputError
from network_provisioner.units import parse_size
from site_selector.yamltext import Document, Key


def full_name(namespace: str | None, name: str, version: str | None) -> str:
    """Pegasus's full name of a transformation, ``soykb::bwa_mem:1.0``."""
    return f"{namespace + '::' if namespace else ''}{name}{':' + version if version else ''}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``, did you mean 'x'?`` where a known name is close, else nothing."""
    close = get_close_matches(name, list(known), n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def size_of(
    document: Document, path: tuple[Key, ...], entry: Mapping[str, Any], lfn: str
) -> int | None:
    """The size in bytes that an entry declares (``size`` or ``metadata: size``), or None.

    Raises InputError for a size that is negative or no number.
    """
    value = entry.get("size")
    place: tuple[Key, ...] = (*path, "size")
    if value is None:
        metadata = entry.get("metadata")
        value = metadata.get("size") if isinstance(metadata, dict) else None
        place = (*path, "metadata", "size")
    if value is None:
        return None
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        return int(value)  # nearly always; what follows takes ten times as long
    if not isinstance(value, str):
        raise document.error(place, f"size of {lfn!r} is no number, expected bytes")
    if value.strip().startswith("-"):
        raise document.error(
            place, f"size of {lfn!r} is {' '.join(value.split())}, expected 0 bytes or more"
        )
    try:
        return parse_size(value)
    except InputError as error:
        raise document.error(place, f"size of {lfn!r}: {error}") from None


def positive_number(value: str) -> float | None:
    """A finite number above zero, or None."""
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 < number < float("inf") else None
