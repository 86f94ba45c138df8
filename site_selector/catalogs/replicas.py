"""Where the inputs of a workflow lie and how large they are.

Directories of inputs, the workflow's own catalog, files of replica catalogs, and a database are
looked into; the first that knows a file counts, as with Pegasus.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from network_provisioner.base.errors import InputError
from network_provisioner.base.units import whole_bytes
from site_selector.catalogs.documents import read_document, read_expanded, read_text
from site_selector.catalogs.entries import (
    SUBMIT_SITE,
    Replica,
    ReplicaCatalog,
    filled,
    merged,
    replicas_of,
)
from site_selector.catalogs.fields import positive_number
from site_selector.catalogs.javapattern import compiled
from site_selector.catalogs.properties import is_true

_log = logging.getLogger(__name__)
WHAT = "Pegasus 5 replica catalog"
Note = Callable[[str], None]

# Of Pegasus's older text format: words, or quoted words with \" and \\ inside.
_WORD = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*")+')
_SITE_KEYS = ("site", "pool")
_CATALOG = "pegasus.catalog.replica"
BY_PROPERTIES = ("jdbcrc", "directory", "mrc")
"""Types of replica catalogs that are no file of their own."""
_YAML = (".yml", ".yaml", ".json")
_IN_YAML = re.compile(r"^\s*\{?\s*\"?(pegasus|replicas)\"?\s*:", re.MULTILINE)

_BATCH = 10_000
_TIMEOUT_S = 5
_MOST_FILES = 100_000  # of a directory, that are measured
_ROWS = """
SELECT l.lfn, p.site, p.pfn, m.value FROM rc_lfn l JOIN rc_pfn p ON p.lfn_id = l.lfn_id
LEFT JOIN rc_meta m ON m.lfn_id = l.lfn_id AND m.key = 'size'
WHERE p.site <> '' AND l.lfn IN ({}) ORDER BY p.pfn_id
"""
_HERE = ("", "localhost")


def find_replicas(
    wanted: Iterable[str],
    files: Sequence[tuple[str | None, str]],
    directories: Sequence[str],
    note: Note | None,
    properties: Mapping[str, str] = MappingProxyType({}),
    *,
    inside: ReplicaCatalog | None = None,
    variables: Mapping[str, str] | None = None,
) -> dict[str, Replica]:
    """The files named ``wanted``. Of two sources that know one, the first counts: the order of
    ``directories``, the workflow's own catalog ``inside``, the order of ``files`` (pairs of
    Pegasus's catalog type and path), then the database, the directory or the several catalogs that
    Pegasus's ``properties`` name.

    ``note`` gets a line for each source that cannot be read; without it, InputError is raised for
    a file. ``variables``: see :func:`site_selector.catalogs.documents.read_document`.
    """
    names = dict.fromkeys(wanted)
    replicas: dict[str, Replica] = {}

    def missing() -> list[str]:
        return [name for name in names if name not in replicas]

    for directory in directories:
        for lfn in missing():
            path = Path(directory) / lfn
            size = _size_of(path)
            if size is not None:
                replicas[lfn] = Replica(lfn, ((SUBMIT_SITE, str(path.absolute())),), size, ())
    if inside is not None:
        replicas |= _of(inside, missing())
    for kind, name in files:
        if missing():
            try:
                replicas |= _read(kind, Path(name), missing(), variables)
            except InputError as error:
                if note is None:
                    raise
                note(f"{error}; its replicas are ignored")
    try:
        replicas |= _by_properties(properties, missing(), variables)
    except InputError as error:
        (note or _log.warning)(f"{error}; its replicas are ignored")
    return replicas


def _of(catalog: ReplicaCatalog, wanted: Iterable[str]) -> dict[str, Replica]:
    for line in catalog.notes:
        _log.warning("%s", line)
    entries = ((lfn, catalog.find(lfn)) for lfn in wanted)
    return {lfn: entry for lfn, entry in entries if entry is not None and entry.places}


def measured(size_bytes: int | None, places: Iterable[tuple[str, str]]) -> int | None:
    """The size that is known, else that of the file itself where it lies on this machine."""
    if size_bytes is not None:
        return size_bytes
    for site, url in places:
        try:
            parts = urlsplit(url)
        except ValueError:  # no URL at all
            continue
        if site == SUBMIT_SITE and parts.scheme in ("", "file") and parts.netloc in _HERE:
            path = Path(unquote(parts.path) if parts.scheme else url)
            size = _size_of(path)
            return _size_below(path) if size is None else size
    return None


def _size_below(directory: Path) -> int | None:
    """Of what a directory holds, which Pegasus transfers whole."""
    try:
        sizes = [_size_of(path) for path in islice(directory.rglob("*"), _MOST_FILES)]
    except (OSError, ValueError):
        return None
    return sum(filter(None, sizes)) or None


def _size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except (OSError, ValueError):  # unreadable, or no name for a file
        return None


def _by_properties(
    properties: Mapping[str, str], wanted: Collection[str], variables: Mapping[str, str] | None
) -> dict[str, Replica]:
    """Of the catalog of type JDBCRC, Directory or MRC. Raises InputError."""
    kind = properties.get(_CATALOG, "").lower()
    if kind == "directory":
        return _in_directory(properties, wanted)
    if kind != "mrc":
        database = database_of(properties)
        return database.replicas(wanted) if database else {}
    members: dict[str, dict[str, str]] = {}
    for key, value in properties.items():
        if key.startswith(f"{_CATALOG}.mrc."):
            name, _, rest = key.removeprefix(f"{_CATALOG}.mrc.").partition(".")
            members.setdefault(name, {})[f"{_CATALOG}.{rest}" if rest else _CATALOG] = value
    replicas: dict[str, Replica] = {}
    for member in members.values():
        file = member.get(f"{_CATALOG}.file")
        more = (
            _read(member.get(_CATALOG), Path(file), wanted, variables)
            if file
            else _by_properties(member, wanted, variables)
        )
        replicas |= {
            lfn: merged(replicas[lfn], r) if lfn in replicas else r for lfn, r in more.items()
        }
    return replicas


def _in_directory(properties: Mapping[str, str], wanted: Collection[str]) -> dict[str, Replica]:
    own = {k.removeprefix(f"{_CATALOG}.directory"): v for k, v in properties.items()}
    top = Path(own.get("", ""))
    if not own.get("") or not top.is_dir():
        raise InputError(f"{_CATALOG}.directory: found {own.get('')!r}, expected a directory")
    if is_true(own.get(".flat.lfn", "")):
        paths = {path.name: path for path in top.rglob("*")}
    else:
        paths = {lfn: top / lfn for lfn in wanted}
    site, prefix = own.get(".site", SUBMIT_SITE), own.get(".url.prefix", "file://")
    return {
        lfn: Replica(lfn, ((site, f"{prefix}{paths[lfn].absolute()}"),), size, ())
        for lfn in wanted
        if lfn in paths
        for size in [_size_of(paths[lfn])]
        if size is not None
    }


def _read(
    kind: str | None, path: Path, wanted: Collection[str], variables: Mapping[str, str] | None
) -> dict[str, Replica]:
    if kind is None:  # Pegasus distinguishes them by name and content
        yaml = path.suffix.lower() in _YAML or _IN_YAML.search(read_text(path, WHAT))
        kind = "YAML" if yaml else "File"
    if kind.lower() == "yaml":
        return _of(replicas_of(read_document(path, WHAT, variables)), wanted)
    if kind.lower() in ("file", "simplefile", "regex"):
        return _read_text(path, {*wanted}, variables, kind.lower() == "regex")
    raise InputError(f"{path}: replica catalog of type {kind}, expected YAML, File or Regex")


def _read_text(
    path: Path, wanted: Collection[str], variables: Mapping[str, str] | None, patterns: bool
) -> dict[str, Replica]:
    """Lines ``lfn pfn key="value" …``, of which the key ``site`` (once ``pool``) matters, and
    ``regex`` where names may be ``patterns``."""
    places: dict[str, list[tuple[str, str]]] = {}
    sizes: dict[str, int] = {}
    for line in read_expanded(path, WHAT, variables).splitlines():
        fields = _WORD.findall(line)
        if len(fields) < 2 or fields[0].startswith("#"):
            continue
        keys = dict(word.split("=", 1) for word in fields[2:] if "=" in word)
        site = next((_plain(keys[key]) for key in _SITE_KEYS if key in keys), "")
        size = positive_number(_plain(keys.get("size", "")))
        named, pfn = _plain(fields[0]), _plain(fields[1])
        matches = {named: pfn} if named in wanted else {}
        if patterns and is_true(_plain(keys.get("regex", ""))):
            try:
                pattern = compiled(named)
            except re.error as error:
                _log.warning("%s: pattern %r: %s; it is left out", path, named, error)
                continue
            pattern_matches = ((lfn, pattern.fullmatch(lfn)) for lfn in wanted)
            matches = {lfn: filled(pfn, match) for lfn, match in pattern_matches if match}
        for lfn, place in matches.items():
            if site:
                places.setdefault(lfn, []).append((site, place))
            if size is not None and size < 1 << 63:
                sizes.setdefault(lfn, int(size))
    return {lfn: Replica(lfn, tuple(at), sizes.get(lfn), ()) for lfn, at in places.items()}


def _plain(word: str) -> str:
    return re.sub(r'\\(.)|"', lambda match: match[1] or "", word)


@dataclass(frozen=True, slots=True)
class ReplicaDatabase:
    """Where it is: a JDBC URL, and the account there."""

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """How messages name it: without what may be a password."""
        return f"replica catalog {self.url.partition('?')[0]}"

    def replicas(self, lfns: Iterable[str]) -> dict[str, Replica]:
        """What it knows of these files, in one query for 10,000 of them. Raises InputError."""
        wanted = list(lfns)
        if not wanted:
            return {}
        places: dict[str, list[tuple[str, str]]] = {}
        sizes: dict[str, int] = {}
        connect, errors, mark = self._driver()
        try:
            with closing(connect()) as database:
                for begin in range(0, len(wanted), _BATCH):
                    batch = wanted[begin : begin + _BATCH]
                    query = _ROWS.format(",".join([mark] * len(batch)))
                    for lfn, site, pfn, size in database.execute(query, batch):
                        places.setdefault(lfn, []).append((site, pfn))
                        if (known := whole_bytes(size or "")) is not None:
                            sizes[lfn] = known
        except errors as error:
            reason = str(error).strip().partition("\n")[0]
            raise InputError(f"{self.shown}: cannot be read: {reason}") from None
        return {lfn: Replica(lfn, tuple(at), sizes.get(lfn), ()) for lfn, at in places.items()}

    def _driver(self) -> tuple[Any, Any, str]:
        """What connects, the errors that it raises, and its mark for a value."""
        kind, _, place = self.url.removeprefix("jdbc:").partition(":")
        place, _, query = place.partition("?")
        if kind == "sqlite":
            import sqlite3  # noqa: PLC0415

            file = f"file:{quote(place)}?mode=ro"
            return lambda: sqlite3.connect(file, _TIMEOUT_S, uri=True), sqlite3.Error, "?"
        if kind != "postgresql":
            raise InputError(
                f"{self.shown}: databases of this kind are not read, expected jdbc:sqlite: or "
                "jdbc:postgresql:"
            )
        import psycopg  # noqa: PLC0415  (takes longer than most mappings)

        parameters = dict(parse_qsl(query))
        account: dict[str, Any] = {
            "user": self.user or parameters.get("user"),
            "password": self.password or parameters.get("password"),
            "sslmode": parameters.get("sslmode"),
            "options": f"-csearch_path={parameters['currentSchema']}"
            if "currentSchema" in parameters
            else None,
            "connect_timeout": _TIMEOUT_S,
        }
        return lambda: psycopg.connect(f"postgresql:{place}", **account), psycopg.Error, "%s"


def database_of(properties: Mapping[str, str]) -> ReplicaDatabase | None:
    """The database that Pegasus's properties name, None if their replica catalog is none.

    Raises InputError without a URL."""
    if properties.get("pegasus.catalog.replica", "").upper() != "JDBCRC":
        return None
    of_all, own = (f"pegasus.catalog.{catalog}.db." for catalog in ("*", "replica"))
    url, user, password = (
        properties.get(own + key, properties.get(of_all + key))
        for key in ("url", "user", "password")
    )
    if not url:
        raise InputError("found pegasus.catalog.replica = JDBCRC, expected its db.url too")
    return ReplicaDatabase(url, user, password)
