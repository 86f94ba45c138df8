"""From a workflow's text to the same with provisioning jobs around its wide levels."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from network_provisioner.base.errors import InputError
from pegasus_hooks.provisioning.insertion import additions, inserted, without
from pegasus_hooks.provisioning.step import ProvisioningStep
from pegasus_hooks.provisioning.wide_levels import (
    FileLocations,
    WideLevels,
    needs_of,
    wide_levels,
)
from site_selector.catalogs.documents import Document, parse_document
from site_selector.catalogs.entries import ReplicaCatalog
from site_selector.catalogs.properties import expanded
from site_selector.catalogs.workflow import WHAT, Workflow, workflow_of

_PROGRAM = Path(__file__).with_name("job.py")


@dataclass(frozen=True, slots=True)
class ProvisioningOptions:
    """``min_width``: a level with fewer jobs is not wide. ``hooks`` and ``pool``: configuration
    files for the jobs, "" to leave network or pool as they are. ``lease_s`` is as in
    :class:`pegasus_hooks.provisioning.step.ProvisioningStep`, ``execution`` and ``between`` as in
    :class:`pegasus_hooks.provisioning.wide_levels.FileLocations`."""

    min_width: int
    hooks: str = ""
    pool: str = ""
    lease_s: int = 3600
    execution: tuple[str, ...] = ()
    between: str = "local"


@dataclass(frozen=True, slots=True)
class ProvisionedWorkflow:
    """The new text, and what stands in it."""

    text: str
    steps: tuple[tuple[WideLevels, ProvisioningStep], ...]


def program() -> list[str]:
    """The interpreter and the words before a job's own. Raises InputError where Pegasus could not
    hand them on."""
    words = [sys.executable, "-I", "-S", str(_PROGRAM)]
    for word in words:
        if not word.isascii() or any(sign in word for sign in " '\"$\\"):
            raise InputError(f"found {word!r}, expected ADON in a folder without spaces and quotes")
    return words


def provisioned(
    document: Document,
    replicas: ReplicaCatalog | None,
    options: ProvisioningOptions,
    words: Sequence[str],
    variables: Mapping[str, str] = os.environ,
) -> ProvisionedWorkflow:
    """``document`` with jobs around its wide levels, those of an earlier time replaced.

    :param document: as it is written; ``${NAME}`` in it stands for one of ``variables``, and stays.
    :param words: what runs the jobs, see :func:`program`.
    :raises InputError: for a workflow that is none, or is not written as Pegasus writes it.
    """
    bare = without(document.text, document.name)
    if bare != document.text:
        document = parse_document(bare, document.name, WHAT)
    read = expanded(document.text, document.name, variables)
    workflow = workflow_of(parse_document(read, document.name, WHAT))
    where = _locations(workflow, replicas, options)
    steps = []
    for levels in wide_levels(workflow, options.min_width):
        step = needs_of(workflow, levels, where)
        paths = step.paths if options.hooks else ()
        hooks = options.hooks if paths else ""
        step = replace(step, lease_s=options.lease_s, paths=paths, hooks=hooks, pool=options.pool)
        steps.append((levels, step))
    if not steps:
        return ProvisionedWorkflow(document.text, ())
    return ProvisionedWorkflow(inserted(document, additions(steps, words)), tuple(steps))


def _locations(
    workflow: Workflow, replicas: ReplicaCatalog | None, options: ProvisioningOptions
) -> FileLocations:
    where = FileLocations(options.execution, options.between)
    if replicas is None:
        return where
    sites, sizes = {}, {}
    for lfn, file in workflow.files.items():
        found = replicas.find(lfn) if file.producer is None else None
        if found is None:
            continue
        if found.places:
            sites[lfn] = found.places[0][0]
        if found.size_bytes is not None:
            sizes[lfn] = found.size_bytes
    return replace(where, replicas=sites, sizes=sizes)
