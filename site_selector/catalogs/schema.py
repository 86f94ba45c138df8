"""What Pegasus takes in catalogs: the keys of each object, and what their values are.

pegasus-plan 5.1.3 reads a catalog in a file of its own twice: against a schema, which knows types
and required keys, and entry by entry, which refuses more keys than the schema does (``x-…`` is
taken at the top and among profiles alone). A catalog inside a workflow is read entry by entry only.
The development head has the same keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from reprlib import repr as shown
from typing import Any

from network_provisioner.base.errors import did_you_mean
from site_selector.catalogs.documents import Document, Key, kind_of

EXTENSION = "x-"
_NUMBER = re.compile(r"[-+]?(0x[\da-fA-F_]+|0b[01_]+|(\d[\d_]*(\.[\d_]*)?|\.\d+)([eE][-+]?\d+)?)")
_FLAGS = frozenset(
    spelt
    for word in ("true", "false", "yes", "no", "on", "off")
    for spelt in (word, word.title(), word.upper())
)
NAMESPACES = ("env", "condor", "globus", "dagman", "pegasus", "hints", "selector")
_EVENTS = ("never", "start", "error", "success", "end", "all")
_ARCHITECTURES = "x86 x86_64 ppc ppc_64 ppc64le ia64 sparcv7 sparcv9 amd64 aarch64"
_RELEASES = "alpine rhel deb ubuntu fedora fc suse sles freebsd macos sunos"
_GRIDS = "gt5 condor cream batch nordugrid unicore ec2 deltacloud sfapi"
_SCHEDULERS = "fork pbs lsf condor sge slurm flux unknown"
_JOB = "id type name namespace version arguments file metadata nodeLabel profiles uses stdin stdout"
_USE = "lfn metadata type stageOut registerReplica bypass optional size forPlanning"
_WORKFLOW = "pegasus name replicaCatalog siteCatalog transformationCatalog metadata jobs"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value that is neither list nor mapping: of one of the ``types`` (text, number, boolean),
    one of ``words`` where there are such, of the form of ``pattern``. ``more``: words that are
    taken inside a workflow as well."""

    types: tuple[str, ...] = ("text",)
    choices: tuple[str, ...] = ()
    pattern: str = ""
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Many:
    """A list of at least ``least``."""

    item: Kind
    least: int = 0


@dataclass(frozen=True, slots=True)
class Object:
    """A mapping; what None stands for is not looked at. ``extensions``: keys ``x-…`` with any value
    are taken, and those of ``own``, which are ADON's. Inside a workflow ``more`` keys are, too, and
    all where it is ``open_inside``."""

    keys: Mapping[str, Kind | None]
    required: tuple[str, ...] = ()
    extensions: bool = False
    own: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    open_inside: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping with ``keys`` of a pattern to values of one kind."""

    keys: re.Pattern[str]
    values: Scalar
    least: int = 0
    extensions: bool = False


Kind = Scalar | Many | Object | Table

TEXT = Scalar()
FLAG = Scalar(("boolean",))
NUMBER = Scalar(("number",))
VALUE = Scalar(("text", "number"))
VERSION = Scalar(pattern=r"\d+(\.\d+(\.\d+)?)?")
_PROFILE = Table(re.compile(r"[+.\w-]+", re.ASCII), VALUE, extensions=True)

PROFILES = Object(
    {
        **dict.fromkeys(NAMESPACES, _PROFILE),
        "env": Table(re.compile(r"[.\w-]+", re.ASCII), VALUE, extensions=True),
    },
    extensions=True,
    own=("adon",),
    more=("metadata",),
)
METADATA = Table(re.compile(r".*[\w.].*"), VALUE, least=1)
CHECKSUM = Object({"sha256": TEXT})

HOOKS = Object(
    {
        "shell": Many(
            Object(
                {
                    "_on": Scalar(choices=_EVENTS, more=("on_error", "on_success", "at_end")),
                    "cmd": TEXT,
                },
                ("_on", "cmd"),
                open_inside=True,
            )
        )
    }
)


_SYSTEM: Mapping[str, Kind] = {
    "arch": Scalar(choices=tuple(_ARCHITECTURES.split())),
    "os.type": Scalar(choices=("linux", "sunos", "macosx", "aix", "windows")),
    "os.release": Scalar(choices=tuple(_RELEASES.split())),
    "os.version": VERSION,
}
_SERVER = Object(
    {"url": TEXT, "operation": Scalar(choices=("all", "put", "get"))}, ("url",)
)  # profiles are in the schema, and refused all the same
_DIRECTORY = Object(
    {
        "type": Scalar(choices=("sharedScratch", "sharedStorage", "localScratch", "localStorage")),
        "path": TEXT,
        "sharedFileSystem": FLAG,
        "freeSize": TEXT,
        "totalSize": TEXT,
        "fileServers": Many(_SERVER, 1),
    },
    ("type", "fileServers"),
)


_GRID = Object(
    {
        "type": Scalar(choices=tuple(_GRIDS.split())),
        "contact": TEXT,
        "scheduler": Scalar(choices=tuple(_SCHEDULERS.split())),
        "jobtype": Scalar(choices=("compute", "auxillary", "transfer", "register", "cleanup")),
        **dict.fromkeys(("freeMem", "totalMem", "maxCount", "maxCPUTime"), TEXT),
        **dict.fromkeys(("runningJobs", "jobsInQueue", "idleNodes", "totalNodes"), NUMBER),
    },
    ("type", "contact", "scheduler"),
)
_SITE = Object(
    {
        "name": TEXT,
        **_SYSTEM,
        "directories": Many(_DIRECTORY),
        "grids": Many(_GRID),
        "profiles": PROFILES,
        "x-tags": None,
    },
    ("name",),
)
_PFN = Object({"site": TEXT, "pfn": TEXT}, ("site", "pfn"))
_REPLICA = Object(
    {
        "lfn": TEXT,
        "pfns": Many(_PFN),
        "regex": FLAG,
        "checksum": CHECKSUM,
        "metadata": METADATA,
    },
    ("lfn", "pfns"),
)
_PLACE = Object(
    {
        "name": TEXT,
        **_SYSTEM,
        "pfn": TEXT,
        "profiles": PROFILES,
        "metadata": METADATA,
        "type": Scalar(choices=("stageable", "installed")),
        "bypass": FLAG,
        "container": TEXT,
    },
    ("name", "type", "pfn"),
)
_TRANSFORMATION = Object(
    {
        "namespace": TEXT,
        "name": TEXT,
        "version": TEXT,
        "metadata": METADATA,
        "hooks": HOOKS,
        "profiles": PROFILES,
        "requires": Many(TEXT),
        "checksum": CHECKSUM,
        "sites": Many(_PLACE, 1),
    },
    ("name", "sites"),
)
_CONTAINER = Object(
    {
        "name": TEXT,
        "type": Scalar(choices=("docker", "singularity", "shifter")),
        "image": TEXT,
        "image.site": TEXT,
        "mounts": Many(TEXT),
        "bypass": FLAG,
        "checksum": CHECKSUM,
        "metadata": METADATA,
        "profiles": PROFILES,
    },
    ("name", "type", "image"),
    more=("dockerfile",),
)

JOB = Object({**dict.fromkeys((*_JOB.split(), "stderr")), "hooks": HOOKS})

USE = Object(dict.fromkeys(_USE.split()))

WORKFLOW = Object(
    {**dict.fromkeys((*_WORKFLOW.split(), "jobDependencies")), "hooks": HOOKS}, extensions=True
)  # profiles and version are in the schema, and refused all the same


def _catalog(required: str, **lists: Many) -> Object:
    return Object({"pegasus": VERSION, **lists}, ("pegasus", required), extensions=True)


CATALOGS: Mapping[str, Object] = {
    "sites": _catalog("sites", sites=Many(_SITE, 1)),
    "replicas": _catalog("replicas", replicas=Many(_REPLICA)),
    "transformations": _catalog(
        "transformations", transformations=Many(_TRANSFORMATION, 1), containers=Many(_CONTAINER)
    ),
}


def check_catalog(document: Document, at: tuple[Key, ...], kind: str) -> None:
    """Raises InputError for what pegasus-plan refuses in the catalog of this ``kind``; inside a
    workflow, ``at`` is not empty."""
    if document.lines is not None and not at:
        return  # Pegasus's schema is of YAML
    if at or kind in document.root:  # else it is another file, and its reader says so
        what = f"{kind[:-1]} catalog"
        check(document, at, CATALOGS[kind], document.value(at), what, inside=bool(at))


def check(
    document: Document,
    at: tuple[Key, ...],
    kind: Kind,
    value: Any,
    what: str,
    inside: bool = True,
) -> None:
    """Raises InputError for what Pegasus refuses in a value; ``inside`` a workflow it knows no
    types, and nothing that must be there."""
    walk = _Walk(document, list(at), len(at), what, inside)
    walk.check(kind, value)
    walk.check_types()


@dataclass(slots=True)
class _Walk:
    document: Document
    path: list[Key]
    above: int  # steps of the path that lead to what is checked
    what: str
    inside: bool
    doubtful: dict[tuple[Key, ...], tuple[Scalar, str]] = field(default_factory=dict)
    """Scalars that are of the right type only with quotes around them, or only without."""

    def check(self, kind: Kind | None, value: Any) -> None:
        if kind is None:
            return
        if type(kind) is Scalar:
            if type(value) is str:
                self._scalar(kind, value)
            elif value is not None or kind.choices or kind.pattern or "text" not in kind.types:
                self._wrong(value, _or(kind.choices or kind.types))
        elif type(kind) is Many:
            if type(value) is list and (self.inside or len(value) >= kind.least):
                for index, item in enumerate(value):
                    self._step(index, kind.item, item)
            else:
                few = f" of at least {kind.least}" if kind.least else ""
                self._wrong(value, f"a list{few}")
        elif type(value) is not dict:
            self._wrong(value, "a mapping")
        elif isinstance(kind, Table):
            self._table(kind, value)
        elif isinstance(kind, Object):
            self._object(kind, value)

    def _step(self, key: Key, kind: Kind | None, value: Any) -> None:
        self.path.append(key)
        self.check(kind, value)
        self.path.pop()

    def _object(self, kind: Object, value: dict[str, Any]) -> None:
        if not value.keys() <= kind.keys.keys():
            for key in value.keys() - kind.keys.keys():
                ignored = key in kind.own or (kind.extensions and key.startswith(EXTENSION))
                if self.inside:
                    ignored = ignored or kind.open_inside or key in kind.more
                if not ignored:
                    expected = ", ".join(kind.keys)
                    hint = did_you_mean(key, kind.keys) or f", expected one of {expected}"
                    raise self._error(f"found the key {shown(key)}{hint}", key)
        if not self.inside:
            for key in kind.required:
                if key not in value:
                    raise self._error(f"found no {key!r}, expected one")
        for key, item in value.items():
            if key in kind.keys:
                self._step(key, kind.keys[key], item)

    def _table(self, kind: Table, value: dict[str, Any]) -> None:
        if self.inside:
            return
        if len(value) < kind.least:
            raise self._error("found an empty mapping, expected at least one key")
        for key, item in value.items():
            if kind.extensions and key.startswith(EXTENSION):
                continue
            if not kind.keys.fullmatch(key):
                raise self._error(
                    f"found the key {shown(key)}, expected letters, digits and '._-'", key
                )
            self._step(key, kind.values, item)

    def _scalar(self, kind: Scalar, value: str) -> None:
        choices = kind.choices + kind.more if self.inside else kind.choices
        if choices and value not in choices:
            hint = did_you_mean(value, choices)
            raise self._error(f"found {shown(value)}, expected {_or(choices)}{hint}")
        if self.inside:
            return
        if kind.pattern and not re.fullmatch(kind.pattern, value):
            raise self._error(f"found {shown(value)}, expected a version such as '5.0'")
        plain = _plain_type(value)
        if plain != "text" or "text" not in kind.types:
            if plain not in kind.types and "text" not in kind.types:
                self._wrong(value, _or(kind.types))
            if plain not in kind.types or "text" not in kind.types:
                self.doubtful[tuple(self.path)] = kind, plain

    def check_types(self) -> None:
        """Of the doubtful scalars, whether they are written as their type needs it."""
        for path, plain in self.document.plain_scalars(self.doubtful):
            kind, type_ = self.doubtful[path]
            if (type_ if plain else "text") not in kind.types:
                self.path = list(path)
                wanted = "it in quotes" if plain else f"a {_or(kind.types)}, without quotes"
                actual = f"the {type_}" if plain else "text"
                raise self._error(f"found {actual}, expected {wanted}")

    def _wrong(self, value: Any, expected: str) -> None:
        if self.inside:  # which Pegasus takes for nothing
            return
        actual = shown(value) if isinstance(value, str) else f"a {kind_of(value)}"
        if value is None:
            actual = "nothing"
        raise self._error(f"found {actual}, expected {expected}")

    def _error(self, message: str, *more: Key) -> Exception:
        place = "".join(
            f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path[self.above :]
        ).lstrip(".")
        where = f"{self.what}: {place}: " if place else f"{self.what}: "
        return self.document.error((*self.path, *more), where + message)


def _or(choices: tuple[str, ...]) -> str:
    return " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))


def _plain_type(text: str) -> str:
    """What a text is without quotes."""
    if text in _FLAGS:
        return "boolean"
    return "number" if _NUMBER.fullmatch(text) else "text"
