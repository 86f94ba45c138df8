"""Abstract workflows in XML (DAX 1 to 3), and how sites and priorities are put into them."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from site_selector.catalogs.pegasus4.elements import (
    Converted,
    Element,
    Lines,
    parse,
    parser,
    profiles,
    system,
)

_JOBS = {"job": "job", "dax": "pegasusWorkflow", "dag": "condorWorkflow"}
_STREAMS = ("stdin", "stdout", "stderr")


def read(root: Element) -> Converted:
    """The workflow of an ``<adag>``, with the files and programs that it lists itself."""
    jobs: list[dict[str, Any]] = []
    lines: Lines = {(): root.line}
    for job in root.children(*_JOBS):
        at = ("jobs", len(jobs))
        lines[at] = job.line
        jobs.append(_job(job, lines, at))
    children: dict[str, list[str]] = {}
    for child in root.children("child"):
        for parent in child.children("parent"):
            known = children.setdefault(parent.attributes.get("ref", ""), [])
            lines.setdefault(("jobDependencies", len(children) - 1), parent.line)
            known.append(child.attributes.get("ref", ""))
    made: dict[str, Any] = {
        "pegasus": "5.0",
        **root.values(name="name"),
        "jobs": jobs,
        "jobDependencies": [{"id": key, "children": names} for key, names in children.items()],
    }
    if programs := [_program(element) for element in root.children("executable")]:
        made["transformationCatalog"] = {"transformations": programs}
    if replicas := [
        _replica(element) for element in root.children("file") if any(element.children("pfn"))
    ]:
        made["replicaCatalog"] = {"replicas": replicas}
    return made, lines


def _job(job: Element, lines: Lines, at: tuple[str, int]) -> dict[str, Any]:
    made: dict[str, Any] = {"type": _JOBS[job.name]}
    made |= job.values(
        id="id", name="name", namespace="namespace", version="version", file="file",
        nodeLabel="node-label",
    )  # fmt: skip
    if job.name != "job":
        made.pop("name", None)
    arguments = "".join(
        part if isinstance(part, str) else _lfn(part)
        for argument in job.children("argument")
        for part in argument.content
    ).strip()
    uses: list[dict[str, str]] = []
    for use in job.children("uses"):
        if not _is_program(use):
            lines[(*at, "uses", len(uses))] = use.line
            uses.append(_use(use))
    if "file" in made and all(use.get("lfn") != made["file"] for use in uses):
        uses.append({"lfn": made["file"], "type": "input"})
    streams = {stream.name: _lfn(stream) for stream in job.children(*_STREAMS)}
    return (
        made
        | {"arguments": [arguments] if arguments else [], "uses": uses}
        | streams
        | profiles(job)
    )


def _lfn(file: Element) -> str:
    """The name of a file; DAX 1 and 2 call it otherwise."""
    return file.attributes.get("name") or file.attributes.get("file", "")


def _is_program(use: Element) -> bool:
    return use.attributes.get("executable") == "true" or use.attributes.get("type") == "executable"


def _use(use: Element) -> dict[str, str]:
    made = {"lfn": _lfn(use)}
    made |= use.values(type="link", registerReplica="register", optional="optional", size="size")
    if use.attributes.get("dontRegister") == "true":
        made["registerReplica"] = "false"
    if use.attributes.get("transfer") == "false" or use.attributes.get("dontTransfer") == "true":
        made["stageOut"] = "false"
    return made


def _program(program: Element) -> dict[str, Any]:
    kind = "stageable" if program.attributes.get("installed") == "false" else "installed"
    sites = [
        pfn.values(name="site", pfn="url") | {"type": kind} | system(program)
        for pfn in program.children("pfn")
    ]
    named = program.values(namespace="namespace", name="name", version="version")
    return named | {"sites": sites} | profiles(program)


def _replica(file: Element) -> dict[str, Any]:
    places = [pfn.values(site="site", pfn="url") for pfn in file.children("pfn")]
    about = {
        element.attributes.get("key", ""): element.text for element in file.children("metadata")
    }
    named: dict[str, Any] = file.values(lfn="name")
    # Without a site, Pegasus takes a file for one of the submit host.
    entries = [{"site": "local"} | place for place in places]
    return named | {"pfns": entries} | ({"metadata": about} if about else {})


def with_profiles(
    text: str, wanted: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> tuple[list[str], set[str]]:
    """The text, in pieces of which every other was added, with more profiles of jobs by their ids,
    and the jobs that it has. Raises FormError."""
    xml, data = parser(text)
    edits: list[tuple[int, int, str]] = []
    jobs: list[str] = []
    names: set[str] = set()
    is_bare = False  # whether the element that began last has nothing in it so far

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal is_bare
        is_bare = True
        if name.rpartition(":")[2] in _JOBS:
            jobs.append(attributes.get("id", ""))

    def inside(*_: object) -> None:
        nonlocal is_bare
        is_bare = False

    def end(name: str) -> None:
        was_bare = is_bare
        inside()
        prefix, _, short = name.rpartition(":")
        if short not in _JOBS:
            return
        names.add(job := jobs.pop())
        added = "".join(
            _profile(prefix, namespace, key, str(value))
            for namespace, keys in wanted.get(job, {}).items()
            for key, value in keys.items()
        )
        at = xml.CurrentByteIndex
        if added and was_bare and data[at - 2 : at] == b"/>":  # the end of <job … />
            edits.append((at - 2, at, f">{added}</{name}>"))
        elif added:
            edits.append((at, at, added))

    xml.StartElementHandler, xml.EndElementHandler = start, end
    xml.CharacterDataHandler = xml.CommentHandler = xml.ProcessingInstructionHandler = inside
    parse(xml, data)
    pieces, at = [], 0
    for first, last, added in edits:
        pieces += [data[at:first].decode(), added]
        at = last
    return [*pieces, data[at:].decode()], names


def _profile(prefix: str, namespace: str, key: str, value: str) -> str:
    name = f"{prefix}:profile" if prefix else "profile"
    about = f'namespace="{escape(namespace)}" key="{escape(key)}"'
    return f"<{name} {about}>{escape(value)}</{name}>"
