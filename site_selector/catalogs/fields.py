"""Fields that workflows and catalogs write alike."""

from __future__ import annotations

import re
from collections.abc import Mapping
from reprlib import repr as shown
from typing import Any

from network_provisioner.base.errors import InputError
from network_provisioner.base.units import parse_size, whole_bytes
from site_selector.catalogs.documents import Document, Key, kind_of

Profiles = Mapping[str, Mapping[str, str]]

EXPECTED_NAME = "expected a name without line breaks and control characters"
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def full_name(namespace: str | None, name: str, version: str | None) -> str:
    """Pegasus's full name of a transformation, ``soykb::bwa_mem:1.0``."""
    return f"{namespace + '::' if namespace else ''}{name}{':' + version if version else ''}"


def brief(value: Any) -> str:
    """A value of a document for a message: text as it is, else what it is."""
    return shown(value) if value is None or isinstance(value, str) else f"a {kind_of(value)}"


def is_name(text: str) -> bool:
    """Whether a name is free of line breaks and other control characters, which would break every
    file and terminal it is written to."""
    return text.isprintable() or not _CONTROL.search(text)


def profiles_of(document: Document, path: tuple[Key, ...], value: Any, what: str) -> Profiles:
    """Profiles by namespace and key. Raises InputError where they are no mapping of mappings."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(
        isinstance(keys, dict) or keys is None for keys in value.values()
    ):
        raise document.error(path, f"{what}: profiles are no mapping of namespaces")
    found: dict[str, Mapping[str, str]] = {}
    for namespace, keys in value.items():
        found[namespace] = keys or {}
        if not all(type(v) is str for v in found[namespace].values()):
            found[namespace] = {
                key: _profile(document, (*path, namespace, key), v, what) for key, v in keys.items()
            }
    return found


def _profile(document: Document, path: tuple[Key, ...], value: Any, what: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise document.error(
            path,
            f"{what}: profile {path[-2]}: {path[-1]} is {brief(value)}, expected text or a number",
        )
    return value


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
    if not isinstance(value, str):
        raise document.error(place, f"size of {lfn!r} is no number, expected bytes")
    if (size := whole_bytes(value)) is not None:
        return size  # nearly always
    if value.strip().startswith("-"):
        raise document.error(
            place, f"size of {lfn!r} is {value.strip()[:40]}, expected 0 bytes or more"
        )
    try:
        return parse_size(value, f"size of {lfn!r}")
    except InputError as error:
        raise document.error(place, str(error)) from None


def positive_number(value: str) -> float | None:
    """A finite number above zero, or None."""
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 < number < float("inf") else None
