"""Pegasus 5 catalogs: sites, replicas, transformations.

Each reader takes a parsed document, so that catalogs in files of their own and catalogs inside the
workflow (``siteCatalog:``, ``replicaCatalog:``, ``transformationCatalog:``) are read alike. Checked
by hand: to import pydantic takes a third of the planner plug-in's start.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from reprlib import repr as shown
from typing import Any, TypeGuard

from network_provisioner.base.errors import InputError
from network_provisioner.base.units import MAX_DURATION_S, parse_size
from network_provisioner.base.urls import moves_directly, scheme_of
from site_selector.catalogs.documents import Document, Key
from site_selector.catalogs.fields import (
    EXPECTED_NAME,
    Profiles,
    brief,
    full_name,
    is_hint,
    is_name,
    positive_number,
    profiles_of,
    size_of,
)
from site_selector.catalogs.hints import Hints, parse_hints, refuse_hints, unknown_sites
from site_selector.catalogs.javapattern import compiled
from site_selector.catalogs.schema import check_catalog

Path = tuple[Key, ...]
_GROUP = re.compile(r"\[(\d{1,3})\]")
SUBMIT_SITE = "local"
ALWAYS_THERE = (SUBMIT_SITE, "condorpool")
"""The sites that Pegasus adds where a catalog lacks them."""


@dataclass(frozen=True, slots=True)
class FileServer:
    """A URL prefix under which a directory is reached; ``operation`` is get, put or all."""

    url: str
    operation: str


SCRATCH = "sharedScratch"
"""The kind of the directory of a site to which files are staged."""


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory of a site: ``kind`` is sharedScratch, localScratch, sharedStorage, …
    ``free_bytes``: its ``freeSize``, None if that is no size: Pegasus reads any text."""

    kind: str
    path: str
    servers: tuple[FileServer, ...]
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """A site of the site catalog, or one that Pegasus adds (not ``declared``). ``grids``: jobs are
    handed to a batch system there. ``tags``: profiles of jobs with this ``pegasus: tag``."""

    name: str
    arch: str | None
    os: str | None
    directories: tuple[Directory, ...]
    profiles: Profiles
    hints: Hints
    grids: bool = False
    declared: bool = True
    tags: Mapping[str, Profiles] = field(default_factory=dict)
    release: tuple[str, str] = ("", "")  # and version of the OS

    @property
    def system(self) -> tuple[str, ...]:
        """See :func:`_system`."""
        return _system(self.arch, self.os, self.release)

    @property
    def only_stores(self) -> bool:
        """Whether nothing says how jobs would get there: only directories are told of it."""
        key_sets = (
            keys for space, keys in self.profiles.items() if space not in ("env", "metadata")
        )
        return bool(self.directories) and not self.grids and not any(key_sets)


@dataclass(frozen=True, slots=True)
class Replica:
    """Where a file lies. ``size_bytes`` is None if the catalog gives none, ``checksum`` whether it
    gives one."""

    lfn: str
    places: tuple[tuple[str, str], ...]  # (site, physical file name)
    size_bytes: int | None
    path: Path
    checksum: bool = False


_THROUGH = f" through {SUBMIT_SITE}"


def places_of(replica: Replica, into: Collection[str], checked: bool) -> tuple[str, ...]:
    """The places of a file that jobs need where files are written by one of the URL schemes
    ``into`` (none: unknown): sites, and ``S through local`` for a site S that does not send files
    to all of these, so that they pass through the submit host. ``checked``: Pegasus checks the
    integrity of files, and asks for the checksum of one that has none."""
    places, summed = [], checked and not replica.checksum
    for site, url in replica.places:
        direct = all(moves_directly(pfn_scheme(url), to, summed) for to in into)
        places.append(site if direct or site == SUBMIT_SITE else f"{site}{_THROUGH}")
    return tuple(dict.fromkeys(places))


def pfn_scheme(pfn: str) -> str:
    """The scheme of a physical file name, which may be a path."""
    return scheme_of(pfn) if "://" in pfn else "file"


def site_of_place(place: str) -> str:
    """The site at which a file lies that is at a place (:func:`places_of`)."""
    return place.removesuffix(_THROUGH)


def legs_of(src: str, dst: str) -> tuple[tuple[str, str], ...]:
    """The pairs of sites that bytes cross from a place (:func:`places_of`) to a site, in order."""
    site = site_of_place(src)
    stops = [site, SUBMIT_SITE, dst] if site != src else [site, dst]
    return tuple(pair for pair in pairwise(stops) if pair[0] != pair[1])


@dataclass(frozen=True, slots=True)
class ReplicaCatalog:
    """Exact entries, and entries whose lfn is a regular expression, in the order of the file.
    ``notes``: what could not be read, one line each."""

    document: Document
    entries: Mapping[str, Replica]
    patterns: tuple[tuple[re.Pattern[str], Replica], ...]
    notes: tuple[str, ...] = ()

    def find(self, lfn: str) -> Replica | None:
        """The replica of a logical file: as an exact entry has it, and as the first pattern that
        matches, whose groups stand for ``[1]``, ``[2]``, … in its physical file names."""
        exact = self.entries.get(lfn)
        for pattern, replica in self.patterns:
            if match := pattern.fullmatch(lfn):
                places = tuple((site, filled(name, match)) for site, name in replica.places)
                matched = replace(replica, lfn=lfn, places=places)
                return merged(exact, matched) if exact else matched
        return exact


def filled(name: str, match: re.Match[str]) -> str:
    """A physical file name with the groups of a match in the place of ``[0]``, ``[1]``, …"""
    groups = (match[0], *match.groups(""))
    return _GROUP.sub(lambda n: groups[int(n[1])] if int(n[1]) < len(groups) else n[0], name)


def merged(first: Replica, other: Replica) -> Replica:
    """Two entries of one file: the places of both, the size that the first of them knows."""
    size = other.size_bytes if first.size_bytes is None else first.size_bytes
    places = tuple(dict.fromkeys((*first.places, *other.places)))
    checksum = first.checksum or other.checksum
    return replace(first, places=places, size_bytes=size, checksum=checksum)


@dataclass(frozen=True, slots=True)
class Executable:
    """A transformation at one site. One that is ``movable`` runs at any site that it fits: it is
    ``stageable``, or installed in a container."""

    site: str
    stageable: bool
    arch: str | None
    os: str | None
    runtime_s: float | None
    pfn: str = ""
    container: bool = False
    profiles: Profiles = field(default_factory=dict)
    release: tuple[str, str] = ("", "")  # and version of the OS

    @property
    def movable(self) -> bool:
        """Whether it may run elsewhere."""
        return self.stageable or self.container

    @property
    def system(self) -> tuple[str, ...]:
        """See :func:`_system`."""
        return _system(self.arch, self.os, self.release)

    @property
    def for_people(self) -> str:
        """The system as text."""
        return " ".join(filter(None, self.system))

    def fits(self, site: Site) -> bool:
        """Whether it could run at ``site``, were it there: the same system, as Pegasus asks for
        also where it is installed."""
        return self.system == site.system


def _system(arch: str | None, os: str | None, release: tuple[str, str]) -> tuple[str, ...]:
    """What a program and a site have in common. Where nothing is said, Pegasus takes x86_64 and
    linux, and no release."""
    return (arch or "x86_64", os or "linux", *release)


@dataclass(frozen=True, slots=True)
class Transformation:
    """A program under its full name, with the places it is installed at or staged from."""

    name: str
    executables: tuple[Executable, ...]
    runtime_s: float | None
    profiles: Profiles = field(default_factory=dict)

    def sites(self, sites: Mapping[str, Site]) -> tuple[str, ...]:
        """The sites that can run it, in the order of the site catalog."""
        installed = {(e.site, e.system) for e in self.executables}
        movable = {e.system for e in self.executables if e.movable}
        return tuple(
            name
            for name, site in sites.items()
            if site.system in movable or (name, site.system) in installed
        )

    def brought(self, able: Sequence[str], sites: Mapping[str, Site]) -> Sequence[str]:
        """Of the sites that can run it those where it is or can be brought, all if there is none:
        Pegasus stages a path of a site other than the submit host only to jobs at this site."""
        own = {e.site for e in self.executables}
        systems = {
            e.system
            for e in self.executables
            if e.movable
            and (not e.stageable or e.site == SUBMIT_SITE or pfn_scheme(e.pfn) != "file")
        }
        return [s for s in able if s in own or sites[s].system in systems] or able

    def runtime_at(self, site: str) -> float | None:
        """The catalog's ``pegasus: runtime`` in seconds, a site's own before the general one."""
        own = next((e.runtime_s for e in self.executables if e.site == site), None)
        return self.runtime_s if own is None else own


def _tags(
    document: Document, path: Path, entry: Mapping[str, Any], site: str
) -> Iterator[tuple[str, Profiles]]:
    tags = entry.get("x-tags")
    for index, tag in enumerate(tags if type(tags) is list else ()):
        name = tag.get("name") if type(tag) is dict else None
        where = (*path, "x-tags", index)
        if not isinstance(name, str):
            raise document.error(where, f"site {site!r}: found a tag in 'x-tags' without a name")
        profiles = (*where, "profiles")
        yield name, profiles_of(document, profiles, tag.get("profiles"), f"site {site!r}")


def sites_of(document: Document, at: Path = ()) -> dict[str, Site]:
    """The site catalog below ``at``. Raises InputError with file and line."""
    check_catalog(document, at, "sites")
    sites: dict[str, Site] = {}
    indices: dict[str, int] = {}
    for index, (path, entry) in enumerate(_entries(document, at, "sites")):
        name = _name(document, path, entry, "site")
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
        indices[name] = index  # of several, Pegasus takes the last
        sites[name] = Site(
            name,
            _optional(entry, "arch"),
            _optional(entry, "os.type"),
            tuple(_directories(document, path, entry, name)),
            profiles,
            hints,
            bool(entry.get("grids")),
            tags=dict(_tags(document, path, entry, name)),
            release=_release(entry),
        )
    for site in sites.values():
        for key, wrong in unknown_sites(site.hints, {**sites, **dict.fromkeys(ALWAYS_THERE)}):
            where = (*at, "sites", indices[site.name], "profiles", "pegasus", key)
            raise document.error(where, f"site {site.name!r}: {wrong}")
    return sites


def replicas_of(document: Document, at: Path = ()) -> ReplicaCatalog:
    """The replica catalog below ``at``; entries of one file are merged. Raises InputError with file
    and line. A pattern that cannot be read costs its entry, and a note."""
    check_catalog(document, at, "replicas")
    exact: dict[str, Replica] = {}
    patterns: dict[str, Replica] = {}
    for path, entry in _entries(document, at, "replicas"):
        lfn = _name(document, path, entry, "replica", "lfn")
        places = []
        for pfn in entry.get("pfns") or ():
            site, name = (pfn.get(k) if isinstance(pfn, dict) else None for k in ("site", "pfn"))
            if not _is_text(site) or not _is_text(name):
                raise document.error(path, f"replica {lfn!r}: a pfn has no site or no pfn")
            places.append((site, name))
        if at and not places:
            raise document.error(
                path, f"replica {lfn!r}: found no pfns, expected one in a workflow"
            )
        replica = Replica(lfn, tuple(places), size_of(entry), path, bool(entry.get("checksum")))
        is_pattern = entry.get("regex") in ("true", "True", "TRUE")
        if is_pattern and len(places) > 1:
            raise document.error(
                path, f"replica pattern {lfn!r}: found {len(places)} pfns, expected 1"
            )
        for known in (exact, patterns):
            if lfn in known:
                known[lfn] = merged(known[lfn], replica)
        (patterns if is_pattern else exact).setdefault(lfn, replica)
    notes, replicas = [], []
    for lfn, replica in patterns.items():
        try:
            replicas.append((compiled(lfn), replica))
        except re.error as error:
            wrong = f"replica pattern {lfn!r}: {error}; the entry is left out"
            notes.append(str(document.error(replica.path, wrong)))
    return ReplicaCatalog(document, exact, tuple(replicas), tuple(notes))


def transformations_of(document: Document, at: Path = ()) -> dict[str, Transformation]:
    """The transformation catalog below ``at``, by full name; entries of one program are merged.
    Raises InputError with file, line."""
    check_catalog(document, at, "transformations")
    transformations: dict[str, Transformation] = {}
    containers = dict(_containers(document, at))
    for path, entry in _entries(document, at, "transformations"):
        short = _name(document, path, entry, "transformation")
        name = full_name(_optional(entry, "namespace"), short, _optional(entry, "version"))
        executables = []
        runtime_s, general = _profiles(document, path, entry, name)
        for index, site in enumerate(entry.get("sites") or ()):
            where = (*path, "sites", index)
            at_site = _name(document, where, site, f"{name}: a site")
            kind = site.get("type", "installed")
            if kind not in ("installed", "stageable"):
                raise document.error(
                    where, f"{name}: found type {brief(kind)}, expected installed or stageable"
                )
            runtime, own = _profiles(document, where, site, name)
            container = _optional(site, "container")
            if "container" in site and container not in containers:
                raise document.error(
                    where, f"{name}: found no container {brief(site['container'])} in the catalog"
                )
            if inside := containers.get(container or ""):
                # Of pegasus profiles alone, and the program's own win.
                layers = (inside, general.get("pegasus", {}), own.get("pegasus", {}))
                own = {**own, "pegasus": {k: v for layer in layers for k, v in layer.items()}}
            executables.append(
                Executable(
                    at_site,
                    kind == "stageable",
                    _optional(site, "arch"),
                    _optional(site, "os.type"),
                    runtime,
                    _optional(site, "pfn") or "",
                    bool(container or entry.get("container")),
                    own,
                    _release(site),
                )
            )
        known = transformations.get(name, Transformation(name, (), None))
        transformations[name] = Transformation(
            name,
            (*known.executables, *executables),
            known.runtime_s if runtime_s is None else runtime_s,
            {**known.profiles, **general},
        )
    return transformations


def _containers(document: Document, at: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Each container with its ``pegasus`` profiles."""
    listed = document.value((*at, "containers"))
    for index, entry in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(entry, dict) and _is_text(name := entry.get("name")):
            where = (*at, "containers", index, "profiles")
            profiles = profiles_of(document, where, entry.get("profiles"), f"container {name!r}")
            yield name, dict(profiles.get("pegasus", {}))


def _entries(document: Document, at: Path, key: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    value = document.value((*at, key))
    if value is None and key in document.root:
        value = []
    if at and not isinstance(value, list):  # which Pegasus takes for none inside a workflow
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


def _release(entry: Mapping[str, Any]) -> tuple[str, str]:
    return _optional(entry, "os.release") or "", _optional(entry, "os.version") or ""


def _profiles(
    document: Document, path: Path, entry: Mapping[str, Any], what: str
) -> tuple[float | None, Profiles]:
    """``pegasus: runtime`` in seconds, and all profiles."""
    profiles = profiles_of(document, (*path, "profiles"), entry.get("profiles"), what)
    refuse_hints(document, (*path, "profiles"), profiles, what)
    number = positive_number(profiles.get("pegasus", {}).get("runtime", ""))
    return (None if number is None or number > MAX_DURATION_S else number), profiles


def _directories(
    document: Document, path: Path, entry: Mapping[str, Any], site: str
) -> Iterator[Directory]:
    for index, item in enumerate(entry.get("directories") or ()):
        where = (*path, "directories", index)
        if not isinstance(item, dict) or not _is_text(item.get("type")):
            raise document.error(where, f"site {site!r}: a directory has no type")
        servers = []
        for server in item.get("fileServers") or ():
            if not isinstance(server, dict) or not _is_text(server.get("url")):
                raise document.error(where, f"site {site!r}: a file server has no url")
            servers.append(FileServer(server["url"], _optional(server, "operation") or "all"))
        free_bytes = None
        with suppress(InputError):
            free_bytes = parse_size(_optional(item, "freeSize"))
        yield Directory(item["type"], _optional(item, "path") or "", tuple(servers), free_bytes)
