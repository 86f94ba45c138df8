"""Site catalogs in XML, version 4."""

from __future__ import annotations

import re
from typing import Any

from site_selector.catalogs.pegasus4.elements import (
    Converted,
    Element,
    Lines,
    profiles,
    system,
)

_HYPHEN = re.compile(r"-(\w)")


def read(root: Element) -> Converted:
    """The sites of a ``<sitecatalog>``."""
    sites: list[dict[str, Any]] = []
    lines: Lines = {(): root.line}
    for site in root.children("site"):
        lines["sites", len(sites)] = site.line
        sites.append(_site(site))
    return {"pegasus": "5.0", "sites": sites}, lines


def _site(site: Element) -> dict[str, Any]:
    grids = [
        grid.values(type="type", contact="contact", scheduler="scheduler", jobtype="jobtype")
        for grid in site.children("grid")
    ]
    made = site.values(name="handle") | system(site) | profiles(site)
    return made | {
        "directories": [_directory(directory) for directory in site.children("directory")],
        "grids": [{key: value.lower() for key, value in grid.items()} for grid in grids],
    }


def _directory(directory: Element) -> dict[str, Any]:
    kind = _HYPHEN.sub(lambda match: match[1].upper(), directory.attributes.get("type", ""))
    servers = [
        {
            "url": server.attributes.get("url", "") + server.attributes.get("mount-point", ""),
            "operation": server.attributes.get("operation", "all"),
        }
        for server in directory.children("file-server")
    ]
    return {
        "type": kind,
        "path": directory.attributes.get("path", ""),
        "freeSize": directory.attributes.get("free-size", ""),
        "fileServers": servers,
    }
