"""Files below a directory of this machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from network_provisioner.base.errors import InputError
from site_selector.replicas.catalog import Say, SourceFile


def read_directory(source: str, say: Say, checksum: bool = False) -> Iterator[SourceFile]:
    """Every file below a path or ``file://`` URL, or the one that it names; with ``checksum`` all
    are read for their sha256. Raises InputError."""
    path = unquote(source.removeprefix("file://")) if source.startswith("file://") else source
    root = Path(path).absolute()
    digest = None
    try:
        for file in _below(root) if root.is_dir() else [root]:
            if checksum:
                with file.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
            lfn = str(file.relative_to(root)) if file != root else root.name
            yield SourceFile(lfn, str(file), file.stat().st_size, digest)
    except OSError as error:
        raise InputError(
            f"{error.filename or root}: {error.strerror}, expected a file or a directory"
        ) from None


def _below(root: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise error

    for folder, _, names in os.walk(root, onerror=refuse):
        yield from (path for name in names if (path := Path(folder, name)).is_file())
