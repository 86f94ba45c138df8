"""Data objects of an iRODS zone, with all of their replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from network_provisioner.base.errors import InputError
from site_selector.replicas.catalog import Say, SourceFile, sha256_of

_GOOD = "1"
Session = AbstractContextManager[Any]


def read_zone(
    source: str, say: Say, session: Session, told: Callable[[Exception], str]
) -> Iterator[SourceFile]:
    """Every good replica below ``irods://host/zone/collection`` by one query, or of the data object
    of that name. ``session`` is the client's, ``told`` has words for what it raises. Raises
    InputError."""
    from irods.exception import PycommandsException, iRODSException  # noqa: PLC0415

    kinds: Counter[str] = Counter()
    try:
        parts = urlsplit(source)
        user, port = parts.netloc.rpartition("@")[:2], f":{parts.port}" if parts.port else ""
        root = unquote(parts.path).rstrip("/")
        with session as zone:
            below, found = _found(zone, root)
    except (iRODSException, PycommandsException, KeyError, OSError, ValueError) as error:
        raise InputError(f"{source}: cannot be read: {told(error)}") from None
    if not below:
        raise InputError(f"{source}: found neither a collection nor a data object there")
    for path, size, checksum, host in found:
        sha256 = sha256_of(checksum or "")
        if checksum and sha256 is None:
            kinds[checksum.partition(":")[0] if ":" in checksum else "md5"] += 1
        url = parts._replace(path=quote(path))
        at = url._replace(netloc="".join((*user, host, port)))
        yield SourceFile(path.removeprefix(f"{below}/"), url.geturl(), size, sha256, at.geturl())
    for kind, count in kinds.items():
        say(f"{source}: {count} checksums of kind {kind} left out, a catalog has sha256 only")


Row = tuple[str, int, str | None, str]
"""Path, bytes, checksum and host of a replica."""


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
    found = [r for r in rows(Like(Collection.name, f"{root}%")) if r[0].startswith(f"{root}/")]
    if found or zone.collections.exists(root):
        return root, found
    above, _, name = root.rpartition("/")
    found = list(rows(Collection.name == above, DataObject.name == name))
    return above if found else "", found
