"""Edits of files: what is written, shown as a diff, carried out, and taken back.

A :class:`FileEdit` is a file and its wanted content. A list of them is made whole or not at all,
and a kill at any moment leaves of each file what was there or what was meant.

In somebody else's file our settings are a block of lines between two markers, that can be taken out
exactly. It is at the top. In a Java property file the last of two equal keys counts, so
whatever the user says below it wins; and no line of the user's needs to change, not even the end of
a file that lacks its last newline. Inside the block every part begins with a line that names it, so
that one can be replaced, or taken out, while the others stay.
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from network_provisioner.base.errors import InputError

_PART = ".adon-part"  # no name that Pegasus would put on its class path
_BEGIN = b"# >>> adon"
_END = b"# <<< adon"
_HEAD = "# >>> adon: written by 'adon install pegasus', removed by its '--undo' >>>"
_TAIL = "# <<< adon <<<"
_CREATED = "# this file was created by adon"
_FOLDER = "# and its folder, too"
_SECTION = re.compile(r"# (\w+): ")


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A file's content as it was found and as it shall be; None if there is no file.

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

    def reverse(self) -> FileEdit:
        """What brings it back."""
        return FileEdit(self.path, self.after, self.before, self.shown, self.mode)

    def diff(self) -> str:
        """As ``diff -u`` shows it, ending with a newline."""
        old = "/dev/null" if self.before is None else str(self.path)
        new = "/dev/null" if self.after is None else str(self.path)
        if self.shown:
            return f"--- {old}\n+++ {new}\n# {self.shown}\n"
        lines = difflib.unified_diff(
            _text_lines(self.before), _text_lines(self.after), old, new, lineterm=""
        )
        return "".join(f"{line}\n" for line in lines)


def _text_lines(content: bytes | None) -> list[str]:
    if not content:
        return []
    lines = content.decode("utf-8", "backslashreplace").split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], lines[-1] + "\\ no newline at the end"]


def read(path: Path) -> bytes | None:
    """A file's content, None if there is none. Raises InputError."""
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise InputError(f"{path}: found no regular file, expected a file or a free name")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}, expected a file that can be read") from None


def check_writable(edits: Sequence[FileEdit]) -> None:
    """Raises InputError if an edit could not be made, before any is."""
    for edit in edits:
        folder = edit.path.parent
        while not folder.exists():
            folder = folder.parent
        if not folder.is_dir():
            raise InputError(f"{folder}: found no folder, expected one to write in")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise InputError(f"{folder}: no permission to write, expected a folder of yours")


def carry_out(edits: Sequence[FileEdit], own: Sequence[Path] = ()) -> None:
    """Make all edits in their order, or none of them, and remove folders made for what is no more:
    those of ``own`` that are empty, and those that came with a block.

    Raises InputError if a file is no longer as it was found, or cannot be written; what was done
    is undone then.
    """
    for edit in edits:  # what a killed installation left
        with contextlib.suppress(OSError):
            _draft_of(edit.path).unlink(missing_ok=True)
    needed = [edit for edit in edits if edit.needed]
    check_writable(needed)
    done: list[FileEdit] = []
    try:
        for edit in needed:
            _replace(edit)
            done.append(edit)
    except (InputError, OSError) as error:
        for edit in reversed(done):
            with contextlib.suppress(InputError, OSError):
                _replace(edit.reverse())
        if isinstance(error, OSError):
            raise InputError(f"{error.filename or ''}: {error.strerror}".lstrip(": ")) from None
        raise
    gone = [edit for edit in edits if edit.before is not None and edit.after is None]
    made = [e.path.parent for e in gone if find_block(e.before or b"", str(e.path)).folder]
    for folder in (*own, *made):
        with contextlib.suppress(OSError):  # it is not there, or others use it
            folder.rmdir()


def reversed_edits(edits: Sequence[FileEdit]) -> list[FileEdit]:
    """What brings back what ``edits`` changed."""
    return [edit.reverse() for edit in reversed(edits)]


def _replace(edit: FileEdit) -> None:
    if read(edit.path) != edit.before:
        raise InputError(f"{edit.path}: found it changed meanwhile, expected it as it was read")
    folder = edit.path.parent
    if edit.after is None:
        edit.path.unlink(missing_ok=True)
    else:
        if not folder.exists():
            folder.mkdir(parents=True)
            folder.chmod(0o755)  # for all users, whatever the umask
        draft = _draft_of(edit.path)
        draft.unlink(missing_ok=True)
        try:
            _write(draft, edit.after, edit.path if edit.before is not None else edit.mode)
            draft.replace(edit.path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    _sync(folder)


def _draft_of(path: Path) -> Path:
    return path.with_name(f".{path.name}{_PART}")


def _write(draft: Path, content: bytes, like: Path | int) -> None:
    """A new file on the disk, with mode, owner and attributes of ``like``, or with that mode."""
    mode = like if isinstance(like, int) else 0o644
    out = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(out, "wb") as stream:
        if isinstance(like, Path):
            old, new = like.stat(), os.fstat(out)
            if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
                _give(out, old, like)
            os.fchmod(out, stat.S_IMODE(old.st_mode))
            for name in os.listxattr(like):
                with contextlib.suppress(OSError):  # some are the kernel's own
                    os.setxattr(out, name, os.getxattr(like, name))
        else:
            os.fchmod(out, like)  # whatever the umask
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


@contextlib.contextmanager
def installation_lock(folder: Path) -> Iterator[None]:
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


@dataclass(frozen=True, slots=True)
class FileAroundBlock:
    """A file around a block: ``before`` + block + ``after``. ``block`` is empty without one;
    ``created`` says that there was no file before it, ``folder`` not even a folder for it."""

    before: bytes
    block: bytes
    after: bytes
    created: bool = False
    folder: bool = False

    @property
    def rest(self) -> bytes:
        """The file without the block, as the user knows it."""
        return self.before + self.after


def find_block(content: bytes, name: str) -> FileAroundBlock:
    """Where the block is. Raises InputError for markers that do not make one block."""
    begins, ends, at = [], [], 0
    for line in content.splitlines(keepends=True):
        if line.startswith(_BEGIN):
            begins.append(at)
        at += len(line)
        if line.startswith(_END):
            ends.append(at)
    if not begins and not ends:
        return FileAroundBlock(b"", b"", content)
    if len(begins) != 1 or len(ends) != 1 or ends[0] <= begins[0]:
        raise InputError(
            f"{name}: found {len(begins)} lines {_BEGIN.decode()!r} and {len(ends)} lines "
            f"{_END.decode()!r}, expected one of each around ADON's settings; take them out by hand"
        )
    block = content[begins[0] : ends[0]]
    lines = block.splitlines()
    created, folder = (mark.encode() in lines for mark in (_CREATED, _FOLDER))
    return FileAroundBlock(content[: begins[0]], block, content[ends[0] :], created, folder)


def heading(name: str, what: str) -> str:
    """The line that a part of the block begins with."""
    return f"# {name}: {what}"


def block_parts(content: bytes | None, name: str) -> dict[str, list[str]]:
    """The block's lines by the part that they belong to, unchanged. Raises InputError."""
    out: dict[str, list[str]] = {}
    lines: list[str] = []
    for raw in find_block(content or b"", name).block.splitlines()[1:-1]:
        line = raw.decode("utf-8", "surrogateescape")
        if line in (_CREATED, _FOLDER):
            continue
        if begin := _SECTION.match(line):
            lines = out.setdefault(begin[1], [])
        lines.append(line)
    return out


def with_block(
    content: bytes | None, lines: Sequence[str], name: str, folder: bool = False, at: int = 0
) -> bytes:
    """The file with the block, in its old place where there is one, else before the byte ``at``.

    ``content`` is None for a file that is not there, ``folder`` true where its folder is not.
    Raises InputError.
    """
    block = find_block(content or b"", name)
    before, after = block.before, block.after
    if not block.block:
        before, after = after[:at], after[at:]
    marks = [_CREATED] * (content is None or block.created) + [_FOLDER] * (folder or block.folder)
    body = [_HEAD, *marks, *lines, _TAIL]
    text = "".join(f"{line}\n" for line in body)
    return before + text.encode("utf-8", "surrogateescape") + after


def without_block(content: bytes | None, name: str) -> bytes | None:
    """The file as it was without the block; None if it is not there, or was made for the block
    and holds nothing else. Raises InputError."""
    if content is None:
        return None
    block = find_block(content, name)
    return None if block.created and not block.rest else block.rest
