"""The sites of a workflow: those of its catalogs, as pegasus-plan brings them together.

Entries inside the workflow go before those of a file, which go before those of a hosted catalog;
properties add profiles; ``local`` and ``condorpool`` are there in any case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from network_provisioner.base.errors import InputError
from site_selector.catalogs.documents import (
    MAX_BYTES,
    Document,
    parse_document,
    read_document,
)
from site_selector.catalogs.entries import ALWAYS_THERE, Directory, FileServer, Site, sites_of
from site_selector.catalogs.fields import Profiles
from site_selector.catalogs.hints import Hints, parse_hints
from site_selector.catalogs.properties import expanded
from site_selector.catalogs.sources import Sources
from site_selector.catalogs.workflow import Workflow

SITE_CATALOG = "siteCatalog"
WHAT = "Pegasus 5 site catalog"
_REPOSITORY = "https://raw.githubusercontent.com/pegasushub/pegasus-site-catalogs"
_RELEASE = "5.1"
_INTERVAL_S = 24 * 3600.0
_TIMEOUT_S = 10.0


def all_sites(
    workflow: Workflow | None, sources: Sources, note: Callable[[str], object]
) -> dict[str, Site]:
    """Sites by name, in the order of the catalogs. Raises InputError with file and line."""
    sites: dict[str, Site] = {}
    if workflow is not None and workflow.document.root.get(SITE_CATALOG) is not None:
        sites |= sites_of(workflow.document, (SITE_CATALOG,))
    file = sources.catalog("site")
    if file is not None:
        listed = sites_of(read_document(file, WHAT, sources.variables))
        sites = {**listed, **sites}
    return _completed(_over(_hosted(sources, note), sites), sources)


def _over(below: Mapping[str, Site], above: Mapping[str, Site]) -> dict[str, Site]:
    """Sites of two catalogs; where both have one, what the second says of it wins."""
    combined = {**below, **above}
    for name in below.keys() & above.keys():
        old, new = below[name], above[name]
        kinds = {directory.kind for directory in new.directories}
        kept = tuple(d for d in old.directories if d.kind not in kinds)
        combined[name] = replace(
            _with_profiles(old, new.profiles),
            arch=new.arch or old.arch,
            os=new.os or old.os,
            directories=new.directories + kept,
            grids=old.grids or new.grids,
            tags={**old.tags, **new.tags},
            release=new.release if any(new.release) else old.release,
        )
    return combined


def _completed(sites: dict[str, Site], sources: Sources) -> dict[str, Site]:
    """With the sites that Pegasus adds, and the profiles of its properties."""
    for name in ALWAYS_THERE:
        sites.setdefault(name, _default_site(name))
    for name, site in sites.items():
        profiles = sources.site_profiles(name)
        if profiles:
            try:
                sites[name] = _with_profiles(site, profiles)
            except InputError as error:
                raise InputError(f"Pegasus's properties: site {name!r}: {error}") from None
    return sites


def _with_profiles(site: Site, more: Profiles) -> Site:
    spaces = {**dict.fromkeys(site.profiles), **dict.fromkeys(more)}
    profiles = {space: {**site.profiles.get(space, {}), **more.get(space, {})} for space in spaces}
    return replace(site, profiles=profiles, hints=parse_hints(profiles.get("pegasus", {})))


def _default_site(name: str) -> Site:
    """As Pegasus makes it (PegasusConfiguration.java)."""
    directories = []
    if name == "local":
        for kind, path in (("sharedScratch", "wf-scratch/LOCAL"), ("sharedStorage", "wf-output")):
            place = str(Path.cwd() / path)
            servers = (FileServer(f"file://{place}", "all"),)
            directories.append(Directory(kind, place, servers))
    profiles: Profiles = {"pegasus": {"style": "condor"}}
    return Site(name, None, None, tuple(directories), profiles, Hints(), declared=False)


# ------------------------------------------------------------------------- hosted site catalogs


def _hosted(sources: Sources, note: Callable[[str], object]) -> dict[str, Site]:
    """The catalog that ``pegasus.catalog.site.repo.file`` names: the copy that Pegasus left in the
    working directory, else what the server has. Nothing where the server has none, which ``note``
    tells. Raises InputError for one that is no site catalog."""
    name = sources.properties.get("pegasus.catalog.site.repo.file")
    if not name:
        return {}
    try:
        return sites_of(_hosted_document(name, sources))
    except OSError as error:
        note(f"the hosted site catalog {name} cannot be read: {error}; it is left out")
        return {}


def _hosted_document(name: str, sources: Sources) -> Document:
    """Raises OSError if no server has it, and InputError."""
    copy = Path(name)
    interval = sources.properties.get("pegasus.catalog.site.repo.interval", "")
    fresh_s = float(interval) if interval.isdecimal() else _INTERVAL_S
    if copy.is_file() and time.time() - copy.stat().st_mtime <= fresh_s:
        return read_document(copy, WHAT, sources.variables)
    url = (
        f"{sources.properties.get('pegasus.catalog.site.repo', _REPOSITORY)}/{_RELEASE}/conf/{name}"
    )
    from http.client import HTTPException  # noqa: PLC0415  (few need it, and it takes long to load)
    from urllib.request import urlopen  # noqa: PLC0415

    try:
        with urlopen(url, timeout=_TIMEOUT_S) as answer:
            text = answer.read(MAX_BYTES).decode("utf-8-sig", "replace")
    except (ValueError, HTTPException) as error:  # no URL, or no HTTP
        raise OSError(f"{url}: {error}") from None
    return parse_document(expanded(text, url, sources.variables), url, WHAT)
