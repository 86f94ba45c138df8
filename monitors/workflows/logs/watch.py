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
_IN_MODIFY, _IN_MOVED_TO, _IN_CREATE, _IN_MOVE_SELF = 0x2, 0x80, 0x100, 0x800
_IN_Q_OVERFLOW, _IN_IGNORED = 0x4000, 0x8000
_IN_NONBLOCK, _IN_CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_BUFFER_BYTES = 1 << 18

_STAT_INTERVAL_S = 0.25
_AGAIN_S = 5.0  # how often the kernel is asked anew for what it would not watch

ANY = "*"  # among the names: every file of the folder


class FileWatch(Protocol):
    """Tells which of the directories that it watches have changed."""

    def wait(self, timeout_s: float) -> set[Path]:
        """Directories with a change since the last call; none after ``timeout_s`` seconds."""

    def add(self, folder: Path, names: Iterable[str]) -> None:
        """Watch files of these names (:data:`ANY`: all) in one more directory, or in one that is
        watched already. Raises OSError where that cannot be."""

    def drop(self, folder: Path) -> None:
        """Watch a directory no longer; harmless where it was not watched."""

    def close(self) -> None:
        """Gives back what the watch holds."""


class InotifyWatch:
    """Watches directories for writes to files of given names. Raises OSError where it cannot."""

    def __init__(self, files: Mapping[Path, Iterable[str]]) -> None:
        self._lock = threading.RLock()  # one thread may add while another waits
        self.lost: set[Path] = set()  # what was moved or deleted and is watched no longer
        self._names: dict[Path, frozenset[str]] = {}
        self._numbers: dict[Path, int] = {}
        self._folders: dict[int, list[Path]] = {}
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor: int = self._libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
        if self._descriptor < 0:
            raise _last_error("inotify_init1")
        # Not select(): that takes no descriptor above 1023.
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)
        try:
            for folder, names in files.items():
                self.add(folder, names)
        except OSError:
            self.close()
            raise

    def add(self, folder: Path, names: Iterable[str]) -> None:
        """See :class:`FileWatch`."""
        with self._lock:
            self._add(folder, names)

    def _add(self, folder: Path, names: Iterable[str]) -> None:
        mask = _IN_MODIFY | _IN_CREATE | _IN_MOVED_TO | _IN_MOVE_SELF
        number = self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), mask)
        if number < 0:
            raise _last_error(str(folder))
        if self._numbers.get(folder, number) != number:  # another directory of the same name
            self._forget(folder)
        if folder not in self._numbers:
            # Two names of one folder are one watch.
            self._folders.setdefault(number, []).append(folder)
        self._numbers[folder] = number
        self._names[folder] = self._names.get(folder, frozenset()) | frozenset(names)
        self.lost.discard(folder)

    def drop(self, folder: Path) -> None:
        """See :class:`FileWatch`."""
        with self._lock:
            number = self._numbers.get(folder)
            self._forget(folder)
            self.lost.discard(folder)
            if number is not None and number not in self._folders:
                self._libc.inotify_rm_watch(self._descriptor, number)

    def _forget(self, folder: Path) -> None:
        self._names.pop(folder, None)
        number = self._numbers.pop(folder, -1)
        if number in self._folders:
            self._folders[number].remove(folder)
            if not self._folders[number]:
                del self._folders[number]

    def wait(self, timeout_s: float) -> set[Path]:
        """See :class:`FileWatch`."""
        deadline = time.monotonic() + timeout_s
        changed: set[Path] = set()
        while not changed:
            left = max(0.0, deadline - time.monotonic())
            if not self._poll.poll(left * 1000):
                break
            with self._lock:
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
                number, mask, _, length = _EVENT.unpack_from(data, offset)
                offset += _EVENT.size
                name = os.fsdecode(data[offset : offset + length].rstrip(b"\0"))
                offset += length
                if mask & _IN_Q_OVERFLOW:  # the kernel dropped some: anything may have changed
                    changed |= self._names.keys()
                elif mask & (_IN_MOVE_SELF | _IN_IGNORED):
                    changed |= self._gone(number)
                else:
                    changed.update(
                        folder
                        for folder in self._folders.get(number, ())
                        if name in self._names[folder] or ANY in self._names[folder]
                    )

    def _gone(self, number: int) -> set[Path]:
        """The directory behind a watch has another name now, or none."""
        folders = set(self._folders.get(number, ()))
        for folder in folders:
            self._forget(folder)
        if folders:
            self._libc.inotify_rm_watch(self._descriptor, number)  # harmless where it is gone
        self.lost |= folders
        return folders

    def close(self) -> None:
        """See :class:`FileWatch`."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class StatWatch:
    """Looks at sizes and times of change a few times a second; works everywhere."""

    def __init__(self, files: Mapping[Path, Iterable[str]]) -> None:
        self._lock = threading.Lock()  # one thread may add while another waits
        self._names: dict[Path, set[str]] = {}
        self._known: dict[Path, list[tuple[int, int, int]]] = {}
        for folder, names in files.items():
            self.add(folder, names)

    def add(self, folder: Path, names: Iterable[str]) -> None:
        """See :class:`FileWatch`."""
        with self._lock:
            self._names.setdefault(folder, set()).update(names)
            self._known[folder] = self._look(folder)

    def drop(self, folder: Path) -> None:
        """See :class:`FileWatch`."""
        with self._lock:
            self._names.pop(folder, None)
            self._known.pop(folder, None)

    def _look(self, folder: Path) -> list[tuple[int, int, int]]:
        seen = []
        for name in sorted(self._names[folder]):
            try:
                # Of all files together: the folder changes when one is made, renamed or deleted.
                # Its time may stay the same, where two of that come within a tick.
                status = (folder if name == ANY else folder / name).stat()
                size = len(os.listdir(folder)) if name == ANY else status.st_size  # noqa: PTH208
            except OSError:
                seen.append((0, 0, -1))
            else:
                seen.append((status.st_ino, status.st_mtime_ns, size))
        return seen

    def wait(self, timeout_s: float) -> set[Path]:
        """See :class:`FileWatch`."""
        deadline = time.monotonic() + timeout_s
        while True:
            with self._lock:
                now = {folder: self._look(folder) for folder in self._names}
                changed = {folder for folder, seen in now.items() if seen != self._known[folder]}
                self._known = now
            left = deadline - time.monotonic()
            if changed or left <= 0:
                return changed
            time.sleep(min(left, _STAT_INTERVAL_S))

    def close(self) -> None:
        """See :class:`FileWatch`."""


class BestWatch:
    """The kernel's notice for every directory that it watches, sizes for all others.

    It does not where it has no inotify or the limits of it are used up, nor for directories that
    are not there yet. Those are asked for again now and then.
    """

    def __init__(self, files: Mapping[Path, Iterable[str]]) -> None:
        self._kernel: InotifyWatch | None = None
        try:
            self._kernel = InotifyWatch({})
        except OSError as error:
            _log.info("no notice of file changes from the kernel (%s): looking at sizes", error)
        self._sizes = StatWatch({})
        self._names: dict[Path, frozenset[str]] = {}
        self._others: set[Path] = set()  # those that the kernel does not watch
        self._asked = time.monotonic()
        for folder, names in files.items():
            self.add(folder, names)

    def add(self, folder: Path, names: Iterable[str]) -> None:
        """See :class:`FileWatch`."""
        self._names[folder] = self._names.get(folder, frozenset()) | frozenset(names)
        if not self._by_kernel(folder):
            self._others.add(folder)
            self._sizes.add(folder, self._names[folder])

    def _by_kernel(self, folder: Path) -> bool:
        if self._kernel is None:
            return False
        try:
            self._kernel.add(folder, self._names[folder])
        except OSError as error:
            if folder not in self._others:
                _log.info("%s: no notice from the kernel (%s): looking at sizes", folder, error)
            return False
        self._others.discard(folder)
        self._sizes.drop(folder)
        return True

    def drop(self, folder: Path) -> None:
        """See :class:`FileWatch`."""
        self._names.pop(folder, None)
        self._others.discard(folder)
        self._sizes.drop(folder)
        if self._kernel is not None:
            self._kernel.drop(folder)

    def wait(self, timeout_s: float) -> set[Path]:
        """See :class:`FileWatch`."""
        if self._kernel is None:
            return self._sizes.wait(timeout_s)
        deadline = time.monotonic() + timeout_s
        while True:
            left = max(0.0, deadline - time.monotonic())
            changed = self._kernel.wait(min(left, _STAT_INTERVAL_S) if self._others else left)
            for folder in list(self._kernel.lost):
                self._kernel.lost.discard(folder)
                if folder in self._names:
                    self.add(folder, ())
            if self._others:
                changed |= self._sizes.wait(0) | self._again()
            if changed or time.monotonic() >= deadline:
                return changed

    def _again(self) -> set[Path]:
        """Asks the kernel for what it would not watch; what it watches from now on."""
        now = time.monotonic()
        if now - self._asked < _AGAIN_S:
            return set()
        self._asked = now
        return {f for f in list(self._others) if f in self._names and self._by_kernel(f)}

    def close(self) -> None:
        """See :class:`FileWatch`."""
        if self._kernel is not None:
            self._kernel.close()


def open_watch(files: Mapping[Path, Iterable[str]]) -> FileWatch:
    """The best watch there is for files of given names in given directories."""
    return BestWatch(files)


def _last_error(what: str) -> OSError:
    number = ctypes.get_errno() or errno.ENOSYS
    return OSError(number, os.strerror(number), what)
