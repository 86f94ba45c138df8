"""Files for their owner alone, and the secrets in them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from network_provisioner.base.errors import InputError

_MODE = 0o600
_LONGEST = 4096  # characters of a secret: the file may be the wrong one


def make_private(path: Path) -> None:
    """Make an empty file for its owner alone, and its folder, where they are not there yet: who
    wants others to see one gives it another mode, and that stays. What SQLite puts beside a file
    has its mode. Raises OSError."""
    path = path.resolve()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _create(path)


def open_lock(path: Path) -> BinaryIO:
    """A file to hold a lock on, which who may open it could hold: none but its owner may, also one
    that an earlier version made. Raises OSError."""
    _create(path)
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    held = open(os.open(path, flags, _MODE), "ab+", buffering=0)  # noqa: PTH123, SIM115
    with suppress(PermissionError):  # another's, whose business it is
        os.fchmod(held.fileno(), _MODE)
    return held


def _create(path: Path) -> None:
    """Make a file that is not there yet. What root makes belongs to the folder's owner, who may be
    a service."""
    with suppress(FileExistsError):  # not opened: closing it would drop SQLite's locks on it
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        try:
            if os.geteuid() == 0:
                folder = path.parent.stat()
                os.fchown(made, folder.st_uid, folder.st_gid)
        finally:
            os.close(made)


def read_secret(file: Path, what: str) -> str:
    """The one line of a file. Raises InputError, which never quotes it; ``what`` is expected there,
    such as ``a password``."""
    try:
        with file.open(encoding="utf-8") as opened:
            secret = opened.read(_LONGEST + 1).rstrip("\n")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise InputError(f"{file}: cannot be read: {why}, expected {what}") from None
    if not 0 < len(secret) <= _LONGEST or not secret.isprintable():
        raise InputError(f"{file}: found something else, expected one line with {what}")
    return secret
