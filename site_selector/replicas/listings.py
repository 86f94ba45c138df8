"""Files at sources of data, for a replica catalog: below a directory, behind ``https://``
(one file, or what a WebDAV collection lists), or in an iRODS zone with all of their replicas."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from posixpath import normpath
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from xml.etree import ElementTree

import requests

from network_provisioner.base.errors import InputError
from network_provisioner.base.units import whole_bytes
from site_selector.replicas.catalog import Say, SourceFile, sha256_of

_TIMEOUT_S = 30.0
_WANTED = '<propfind xmlns="DAV:"><prop><getcontentlength/><resourcetype/></prop></propfind>'
_LISTING = {"Depth": "1", "Content-Type": "application/xml"}
# Compressed it would have another size; a checksum is asked for as RFC 3230 has it.
_ASKED = {"Accept-Encoding": "identity", "Want-Digest": "sha-256"}

_BARE = re.compile(rb"&(?!(?:#[0-9]+|#x[0-9a-fA-F]+|amp|lt|gt|quot|apos);)")
_NOT_ENCODED = re.compile(r"\s|%(?![0-9a-fA-F]{2})")
_STATUS = re.compile(r"\b[1-5][0-9]{2}\b")
_SERVER = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*")
_SAFE = "/!$&'()*+,;=:@"  # what a path may hold as it is

_GOOD = "1"
Session = AbstractContextManager[Any]
Row = tuple[str, int, str | None, str]
"""Path, bytes, checksum and host of a replica."""


def read_url(source: str, say: Say) -> Iterator[SourceFile]:
    """The file of a URL by one HEAD, or all below a WebDAV collection (its URL ends in ``/``) by
    one PROPFIND for each folder; accounts are those of ``~/.netrc``. Raises InputError."""
    unsized = 0
    try:
        with _Session() as session:
            for file in _below(session, source) if source.endswith("/") else _one(session, source):
                unsized += file.size_bytes is None
                yield file
    except requests.RequestException as error:
        cause = error.args[0] if error.args else error
        why = getattr(cause, "reason", cause)
        raise InputError(f"{source}: cannot be reached: {why}") from None
    if unsized:
        say(f"{source}: its server reports no size for {unsized} files; written without one")


class _Session(requests.Session):
    def rebuild_method(self, *_: object) -> None:
        """Called by requests for a redirection: a PROPFIND stays one."""


def _one(session: requests.Session, url: str) -> Iterator[SourceFile]:
    answer = session.head(url, headers=_ASKED, allow_redirects=True, timeout=_TIMEOUT_S)
    _check(answer, url)
    if answer.url.endswith("/"):
        yield from _below(session, answer.url)
        return
    digests = map(sha256_of, answer.headers.get("Digest", "").split(","))
    size = whole_bytes(answer.headers.get("Content-Length", ""))
    yield SourceFile(_base(url), url, size, next(filter(None, digests), None))


def _below(session: requests.Session, root: str) -> Iterator[SourceFile]:
    folders, seen = [""], set[str]()
    while folders:
        folder = folders.pop()
        for name, is_folder, size in _listed(session, root + _quoted(folder)):
            path = folder + name
            if not (path or is_folder):  # no collection but a file
                url = root.rstrip("/")
                yield SourceFile(_base(url), url, size)
            elif not name or path in seen:  # the folder itself; a server that lists all levels
                continue
            elif is_folder:
                folders.append(f"{path}/")
            else:
                yield SourceFile(path, root + _quoted(path), size)
            seen.add(path)


def _listed(session: requests.Session, folder: str) -> Iterator[tuple[str, bool, int | None]]:
    """What a folder holds: the path below it, "" for the folder itself, whether that is a folder,
    and its bytes."""
    answer = session.request("PROPFIND", folder, data=_WANTED, headers=_LISTING, timeout=_TIMEOUT_S)
    _check(answer, folder)
    items = {}
    for item in _tree(answer, folder).iterfind(".//{*}response"):
        href = item.findtext("{*}href", "").strip()
        if href and _succeeded(item):
            items[href] = item
    # Some servers do not encode paths: a character that no encoded path has shows it.
    as_is = any(map(_NOT_ENCODED.search, items))
    here = _path(urlsplit(answer.url).path, "", as_is=False)
    paths = {_path(href, here, as_is): item for href, item in items.items()}
    if here not in paths:  # behind a proxy that changes paths
        top = min(paths, key=len, default=here)
        if len(paths) > 1 and all(_is_within(path, top) for path in paths):
            here = top
    for path, item in paths.items():
        if _is_within(path, here):
            parts = list(filter(_succeeded, item.iterfind("{*}propstat")))
            if path == here and len(paths) == 1 and not parts:
                status = item.findtext("{*}propstat/{*}status", "").partition(" ")[2]
                raise InputError(f"{folder}: its server answers {status or 'with no property'}")
            is_folder = any(p.find(".//{*}resourcetype/{*}collection") is not None for p in parts)
            lengths = (whole_bytes(p.findtext(".//{*}getcontentlength", "").strip()) for p in parts)
            size = next((length for length in lengths if length is not None), None)
            yield path.removeprefix(here).lstrip("/"), is_folder, size


def _quoted(path: str) -> str:
    return quote(path, _SAFE, errors="surrogateescape")


def _is_within(path: str, folder: str) -> bool:
    return f"{path}/".startswith(folder.rstrip("/") + "/")


def _tree(answer: requests.Response, folder: str) -> ElementTree.Element:
    if answer.status_code != 207:
        raise InputError(
            f"{folder}: found no WebDAV listing, expected a WebDAV collection or the URL of a file"
        )
    try:
        try:
            return ElementTree.fromstring(answer.content.lstrip())
        except ElementTree.ParseError:
            return ElementTree.fromstring(_BARE.sub(b"&amp;", answer.content.lstrip()))
    except ElementTree.ParseError as error:
        raise InputError(
            f"{folder}: found a WebDAV listing that is not well-formed XML: {error}"
        ) from None


def _succeeded(item: ElementTree.Element) -> bool:
    """Whether the status of a resource, or of some of its properties, is 200 or not said."""
    status = _STATUS.search(item.findtext("{*}status", ""))
    return status is None or status[0].startswith("2")


def _path(href: str, here: str, as_is: bool) -> str:
    """An href as a path from ``/``: without server, percent-encoding and dot segments."""
    path = _SERVER.sub("", href) or "/"
    if not as_is:
        path = unquote(path, errors="surrogateescape")
    if not path.startswith((*"/", here.removeprefix("/") or "/")):
        path = f"{here}/{path}"
    return normpath(f"/{path.lstrip('/')}")


def _check(answer: requests.Response, url: str) -> None:
    if not answer.ok:
        raise InputError(f"{url}: its server answers {answer.status_code} {answer.reason}")


def _base(url: str) -> str:
    return unquote(urlsplit(url).path).rpartition("/")[2]


def read_zone(
    source: str, say: Say, session: Session, describe: Callable[[Exception], str]
) -> Iterator[SourceFile]:
    """Every good replica below ``irods://host/zone/collection`` by one query, or of the data object
    of that name. ``session`` is the client's, ``describe`` has words for what it raises. Raises
    InputError."""
    from irods.exception import PycommandsException, iRODSException  # noqa: PLC0415

    kinds: Counter[str] = Counter()
    try:
        parts = urlsplit(source)
        user, port = parts.netloc.rpartition("@")[:2], f":{parts.port}" if parts.port else ""
        root = unquote(parts.path).rstrip("/")
        with session as zone:
            below, objects = _found(zone, root)
    except (iRODSException, PycommandsException, KeyError, OSError, ValueError) as error:
        raise InputError(f"{source}: cannot be read: {describe(error)}") from None
    if not below:
        raise InputError(f"{source}: found neither a collection nor a data object there")
    for path, size, checksum, host in objects:
        sha256 = sha256_of(checksum or "")
        if checksum and sha256 is None:
            kinds[checksum.partition(":")[0] if ":" in checksum else "md5"] += 1
        # Not urlunsplit, which leaves out // where the account knows the host.
        url, at = (
            f"{parts.scheme}://{netloc}{quote(path)}"
            for netloc in (parts.netloc, "".join((*user, host, port)))
        )
        yield SourceFile(path.removeprefix(f"{below}/"), url, size, sha256, at)
    for kind, count in kinds.items():
        say(f"{source}: {count} checksums of kind {kind} left out, a catalog has sha256 only")


def _found(zone: Any, root: str) -> tuple[str, list[Row]]:
    """The collection that is meant, empty for none, and the good replicas in it."""
    from irods.column import Like  # noqa: PLC0415
    from irods.models import Collection, DataObject, Resource  # noqa: PLC0415

    wanted = DataObject.size, DataObject.checksum, Resource.location

    def rows(*conditions: Any) -> Iterator[Row]:
        query = zone.query(Collection.name, DataObject.name, DataObject.replica_number, *wanted)
        for row in query.filter(DataObject.replica_status == _GOOD, *conditions):
            size, checksum, host = (row[column] for column in wanted)
            yield f"{row[Collection.name]}/{row[DataObject.name]}", size, checksum, host

    # As _ and % are wild cards, names that only look alike may be among them.
    objects = [r for r in rows(Like(Collection.name, f"{root}%")) if r[0].startswith(f"{root}/")]
    if objects or zone.collections.exists(root):
        return root, objects
    above, _, name = root.rpartition("/")
    objects = list(rows(Collection.name == above, DataObject.name == name))
    return above if objects else "", objects


def read_directory(source: str, say: Say, checksum: bool = False) -> Iterator[SourceFile]:
    """Every file below a path or ``file://`` URL, or the one that it names; with ``checksum`` all
    are read for their sha256. Raises InputError."""
    path = unquote(source.removeprefix("file://")) if source.startswith("file://") else source
    root = Path(path).absolute()
    digest = None
    try:
        for file in _below_collection(root) if root.is_dir() else [root]:
            if checksum:
                with file.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
            lfn = str(file.relative_to(root)) if file != root else root.name
            yield SourceFile(lfn, str(file), file.stat().st_size, digest)
    except OSError as error:
        raise InputError(
            f"{error.filename or root}: {error.strerror}, expected a file or a directory"
        ) from None


def _below_collection(root: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise error

    for folder, _, names in os.walk(root, onerror=refuse):
        yield from (path for name in names if (path := Path(folder, name)).is_file())
