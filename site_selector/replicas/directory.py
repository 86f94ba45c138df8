"""Files below a directory of this machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from network_provisioner.base.errors import InputError
from site_selector.replicas.catalog import Say, SourceFile


def read_directory(source: str, say: Say, checksum: bool = False) -> Iterator[SourceFile]:
    """Every file below a path or ``file://`` URL, or the one that it names; with ``checksum`` all
    are read for their sha256. Raises InputError."""
    parts = urlsplit(source)
    root = Path(unquote(parts.path) if parts.scheme else source).absolute()
    try:
        if not root.is_dir():
            yield _file(root, root.name, checksum)
            return
        for folder, _, names in os.walk(root, onerror=_refuse, followlinks=False):
            for name in names:
                path = Path(folder, name)
                if path.is_file():
                    yield _file(path, str(path.relative_to(root)), checksum)
    except OSError as error:
        raise InputError(
            f"{error.filename or root}: {error.strerror}, expected a file or a directory"
        ) from None


def _refuse(error: OSError) -> None:
    raise error


def _file(path: Path, lfn: str, checksum: bool) -> SourceFile:
    digest = None
    if checksum:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return SourceFile(lfn, str(path), path.stat().st_size, digest)
