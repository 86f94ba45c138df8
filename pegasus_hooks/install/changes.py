"""Files replaced whole, with what they were kept until it is done: effects of an installation."""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from network_provisioner.base.errors import InputError

_PART = ".adon-part"  # no name that Pegasus would put on its class path


@dataclass(frozen=True, slots=True)
class Change:
    """A file's content as it was found and as it shall be; None where there is no file.

    ``path`` is the file itself, no symbolic link. ``shown`` is how a diff of it is shown: as text,
    or by a line that says what it is. ``mode`` is that of a file that is not there yet.
    """

    path: Path
    before: bytes | None
    after: bytes | None
    shown: str = ""
    mode: int = 0o644

    @property
    def needed(self) -> bool:
        """Whether anything changes."""
        return self.before != self.after

    def reverse(self) -> Change:
        """What brings it back."""
        return Change(self.path, self.after, self.before, self.shown, self.mode)

    def diff(self) -> str:
        """As ``diff -u`` shows it, ending with a newline."""
        old = "/dev/null" if self.before is None else str(self.path)
        new = "/dev/null" if self.after is None else str(self.path)
        if self.shown:
            return f"--- {old}\n+++ {new}\n# {self.shown}\n"
        lines = difflib.unified_diff(_lines(self.before), _lines(self.after), old, new, lineterm="")
        return "".join(f"{line}\n" for line in lines)


def _lines(content: bytes | None) -> list[str]:
    if not content:
        return []
    lines = content.decode("utf-8", "backslashreplace").split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], lines[-1] + "\\ no newline at the end"]


def read(path: Path) -> bytes | None:
    """A file's content, None where there is none. Raises InputError."""
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise InputError(f"{path}: found no regular file, expected a file or a free name")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}, expected a file that can be read") from None


def check_writable(changes: Sequence[Change]) -> None:
    """Raises InputError where a change could not be made, before any is."""
    for change in changes:
        folder = change.path.parent
        while not folder.exists():
            folder = folder.parent
        if not folder.is_dir():
            raise InputError(f"{folder}: found no folder, expected one to write in")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise InputError(f"{folder}: no permission to write, expected a folder of yours")


def apply(changes: Sequence[Change]) -> None:
    """Make all changes in their order, or none of them.

    Raises InputError where a file is no longer as it was found, or cannot be written; what was done
    is undone then.
    """
    done: list[Change] = []
    try:
        for change in changes:
            if change.needed:
                _replace(change)
                done.append(change)
    except (InputError, OSError) as error:
        for change in reversed(done):
            with contextlib.suppress(InputError, OSError):
                _replace(change.reverse())
        if isinstance(error, OSError):
            raise InputError(f"{error.filename or ''}: {error.strerror}".lstrip(": ")) from None
        raise


def _replace(change: Change) -> None:
    if read(change.path) != change.before:
        raise InputError(f"{change.path}: found it changed meanwhile, expected it as it was read")
    folder = change.path.parent
    if change.after is None:
        change.path.unlink(missing_ok=True)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".{change.path.name}{_PART}"
        part.unlink(missing_ok=True)
        try:
            _write(part, change.after, change.path if change.before is not None else change.mode)
            part.replace(change.path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    _sync(folder)


def _write(part: Path, content: bytes, like: Path | int) -> None:
    """A new file on the disk, with mode, owner and attributes of ``like``, or with that mode."""
    mode = like if isinstance(like, int) else 0o644
    out = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(out, "wb") as stream:
        if isinstance(like, Path):
            old, new = like.stat(), os.fstat(out)
            if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
                _give(out, old, like)
            os.fchmod(out, stat.S_IMODE(old.st_mode))
            for name in os.listxattr(like):
                with contextlib.suppress(OSError):  # some are the kernel's own
                    os.setxattr(out, name, os.getxattr(like, name))
        stream.write(content)
        stream.flush()
        os.fsync(out)


def _give(out: int, old: os.stat_result, like: Path) -> None:
    try:
        os.fchown(out, old.st_uid, old.st_gid)
    except PermissionError:
        raise InputError(
            f"{like}: found it owned by user {old.st_uid}, group {old.st_gid}, expected to be run "
            "by its owner or by root"
        ) from None


def _sync(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(held)
        finally:
            os.close(held)


def remove_parts(paths: Sequence[Path]) -> None:
    """Remove what a killed installation left beside its files."""
    for path in paths:
        with contextlib.suppress(OSError):
            (path.parent / f".{path.name}{_PART}").unlink(missing_ok=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One installation at a time. Raises InputError while another one runs."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder}: another installation runs there, expected none") from None
        except OSError:
            pass  # a file system without locks: the check before each change has to do
        yield
    finally:
        os.close(held)
