"""A block of lines in somebody else's file, between two markers, that can be taken out exactly.

The block stands at the top. In a Java property file the last of two equal keys counts, so whatever
the user says below it wins; and no line of the user's needs to change, not even the end of a file
that lacks its last newline. Inside the block every part begins with a line that names it, so that
one can be replaced, or taken out, while the others stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from network_provisioner.base.errors import InputError

_BEGIN = b"# >>> adon"
_END = b"# <<< adon"
_HEAD = "# >>> adon: written by 'adon install pegasus', taken out by its '--undo' >>>"
_TAIL = "# <<< adon <<<"
_CREATED = "# this file was made by adon"
_FOLDER = "# and its folder, too"
_SECTION = re.compile(r"# (\w+): ")


@dataclass(frozen=True, slots=True)
class Found:
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


def find(content: bytes, name: str) -> Found:
    """Where the block stands. Raises InputError for markers that do not make one block."""
    begins, ends, at = [], [], 0
    for line in content.splitlines(keepends=True):
        if line.startswith(_BEGIN):
            begins.append(at)
        at += len(line)
        if line.startswith(_END):
            ends.append(at)
    if not begins and not ends:
        return Found(b"", b"", content)
    if len(begins) != 1 or len(ends) != 1 or ends[0] <= begins[0]:
        raise InputError(
            f"{name}: found {len(begins)} lines {_BEGIN.decode()!r} and {len(ends)} lines "
            f"{_END.decode()!r}, expected one of each around ADON's settings; take them out by hand"
        )
    block = content[begins[0] : ends[0]]
    said = block.splitlines()
    created, folder = (mark.encode() in said for mark in (_CREATED, _FOLDER))
    return Found(content[: begins[0]], block, content[ends[0] :], created, folder)


def heading(name: str, what: str) -> str:
    """The line that a part of the block begins with."""
    return f"# {name}: {what}"


def sections(content: bytes | None, name: str) -> dict[str, list[str]]:
    """The block's lines by the part that they belong to, as they stand. Raises InputError."""
    out: dict[str, list[str]] = {}
    lines: list[str] = []
    for raw in find(content or b"", name).block.splitlines()[1:-1]:
        line = raw.decode("utf-8", "surrogateescape")
        if line in (_CREATED, _FOLDER):
            continue
        if begin := _SECTION.match(line):
            lines = out.setdefault(begin[1], [])
        lines.append(line)
    return out


def put(
    content: bytes | None, lines: Sequence[str], name: str, folder: bool = False, at: int = 0
) -> bytes:
    """The file with the block, in its old place where there is one, else before the byte ``at``.

    ``content`` is None for a file that is not there, ``folder`` true where its folder is not.
    Raises InputError.
    """
    found = find(content or b"", name)
    before, after = found.before, found.after
    if not found.block:
        before, after = after[:at], after[at:]
    marks = [_CREATED] * (content is None or found.created) + [_FOLDER] * (folder or found.folder)
    body = [_HEAD, *marks, *lines, _TAIL]
    text = "".join(f"{line}\n" for line in body)
    return before + text.encode("utf-8", "surrogateescape") + after


def take_out(content: bytes | None, name: str) -> bytes | None:
    """The file as it was without the block; None where it is not there, or was made for the block
    and holds nothing else. Raises InputError."""
    if content is None:
        return None
    found = find(content, name)
    return None if found.created and not found.rest else found.rest
