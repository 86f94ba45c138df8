"""Workflow and catalogs together, checked against each other.

After :func:`load_inputs` every job has at least one site that can run it, and every input of the
workflow has a size and a place. What is left to estimate is what nobody can know beforehand.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from network_provisioner.base.errors import InputError
from network_provisioner.base.suggestions import did_you_mean
from site_selector.catalogs.documents import Document, Key, read_document, uncollected
from site_selector.catalogs.entries import (
    ReplicaCatalog,
    Site,
    Transformation,
    replicas_of,
    sites_of,
    transformations_of,
)
from site_selector.catalogs.properties import fill, parse
from site_selector.catalogs.workflow import Job, Workflow, read_workflow
from site_selector.replicas.database import database_of

_log = logging.getLogger(__name__)
SUBMIT_SITE = "local"
REPLICA_CATALOG = "replicaCatalog"
TRANSFORMATION_CATALOG = "transformationCatalog"
"""The keys under which a workflow has catalogs of its own."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything the files say.

    ``candidates``: the sites that may run each job, one only where the user gave a hint.
    ``raw_bytes``: the size of each input of the workflow; ``places``: the sites that hold it.
    ``staging``: see :func:`staging_of`. ``by_level``: jobs start in Pegasus's own order, for no
    priority can be handed over.
    """

    workflow: Workflow
    sites: Mapping[str, Site]
    replicas: ReplicaCatalog
    transformations: Mapping[str, Transformation]
    candidates: Mapping[str, tuple[str, ...]]
    raw_bytes: Mapping[str, int]
    places: Mapping[str, tuple[str, ...]]
    staging: str = "per-site"
    by_level: bool = False


def staging_of(data_configuration: str, elsewhere: bool = False) -> str:
    """ "per-site" where a site's jobs share their files, "per-job" where every job fetches its own,
    as with all of Pegasus's configurations but ``sharedfs`` and where files are staged
    ``elsewhere``."""
    shared = data_configuration.lower() == "sharedfs"
    return "per-site" if shared and not elsewhere else "per-job"


@uncollected()
def load_inputs(
    workflow: str | Path,
    sites: str | Path | None = None,
    replicas: str | Path | None = None,
    transformations: str | Path | None = None,
    execution_sites: Iterable[str] | None = None,
) -> Inputs:
    """Read a workflow and its catalogs.

    A catalog that is not given is taken from inside the workflow, else from ``sites.yml``,
    ``replicas.yml``, ``transformations.yml`` beside it; transformations are taken from both.
    Replicas come from a database where a ``pegasus.properties`` beside it says so.
    ``execution_sites`` limits where jobs may run, as ``pegasus-plan --sites`` does. Raises
    InputError with file and line or job.
    """
    flow = read_workflow(workflow)
    site_doc = _catalog(flow, sites, "site")
    known = _database(flow) if replicas is None else None
    if known is None:
        known = replicas_of(*_catalog(flow, replicas, "replica"))
    programs: dict[str, Transformation] = {}
    for document in _transformation_documents(flow, transformations):
        programs |= transformations_of(*document)
    return check_inputs(
        flow,
        sites_of(*site_doc),
        known,
        programs,
        execution_sites,
    )


def check_inputs(
    workflow: Workflow,
    sites: Mapping[str, Site],
    replicas: ReplicaCatalog,
    transformations: Mapping[str, Transformation],
    execution_sites: Iterable[str] | None = None,
) -> Inputs:
    """Bring workflow and catalogs together. Raises InputError that names file and line or job."""
    allowed = dict.fromkeys(sites if execution_sites is None else execution_sites)
    for name in allowed:
        known_site(name, sites, "execution site")
    runs_at: dict[str, tuple[str, ...]] = {
        name: tuple(s for s in t.sites(sites) if s in allowed)
        for name, t in transformations.items()
    }
    candidates = {
        job.id: _candidates(workflow, job, sites, transformations, runs_at, allowed)
        for job in workflow.jobs.values()
    }
    raw_bytes: dict[str, int] = {}
    places: dict[str, tuple[str, ...]] = {}
    for file in workflow.files.values():
        if file.producer is None:
            raw_bytes[file.lfn], places[file.lfn] = _raw_input(workflow, sites, replicas, file.lfn)
    return Inputs(workflow, sites, replicas, transformations, candidates, raw_bytes, places)


def _catalog(
    workflow: Workflow, given: str | Path | None, kind: str
) -> tuple[Document, tuple[Key, ...]]:
    what = f"Pegasus 5 {kind} catalog"
    inside = f"{kind}Catalog"
    if given is None and inside in workflow.document.root:
        return workflow.document, (inside,)
    beside = Path(workflow.document.name).with_name(f"{kind}s.yml")
    if given is None and not beside.exists():
        raise InputError(
            f"{workflow.document.name}: no {kind} catalog given, none inside the workflow as "
            f"{inside!r}, and no {beside.name} beside it"
        )
    return read_document(beside if given is None else given, what), ()


def _database(workflow: Workflow) -> ReplicaCatalog | None:
    """What the database of ``pegasus.properties`` knows of the workflow's inputs; where both know
    one, the catalog inside the workflow is believed. None, and a warning, for one that cannot be
    read."""
    beside = Path(workflow.document.name).with_name("pegasus.properties")
    try:
        said = parse(beside.read_text(encoding="utf-8", errors="replace"))
        database = database_of(fill(said, {}))
        if database is None:
            return None
        found = database.replicas(f.lfn for f in workflow.files.values() if f.producer is None)
    except OSError:  # there are no properties
        return None
    except (ValueError, InputError) as error:
        _log.warning("%s: %s", beside, error)
        return None
    inside = ReplicaCatalog(Document(database.shown, "", {}), {}, ())
    if REPLICA_CATALOG in workflow.document.root:
        inside = replicas_of(workflow.document, (REPLICA_CATALOG,))
    return replace(inside, entries={**found, **inside.entries})


def _transformation_documents(
    workflow: Workflow, given: str | Path | None
) -> list[tuple[Document, tuple[Key, ...]]]:
    """The catalog inside the workflow adds to the one in a file, as for the planner; what both list
    is as the one inside has it."""
    beside = Path(workflow.document.name).with_name("transformations.yml")
    if TRANSFORMATION_CATALOG not in workflow.document.root:
        return [_catalog(workflow, given, "transformation")]
    own: tuple[Document, tuple[Key, ...]] = (workflow.document, (TRANSFORMATION_CATALOG,))
    if given is None and not beside.exists():
        return [own]
    return [_catalog(workflow, beside if given is None else given, "transformation"), own]


def known_site(name: str, sites: Iterable[str], what: str) -> None:
    """Raises InputError where the site catalog does not list ``name``, given as ``what``."""
    if name not in sites:
        raise InputError(
            f"{what} {name!r} is not in the site catalog, which lists {', '.join(sites)}"
            + did_you_mean(name, sites)
        )


def _candidates(
    workflow: Workflow,
    job: Job,
    sites: Mapping[str, Site],
    transformations: Mapping[str, Transformation],
    runs_at: Mapping[str, tuple[str, ...]],
    allowed: Iterable[str],
) -> tuple[str, ...]:
    hint = job.site_hint
    if hint is not None:
        try:
            known_site(hint, sites, "profile execution.site")
        except InputError as error:
            raise workflow.job_error(job.id, str(error)) from None
    if job.kind != "job":  # Pegasus plans and runs a sub-workflow at the submit host
        if SUBMIT_SITE not in sites:
            raise workflow.job_error(
                job.id, f"a sub-workflow runs at {SUBMIT_SITE!r}, which the site catalog lacks"
            )
        return (SUBMIT_SITE,)
    if job.transformation not in transformations:
        raise workflow.job_error(
            job.id,
            f"transformation {job.transformation!r} is not in the transformation catalog"
            + did_you_mean(job.transformation, transformations),
        )
    if hint is not None:
        # As the planner takes it: also where it is not among the execution sites.
        found = transformations[job.transformation].sites(sites)
        if hint not in found:
            raise workflow.job_error(
                job.id,
                f"profile execution.site asks for {hint!r}, but {job.transformation} can run at "
                f"{', '.join(found) or 'no site'}",
            )
        return (hint,)
    found = runs_at[job.transformation]
    if not found:
        places = [e.site for e in transformations[job.transformation].executables]
        listed = ", ".join(places)
        raise workflow.job_error(
            job.id,
            f"no site can run {job.transformation}: it is at {listed}, execution sites are among "
            f"{', '.join(allowed)}{did_you_mean(places[0], allowed)}",
        )
    return found


def _raw_input(
    workflow: Workflow, sites: Mapping[str, Site], replicas: ReplicaCatalog, lfn: str
) -> tuple[int, tuple[str, ...]]:
    declared = workflow.files[lfn].size_bytes
    reader = workflow.files[lfn].consumers[0]
    replica = replicas.find(lfn)
    if replica is None:
        raise workflow.job_error(
            reader,
            f"input {lfn!r} is written by no job and has no replica in {replicas.document.name}",
        )
    size = declared if replica.size_bytes is None else replica.size_bytes
    if size is None:
        raise replicas.document.error(
            replica.path,
            f"replica {lfn!r} has no size; give its bytes as 'metadata: {{size: 12345}}' here "
            "or as 'size' where a job uses it",
        )
    for site, pfn in replica.places:
        # A remote URL may lie at a place that is no site of ours (a web server); a path may not.
        if site not in sites and urlsplit(pfn).scheme in ("", "file"):
            raise replicas.document.error(
                replica.path,
                f"replica {lfn!r} lies at the unknown site {site!r}, expected one of "
                + ", ".join(sites),
            )
    return size, tuple(dict.fromkeys(site for site, _ in replica.places))
