"""Which sites can run each transformation, from a transformation catalog: a program of its own.

``python -I callout_able.py CATALOG…`` prints ``t<name>``, a tab and the sites between tabs. A
transformation that can be staged goes anywhere and is left out. It is read as far as it can be
read: this is what the built-in rule goes by when the workflow could not be mapped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def able(document: Any) -> Iterator[tuple[str, list[str]]]:
    """Transformation names, as the planner writes them, and the sites where they are installed."""
    if not isinstance(document, dict):
        return
    inside = document.get("transformationCatalog")
    entries = (inside if isinstance(inside, dict) else document).get("transformations")
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, dict) or not isinstance(entry.get("sites"), list):
            continue
        sites = [site for site in entry["sites"] if isinstance(site, dict)]
        if any(site.get("type") != "installed" for site in sites):
            continue
        yield full_name(entry), [str(site.get("name")) for site in sites]


def full_name(entry: dict[str, Any]) -> str:
    """``ns::name:version``, without the parts that are not there."""
    name = str(entry.get("name"))
    if entry.get("namespace") is not None:
        name = f"{entry['namespace']}::{name}"
    return name if entry.get("version") is None else f"{name}:{entry['version']}"


def main(files: list[str]) -> None:
    """Print what the files say."""
    for file in files:
        document = yaml.load(Path(file).read_bytes(), Loader=_LOADER)
        for name, sites in able(document):
            print("\t".join((f"t{name}", *sites)))


if __name__ == "__main__":
    main(sys.argv[1:])
