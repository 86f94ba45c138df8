"""What a job runs: the executable of its transformation at its site, its arguments and profiles.

Profiles of one namespace add up; where two say the same key, the job's own beats the
transformation's, which beats the site's, as in Pegasus.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from network_provisioner.base.errors import InputError
from pegasus_hooks.planner.model import Sources
from site_selector.catalogs.documents import read_document
from site_selector.catalogs.entries import Site, Transformation
from site_selector.catalogs.fields import full_name
from site_selector.inputs import TRANSFORMATION_CATALOG, Inputs

Profiles = Mapping[str, Mapping[str, str]]
TRANSFER = "pegasus::transfer"


@dataclass(frozen=True, slots=True)
class Program:
    """An executable: ``pfn`` at ``site``, to be staged to where the job runs if ``staged``."""

    pfn: str
    site: str
    staged: bool
    profiles: Profiles = field(default_factory=dict)

    def lfn(self, transformation: str) -> str:
        """The name a staged executable gets, as Pegasus builds it: ``ns-name-version``."""
        return transformation.replace("::", "-").replace(":", "-")


@dataclass(frozen=True, slots=True)
class Programs:
    """The transformation catalog, with what site selection has no use for: pfns and profiles."""

    entries: Mapping[str, Mapping[str, Any]]
    sites: Mapping[str, Site]
    transformations: Mapping[str, Transformation]

    def find(self, transformation: str, site: str) -> Program | None:
        """Installed at ``site``, else one that can be staged there; None where there is none."""
        entry = self.entries.get(transformation)
        if entry is None:
            return None
        general = _profiles(entry)
        stageable: Program | None = None
        known = self.transformations[transformation].executables
        for place, executable in zip(entry["sites"], known, strict=True):
            pfn = place.get("pfn")
            if not isinstance(pfn, str):
                raise InputError(f"transformation {transformation!r}: a site has no pfn")
            if entry.get("container") or place.get("container"):
                raise InputError(
                    f"transformation {transformation!r}: found a container, which the embedded "
                    "planner cannot plan; use pegasus-plan"
                )
            profiles = merged(general, _profiles(place))
            if executable.site == site and not executable.stageable:
                return Program(pfn, site, False, profiles)
            if executable.stageable and stageable is None and executable.fits(self.sites[site]):
                stageable = Program(pfn, executable.site, True, profiles)
        return stageable


def read_programs(sources: Sources, inputs: Inputs) -> Programs:
    """The catalogs again, in a file and inside the workflow, for pfns and profiles. Raises
    InputError."""
    file = sources.catalog("transformation")
    roots = [inputs.workflow.document.root.get(TRANSFORMATION_CATALOG) or {}]
    if file != sources.workflow:
        outside = read_document(file, "transformation catalog").root
        roots.insert(0, outside.get(TRANSFORMATION_CATALOG, outside))
    entries = {}
    for entry in (entry for root in roots for entry in root.get("transformations") or ()):
        name = full_name(entry.get("namespace"), entry["name"], entry.get("version"))
        entries[name] = entry
    return Programs(entries, inputs.sites, inputs.transformations)


def merged(*layers: Profiles) -> dict[str, dict[str, str]]:
    """Profiles in rising precedence, added up."""
    out: dict[str, dict[str, str]] = {}
    for layer in layers:
        for namespace, keys in layer.items():
            out.setdefault(namespace, {}).update(keys)
    return out


def split_arguments(arguments: list[Any]) -> tuple[str, ...]:
    """Argument words as HTCondor sees them when Pegasus joins them with spaces: split at white
    space, single and double quotes group, a backslash is a plain character.

    Raises ValueError for a quote that is not closed.
    """
    lexer = shlex.shlex(" ".join(str(a) for a in arguments), posix=True)
    lexer.whitespace_split = True
    lexer.escape = ""
    lexer.commenters = ""
    return tuple(lexer)


def _profiles(entry: Mapping[str, Any]) -> Profiles:
    value = entry.get("profiles") or {}
    return {
        str(space): {str(k): "" if v is None else str(v) for k, v in (keys or {}).items()}
        for space, keys in value.items()
    }
