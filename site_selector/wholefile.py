"""Writing a file whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from network_provisioner.base.errors import InputError


def write_whole(path: str | Path, write: Callable[[TextIO], object], what: str) -> None:
    """Have ``write`` fill a file beside ``path``, then rename it; ``what`` names it in messages.

    Raises InputError if it cannot be written; what was at ``path`` is as before then. A device
    or a directory is refused: renaming over /dev/null would replace it for everyone.
    """
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            raise InputError(
                f"{target}: cannot write {what}: found no regular file, expected a file or a free "
                "name"
            )
        part = target.with_name(target.name + ".part")
        try:
            with part.open("w", encoding="utf-8") as stream:
                write(stream)
            part.replace(target)
        except BaseException:  # also at an interrupt in the middle
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"{target}: cannot write {what}: {error.strerror}") from None
