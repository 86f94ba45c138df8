"""Files of several sources as one Pegasus replica catalog.

Pegasus tries replicas in the order of its catalog, where no rule of its own comes first, and the
catalog of Pegasus.api keeps none: so it is written here.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

import yaml

from network_provisioner.base.errors import InputError
from network_provisioner.base.urls import site_of_url
from site_selector.catalogs.fields import EXPECTED_NAME, is_name
from site_selector.replicas.order import Places

_SHA256 = re.compile(r"\s*(?:sha2:|sha-256=)([A-Za-z0-9+/]{43}=)\s*", re.IGNORECASE)
Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a source, ``lfn`` its path below that. ``size_bytes`` and the hexadecimal
    ``sha256`` are None if the source does not say; ``replica`` is its URL at the very host
    that holds it, where that may be another one."""

    lfn: str
    pfn: str
    size_bytes: int | None = None
    sha256: str | None = None
    replica: str | None = None


class Reader(Protocol):
    """Reads a source; ``say`` gets a line about what it does not say. Raises InputError, and
    MissingError if a client is not installed."""

    def __call__(self, source: str, say: Say) -> Iterator[SourceFile]: ...


@dataclass(slots=True)
class Entry:
    """A file with its replicas."""

    size_bytes: int | None
    sha256: str | None
    places: Places


def sha256_of(checksum: str) -> str | None:
    """The hexadecimal sha256 of a checksum as iRODS (``sha2:`` and base64) and HTTP
    (``sha-256=`` and base64) write it; None for another kind."""
    match = _SHA256.fullmatch(checksum)
    return base64.b64decode(match[1]).hex() if match else None


def unnameable(file: SourceFile) -> str:
    """Why a file cannot be in a catalog by its name; "" if it can."""
    if is_name(file.lfn) and not {"", ".."} & {*file.lfn.split("/")}:
        return ""
    return f"{file.pfn!r}: found the name {file.lfn!r}, {EXPECTED_NAME} and '..'"


def place_of(file: SourceFile, site: str | None, prefixes: Mapping[str, str]) -> tuple[str, str]:
    """Site and URL: ``site``, else the one that ``prefixes`` tell. Raises InputError if they do
    not."""
    if site is not None:
        return site, file.pfn
    for url in (file.replica or file.pfn, file.pfn):
        at = site_of_url(url, prefixes)
        if at:
            return at, url
    raise InputError(
        f"{file.pfn}: its site is unknown, expected --site, or a file server of --sites or a "
        "host of --config that its URL begins with"
    )


def merged(files: Iterable[tuple[SourceFile, tuple[str, str]]]) -> dict[str, Entry]:
    """Files with their places by name; equal ones are replicas. Raises InputError for two of one
    name that are not equal."""
    entries: dict[str, Entry] = {}
    for file, place in files:
        known = entries.setdefault(file.lfn, Entry(file.size_bytes, file.sha256, ()))
        if _differ(known.size_bytes, file.size_bytes) or _differ(known.sha256, file.sha256):
            raise InputError(
                f"{file.lfn}: found {known.size_bytes} B, sha256 {known.sha256} at "
                f"{known.places[0][1]} and {file.size_bytes} B, sha256 {file.sha256} at "
                f"{place[1]}, expected one file under one name"
            )
        if known.size_bytes is None:
            known.size_bytes = file.size_bytes
        known.sha256 = known.sha256 or file.sha256
        known.places = tuple(dict.fromkeys((*known.places, place)))
    return entries


def _differ(first: object, other: object) -> bool:
    return first is not None and other is not None and first != other


def write(entries: Mapping[str, Entry], stream: TextIO) -> None:
    """Write a replica catalog of Pegasus 5: files by name, replicas in their order."""
    replicas = []
    for lfn, entry in sorted(entries.items()):
        item: dict[str, Any] = {"lfn": lfn}
        item["pfns"] = [{"site": site, "pfn": pfn} for site, pfn in entry.places]
        if entry.sha256 is not None:
            item["checksum"] = {"sha256": entry.sha256}
        if entry.size_bytes is not None:
            item["metadata"] = {"size": str(entry.size_bytes)}
        replicas.append(item)
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    document = {"pegasus": "5.0", "replicas": replicas}
    yaml.dump(document, stream, dumper, sort_keys=False, allow_unicode=True, width=2**20)
