"""Moves files between a zone and this machine, over several streams that mend themselves.

A file is cut into parts. Each stream is a thread with a connection of its own, takes the next part,
and moves it block by block; so nothing is larger in memory than a block for each stream. Of a
connection that breaks, is silent for ``silence_s``, or gets nowhere for twice as long, the part's
rest goes back to the others, and it is opened again. When a second one breaks streams end, until
one is left, which gives up after ``tries`` in a row without a byte.

Neither get() nor put() of the client is used: they have no more streams than processors, hang where
one of them dies, and begin anew.
"""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from irods import keywords as kw
from irods.connection import Connection
from irods.exception import (
    CAT_INVALID_ZONE,
    CAT_NAME_EXISTS_AS_COLLECTION,
    CAT_UNKNOWN_COLLECTION,
    CollectionDoesNotExist,
    DataObjectDoesNotExist,
    iRODSException,
)
from irods.models import Collection, DataObject, Zone
from irods.session import iRODSSession

from condor_plugins.irods.account import SILENCE_S
from condor_plugins.irods.messages import broken
from condor_plugins.irods.results import BLOCK, CHUNK
from network_provisioner.base.errors import InputError

_GOOD = "1"
_HASHES = {"sha2": "sha256", "sha1": "sha1", "sha512": "sha512", "md5": "md5"}
_READ_BACK = 20 * 2**20  # bytes per second of a server's slowest disk, for its checksum
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """``chunk`` and ``block`` in bytes: what a stream takes at a time, and what it asks for."""

    silence_s: float = SILENCE_S
    tries: int = 4
    pause_s: float = 1.0
    chunk: int = CHUNK
    block: int = BLOCK


LIMITS = Limits()


@dataclass(slots=True)
class TransferStats:
    """What a transfer did. ``total`` are bytes with those that were moved again; ``checksum`` says
    by what they were verified, or why they were not."""

    size: int = 0
    total: int = 0
    streams: int = 0
    tries: int = 1
    connecting_s: float = 0.0
    checksum: str = ""


class Sessions:
    """Those that are open in one zone as one user, for one file after the other."""

    def __init__(self, connect: Callable[[], iRODSSession]) -> None:
        self._connect = connect
        self._idle: list[iRODSSession] = []

    def take(self, stats: TransferStats) -> iRODSSession:
        """One that is connected. Raises what the client raises."""
        with suppress(IndexError):
            return self._idle.pop()
        began = time.monotonic()
        session = self._connect()
        with session.pool.get_connection():
            # Asked for the first time in another thread, it would open one more and keep it.
            _ = session.data_objects.server_version
        stats.connecting_s = stats.connecting_s or time.monotonic() - began
        return session

    def give(self, session: iRODSSession) -> None:
        """For the next file."""
        self._idle.append(session)

    @contextmanager
    def session(self, stats: TransferStats) -> Iterator[iRODSSession]:
        """One for a few calls; a connection that fails is not used again."""
        session = self.take(stats)
        try:
            yield session
        except BaseException:
            _cut(session)
            raise
        self.give(session)

    def close(self) -> None:
        """Tell the servers."""
        for session in self._idle:
            with suppress(Exception):
                session.cleanup()


@dataclass(slots=True)
class Way:
    """How files are moved: by this many ``streams`` for one of this many bytes. Of those with
    several one moves at a time, whose ``turn`` it is."""

    sessions: Sessions
    streams: Callable[[int], int]
    turn: threading.Lock = field(default_factory=threading.Lock)
    limits: Limits = LIMITS

    def run(self, transfer: _Transfer) -> None:
        """Raises what the transfer does."""
        streams = self.streams(transfer.stats.size)
        with self.turn if streams > 1 else nullcontext():
            transfer.run(streams)


def get(way: Way, path: str, target: Path, stats: TransferStats) -> None:
    """A data object to a file, which is there when it is whole and verified.

    Raises InputError, OSError, and whatever the client does.
    """
    stats.size, registered = _retried(way, stats, lambda session: _catalogue(session, path))
    draft = target.with_name(f".{target.name}.part")
    try:
        with draft.open("wb") as file:
            way.run(_Get(way, path, stats, file.fileno()))
        stats.checksum = _verified(path, draft, registered)
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def put(way: Way, path: str, source: Path, stats: TransferStats) -> None:
    """A file to a data object, over what is there. Raises as ``get`` does."""

    def checksum(session: iRODSSession) -> str:
        session.connection_timeout = way.limits.silence_s + stats.size / _READ_BACK
        server_checksum: str = session.data_objects.chksum(path, **{kw.FORCE_CHKSUM_KW: ""})
        session.connection_timeout = way.limits.silence_s
        return server_checksum

    with source.open("rb") as file:
        stats.size = os.fstat(file.fileno()).st_size
        way.run(_Put(way, path, stats, file.fileno()))
    stats.checksum = _verified(path, source, _retried(way, stats, checksum))


def _catalogue(session: iRODSSession, path: str) -> tuple[int, str]:
    """Size and registered checksum of what a zone has. Raises DoesNotExist and InputError."""
    folder, _, name = path.rpartition("/")
    columns = (DataObject.size, DataObject.checksum, DataObject.replica_status)
    query = session.query(*columns).filter(Collection.name == folder, DataObject.name == name)
    rows = list(query.add_keyword(kw.ZONE_KW, path.split("/")[1]))
    if not rows:
        with suppress(CollectionDoesNotExist):
            session.collections.get(path)
            raise CAT_NAME_EXISTS_AS_COLLECTION
        zones = {row[Zone.name] for row in session.query(Zone.name)}
        raise DataObjectDoesNotExist if path.split("/")[1] in zones else CAT_INVALID_ZONE
    best = next((row for row in rows if row[columns[2]] == _GOOD), rows[0])
    return best[columns[0]], best[columns[1]] or ""


def _verified(path: str, file: Path, server_checksum: str) -> str:
    """By what kind of checksum, or why by none. Raises InputError for another one."""
    if not server_checksum:
        return "none is registered"
    kind, colon, value = server_checksum.partition(":")
    kind = kind if colon else "md5"
    if kind not in _HASHES:
        return f"{kind} is unknown here"
    with file.open("rb") as data:
        digest = hashlib.file_digest(data, _HASHES[kind])
    own_checksum = base64.b64encode(digest.digest()).decode() if colon else digest.hexdigest()
    if own_checksum != (value if colon else server_checksum):
        raise InputError(
            f"{path}: found the {kind} checksum {own_checksum} here, the zone's is "
            f"{server_checksum}"
        )
    return kind


def _retried(way: Way, stats: TransferStats, call: Callable[[iRODSSession], T]) -> T:
    for left in reversed(range(way.limits.tries)):
        try:
            with way.sessions.session(stats) as session:
                return call(session)
        except Exception as error:  # of the client are many kinds
            if not broken(error) or not left:
                raise
        stats.tries += 1
        time.sleep(way.limits.pause_s)
    raise AssertionError


def _cut(session: iRODSSession, *more: Connection) -> None:
    """End its connections at once, and those that it has given up: they would be waited for."""
    for connection in [*session.pool.active, *session.pool.idle, *more]:
        with suppress(OSError, AttributeError):
            connection.socket.shutdown(socket.SHUT_RDWR)


class _Stream:
    """A data object, open on a connection of its own."""

    def __init__(self, session: iRODSSession, path: str, mode: str, **options: Any) -> None:
        self.session, self.since = session, time.monotonic()
        self._at = -1 if mode == "a" else 0  # where the server is, as far as is known
        try:
            self._handle, self.raw = session.data_objects.open_with_FileRaw(path, mode, **options)
        except BaseException:
            _cut(session)
            raise

    def read(self, at: int, view: memoryview) -> int:
        """Fill ``view``, or less of it; 0 at the end."""
        self._seek(at)
        count: int = self.raw.readinto(view)
        self._at += count
        return count

    def write(self, at: int, data: bytes) -> int:
        """How much of it was written."""
        self._seek(at)
        count: int = self.raw.write(data)
        self._at += count
        return count

    def cut(self) -> None:
        """End its connection at once: who waits for it is told."""
        _cut(self.session, self.raw.conn)

    def _seek(self, at: int) -> None:
        if self._at != at:
            self._at = self.raw.seek(at)


class _Transfer:
    """What both directions share. Raises the client's last error, OSError and InputError."""

    def __init__(self, way: Way, path: str, stats: TransferStats, fd: int) -> None:
        self.path, self.sessions, self.stats, self.fd = path, way.sessions, stats, fd
        self.limits = way.limits
        self.lock = threading.Condition()
        self.alive = 0
        self._error: Exception | None = None
        self._failures = 0  # since the last byte
        self._since = 0.0
        self._open: set[_Stream] = set()
        chunk, size = self.limits.chunk, stats.size
        self._parts = deque([at, min(at + chunk, size)] for at in range(0, size, chunk))

    def begin(self) -> _Stream | None:
        """Open it for one more stream; None if there can be no more."""
        raise NotImplementedError

    def carry(self, stream: _Stream, at: int, view: memoryview) -> int:
        """Move bytes that begin ``at``, as many as ``view`` has or fewer."""
        raise NotImplementedError

    def end(self, stream: _Stream) -> None:
        """Of a stream that has nothing more to move."""
        stream.raw.close()
        self.sessions.give(stream.session)

    def run(self, streams: int) -> None:
        """Move what is left."""
        self.alive = max(1, min(streams, len(self._parts)))
        self.stats.streams = max(self.alive, self.stats.streams)
        self._since = time.monotonic()
        for _ in range(self.alive):
            threading.Thread(target=self._work, daemon=True).start()
        stalled_s = 2 * self.limits.silence_s
        with self.lock:
            while self.alive and not self._error:
                self.lock.wait(min(1.0, self.limits.silence_s / 2))
                now = time.monotonic()
                for stream in self._open:
                    if now - stream.since > stalled_s:
                        stream.cut()
                if now - self._since > (self.limits.tries + 1) * stalled_s:
                    self._error = TimeoutError(f"not a byte moved for {now - self._since:.0f} s")
            for stream in self._open:
                stream.cut()
        self.check()

    def _work(self) -> None:
        while True:
            stream: _Stream | None = None
            part: list[int] | None = None
            try:
                stream = self.begin()
                with self.lock:
                    if stream is None:
                        self._leave()
                        return
                    self._open.add(stream)
                view = memoryview(bytearray(self.limits.block))
                while part := self._next():
                    while part[0] < part[1]:
                        count = self.carry(stream, part[0], view[: part[1] - part[0]])
                        self._progress(stream, part, count)
                self.end(stream)
            except Exception as error:  # of the client are many kinds
                if self._given_up(error, stream, part):
                    return
                time.sleep(self.limits.pause_s)
            else:
                with self.lock:
                    self._open.discard(stream)
                    if not self._parts or self._error:
                        self._leave()
                        return

    def check(self) -> None:
        """Raises why all of it has ended: nobody shall finish what is not whole."""
        if self._error:
            raise self._error

    def _next(self) -> list[int] | None:
        with self.lock:
            self.check()
            return self._parts.popleft() if self._parts else None

    def _progress(self, stream: _Stream, part: list[int], count: int) -> None:
        with self.lock:
            part[0] += count
            self.stats.total += count
            self._failures = 0
            self._since = stream.since = time.monotonic()

    def _given_up(self, error: Exception, stream: _Stream | None, part: list[int] | None) -> bool:
        with self.lock:
            if stream:
                self._open.discard(stream)
                stream.cut()
            if part:
                self._parts.appendleft(part)
            self.stats.tries += 1
            self._failures += 1
            if broken(error) and self.alive > 1 and self.stats.tries > 2:
                self._failures = 0
            elif not broken(error) or self._failures >= self.limits.tries:
                self._error = self._error or error
            elif not self._error:
                return False
            self._leave()
            return True

    def _leave(self) -> None:
        self.alive -= 1
        self.lock.notify_all()


class _Get(_Transfer):
    def begin(self) -> _Stream:
        return _Stream(self.sessions.take(self.stats), self.path, "r")

    def carry(self, stream: _Stream, at: int, view: memoryview) -> int:
        count = stream.read(at, view)
        if not count:
            size = self.stats.size
            raise InputError(f"{self.path}: it ends at byte {at}, expected {size}: it is truncated")
        done = 0
        with self.lock:
            self.check()  # else the file is ours no more
            while done < count:
                done += os.pwrite(self.fd, view[done:count], at + done)
        return count


class _Put(_Transfer):
    """The stream that creates it also closes it, when all others are done: so the server knows that
    they are one write. The others show its token, which old servers do not have."""

    def run(self, streams: int) -> None:
        self._creating = threading.Lock()
        self._created = self._closed = False
        self._first: _Stream | None = None
        self._share: dict[str, Any] = {}
        super().run(streams)
        if not self._closed:
            super().run(1)

    def begin(self) -> _Stream | None:
        with self._creating:
            if not self._created:
                return self._create()
        with self.lock:
            alone = self.alive == 1
            if alone and self._first:
                first, self._first = self._first, None
                return first
        if not alone and not self._share:
            return None
        session, options = self.sessions.take(self.stats), {"create": False, **self._share}
        return _Stream(session, self.path, "a", finalize_on_close=alone, **options)

    def _create(self) -> _Stream:
        options = {kw.DATA_SIZE_KW: str(self.stats.size)}
        try:
            stream = _Stream(self.sessions.take(self.stats), self.path, "w", **options)
        except CAT_UNKNOWN_COLLECTION:
            with self.sessions.session(self.stats) as session:
                session.collections.create(self.path.rpartition("/")[0])
            stream = _Stream(self.sessions.take(self.stats), self.path, "w", **options)
        try:
            token, hierarchy = stream.raw.replica_access_info() if self._parts else ("", "")
        except iRODSException:
            token = ""
        except BaseException:
            stream.cut()
            raise
        self.stats.streams = self.stats.streams if token else 1
        if token:
            self._share = {kw.REPLICA_TOKEN_KW: token, kw.RESC_HIER_STR_KW: hierarchy}
        self._created = True
        return stream

    def end(self, stream: _Stream) -> None:
        with self.lock:
            self._open.discard(stream)
            if stream.raw.finalize_on_close and self.alive > 1:
                self._first = stream
                return
            if not self._open and not self._first:  # that was lost: nobody else would do it
                stream.raw.finalize_on_close = True
        super().end(stream)
        if stream.raw.finalize_on_close:
            with self.lock:
                self._closed, self._share = True, {}

    def carry(self, stream: _Stream, at: int, view: memoryview) -> int:
        data = os.pread(self.fd, len(view), at)
        if not data:
            size = self.stats.size
            raise InputError(f"{self.path}: found {at} bytes to send, expected {size}: it was cut")
        return stream.write(at, data)
