"""Follows a growing file without reading anything twice, whatever happens to the file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from monitors.workflows.planned.foreign_files import open_plain_file
from network_provisioner.base.errors import InputError

_PIECE_BYTES = 1 << 20  # so that a long file does not have to fit into memory
_HEAD_BYTES = 256  # the first bytes, to tell a file from another in its place
_MARK_BYTES = 256  # the last bytes that were read, to notice that they are no longer there
MAX_LINE_BYTES = 1 << 16  # no line that is of interest is longer

_HOLE = re.compile(rb"\0+")
# What programs append to a log's name when they put it aside: DAGMan, HTCondor, logrotate.
_ASIDE = re.compile(r"\.(old|\d{1,3}|\d{8}T\d{6}|\d{8})")

FileState = tuple[tuple[int, int] | None, int, int]
"""Which file it is, its size in bytes and its time of change (ns); nothing and -1 for none."""


class Lines:
    """Cuts portions of a file into whole lines, begun anew behind the zero bytes that a file system
    put in the place of what it lost.

    A line longer than :data:`MAX_LINE_BYTES` is left out, so that a file without line ends cannot
    fill the memory. What comes out does not depend on how the file was cut into portions.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._is_too_long = False  # what there was of the line before the rest was thrown away

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that became whole, without their line ends."""
        *whole, rest = (_HOLE.sub(b"\n", data) if b"\0" in data else data).split(b"\n")
        for part in whole:
            line = self._rest + part
            if not self._is_too_long and len(line) <= MAX_LINE_BYTES:
                yield line
            self._rest, self._is_too_long = b"", False
        self._rest += rest
        if self._is_too_long or len(self._rest) > MAX_LINE_BYTES:
            self._rest, self._is_too_long = b"", True


@dataclass(frozen=True, slots=True)
class Piece:
    """A portion of a file; ``first`` where it is the first of a file that was not seen before."""

    data: bytes
    first: bool


class Tail:
    """One file by name, followed through growth, truncation, replacement and rotation.

    Whether the file is still the one that was read is decided by its inode, its size and the first
    and last bytes that were read. Where it is not, what was put aside meanwhile (renamed, or copied
    before the file was emptied) is read first, from wherever in the same folder it went. So is what
    was put aside before the first look: a new follower finds all that there is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity: tuple[int, int] | None = None
        self._begin()
        self._seen: tuple[int, int] = (-1, -1)  # size and time of change at the last look
        self._aside: set[tuple[int, int, bytes]] = set()  # what was put aside and has been read
        self.begun = 0
        """How many files were read: one that was emptied and written anew is another."""

    def _begin(self) -> None:
        self._offset, self._head, self._mark = 0, b"", b""

    @property
    def seen(self) -> FileState:
        """How the file was when it was last read."""
        return (self._identity, *self._seen)

    @property
    def changed_at(self) -> float:
        """When the file was changed last (Unix seconds), as far as it was read; 0 where nothing
        was."""
        return max(0, self._seen[1]) / 1e9

    def read(self) -> Iterator[Piece]:
        """What is new since the last time; nothing where the file is not there.

        Raises InputError where it is there and cannot be read.
        """
        try:
            status = self.path.stat()
            if (status.st_dev, status.st_ino) == self._identity and self._seen == (
                status.st_size,
                status.st_mtime_ns,
            ):
                return
            with _opened(self.path) as descriptor:
                yield from self._read_open(descriptor)
        except FileNotFoundError:
            yield from self._read_aside(grows=True)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror}") from error

    def _read_open(self, descriptor: int) -> Iterator[Piece]:
        status = os.fstat(descriptor)
        identity = (status.st_dev, status.st_ino)
        if not status.st_size:
            # Whoever writes may have the old one open still, and know it by no name.
            yield from self._read_aside(grows=True)
            return
        # Of a file of which nothing was read nobody can say whether it was emptied since.
        same = identity == self._identity and self._offset > 0
        if not (same and self._continues(descriptor, status.st_size)):
            yield from self._read_aside(grows=False)
            self._identity = identity
            self._begin()
        yield from self._forward(descriptor)
        # As it was before reading: what came since then makes the next look read again.
        self._seen = (status.st_size, status.st_mtime_ns)

    def _continues(self, descriptor: int, size: int) -> bool:
        if size < self._offset:
            return False
        before = self._offset - len(self._mark)
        return (
            os.pread(descriptor, len(self._mark), before) == self._mark
            and os.pread(descriptor, len(self._head), 0) == self._head
        )

    def _forward(self, descriptor: int) -> Iterator[Piece]:
        while data := os.pread(descriptor, _PIECE_BYTES, self._offset):
            first = self._offset == 0
            self.begun += first
            self._offset += len(data)
            if len(self._head) < _HEAD_BYTES:
                self._head = (self._head + data[:_HEAD_BYTES])[:_HEAD_BYTES]
            self._mark = (self._mark + data[-_MARK_BYTES:])[-_MARK_BYTES:]
            yield Piece(data, first)

    def _read_aside(self, *, grows: bool) -> Iterator[Piece]:
        """What was put aside and has not been read, the oldest first: of the one that was read in
        part, or of its copy, the rest. Where the newest ``grows``, it is not done with."""
        paths = self._put_aside()
        for path in paths:
            # What goes between the look and the open has nothing to be had.
            with suppress(OSError), _opened(path) as descriptor:
                status = os.fstat(descriptor)
                key = (status.st_dev, status.st_ino, os.pread(descriptor, _HEAD_BYTES, 0))
                if key in self._aside:
                    continue
                if not (self._offset and self._continues(descriptor, status.st_size)):
                    self._begin()
                self._identity = (status.st_dev, status.st_ino)
                yield from self._forward(descriptor)
                if not (grows and path == paths[-1]):
                    self._aside.add(key)

    def _put_aside(self) -> list[Path]:
        name = self.path.name
        dated: list[tuple[int, Path]] = []
        with suppress(OSError), os.scandir(self.path.parent) as entries:
            for entry in entries:
                ending = entry.name[len(name) :] if entry.name.startswith(name) else ""
                known = self._identity is not None and entry.inode() == self._identity[1]
                if _ASIDE.fullmatch(ending) or (ending and known):
                    # One without a word in it may be older than what is written to another still.
                    with suppress(OSError):
                        if (status := entry.stat()).st_size:
                            dated.append((status.st_mtime_ns, Path(entry.path)))
        # Files of one tick of the kernel's clock by their numbers.
        return [path for _, path in sorted(dated, key=lambda d: (d[0], len(d[1].name), d[1].name))]


def state_of(path: Path) -> FileState:
    """How a file is now."""
    try:
        status = path.stat()
    except (OSError, ValueError):  # ValueError: a name with a zero byte in it
        return (None, -1, -1)
    return ((status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = open_plain_file(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
