"""Fields that workflows and catalogs write alike.

A job's priority is ``condor: priority``, else ``dagman: PRIORITY``. Pegasus takes a whole number of
32 bits and counts anything else as 0. It gives a job without one a number of its own in the submit
file, before which HTCondor does not look at DAGMan's ``PRIORITY``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from reprlib import repr as shown
from typing import Any

from network_provisioner.base.errors import InputError
from network_provisioner.base.units import parse_size, whole_bytes
from site_selector.catalogs.documents import Document, Key, kind_of

Profiles = Mapping[str, Mapping[str, str]]

HINT = "adon."  # begins the keys of hints
EXPECTED_NAME = "expected a name without line breaks and control characters"
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_PRIORITY_LIMIT = 1 << 31
EXPECTED_PRIORITY = f"a whole number from {-_PRIORITY_LIMIT} to {_PRIORITY_LIMIT - 1}"
PRIORITY_NAMESPACES = ("condor", "dagman")
PRIORITY_KEY = "priority"  # in any case


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
    """Profiles by namespace and key, without extensions (``x-…``). Keys of ``pegasus`` are in lower
    case, as Pegasus takes them, but for the names of sites in hints. Raises InputError if they
    are no mapping of mappings."""
    if value is None:
        return {}
    named = [(k, v) for k, v in value.items() if k[:2] != "x-"] if type(value) is dict else None
    if named is None or not all(keys is None or type(keys) is dict for _, keys in named):
        raise document.error(path, f"{what}: profiles are not a mapping of namespaces")
    profiles: dict[str, Mapping[str, str]] = {}
    for namespace, keys in named:
        profiles[namespace] = keys or {}
        if not all(type(v) is str and k[:2] != "x-" for k, v in profiles[namespace].items()):
            profiles[namespace] = {
                key: _profile(document, (*path, namespace, key), v, what)
                for key, v in keys.items()
                if key[:2] != "x-"
            }
        if namespace == "pegasus":
            profiles[namespace] = {pegasus_key(key): v for key, v in profiles[namespace].items()}
    return profiles


def pegasus_key(key: str) -> str:
    """A key of Pegasus's own profiles, written in any case."""
    return key if is_hint(key) else key.lower()


def is_hint(key: str) -> bool:
    """Whether a profile's key is meant for ADON, be it known or not."""
    return key[: len(HINT)].lower() == HINT


def _profile(document: Document, path: tuple[Key, ...], value: Any, what: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise document.error(
            path,
            f"{what}: profile {path[-2]}: {path[-1]} is {brief(value)}, expected text or a number",
        )
    return value


def size_of(entry: Mapping[str, Any]) -> int | None:
    """The size in bytes that an entry declares (``size`` or ``metadata: size``), None if it
    declares none. To Pegasus it is a note like others: what is no size is none."""
    value = entry.get("size")
    if value is None:
        metadata = entry.get("metadata")
        value = metadata.get("size") if isinstance(metadata, dict) else None
    if not isinstance(value, str):
        return None
    size = whole_bytes(value)  # nearly always
    if size is None and not value.strip().startswith("-"):
        with suppress(InputError):
            return parse_size(value, "size")
    return size


def is_number(value: object) -> bool:
    """Whether a value of a document is a number."""
    try:
        return isinstance(value, str) and math.isfinite(float(value))
    except ValueError:
        return False


def positive_number(value: str) -> float | None:
    """A finite number above zero, or None."""
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 < number < float("inf") else None


def given_priority(
    *sources: Profiles, namespaces: Sequence[str] = PRIORITY_NAMESPACES
) -> str | None:
    """As written in the first of several profiles that has a priority; None if none has."""
    return next(
        (
            value
            for namespace in namespaces
            for profiles in sources
            for key, value in profiles.get(namespace, {}).items()
            if key.lower() == PRIORITY_KEY
        ),
        None,
    )


def priority_profiles(flat: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Priorities among entries such as ``condor.priority``, as Pegasus's properties have them."""
    parts = ((*name.partition(".")[::2], value) for name, value in flat.items())
    return {
        namespace: {PRIORITY_KEY: value}
        for namespace, key, value in parts
        if namespace in PRIORITY_NAMESPACES and key.lower() == PRIORITY_KEY
    }


def is_priority(text: str) -> bool:
    """Whether HTCondor takes it."""
    return (
        bool(_WHOLE.fullmatch(text))
        and len(text) < 40
        and -_PRIORITY_LIMIT <= int(text) < _PRIORITY_LIMIT
    )


def own_priority(*sources: Profiles, namespaces: Sequence[str] = PRIORITY_NAMESPACES) -> int | None:
    """As a number, of the first of several profiles that has a priority; None if none has."""
    text = given_priority(*sources, namespaces=namespaces)
    return None if text is None else int(text) if is_priority(text) else 0
