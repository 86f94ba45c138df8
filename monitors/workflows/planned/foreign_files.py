"""A workflow's files, which somebody else writes: opened so that they harm nobody.

Whoever reads them may do more than their owner, up to root. So what is opened is a plain file: no
FIFO keeps the reader waiting, and no device does anything. And within :func:`as_owner` it belongs
to whoever the submit directory belongs to, by whatever links and names it was reached: what its
owner could not read is not read for him.

Standard library only: hooks read by it, too.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

MOST_BYTES = 1 << 28  # of a file that is read whole: the DAG of a million jobs
END_BYTES = 1 << 20  # of one of which the end is read, whatever was printed before
_owner: ContextVar[int | None] = ContextVar("owner", default=None)


@contextmanager
def as_owner(owner: int) -> Iterator[None]:
    """Within it this thread opens the files of user id ``owner`` alone."""
    before = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(before)


def exists(path: Path) -> bool:
    """Whether there is anything, as far as one may look. Raises nothing, as Path's method does
    where one may not, or for a name that is too long."""
    return os.path.exists(path)  # noqa: PTH110


def is_file(path: Path) -> bool:
    """The same of a file."""
    return os.path.isfile(path)  # noqa: PTH113


def resolved(path: Path) -> Path:
    """Where a path leads by all its links; itself for links in a circle."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path


def open_plain_file(path: Path) -> int:
    """A descriptor to read from. Raises OSError, also where the file is none or another's."""
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)  # opens nothing yet, and holds what was found
    try:
        status, owner = os.fstat(handle), _owner.get()
        if stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no plain file", str(path))
        if owner is not None and status.st_uid != owner:
            raise OSError(errno.EPERM, "its owner is not that of the submit directory", str(path))
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    finally:
        os.close(handle)


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """All of it. Raises OSError, ValueError for a name with a zero byte in it."""
    with os.fdopen(open_plain_file(path), "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return data


def read_text(path: Path, errors: str = "strict", most: int = MOST_BYTES) -> str:
    """All of it as text, without a byte order mark. Raises OSError, ValueError
    (UnicodeDecodeError)."""
    text = read_bytes(path, most).decode("utf-8-sig", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def end_of(path: Path, most: int = END_BYTES) -> str:
    """The end of a file as text, "" where it is not there or not to be read: then it tells
    nothing."""
    try:
        with os.fdopen(open_plain_file(path), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most))
            return file.read(most).decode(errors="replace").replace("\r\n", "\n")
    except (OSError, ValueError):  # ValueError: a name with a zero byte in it
        return ""
