"""Data objects of an iRODS zone, with all of their replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from network_provisioner.base.errors import InputError
from site_selector.replicas.catalog import Say, SourceFile, sha256_of

Session = Callable[[str], AbstractContextManager[Any]]
_GOOD = "1"


def read_zone(source: str, say: Say, session: Session) -> Iterator[SourceFile]:
    """Every good replica below ``irods://host/zone/collection`` by one query, or of the data object
    of that name. ``session`` opens the client's session for a URL. Raises InputError."""
    from irods.exception import PycommandsException, iRODSException  # noqa: PLC0415

    try:
        yield from _read(source, say, session)
    except (iRODSException, PycommandsException, KeyError, OSError) as error:
        what = " ".join(str(error).split())
        raise InputError(f"{source}: cannot be read: {type(error).__name__} {what}") from None


def _read(source: str, say: Say, session: Session) -> Iterator[SourceFile]:
    from irods.column import Like  # noqa: PLC0415
    from irods.models import Collection, DataObject  # noqa: PLC0415

    parts = urlsplit(source)
    root = unquote(parts.path).rstrip("/")
    above, _, name = root.rpartition("/")
    with session(source) as zone:
        # As _ and % are wild cards, names that only look alike may be among them.
        rows = _rows(zone, Like(Collection.name, f"{root}%"))
        found = [row for row in rows if row[0].startswith(f"{root}/")]
        if not found and not zone.collections.exists(root):
            found = list(_rows(zone, Collection.name == above, DataObject.name == name))
            if not found:
                raise InputError(f"{source}: found neither a collection nor a data object there")
            root = above
    user, port = parts.netloc.rpartition("@")[:2], f":{parts.port}" if parts.port else ""
    kinds: Counter[str] = Counter()
    for path, size, checksum, host in found:
        sha256 = sha256_of(checksum or "")
        if checksum and sha256 is None:
            kinds[checksum.partition(":")[0] if ":" in checksum else "md5"] += 1
        url = parts._replace(path=quote(path))
        at = url._replace(netloc="".join((*user, host, port)))
        yield SourceFile(path.removeprefix(f"{root}/"), url.geturl(), size, sha256, at.geturl())
    for kind, count in kinds.items():
        say(f"{source}: {count} checksums of kind {kind} left out, a catalog has sha256 only")


def _rows(zone: Any, *conditions: Any) -> Iterator[tuple[str, int, str | None, str]]:
    """Path, bytes, checksum and host of good replicas; the client asks page by page."""
    from irods.models import Collection, DataObject, Resource  # noqa: PLC0415

    wanted = DataObject.size, DataObject.checksum, Resource.location
    query = zone.query(Collection.name, DataObject.name, DataObject.replica_number, *wanted)
    for row in query.filter(DataObject.replica_status == _GOOD, *conditions):
        size, checksum, host = (row[column] for column in wanted)
        yield f"{row[Collection.name]}/{row[DataObject.name]}", size, checksum, host
