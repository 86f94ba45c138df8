"""The jobs that provision and release, made with Pegasus's own API, put into the text of a workflow
and taken out again: all else stays as it is written.

They run where the workflow is submitted from: site ``local`` and HTCondor's local universe, which
needs no slot of a pool that may have none yet. Their POST always succeeds, so that the workflow
continues whatever their result, also if they are killed (``succeed.py``). Both are at the program,
for what a site catalog says of the universe goes before what a job says (tried with the planner).

What is added is between two marks at the top of the workflow's lists; taking it out leaves the
very file that was there before. The workflow must be block-style YAML, as Pegasus writes it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from Pegasus.api import Job, Namespace, Transformation

from network_provisioner.base.errors import InputError
from pegasus_hooks.provisioning.step import (
    NAMESPACE,
    PROVISION,
    RELEASE,
    ProvisioningStep,
    to_arguments,
)
from pegasus_hooks.provisioning.wide_levels import FileLocations, WideLevels, needs_of, wide_levels
from site_selector.catalogs.documents import Document, Key, parse_document
from site_selector.catalogs.entries import SUBMIT_SITE, ReplicaCatalog
from site_selector.catalogs.properties import expanded
from site_selector.catalogs.workflow import WHAT, Workflow, workflow_of
from site_selector.inputs import TRANSFORMATION_CATALOG

_VERSION = "1.0"
_SUCCEEDS = str(Path(__file__).with_name("succeed.py"))

_PROGRAM = Path(__file__).with_name("job.py")
_BEGIN = "# >>> adon: written by 'adon workflow provision', removed by its '--undo' >>>"
_END = "# <<< adon <<<"
_BLOCK = re.compile(rf"^ *{re.escape(_BEGIN)}\n.*?^ *{re.escape(_END)}(?:\n|\Z)", re.M | re.S)
_WAS = "# in place of: "
_INSTEAD = re.compile(rf"^ *{re.escape(_WAS)}(.*\n)", re.M)
_ENTRY = re.compile(r"( *)- ")


@dataclass(frozen=True, slots=True)
class Additions:
    """What is added to the lists of a workflow, as Pegasus writes it."""

    jobs: Sequence[Mapping[str, Any]]
    dependencies: Sequence[Mapping[str, Any]]
    transformations: Sequence[Mapping[str, Any]]


def additions(
    steps: Sequence[tuple[WideLevels, ProvisioningStep]], program: Sequence[str]
) -> Additions:
    """Jobs, dependencies and programs for ``steps``. ``program`` is the interpreter and what it is
    told before the arguments of a job."""
    interpreter, *before = program
    post = " ".join([*before[:-1], _SUCCEEDS])
    jobs: list[dict[str, Any]] = []
    dependencies: list[dict[str, Any]] = []
    for levels, step in steps:
        for verb, name in ((PROVISION, step.before), (RELEASE, step.after)):
            job = Job(verb, _id=name, namespace=NAMESPACE, version=_VERSION)
            job.add_args(*before, *to_arguments(verb, step))
            job.add_selector_profile(execution_site=SUBMIT_SITE)
            jobs.append(_plain(job))
        dependencies += [{"id": parent, "children": [step.before]} for parent in levels.after]
        dependencies.append({"id": step.before, "children": list(levels.first_jobs)})
        dependencies += [{"id": parent, "children": [step.after]} for parent in levels.last_jobs]
    programs = []
    for verb in (PROVISION, RELEASE):
        transformation = Transformation(
            verb, namespace=NAMESPACE, version=_VERSION, site=SUBMIT_SITE, pfn=interpreter
        )
        transformation.add_condor_profile(universe="local")
        transformation.add_profiles(Namespace.DAGMAN, "POST", "user")
        transformation.add_profiles(Namespace.DAGMAN, "POST.PATH.user", interpreter)
        transformation.add_profiles(Namespace.DAGMAN, "POST.ARGUMENTS", post)
        programs.append(_plain(transformation))
    return Additions(jobs, dependencies, programs)


def _plain(value: Any) -> Any:
    """Pegasus's objects as dicts, lists and text."""
    if hasattr(value, "__json__"):
        return _plain(value.__json__())
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    return value


@dataclass(frozen=True, slots=True)
class _LineEdit:
    """``text`` before line ``number`` (from 0), or in its place."""

    number: int
    text: str
    replaces: bool = False


def without_provisioning(text: str, name: str) -> str:
    """``text`` without what was added to it; as it is where nothing was. Raises InputError for jobs
    of ours without their marks, which only somebody else's program can have taken away."""
    rest = _BLOCK.sub(lambda block: "".join(_INSTEAD.findall(block[0])), text)
    if _BEGIN in rest or _END in rest or re.search(rf"^[ -]*namespace: *{NAMESPACE}$", rest, re.M):
        raise InputError(
            f"{name}: found jobs of namespace {NAMESPACE!r} and not the marks around them, expected"
            " both or none; provision the workflow that this one was made from"
        )
    return rest


def text_with_jobs(document: Document, added: Additions) -> str:
    """The text of ``document``, which holds nothing of ours, with ``added``. Raises InputError
    where the lists of the workflow are written in another way, or use our names."""
    own = {str(job["id"]) for job in added.jobs}
    for index, job in enumerate(document.root.get("jobs") or ()):
        if isinstance(job, dict) and job.get("id") in own:
            raise document.error(
                ("jobs", index), f"found a job {job['id']!r}, expected that name to be free"
            )
    lines = document.text.split("\n")
    edits = [
        _edit(document, lines, ("jobs",), added.jobs),
        _edit(document, lines, ("jobDependencies",), added.dependencies),
        _edit(document, lines, (TRANSFORMATION_CATALOG, "transformations"), added.transformations),
    ]
    for edit in sorted(edits, key=lambda e: e.number, reverse=True):
        lines[edit.number : edit.number + edit.replaces] = edit.text.split("\n")
    text = "\n".join(lines)
    if _others(parse_document(text, document.name, WHAT).root) != _others(document.root):
        raise _unexpected(document, ("jobs",))
    return text


def _edit(
    document: Document,
    lines: Sequence[str],
    path: tuple[str, ...],
    entries: Sequence[Mapping[str, Any]],
) -> _LineEdit:
    """``entries`` before the first of a list, in place of an empty one, or as a section of their
    own before the workflow's jobs."""
    node = document.value(path)
    section: Any = list(entries)
    for key in reversed(path):
        section = {key: section}
    if path[0] not in document.root:
        return _LineEdit(_line(document, lines, ("jobs",), re.compile(r"jobs *:")), _block(section))
    if path[1:] == () and node == []:
        number = _line(document, lines, path, re.compile(rf"{path[0]} *: *\[ *\] *$"))
        return _LineEdit(number, _block(section, instead=lines[number]), replaces=True)
    if not isinstance(node, list) or not node:
        raise _unexpected(document, path[:1])
    number = _line(document, lines, (*path, 0), _ENTRY)
    indent = lines[number].partition("-")[0]
    return _LineEdit(number, _block(list(entries), indent))


def _line(
    document: Document, lines: Sequence[str], path: tuple[Key, ...], form: re.Pattern[str]
) -> int:
    """The line of ``path`` or the one before it that begins in ``form``, from 0."""
    line = document.line(path) - 1
    for number in (line, line - 1):
        if 0 <= number < len(lines) and form.match(lines[number]):
            return number
    raise _unexpected(document, path[:1])


def _block(value: Any, indent: str = "", instead: str = "") -> str:
    text = yaml.safe_dump(value, sort_keys=False, width=1000, allow_unicode=True)
    was = [f"{_WAS}{instead}"] if instead else []
    return "\n".join(indent + line for line in (_BEGIN, *was, *text.splitlines(), _END))


def _others(root: Mapping[str, Any]) -> dict[str, Any]:
    """The workflow without what is ours, to be compared."""
    jobs = [j for j in root.get("jobs") or () if not _is_ours(j)]
    ours = {j["id"] for j in root.get("jobs") or () if _is_ours(j)}
    edges = [
        d for d in root.get("jobDependencies") or ()
        if not (d["id"] in ours or ours.issuperset(d["children"]))
    ]  # fmt: skip
    catalog = dict(root.get(TRANSFORMATION_CATALOG) or {})
    catalog["transformations"] = [t for t in catalog.get("transformations", ()) if not _is_ours(t)]
    rest = {
        key: root[key]
        for key in root
        if key not in ("jobs", "jobDependencies", TRANSFORMATION_CATALOG)
    }
    return {**rest, "jobs": jobs, "jobDependencies": edges, TRANSFORMATION_CATALOG: catalog}


def _is_ours(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and entry.get("namespace") == NAMESPACE
        and entry.get("name") in (PROVISION, RELEASE)
    )


def _unexpected(document: Document, path: tuple[Key, ...]) -> InputError:
    return document.error(
        path, f"{path[0]!r} is no list in block style, expected YAML as Pegasus writes it"
    )


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
    """The new text, and what is in it."""

    text: str
    steps: tuple[tuple[WideLevels, ProvisioningStep], ...]


def program() -> list[str]:
    """The interpreter and the words before a job's own. Raises InputError if Pegasus could not
    hand them on."""
    command = [sys.executable, "-I", "-S", str(_PROGRAM)]
    for word in command:
        if not word.isascii() or any(sign in word for sign in " '\"$\\"):
            raise InputError(f"found {word!r}, expected ADON in a folder without spaces and quotes")
    return command


def provisioned_workflow(
    document: Document,
    replicas: ReplicaCatalog | None,
    options: ProvisioningOptions,
    words: Sequence[str],
    variables: Mapping[str, str] = os.environ,
) -> ProvisionedWorkflow:
    """``document`` with jobs around its wide levels, those of an earlier time replaced.

    :param document: as it is written; ``${NAME}`` in it stands for one of ``variables``, and stays.
    :param words: what runs the jobs, see :func:`program`.
    :raises InputError: for an invalid workflow, or is not written as Pegasus writes it.
    """
    if document.lines is not None:
        raise InputError(f"{document.name}: found XML, expected YAML, into which jobs can be put")
    bare = without_provisioning(document.text, document.name)
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
    return ProvisionedWorkflow(text_with_jobs(document, additions(steps, words)), tuple(steps))


def _locations(
    workflow: Workflow, replicas: ReplicaCatalog | None, options: ProvisioningOptions
) -> FileLocations:
    where = FileLocations(options.execution, options.between)
    if replicas is None:
        return where
    sites, sizes = {}, {}
    for lfn, file in workflow.files.items():
        replica = replicas.find(lfn) if file.producer is None else None
        if replica is None:
            continue
        if replica.places:
            sites[lfn] = replica.places[0][0]
        if replica.size_bytes is not None:
            sizes[lfn] = replica.size_bytes
    return replace(where, replicas=sites, sizes=sizes)
