"""Files in the forms of Pegasus 4, which pegasus-plan 5.1 reads as well: workflows (``<adag>``, DAX
1 to 3) and site catalogs (``<sitecatalog>``, version 4) in XML, transformation catalogs as text:

tr soykb::bwa_mem:1.0 {              # namespace and version may be missing
    profile pegasus "runtime" "60"
    site mu { pfn "/opt/bwa" arch "x86_64" os "linux" type "INSTALLED" container "bwa" }
}
cont bwa { type "docker" image "docker:///biocontainers/bwa" mount "/data:/data" }

Each becomes what the same file says in the YAML of Pegasus 5. Sites and priorities of jobs are put
into the XML itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple
from xml.parsers import expat

Lines = dict[tuple[str | int, ...], int]
Converted = tuple[dict[str, Any], Lines]
"""A document's values, and the lines of those that messages name."""
_TEXT = re.compile(r"(?:\s|#[^\n]*\n)*(?:tr|cont)\s+[^\s{]+\s*\{")
_ROOT = re.compile(r"<(?:[\w.-]+:)?(?:adag|sitecatalog)[\s>/]")
_SEEN = 20_000
_JOBS = {"job": "job", "dax": "pegasusWorkflow", "dag": "condorWorkflow"}
_STREAMS = ("stdin", "stdout", "stderr")
_HYPHEN = re.compile(r"-(\w)")
_TOKEN = re.compile(
    r"(?P<skip>[ \t\r]+|#[^\n]*)|(?P<line>\n)|(?P<quoted>\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<brace>[{}])|(?P<word>[^\s{}\"#]+)"
)
_ESCAPE = re.compile(r"\\(.)")
_SITE = {"pfn": "pfn", "arch": "arch", "os": "os.type", "type": "type", "container": "container",
         "osrelease": "os.release", "osversion": "os.version"}  # fmt: skip
_CONTAINER = {"type": "type", "image": "image", "image_site": "image.site",
              "dockerfile": "dockerfile"}  # fmt: skip
_IN_ANY_CASE = ("type", "os")


class FormError(ValueError):
    """A file is not written as its form asks. ``line`` is from 1."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def is_xml(text: str) -> bool:
    """Whether it is meant to be XML."""
    return text[:_SEEN].lstrip().startswith("<")


def is_text(text: str) -> bool:
    """Whether it is meant to be a transformation catalog as text."""
    return _TEXT.match(text[:_SEEN]) is not None


def converted(text: str) -> Converted | None:
    """What a file says; None for one in no form of Pegasus 4 that is read here. Raises FormError
    where it is not written as such a file must be."""
    if is_text(text):
        return _programs(text)
    if not is_xml(text) or not _ROOT.search(text[:_SEEN]):
        return None
    root = _parsed(text)
    version = root.attributes.get("version", "")
    if root.name == "adag" and version[:1] in ("", "1", "2", "3"):
        return _workflow(root)
    if root.name == "sitecatalog" and version[:1] == "4":
        return _sites(root)
    return None


# ---------------------------------------------------------------------------------- XML as a tree


@dataclass(slots=True)
class _Element:
    """An element, without the prefix of its namespace; ``content`` in the order of the file."""

    name: str
    attributes: dict[str, str]
    line: int
    content: list[_Element | str] = field(default_factory=list)

    def children(self, *names: str) -> Iterator[_Element]:
        """The elements directly inside it that have one of these names."""
        for child in self.content:
            if isinstance(child, _Element) and child.name in names:
                yield child

    @property
    def text(self) -> str:
        """What is directly inside it."""
        return "".join(part for part in self.content if isinstance(part, str)).strip()

    def values(self, **names: str) -> dict[str, str]:
        """The attributes that are there and not empty, by the names they have in YAML, in which
        ``_`` stands for a point."""
        attributes = (
            (key.replace("_", "."), self.attributes.get(name)) for key, name in names.items()
        )
        return {key: value for key, value in attributes if value}


def _parser(text: str) -> tuple[expat.XMLParserType, bytes]:
    """A parser for a text, and the bytes to give it. It takes no document type: entities of its own
    could stand for more than fits into memory."""
    made = expat.ParserCreate("utf-8")

    def refuse(*_: object) -> None:
        raise FormError(made.CurrentLineNumber, "found a document type, expected none")

    made.StartDoctypeDeclHandler = refuse
    made.buffer_text = True
    return made, text.encode()


def _parsed(text: str) -> _Element:
    """The root of an XML text. Raises FormError."""
    xml, data = _parser(text)
    top = _Element("", {}, 1)
    open_ones = [top]

    def start(name: str, attributes: dict[str, str]) -> None:
        element = _Element(name.rpartition(":")[2], attributes, xml.CurrentLineNumber)
        open_ones[-1].content.append(element)
        open_ones.append(element)

    def end(_name: str) -> None:
        open_ones.pop()

    def characters(data: str) -> None:
        open_ones[-1].content.append(data)

    xml.StartElementHandler, xml.EndElementHandler = start, end
    xml.CharacterDataHandler = characters
    _parse(xml, data)
    return next(child for child in top.content if isinstance(child, _Element))


def _parse(xml: expat.XMLParserType, data: bytes) -> None:
    """Have a parser read all of a file. Raises FormError."""
    try:
        xml.Parse(data, True)
    except expat.ExpatError as error:
        problem = expat.ErrorString(error.code)
        raise FormError(error.lineno, f"not valid XML: {problem}") from None


def _profiles(element: _Element) -> dict[str, dict[str, dict[str, str]]]:
    """``profiles`` as YAML has them, of the ``<profile>`` elements, where there are any."""
    by_namespace: dict[str, dict[str, str]] = {}
    for profile in element.children("profile"):
        namespace = profile.attributes.get("namespace", "").lower()
        by_namespace.setdefault(namespace, {})[profile.attributes.get("key", "")] = profile.text
    return {"profiles": by_namespace} if by_namespace else {}


def _system(element: _Element) -> dict[str, str]:
    """The system of a site or program."""
    known = element.values(
        arch="arch", os_type="os", os_release="osrelease", os_version="osversion"
    )
    return {key: value.lower() if key == "os.type" else value for key, value in known.items()}


# -------------------------------------------------------------------------------------- workflows


def _workflow(root: _Element) -> Converted:
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
    if programs := [_executable(element) for element in root.children("executable")]:
        made["transformationCatalog"] = {"transformations": programs}
    if replicas := [
        _replica(element) for element in root.children("file") if any(element.children("pfn"))
    ]:
        made["replicaCatalog"] = {"replicas": replicas}
    return made, lines


def _job(job: _Element, lines: Lines, at: tuple[str, int]) -> dict[str, Any]:
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
        | _profiles(job)
    )


def _lfn(file: _Element) -> str:
    """The name of a file; DAX 1 and 2 call it otherwise."""
    return file.attributes.get("name") or file.attributes.get("file", "")


def _is_program(use: _Element) -> bool:
    return use.attributes.get("executable") == "true" or use.attributes.get("type") == "executable"


def _use(use: _Element) -> dict[str, str]:
    made = {"lfn": _lfn(use)}
    made |= use.values(type="link", registerReplica="register", optional="optional", size="size")
    if use.attributes.get("dontRegister") == "true":
        made["registerReplica"] = "false"
    if use.attributes.get("transfer") == "false" or use.attributes.get("dontTransfer") == "true":
        made["stageOut"] = "false"
    return made


def _executable(program: _Element) -> dict[str, Any]:
    kind = "stageable" if program.attributes.get("installed") == "false" else "installed"
    sites = [
        pfn.values(name="site", pfn="url") | {"type": kind} | _system(program)
        for pfn in program.children("pfn")
    ]
    named = program.values(namespace="namespace", name="name", version="version")
    return named | {"sites": sites} | _profiles(program)


def _replica(file: _Element) -> dict[str, Any]:
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
    xml, data = _parser(text)
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
            _profile_text(prefix, namespace, key, str(value))
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
    _parse(xml, data)
    pieces, at = [], 0
    for first, last, added in edits:
        pieces += [data[at:first].decode(), added]
        at = last
    return [*pieces, data[at:].decode()], names


def _profile_text(prefix: str, namespace: str, key: str, value: str) -> str:
    name = f"{prefix}:profile" if prefix else "profile"
    about = f'namespace="{escape(namespace)}" key="{escape(key)}"'
    return f"<{name} {about}>{escape(value)}</{name}>"


# ----------------------------------------------------------------------------------- site catalogs


def _sites(root: _Element) -> Converted:
    """The sites of a ``<sitecatalog>``."""
    sites: list[dict[str, Any]] = []
    lines: Lines = {(): root.line}
    for site in root.children("site"):
        lines["sites", len(sites)] = site.line
        sites.append(_site(site))
    return {"pegasus": "5.0", "sites": sites}, lines


def _site(site: _Element) -> dict[str, Any]:
    grids = [
        grid.values(type="type", contact="contact", scheduler="scheduler", jobtype="jobtype")
        for grid in site.children("grid")
    ]
    made = site.values(name="handle") | _system(site) | _profiles(site)
    return made | {
        "directories": [_directory(directory) for directory in site.children("directory")],
        "grids": [{key: value.lower() for key, value in grid.items()} for grid in grids],
    }


def _directory(directory: _Element) -> dict[str, Any]:
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


# -------------------------------------------------------------------------- programs as text


class _Token(NamedTuple):
    kind: str  # "quoted", "brace" or "word"
    text: str
    line: int


def _programs(text: str) -> Converted:
    """The programs and containers of a catalog. Raises FormError."""
    reader = _Reader(text)
    root: dict[str, Any] = {"pegasus": "5.0", "transformations": [], "containers": []}
    lines: Lines = {(): 1}
    while (token := reader.next()) is not None:
        kind = {"tr": "transformations", "cont": "containers"}.get(token.text)
        if kind is None:
            raise FormError(token.line, f"found {token.text!r}, expected 'tr' or 'cont'")
        lines[kind, len(root[kind])] = token.line
        name = reader.take("word", "a name")
        made = _program(name) if kind == "transformations" else {"name": name}
        reader.block(made, {} if kind == "transformations" else _CONTAINER)
        root[kind].append(made)
    return root, lines


def _program(name: str) -> dict[str, Any]:
    namespace, separator, rest = name.rpartition("::")
    short, _, version = rest.partition(":")
    made = {"namespace": namespace if separator else "", "name": short, "version": version}
    return {key: value for key, value in made.items() if value}


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = self._read(text)
        self._line = 1

    def _read(self, text: str) -> Iterator[_Token]:
        at, line = 0, 1
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None:
                raise FormError(line, f"found {text[at : at + 20]!r}, expected text in quotes")
            at, kind = token.end(), str(token.lastgroup)
            if kind == "line":
                line += 1
            elif kind == "quoted":
                yield _Token(kind, _ESCAPE.sub(r"\1", token[0][1:-1]), line)
            elif kind != "skip":
                yield _Token(kind, token[0], line)

    def next(self) -> _Token | None:
        """The next token; None at the end."""
        token = next(self._tokens, None)
        self._line = token.line if token is not None else self._line
        return token

    def take(self, kind: str, what: str) -> str:
        """The text of the next token, which must be of this kind."""
        token = self.next()
        if token is None or token.kind != kind:
            shown = "the end" if token is None else repr(token.text)
            raise FormError(self._line, f"found {shown}, expected {what}")
        return token.text

    def block(self, made: dict[str, Any], names: dict[str, str]) -> None:
        """What is in braces, into ``made``; ``names`` are those of its values in YAML."""
        if self.take("brace", "'{'") != "{":
            raise FormError(self._line, "found '}', expected '{'")
        while (word := self.next()) is not None and word.text != "}":
            if word.text == "profile":
                namespace = self.take("word", "a namespace")
                key = self.take("quoted", "a key in quotes")
                value = self.take("quoted", "a value in quotes")
                made.setdefault("profiles", {}).setdefault(namespace, {})[key] = value
            elif word.text == "metadata":
                key = self.take("quoted", "a key in quotes")
                made.setdefault("metadata", {})[key] = self.take("quoted", "a value in quotes")
            elif word.text == "site" and names is not _CONTAINER and names is not _SITE:
                site: dict[str, Any] = {"name": self.take("word", "a site")}
                self.block(site, _SITE)
                made.setdefault("sites", []).append(site)
            elif word.text == "mount" and names is _CONTAINER:
                made.setdefault("mounts", []).append(self.take("quoted", "a mount in quotes"))
            elif word.text in names:
                value = self.take("quoted", "a value in quotes")
                known = value.lower() if word.text in _IN_ANY_CASE else value
                made[names[word.text]] = known
            else:
                expected = ", ".join(["profile", "metadata", *(names or ["site"])])
                raise FormError(word.line, f"found {word.text!r}, expected one of {expected}")
        if word is None:
            raise FormError(self._line, "found the end, expected '}'")
