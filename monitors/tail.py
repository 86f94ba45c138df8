"""Follows a growing file without reading anything twice, whatever happens to the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from network_provisioner.errors import InputError

_PIECE_BYTES = 1 << 20  # so that a long file does not have to fit into memory
_MARK_BYTES = 64  # the last bytes that were read, to notice that they are no longer there
MAX_LINE_BYTES = 1 << 16  # no line that is of interest is longer


class Lines:
    """Cuts portions of a file into whole lines, each with its offset in the file.

    A line longer than :data:`MAX_LINE_BYTES` is left out, so that a file without line ends cannot
    fill the memory. What comes out does not depend on how the file was cut into portions.
    """

    def __init__(self) -> None:
        self._start = 0  # offset of the line that is not yet whole
        self._rest = b""
        self._skipped = 0  # bytes of that line already thrown away as it is too long

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The lines that became whole, without their line ends."""
        *whole, rest = data.split(b"\n")
        for part in whole:
            line = self._rest + part
            length = self._skipped + len(line)
            if length <= MAX_LINE_BYTES:
                yield self._start, line
            self._start += length + 1
            self._rest, self._skipped = b"", 0
        self._rest += rest
        if self._skipped or len(self._rest) > MAX_LINE_BYTES:
            self._skipped += len(self._rest)
            self._rest = b""


@dataclass(frozen=True, slots=True)
class Piece:
    """A portion of a file; ``first`` where it is the first of a file that was not seen before."""

    data: bytes
    first: bool


class Tail:
    """One file by name, followed through growth, truncation, replacement and rotation.

    Whether the file is still the one that was read is decided by its inode, its size and the last
    bytes that were read. Where it was renamed and replaced, the rest of the old one is read first,
    from wherever in the same folder it went.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._identity: tuple[int, int] | None = None
        self._mark = b""
        self._seen: tuple[int, int] = (-1, -1)  # size and time of change at the last look

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
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                yield from self._read_open(descriptor)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror}") from error

    def _read_open(self, descriptor: int) -> Iterator[Piece]:
        status = os.fstat(descriptor)
        identity = (status.st_dev, status.st_ino)
        if identity != self._identity and self._identity is not None:
            yield from self._rest_of_rotated()
        if identity != self._identity or not self._continues(descriptor, status.st_size):
            self._identity, self._offset, self._mark = identity, 0, b""
        yield from self._forward(descriptor)
        # As it was before reading: what came since then makes the next look read again.
        self._seen = (status.st_size, status.st_mtime_ns)

    def _continues(self, descriptor: int, size: int) -> bool:
        if size < self._offset:
            return False
        return os.pread(descriptor, len(self._mark), self._offset - len(self._mark)) == self._mark

    def _forward(self, descriptor: int) -> Iterator[Piece]:
        while data := os.pread(descriptor, _PIECE_BYTES, self._offset):
            first = self._offset == 0
            self._offset += len(data)
            self._mark = (self._mark + data)[-_MARK_BYTES:]
            yield Piece(data, first)

    def _rest_of_rotated(self) -> Iterator[Piece]:
        old = self._renamed()
        if old is None:
            return
        try:
            descriptor = os.open(old, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # it went between the look and the open: there is no rest to be had
        try:
            if self._continues(descriptor, os.fstat(descriptor).st_size):
                yield from self._forward(descriptor)
        finally:
            os.close(descriptor)

    def _renamed(self) -> Path | None:
        """Where the file that was read before is now, in the same folder."""
        try:
            with os.scandir(self.path.parent) as entries:
                for entry in entries:
                    if (
                        entry.name.startswith(self.path.name)
                        and entry.name != self.path.name
                        and entry.inode() == (self._identity or (0, 0))[1]
                    ):
                        return Path(entry.path)
        except OSError:
            return None
        return None
