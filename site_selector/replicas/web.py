"""Files behind ``https://``: one that is asked for its size, or what a WebDAV collection lists."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote, urljoin, urlsplit
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


def read_url(source: str, say: Say) -> Iterator[SourceFile]:
    """The file of a URL by one HEAD, or all below a WebDAV collection (its URL ends in ``/``) by
    one PROPFIND for each folder; accounts are those of ``~/.netrc``. Raises InputError."""
    unsized = 0
    try:
        with requests.Session() as session:
            for file in _below(session, source) if source.endswith("/") else _one(session, source):
                unsized += file.size_bytes is None
                yield file
    except requests.RequestException as error:
        cause = error.args[0] if error.args else error
        why = getattr(cause, "reason", cause)
        raise InputError(f"{source}: cannot be reached: {why}") from None
    if unsized:
        say(f"{source}: its server tells no size of {unsized} files, written without one")


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
    folders = [root]
    while folders:
        folder = folders.pop()
        for url, size in _listed(session, folder):
            name, here = unquote(url), unquote(folder)
            if url == root.rstrip("/"):  # no collection but a file
                yield SourceFile(_base(url), url, size)
            elif name == here or not name.startswith(here):
                continue  # the folder itself, and what is not below it
            elif url.endswith("/"):
                folders.append(url)
            else:
                yield SourceFile(name.removeprefix(unquote(root)), url, size)


def _listed(session: requests.Session, folder: str) -> Iterator[tuple[str, int | None]]:
    """The URLs of what a folder holds and of itself, folders with a ``/`` at the end, and bytes."""
    answer = session.request("PROPFIND", folder, _WANTED, headers=_LISTING, timeout=_TIMEOUT_S)
    _check(answer, folder)
    try:
        tree = ElementTree.fromstring(answer.content if answer.status_code == 207 else "")
    except ElementTree.ParseError:
        raise InputError(
            f"{folder}: found no WebDAV listing, expected a WebDAV collection or the URL of a file"
        ) from None
    for item in tree.iter("{DAV:}response"):
        path = urlsplit(item.findtext("{DAV:}href", "").strip()).path.rstrip("/")
        is_folder = item.find(".//{DAV:}resourcetype/{DAV:}collection") is not None
        size = whole_bytes(item.findtext(".//{DAV:}getcontentlength", ""))
        yield urljoin(folder, path + "/" * is_folder), size


def _check(answer: requests.Response, url: str) -> None:
    if not answer.ok:
        raise InputError(f"{url}: its server answers {answer.status_code} {answer.reason}")


def _base(url: str) -> str:
    return unquote(urlsplit(url).path).rpartition("/")[2]
