"""Where the inputs of a workflow lie and how large they are, from what the planner names.

Pegasus has read them already, and judges them. Here they only make the mapping better, so whatever
cannot be read is a note and no failure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import unquote, urlsplit

from network_provisioner.base.errors import InputError
from site_selector.catalogs.documents import read_document
from site_selector.catalogs.entries import replicas_of
from site_selector.catalogs.fields import positive_number
from site_selector.replicas.database import database_of

SUBMIT_SITE = "local"
Note = Callable[[str], None]

# Of Pegasus's older text format: words, or quoted words with \" and \\ inside.
_WORD = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*")+')
_SITE_KEYS = ("site", "pool")
_MOST_BYTES = 200_000_000


@dataclass(frozen=True, slots=True)
class FoundReplicas:
    """Pairs of site and URL of one file, and its bytes where they are known."""

    places: tuple[tuple[str, str], ...]
    size_bytes: int | None


def find_replicas(
    wanted: Iterable[str],
    files: Sequence[tuple[str | None, str]],
    directories: Sequence[str],
    note: Note,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, FoundReplicas]:
    """The files named ``wanted``. Of two sources that know one, the first is believed: the order of
    ``directories``, then that of ``files`` (pairs of Pegasus's catalog type and path), then the
    database that Pegasus's ``properties`` name."""
    names = set(wanted)
    found: dict[str, FoundReplicas] = {}
    for directory in directories:
        for lfn in names - found.keys():
            path = Path(directory) / lfn
            size = _size_of(path)
            if size is not None:
                found[lfn] = FoundReplicas(((SUBMIT_SITE, str(path)),), size)
    for kind, name in files:
        missing = names - found.keys()
        if missing:
            try:
                found.update(_read(kind, Path(name), missing))
            except InputError as error:
                note(f"{error}; its replicas are not known here")
    try:
        database = database_of(properties)
        more = database.replicas(names - found.keys()) if database else {}
        found |= {f: FoundReplicas(r.places, r.size_bytes) for f, r in more.items()}
    except InputError as error:
        note(f"{error}; its replicas are not known here")
    return found


def measured(size_bytes: int | None, places: Iterable[tuple[str, str]]) -> int | None:
    """The size that is known, else that of the file itself where it lies on this machine."""
    if size_bytes is not None:
        return size_bytes
    for site, url in places:
        parts = urlsplit(url)
        if site == SUBMIT_SITE and parts.scheme in ("", "file") and parts.netloc in _HERE:
            return _size_of(Path(unquote(parts.path) if parts.scheme else url))
    return None


_HERE = ("", "localhost")


def _size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except (OSError, ValueError):  # unreadable, or no name for a file
        return None


def _read(kind: str | None, path: Path, wanted: set[str]) -> Mapping[str, FoundReplicas]:
    yaml = path.suffix.lower() in (".yml", ".yaml")
    if (kind or ("YAML" if yaml else "File")).lower() == "yaml":
        catalog = replicas_of(read_document(path, "Pegasus 5 replica catalog"))
        entries = {lfn: catalog.find(lfn) for lfn in wanted}
        return {
            lfn: FoundReplicas(entry.places, entry.size_bytes)
            for lfn, entry in entries.items()
            if entry is not None
        }
    if (kind or "File").lower() in ("file", "simplefile"):
        return _read_text(path, wanted)
    raise InputError(f"replica catalog of type {kind}: expected YAML or File")


def _read_text(path: Path, wanted: set[str]) -> dict[str, FoundReplicas]:
    """Lines ``lfn pfn key="value" …``, of which the key ``site`` (once ``pool``) matters."""
    places: dict[str, list[tuple[str, str]]] = {}
    sizes: dict[str, int] = {}
    try:
        with path.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}, expected a replica catalog") from None
    if len(content) > _MOST_BYTES:
        raise InputError(f"{path}: found more than {_MOST_BYTES} bytes, expected less")
    for line in content.decode("utf-8", "replace").splitlines():
        words = _WORD.findall(line)
        if len(words) < 2 or words[0].startswith("#"):
            continue
        lfn, pfn = _plain(words[0]), _plain(words[1])
        if lfn not in wanted:
            continue
        keys = dict(word.split("=", 1) for word in words[2:] if "=" in word)
        site = next((_plain(keys[key]) for key in _SITE_KEYS if key in keys), "")
        if site:
            places.setdefault(lfn, []).append((site, pfn))
        size = positive_number(_plain(keys.get("size", "")))
        if size is not None and size < 1 << 63:
            sizes.setdefault(lfn, int(size))
    return {lfn: FoundReplicas(tuple(found), sizes.get(lfn)) for lfn, found in places.items()}


def _plain(word: str) -> str:
    return re.sub(r'\\(.)|"', lambda match: match[1] or "", word)
