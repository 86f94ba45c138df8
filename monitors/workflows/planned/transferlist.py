"""Pegasus's transfer lists: the JSON that ``pegasus-transfer`` reads from ``<dir>/<job>.in``.

A list holds three kinds of entry, as ``Pegasus/transfer.py`` accepts them:

    {"type": "transfer", "lfn", "linkage", "id", "attributes": {"size": "123"},
     "src_urls": [{"site_label", "url", "priority"}], "dest_urls": [{"site_label", "url"}]}
    {"type": "mkdir",  "id", "target": {"site_label", "url"}}
    {"type": "remove", "id", "target": {"site_label", "url", "recursive"}}

``size`` is a string of bytes and stands only where the workflow or the replica catalog declares it.
Where Pegasus checks integrity, ``"generate_checksum": true`` stands at inputs without a checksum in
the replica catalog, ``"verify_checksum_remote": true`` at outputs of jobs that run on a node's own
disk. Standard library only: the hooks import this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from reprlib import repr as shown
from typing import Any

from monitors.workflows.planned.foreign_files import read_text
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import whole_bytes
from network_provisioner.base.urls import LOCAL_SCHEMES, moves_directly, scheme_of

_PRIORITY = re.compile(r"-?[0-9]{1,18}")
RELAY = "local"
"""What ``pegasus-transfer`` calls the machine that it runs on, wherever that is."""


@dataclass(frozen=True, slots=True)
class SiteUrl:
    """A URL and the site it is at. ``priority`` is None where the list gives none."""

    site: str
    url: str
    priority: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The entry of ``src_urls`` or ``dest_urls``."""
        out: dict[str, Any] = {"site_label": self.site, "url": self.url}
        if self.priority is not None:
            out["priority"] = self.priority
        return out


@dataclass(frozen=True, slots=True)
class Transfer:
    """One file to move: sources in order of preference, destinations, declared size or None.

    ``checksum`` asks ``pegasus-transfer`` to compute one on the way, ``verify`` to fetch the file
    back afterwards and look.
    """

    lfn: str
    sources: tuple[SiteUrl, ...]
    destinations: tuple[SiteUrl, ...]
    size_bytes: int | None = None
    linkage: str = "input"
    checksum: bool = False
    verify: bool = False

    @property
    def source(self) -> SiteUrl:
        """The source ``pegasus-transfer`` tries first: the highest priority, then list order."""
        return max(self.sources, key=lambda s: s.priority if s.priority is not None else 0)

    @property
    def destination(self) -> SiteUrl:
        """The first destination."""
        return self.destinations[0]

    @property
    def urls(self) -> set[str]:
        """Of all its sources and destinations."""
        return {place.url for place in (*self.sources, *self.destinations)}

    @property
    def schemes(self) -> tuple[str, str]:
        """The URL schemes of source and destination."""
        return scheme_of(self.source.url), scheme_of(self.destination.url)

    def legs(self, relay: str = RELAY) -> tuple[tuple[str, str], ...]:
        """The site pairs that the bytes cross, in order.

        Where no tool moves them from server to server, or where a checksum is asked for between
        two GridFTP servers, ``pegasus-transfer`` fetches the file to where it runs, the site
        ``relay``, and sends it on.
        """
        ends = self.schemes
        direct = moves_directly(*ends, self.checksum)
        stops = [self.source.site, *(() if direct else (relay,)), self.destination.site]
        if self.verify and ends[1] not in LOCAL_SCHEMES:
            stops.append(relay)
        return tuple(pair for pair in pairwise(stops) if pair[0] != pair[1])

    def as_json(self, number: int) -> dict[str, Any]:
        """The list entry with ``id`` ``number``."""
        out: dict[str, Any] = {
            "type": "transfer", "linkage": self.linkage, "lfn": self.lfn, "id": number,
        }  # fmt: skip
        if self.checksum:
            out["generate_checksum"] = True
        if self.verify:
            out["verify_checksum_remote"] = True
        if self.size_bytes is not None:
            out["attributes"] = {"size": str(self.size_bytes)}
        out["src_urls"] = [u.as_json() for u in self.sources]
        out["dest_urls"] = [u.as_json() for u in self.destinations]
        return out


@dataclass(frozen=True, slots=True)
class Mkdir:
    """A directory to make. ``pegasus-transfer`` sorts its list and cannot compare two of these,
    so a list holds at most one."""

    target: SiteUrl

    def as_json(self, number: int) -> dict[str, Any]:
        """The list entry with ``id`` ``number``."""
        return {"type": "mkdir", "id": number, "target": self.target.as_json()}


@dataclass(frozen=True, slots=True)
class Remove:
    """A file or, recursively, a directory to remove."""

    target: SiteUrl
    recursive: bool = False

    def as_json(self, number: int) -> dict[str, Any]:
        """The list entry with ``id`` ``number``."""
        target = self.target.as_json()
        target["recursive"] = str(self.recursive)
        return {"type": "remove", "id": number, "target": target}


Entry = Transfer | Mkdir | Remove


@dataclass(slots=True)
class SitePair:
    """What one list moves from ``src`` to ``dst``."""

    src: str
    dst: str
    transfers: list[Transfer] = field(default_factory=list)

    def size_bytes(self, known: Mapping[str, int]) -> int | None:
        """Total bytes of :meth:`sizes`."""
        sizes = self.sizes(known)
        return None if sizes is None else sum(sizes)

    def sizes(self, known: Mapping[str, int]) -> list[int] | None:
        """Bytes: declared sizes, else ``known`` (by lfn), None where any size is unknown."""
        sizes = (known.get(t.lfn) if t.size_bytes is None else t.size_bytes for t in self.transfers)
        known_sizes = [size for size in sizes if size is not None]
        return known_sizes if len(known_sizes) == len(self.transfers) else None

    @property
    def undeclared(self) -> list[Transfer]:
        """Those that the list gives no size for."""
        return [t for t in self.transfers if t.size_bytes is None]


def parse(text: str, where: str) -> list[Entry]:
    """The entries of a list. Raises InputError naming ``where`` and the entry."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: found {error}, expected a JSON transfer list") from None
    if not isinstance(data, list):
        raise InputError(f"{where}: found {type(data).__name__}, expected a JSON list")
    return [_entry(item, f"{where}: entry {n}") for n, item in enumerate(data, 1)]


def read(path: Path) -> list[Entry]:
    """The entries of the list in ``path``. Raises InputError where it cannot be read."""
    try:
        text = read_text(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: found bytes that are not UTF-8, expected JSON") from None
    return parse(text, str(path))


def dumps(entries: Iterable[Entry]) -> str:
    """The list as ``pegasus-transfer`` reads it, one entry to a line."""
    lines = (json.dumps(entry.as_json(n)) for n, entry in enumerate(entries, 1))
    return "[\n " + "\n ,\n ".join(lines) + "\n]\n"


def site_pairs(entries: Iterable[Entry], relay: str = RELAY) -> list[SitePair]:
    """The transfers between different sites, grouped by (source, destination), in list order.

    One that is relayed, at the site ``relay``, is in two of them. Transfers within one site and
    directory work need no path and are left out.
    """
    pairs: dict[tuple[str, str], SitePair] = {}
    for entry in entries:
        if not isinstance(entry, Transfer):
            continue
        for leg in dict.fromkeys(entry.legs(relay)):
            pairs.setdefault(leg, SitePair(*leg)).transfers.append(entry)
    return list(pairs.values())


def _entry(item: object, where: str) -> Entry:
    if not isinstance(item, dict):
        raise InputError(f"{where}: found {type(item).__name__}, expected an object")
    kind = item.get("type")
    if kind == "transfer":
        return _transfer(item, where)
    if kind in ("mkdir", "remove"):
        target = item.get("target")
        url = _url(target, f"{where}: target")
        if kind == "mkdir":
            return Mkdir(url)
        recursive = str(target.get("recursive", "")) if isinstance(target, dict) else ""
        return Remove(url, recursive.lower() in ("true", "t", "yes", "1"))
    raise InputError(f"{where}: found type {kind!r}, expected transfer, mkdir or remove")


def _transfer(item: dict[str, Any], where: str) -> Transfer:
    ends = []
    for key in ("src_urls", "dest_urls"):
        urls = item.get(key)
        if not isinstance(urls, list) or not urls:
            raise InputError(f"{where}: found no {key}, expected at least one")
        ends.append(tuple(_url(u, f"{where}: {key}") for u in urls))
    attributes = item.get("attributes")
    size = attributes.get("size") if isinstance(attributes, dict) else None
    n_bytes = whole_bytes(str(size))
    if size is not None and n_bytes is None:
        raise InputError(f"{where}: found size {shown(size)}, expected a number of bytes")
    return Transfer(
        lfn=str(item.get("lfn", "")),
        sources=ends[0],
        destinations=ends[1],
        size_bytes=n_bytes,
        linkage=str(item.get("linkage", "unknown")),
        checksum=item.get("generate_checksum") is True,
        verify=item.get("verify_checksum_remote") is True,
    )


def is_relay(label: str, url: str, listed: Container[str]) -> bool:
    """Whether an end of a transfer that was made is the machine it passed, and not a site of that
    name: of its own files there no list has the URL."""
    return label == RELAY and is_local(url) and url not in listed


def is_local(url: str) -> bool:
    """Whether a URL names a file on the machine that ``pegasus-transfer`` runs on."""
    return scheme_of(url) in LOCAL_SCHEMES


def _url(value: object, where: str) -> SiteUrl:
    if not isinstance(value, dict) or "site_label" not in value or "url" not in value:
        raise InputError(f"{where}: found {value!r}, expected site_label and url")
    priority = value.get("priority")
    if priority is not None and not _PRIORITY.fullmatch(str(priority)):
        raise InputError(f"{where}: found priority {shown(priority)}, expected a whole number")
    return SiteUrl(
        site=str(value["site_label"]),
        url=str(value["url"]),
        priority=None if priority is None else int(priority),
    )
