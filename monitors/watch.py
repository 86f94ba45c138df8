"""Waits until files change: by the kernel's notice where it gives one, else by looking at sizes.

The kernel gives no notice of what another machine writes to a network file system. Whoever needs
that too looks again every few seconds whatever the watch says.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import select
import struct
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

_log = logging.getLogger(__name__)

# inotify(7), linux/inotify.h
_IN_MODIFY, _IN_MOVED_TO, _IN_CREATE, _IN_Q_OVERFLOW = 0x2, 0x80, 0x100, 0x4000
_IN_NONBLOCK, _IN_CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_BUFFER_BYTES = 1 << 18

_STAT_INTERVAL_S = 0.25


class Watch(Protocol):
    """Tells which of the directories it was made for have changed."""

    def wait(self, timeout_s: float) -> set[Path]:
        """Directories with a change since the last call; none after ``timeout_s`` seconds."""

    def close(self) -> None:
        """Gives back what the watch holds."""


class InotifyWatch:
    """Watches directories for writes to files of given names. Raises OSError where it cannot."""

    def __init__(self, files: Mapping[Path, Iterable[str]]) -> None:
        self._names = {folder: frozenset(names) for folder, names in files.items()}
        self._folders: dict[int, list[Path]] = {}
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor: int = libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
        if self._descriptor < 0:
            raise _last_error("inotify_init1")
        try:
            for folder in self._names:
                mask = _IN_MODIFY | _IN_CREATE | _IN_MOVED_TO
                watch = libc.inotify_add_watch(self._descriptor, os.fsencode(folder), mask)
                if watch < 0:
                    raise _last_error(str(folder))
                # Two names of one folder are one watch.
                self._folders.setdefault(watch, []).append(folder)
        except OSError:
            self.close()
            raise

    def wait(self, timeout_s: float) -> set[Path]:
        """See :class:`Watch`."""
        deadline = time.monotonic() + timeout_s
        changed: set[Path] = set()
        while not changed:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._descriptor], [], [], left)[0]:
                break
            changed = self._read()
        return changed

    def _read(self) -> set[Path]:
        changed: set[Path] = set()
        while True:
            try:
                data = os.read(self._descriptor, _BUFFER_BYTES)
            except BlockingIOError:
                return changed
            offset = 0
            while offset < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, offset)
                offset += _EVENT.size
                name = os.fsdecode(data[offset : offset + length].rstrip(b"\0"))
                offset += length
                if mask & _IN_Q_OVERFLOW:  # the kernel dropped some: anything may have changed
                    return set(self._names)
                changed.update(
                    folder for folder in self._folders.get(watch, ()) if name in self._names[folder]
                )

    def close(self) -> None:
        """See :class:`Watch`."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class StatWatch:
    """Looks at sizes and times of change a few times a second; works everywhere."""

    def __init__(self, files: Mapping[Path, Iterable[str]]) -> None:
        self._files = {
            folder: [folder / name for name in sorted(names)] for folder, names in files.items()
        }
        self._known = {folder: self._look(folder) for folder in self._files}
        self._never = threading.Event()

    def _look(self, folder: Path) -> list[tuple[int, int, int]]:
        seen = []
        for path in self._files[folder]:
            try:
                status = path.stat()
            except OSError:
                seen.append((0, 0, -1))
            else:
                seen.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return seen

    def wait(self, timeout_s: float) -> set[Path]:
        """See :class:`Watch`."""
        deadline = time.monotonic() + timeout_s
        while True:
            now = {folder: self._look(folder) for folder in self._files}
            changed = {folder for folder, seen in now.items() if seen != self._known[folder]}
            self._known = now
            left = deadline - time.monotonic()
            if changed or left <= 0:
                return changed
            self._never.wait(min(left, _STAT_INTERVAL_S))

    def close(self) -> None:
        """See :class:`Watch`."""


def open_watch(files: Mapping[Path, Iterable[str]]) -> Watch:
    """The best watch there is for files of given names in given directories."""
    try:
        return InotifyWatch(files)
    except OSError as error:  # no inotify in this kernel or container, or its limits are used up
        _log.info("no notice of file changes from the kernel (%s): looking at sizes", error)
        return StatWatch(files)


def _last_error(what: str) -> OSError:
    number = ctypes.get_errno() or errno.ENOSYS
    return OSError(number, os.strerror(number), what)
