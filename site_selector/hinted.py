"""A copy of an abstract workflow that tells Pegasus where each job goes.

Pegasus's planner takes a job's selector profile ``execution.site`` as it is:

    profiles:
      selector:
        execution.site: mu

In a workflow as Pegasus writes them, the lines are put into the text. A job written in another way,
or a workflow whose jobs are no block-style list, is written anew from its parsed nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, TextIO

import yaml

from network_provisioner.errors import InputError
from site_selector.blocktext import Section
from site_selector.placement import Mapping
from site_selector.wholefile import write_whole
from site_selector.workflow import WHAT
from site_selector.yamltext import Document, read_document, uncollected

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_TEXT = "tag:yaml.org,2002:str"
_MAP = "tag:yaml.org,2002:map"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*\Z")
_BLANK = r"(?:\n *(?:#[^\n]*)?(?=\n|\Z))*+"  # and comments, which say nothing of columns
_TAIL = re.compile(_BLANK + r"\Z")
_NEXT_INDENT = re.compile(_BLANK + r"\n( +)")


@uncollected()
def hinted_copy(workflow_path: str | Path, mapping: Mapping, out_path: str | Path) -> int:
    """Write the workflow to ``out_path`` with an ``execution.site`` for every placed job.

    A job's own ``execution.site`` is kept, all else too (comments in what must be written anew
    apart, see above; every value with the text it had). Returns the number of profiles added.
    Raises InputError where the workflow has no such job or a file cannot be written.
    """
    document = read_document(workflow_path, WHAT)
    jobs = document.root.get("jobs")
    if not isinstance(jobs, list):
        raise document.error(("jobs",), f"no list of jobs, expected a {WHAT}")
    sites = mapping.sites
    added: dict[int, str] = {}  # site by the job's place in the list
    for index, job in enumerate(jobs):
        name = job.get("id") if isinstance(job, dict) else None
        site = sites.pop(name, None) if isinstance(name, str) else None
        if site is not None and not _is_hinted(job):
            added[index] = site
    if sites:
        raise InputError(
            f"{document.name}: the mapping places job {next(iter(sites))!r}, which the workflow "
            "does not have"
        )
    section = document.sections.get("jobs")

    def write(stream: TextIO) -> None:
        if section is None:
            _write_anew(document, added, stream)
        else:
            stream.writelines(_pieces(document, section, added))

    write_whole(out_path, write, "the workflow")
    return len(added)


def _is_hinted(job: dict[str, Any]) -> bool:
    profiles = job.get("profiles")
    selector = profiles.get("selector") if isinstance(profiles, dict) else None
    return isinstance(selector, dict) and "execution.site" in selector


def _pieces(document: Document, section: Section, added: dict[int, str]) -> Iterator[str]:
    """The text, job by job."""
    text, jobs = document.text, document.root["jobs"]
    yield text[: section.starts[0]]
    for index in range(len(section)):
        chunk = text[section.starts[index] : section.starts[index + 1]]
        if index in added:
            edited = None
            if index not in section.odd:
                edited = _edited(chunk, section.indent, jobs[index], added[index])
            chunk = edited or _anew(chunk, section.indent, added[index])
        yield chunk
    yield text[section.starts[-1] :]


def _edited(chunk: str, indent: int, job: dict[str, Any], site: str) -> str | None:
    """One job's lines with the hint among them, or None where it has no plain place for it.

    Every line of the job is plain, so that what stands two columns behind the dash is its key.
    """
    line = f"execution.site: {_scalar(site)}\n"
    edge = " " * (indent + 2)
    if "profiles" not in job:
        body = _TAIL.sub("", chunk)
        added = f"\n{edge}profiles:\n{edge}  selector:\n{edge}    {line}"
        return body + added + chunk[len(body) + 1 :]
    head = re.search(rf"(?:^{edge}|\A {{{indent}}}- )profiles: ?$", chunk, re.MULTILINE)
    profiles = job["profiles"]
    if head is None or not profiles:
        return None
    inner = _indent_after(chunk, head.end())
    if "selector" not in profiles:
        at = head.end() + 1
        return f"{chunk[:at]}{inner}selector:\n{inner}  {line}{chunk[at:]}"
    selector = re.compile(rf"^{inner}selector: ?$", re.MULTILINE).search(chunk, head.end())
    if selector is None or not profiles["selector"]:
        return None
    at = selector.end() + 1
    return f"{chunk[:at]}{_indent_after(chunk, selector.end())}{line}{chunk[at:]}"


def _indent_after(chunk: str, end: int) -> str:
    match = _NEXT_INDENT.match(chunk, end)
    return match[1] if match else ""


@cache
def _scalar(site: str) -> str:
    """A site's name as YAML: quoted where plain text would read as a number or a truth value."""
    resolver: Any = yaml.SafeLoader("")
    if _PLAIN.match(site) and resolver.resolve(yaml.ScalarNode, site, (True, False)) == _TEXT:
        return site
    quoted: str = yaml.dump(site, Dumper=_DUMPER, default_style='"', width=1 << 20)
    return quoted.rstrip("\n")


def _anew(chunk: str, indent: int, site: str) -> str:
    """One job written anew from its nodes, at its column."""
    root: Any = yaml.compose(chunk, Loader=_LOADER)
    root.value[0] = _hinted(root.value[0], site)
    text: str = yaml.serialize(root, None, Dumper=_DUMPER, width=1 << 20, allow_unicode=True)
    edge = " " * indent
    return "".join(f"{edge}{line}\n" if line else "\n" for line in text[:-1].split("\n"))


def _write_anew(document: Document, added: dict[int, str], stream: TextIO) -> None:
    root: Any = yaml.compose(document.text, Loader=_LOADER)
    jobs = _value(root, "jobs")
    entries = [
        _hinted(job, added[index]) if index in added else job
        for index, job in enumerate(jobs.value)
    ]
    new = yaml.SequenceNode(jobs.tag, entries, flow_style=jobs.flow_style)
    yaml.serialize(
        _with(root, "jobs", new), stream, Dumper=_DUMPER, width=1 << 20, allow_unicode=True
    )


def _value(node: Any, key: str, inside: tuple[Any, ...] = ()) -> Any:
    """The value node under ``key`` of a mapping node or of what is merged into it, or None."""
    if not isinstance(node, yaml.MappingNode) or any(node is outer for outer in inside):
        return None
    merged: list[Any] = []
    for name, value in node.value:
        if isinstance(name, yaml.ScalarNode) and name.value == key:
            return value
        if isinstance(name, yaml.ScalarNode) and name.value == "<<":
            merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
    found = (_value(other, key, (*inside, node)) for other in merged)
    return next((value for value in found if value is not None), None)


def _with(node: Any, key: str, value: Any) -> Any:
    """A copy of a mapping node with another value under ``key``. What others share, by an alias or
    a merge, stays as it is."""
    pairs = list(node.value) if isinstance(node, yaml.MappingNode) else []
    for index, (name, _) in enumerate(pairs):
        if isinstance(name, yaml.ScalarNode) and name.value == key:
            pairs[index] = (name, value)
            break
    else:
        pairs.append((yaml.ScalarNode(_TEXT, key), value))
    return yaml.MappingNode(_MAP, pairs, flow_style=False)


def _hinted(job: Any, site: str) -> Any:
    profiles = _value(job, "profiles")
    name = yaml.ScalarNode(_TEXT, site, style=None if _scalar(site) == site else '"')
    selector = _with(_value(profiles, "selector"), "execution.site", name)
    return _with(job, "profiles", _with(profiles, "selector", selector))
