"""What a job runs: the executable of its transformation at its site, its arguments and profiles;
and what the embedded planner cannot plan, refused by name before anything is written.

Profiles of one namespace add up; where two say the same key, the job's own beats the
transformation's, which beats the site's, as in Pegasus.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from network_provisioner.base.errors import InputError
from site_selector.catalogs.entries import Site, Transformation
from site_selector.catalogs.fields import Profiles
from site_selector.catalogs.workflow import Job, Workflow

NAME = re.compile(r"[A-Za-z0-9_.-]+\Z")
_LFN = re.compile(r"[A-Za-z0-9_.,:=@+%~-][A-Za-z0-9_.,:=@+%~/-]*\Z")
_DAGMAN_KEYS = ("retry", "priority", "category", "post", "post.path.user", "post.arguments")
OWN_POST = "user"  # of profile dagman: post: the script that post.path.user names
_STYLES = ("condor",)
TRANSFER = "pegasus::transfer"


def refuse_what_cannot_be_planned(workflow: Workflow) -> None:
    """Raises InputError that names the job and the feature."""
    if not NAME.match(workflow.name):
        raise InputError(
            f"workflow name {workflow.name!r}: expected letters, digits and any of _ . -"
        )
    root = workflow.document.root
    if root.get("hooks"):
        raise InputError(_message("the workflow", "shell hooks (notifications)"))
    entries = workflow.entries
    for job in workflow.jobs.values():
        feature = _feature(job, entries[job.id])
        if feature:
            raise workflow.job_error(job.id, _message("the job", feature))
    for lfn in workflow.files:
        if not _LFN.match(lfn) or ".." in Path(lfn).parts:
            raise InputError(
                f"file {lfn!r}: expected letters, digits and any of _ . , : = @ + % ~ - and "
                "slashes inside, which every transfer tool carries unharmed"
            )


def _feature(job: Job, raw: Mapping[str, Any]) -> str:
    if job.kind != "job":
        return f"a sub-workflow ({job.kind})"
    if not NAME.match(job.id):
        return f"an id other than letters, digits and any of _ . - ({job.id!r})"
    if not NAME.match(str(raw.get("name"))):
        return f"a transformation named {raw.get('name')!r}, with other than letters, digits, _ . -"
    if raw.get("hooks"):
        return "shell hooks (notifications)"
    for use in raw.get("uses") or ():
        if use.get("type") == "checkpoint":
            return f"a checkpoint file ({use['lfn']!r})"
    return unsupported_profile(job.profiles)


def unsupported_profile(profiles: Profiles) -> str:
    """The profile that asks for what cannot be planned; empty if there is none."""
    for key in profiles.get("pegasus", {}):
        if key.startswith(("clusters.", "job.aggregator")):
            return f"clustering (profile pegasus: {key})"
    style = profiles.get("pegasus", {}).get("style", "condor")
    if style not in _STYLES:
        return f"profile pegasus: style {style!r} (only condor)"
    for key, value in profiles.get("dagman", {}).items():
        if key.lower() not in _DAGMAN_KEYS:
            return f"profile dagman: {key}"
        if key.lower() == "post" and value != OWN_POST:
            return f"profile dagman: {key}: {value!r} (only {OWN_POST})"
    for namespace in profiles:
        if namespace not in ("condor", "env", "pegasus", "dagman", "selector", "metadata", "hints"):
            return f"profiles of namespace {namespace!r}"
    return ""


def _message(who: str, feature: str) -> str:
    return f"{who} asks for {feature}, which the embedded planner cannot plan; use pegasus-plan"


@dataclass(frozen=True, slots=True)
class JobExecutable:
    """An executable: ``pfn`` at ``site``, to be staged to where the job runs if ``staged``."""

    pfn: str
    site: str
    staged: bool
    profiles: Profiles = field(default_factory=dict)

    def lfn(self, transformation: str) -> str:
        """The name a staged executable gets, as Pegasus builds it: ``ns-name-version``."""
        return transformation.replace("::", "-").replace(":", "-")


@dataclass(frozen=True, slots=True)
class ExecutableCatalog:
    """The transformation catalog, as jobs of these sites use it."""

    sites: Mapping[str, Site]
    transformations: Mapping[str, Transformation]

    def find(self, transformation: str, site: str) -> JobExecutable | None:
        """Installed at ``site``, else one that can be staged there; None if there is none."""
        known = self.transformations.get(transformation)
        stageable: JobExecutable | None = None
        for executable in known.executables if known else ():
            if not executable.pfn:
                raise InputError(f"transformation {transformation!r}: a site has no pfn")
            if executable.container:
                raise InputError(
                    f"transformation {transformation!r}: found a container, which the embedded "
                    "planner cannot plan; use pegasus-plan"
                )
            profiles = merged(known.profiles if known else {}, executable.profiles)
            if not executable.fits(self.sites[site]):
                continue
            if executable.site == site and not executable.stageable:
                return JobExecutable(executable.pfn, site, False, profiles)
            if executable.stageable and stageable is None:
                stageable = JobExecutable(executable.pfn, executable.site, True, profiles)
        return stageable


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
