"""Pegasus 5 catalogs: sites, replicas, transformations.

Each reader takes a parsed document, so that catalogs in files of their own and catalogs inside the
workflow (``siteCatalog:``, ``replicaCatalog:``, ``transformationCatalog:``) are read alike. Checked
by hand: to import pydantic takes a third of the planner plug-in's start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from reprlib import repr as shown
from typing import Any, TypeGuard

from network_provisioner.base.errors import InputError
from network_provisioner.base.units import MAX_DURATION_S
from site_selector.catalogs.documents import Document, Key
from site_selector.catalogs.fields import (
    EXPECTED_NAME,
    Profiles,
    brief,
    full_name,
    is_name,
    positive_number,
    profiles_of,
    size_of,
)
from site_selector.catalogs.hints import Hints, is_hint, parse_hints, refuse_hints, unknown_sites

Path = tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class FileServer:
    """A URL prefix under which a directory is reached; ``operation`` is get, put or all."""

    url: str
    operation: str


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory of a site: ``kind`` is sharedScratch, localScratch, sharedStorage, …"""

    kind: str
    path: str
    servers: tuple[FileServer, ...]


@dataclass(frozen=True, slots=True)
class Site:
    """A site of the site catalog."""

    name: str
    arch: str | None
    os: str | None
    directories: tuple[Directory, ...]
    profiles: Profiles
    hints: Hints


@dataclass(frozen=True, slots=True)
class Replica:
    """Where a file lies. ``size_bytes`` is None where the catalog gives none."""

    lfn: str
    places: tuple[tuple[str, str], ...]  # (site, physical file name)
    size_bytes: int | None
    path: Path


@dataclass(frozen=True, slots=True)
class ReplicaCatalog:
    """Exact entries, and entries whose lfn is a regular expression, in the order of the file."""

    document: Document
    entries: Mapping[str, Replica]
    patterns: tuple[tuple[re.Pattern[str], Replica], ...]

    def find(self, lfn: str) -> Replica | None:
        """The replica of a logical file: an exact entry before the first pattern that matches."""
        exact = self.entries.get(lfn)
        if exact is not None:
            return exact
        return next((r for pattern, r in self.patterns if pattern.fullmatch(lfn)), None)


@dataclass(frozen=True, slots=True)
class Executable:
    """A transformation at one site. A stageable one can be carried to any site that fits it."""

    site: str
    stageable: bool
    arch: str | None
    os: str | None
    runtime_s: float | None

    def fits(self, site: Site) -> bool:
        """Whether it could run at ``site`` after staging: same arch and OS, where both say one."""
        return (self.arch is None or site.arch is None or self.arch == site.arch) and (
            self.os is None or site.os is None or self.os == site.os
        )


@dataclass(frozen=True, slots=True)
class Transformation:
    """A program under its full name, with the places it is installed at or staged from."""

    name: str
    executables: tuple[Executable, ...]
    runtime_s: float | None

    def sites(self, sites: Mapping[str, Site]) -> tuple[str, ...]:
        """The sites that can run it, in the order of the site catalog."""
        installed = {e.site for e in self.executables if not e.stageable}
        movable = [e for e in self.executables if e.stageable]
        return tuple(
            name
            for name, site in sites.items()
            if name in installed or any(e.fits(site) for e in movable)
        )

    def runtime_at(self, site: str) -> float | None:
        """The catalog's ``pegasus: runtime`` in seconds, a site's own before the general one."""
        own = next((e.runtime_s for e in self.executables if e.site == site), None)
        return self.runtime_s if own is None else own


def sites_of(document: Document, at: Path = ()) -> dict[str, Site]:
    """The site catalog below ``at``. Raises InputError with file and line."""
    found: dict[str, Site] = {}
    for path, entry in _entries(document, at, "sites"):
        name = _name(document, path, entry, "site")
        if name in found:
            raise document.error(path, f"site {name!r} is listed twice")
        profiles = profiles_of(
            document, (*path, "profiles"), entry.get("profiles"), f"site {name!r}"
        )
        others = {space: keys for space, keys in profiles.items() if space != "pegasus"}
        refuse_hints(document, (*path, "profiles"), others, f"site {name!r}")
        try:
            hints = parse_hints(profiles.get("pegasus", {}))
        except InputError as error:
            # The longest: adon.rate is part of adon.rate_x as well.
            named = [k for k in profiles["pegasus"] if is_hint(k) and k in str(error)]
            where = (*path, "profiles", "pegasus", *sorted(named, key=len)[-1:])
            raise document.error(where, f"site {name!r}: {error}") from None
        found[name] = Site(
            name,
            _optional(entry, "arch"),
            _optional(entry, "os.type"),
            tuple(_directories(document, path, entry, name)),
            profiles,
            hints,
        )
    if not found:
        raise document.error((*at, "sites"), "the site catalog lists no site")
    for index, site in enumerate(found.values()):
        for key, wrong in unknown_sites(site.hints, found):
            where = (*at, "sites", index, "profiles", "pegasus", key)
            raise document.error(where, f"site {site.name!r}: {wrong}")
    return found


def replicas_of(document: Document, at: Path = ()) -> ReplicaCatalog:
    """The replica catalog below ``at``. Raises InputError with file and line."""
    exact: dict[str, Replica] = {}
    patterns: list[tuple[re.Pattern[str], Replica]] = []
    for path, entry in _entries(document, at, "replicas"):
        lfn = _name(document, path, entry, "replica", "lfn")
        places = []
        for pfn in entry.get("pfns") or ():
            site, name = (pfn.get(k) if isinstance(pfn, dict) else None for k in ("site", "pfn"))
            if not _is_text(site) or not _is_text(name):
                raise document.error(path, f"replica {lfn!r}: a pfn has no site or no pfn")
            places.append((site, name))
        if not places:
            raise document.error(path, f"replica {lfn!r} has no pfns")
        replica = Replica(lfn, tuple(places), size_of(document, path, entry, lfn), path)
        if entry.get("regex") in ("true", "True", "TRUE"):
            try:
                patterns.append((re.compile(lfn), replica))
            except re.error as error:
                raise document.error(path, f"replica pattern {lfn!r}: {error}") from None
        elif lfn in exact:
            raise document.error(path, f"replica {lfn!r} is listed twice")
        else:
            exact[lfn] = replica
    return ReplicaCatalog(document, exact, tuple(patterns))


def transformations_of(document: Document, at: Path = ()) -> dict[str, Transformation]:
    """The transformation catalog below ``at``, by full name. Raises InputError with file, line."""
    found: dict[str, Transformation] = {}
    for path, entry in _entries(document, at, "transformations"):
        short = _name(document, path, entry, "transformation")
        name = full_name(_optional(entry, "namespace"), short, _optional(entry, "version"))
        if name in found:
            raise document.error(path, f"transformation {name!r} is listed twice")
        executables = []
        for index, site in enumerate(entry.get("sites") or ()):
            where = (*path, "sites", index)
            at_site = _name(document, where, site, f"{name}: a site")
            kind = site.get("type", "installed")
            if kind not in ("installed", "stageable"):
                raise document.error(
                    where, f"{name}: found type {brief(kind)}, expected installed or stageable"
                )
            executables.append(
                Executable(
                    at_site,
                    kind == "stageable",
                    _optional(site, "arch"),
                    _optional(site, "os.type"),
                    _runtime(document, where, site, name),
                )
            )
        if not executables:
            raise document.error(path, f"transformation {name!r} is at no site")
        found[name] = Transformation(
            name, tuple(executables), _runtime(document, path, entry, name)
        )
    return found


def _entries(document: Document, at: Path, key: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    holder: Any = document.root
    for step in at:
        holder = holder.get(step) if isinstance(holder, dict) else None
    value = holder.get(key) if isinstance(holder, dict) else None
    if value is None and isinstance(holder, dict) and key in holder:
        value = []
    if not isinstance(value, list):
        raise document.error((*at, key), f"no list {key!r}, expected a Pegasus 5 catalog of {key}")
    for index, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise document.error((*at, key, index), f"an entry of {key!r} is no mapping")
        yield (*at, key, index), entry


def _name(document: Document, path: Path, entry: Any, what: str, key: str = "name") -> str:
    value = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(value, str) or not value:
        raise document.error(path, f"{what} has no {key}")
    if not is_name(value):
        raise document.error((*path, key), f"{what} {shown(value)}, {EXPECTED_NAME}")
    return value


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and value != ""


def _optional(entry: Mapping[str, Any], key: str) -> str | None:
    value = entry.get(key)
    return value if isinstance(value, str) else None


def _runtime(document: Document, path: Path, entry: Mapping[str, Any], what: str) -> float | None:
    profiles = profiles_of(document, (*path, "profiles"), entry.get("profiles"), what)
    refuse_hints(document, (*path, "profiles"), profiles, what)
    value = profiles.get("pegasus", {}).get("runtime")
    if value is None:
        return None
    number = positive_number(value)
    if number is None or number > MAX_DURATION_S:
        most = "" if number is None else f" and at most {MAX_DURATION_S:g}"
        raise document.error(
            (*path, "profiles", "pegasus", "runtime"),
            f"{what}: runtime is {shown(value)}, expected seconds above 0{most}",
        )
    return number


def _directories(
    document: Document, path: Path, entry: Mapping[str, Any], site: str
) -> Iterator[Directory]:
    for index, item in enumerate(entry.get("directories") or ()):
        where = (*path, "directories", index)
        if not isinstance(item, dict) or not all(_is_text(item.get(k)) for k in ("type", "path")):
            raise document.error(where, f"site {site!r}: a directory has no type or no path")
        servers = []
        for server in item.get("fileServers") or ():
            if not isinstance(server, dict) or not _is_text(server.get("url")):
                raise document.error(where, f"site {site!r}: a file server has no url")
            servers.append(FileServer(server["url"], _optional(server, "operation") or "all"))
        yield Directory(item["type"], item["path"], tuple(servers))
