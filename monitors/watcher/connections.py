"""The TCP connections of processes on this machine: by their ports the switches know whose packets
are whose.

/proc tells them, of the processes of one's own user, and to root of all. A process may run in a
network namespace of its own, and each namespace has its table.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

from monitors.workflows.planned.job_files import JOB, WORKFLOW
from network_provisioner.base.flows import MAX_FLOWS, Flow

_ESTABLISHED = "01"
_FRESH_S = 0.5  # for how long a look at all processes serves all who ask
Ends = tuple[int, int]
"""The ports of a connection, here and at the other end."""


class Connection(NamedTuple):
    """One that is established, and the address of its other end."""

    ends: Ends
    far: str


def processes() -> Iterator[Path]:
    """All processes of this machine."""
    return Path("/proc").glob("[0-9]*")


class Tables:
    """What is established now, by network namespace and by the socket's name among open files: each
    table is read once, for those alone who have a socket in it."""

    def __init__(self) -> None:
        self._known: dict[Path, dict[str, Connection]] = {}

    def connections(self, process: Path) -> set[Connection]:
        """What a process has open; nothing of one that has ended, or is not ours to look at."""
        with suppress(OSError):
            held = {file for file in _open_files(process / "fd") if file.startswith("socket:")}
            if held:
                table = self._of(process)
                return {table[name] for name in held & table.keys()}
        return set()

    def _of(self, process: Path) -> dict[str, Connection]:
        namespace = (process / "ns/net").readlink()
        if namespace not in self._known:
            self._known[namespace] = _established(process / "net")
        return self._known[namespace]


def _established(folder: Path) -> dict[str, Connection]:
    connections = {}
    for table in (folder / "tcp", folder / "tcp6"):
        if not table.exists():
            continue
        for row in (line.split() for line in table.read_text().splitlines()[1:]):
            if row[3] == _ESTABLISHED:
                (_, here), (far, there) = _end(row[1]), _end(row[2])
                connections[f"socket:[{row[9]}]"] = Connection((here, there), far)
    return connections


def flows(ends: Iterable[Ends], at_source: bool) -> list[Flow]:
    """The packets of connections, from source to destination; ``at_source``: they were seen at the
    source."""
    pairs = sorted(ends if at_source else ((far, near) for near, far in ends))
    return [Flow("tcp", (src, src), (dst, dst)) for src, dst in pairs[:MAX_FLOWS]]


class JobConnections:
    """What the processes of Pegasus's jobs have open, which their environment tells apart. They run
    as our own user: others could say what they like. ``clock`` is one that no one sets."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._at = clock, float("-inf")
        self._jobs: dict[tuple[str, str], list[Path]] = {}
        self._tables = Tables()

    def __call__(self, workflow: str, job: str) -> set[Connection]:
        """Of one job of the workflow with this uuid."""
        if (now := self._clock()) - self._at >= _FRESH_S:
            self._at, self._jobs, self._tables = now, _of_jobs(), Tables()
        mine = self._jobs.get((workflow, job), ())
        return {connection for process in mine for connection in self._tables.connections(process)}


def _of_jobs() -> dict[tuple[str, str], list[Path]]:
    directories: dict[tuple[str, str], list[Path]] = {}
    for process in processes():
        with suppress(OSError):
            if process.stat().st_uid != os.geteuid():
                continue
            words = os.fsdecode((process / "environ").read_bytes()).split("\0")
            given = dict(word.partition("=")[::2] for word in words)
            if WORKFLOW in given:
                directories.setdefault((given[WORKFLOW], given.get(JOB, "")), []).append(process)
    return directories


def _open_files(folder: Path) -> Iterator[str]:
    for file in os.scandir(folder):
        with suppress(FileNotFoundError):  # closed since
            yield str(Path(file).readlink())


def _end(text: str) -> tuple[str, int]:
    """Address and port, as the kernel prints them: words of the machine's own byte order."""
    address, _, port = text.partition(":")
    words = f"{len(address) // 8}I"
    ip = ip_address(struct.pack(f"={words}", *struct.unpack(f">{words}", bytes.fromhex(address))))
    if isinstance(ip, IPv6Address):
        ip = ip.ipv4_mapped or ip
    return str(ip), int(port, 16)
