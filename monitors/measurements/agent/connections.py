"""The connections of this host's transfer servers, reported as they open.

A transfer server gives each client a process. What that process has open beside the client's own
connection carries files, and by it the switches know the transfer's packets: see
:mod:`network_provisioner.state.connections`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import psutil

from monitors.measurements.agent.beside import Post

_AGAIN_S = 10.0  # what has not changed is said again: the broker shall know that somebody looks
_ESTABLISHED = "01"  # in /proc/net/tcp


def carrying(found: Iterable[Any], servers: Collection[int]) -> list[dict[str, Any]]:
    """The connections that carry files, of all TCP connections as psutil gives them. ``servers``:
    the ports at which transfer servers listen."""
    by_process: dict[int, list[Any]] = {}
    for one in found:
        if one.pid is not None and one.status == psutil.CONN_ESTABLISHED:
            by_process.setdefault(one.pid, []).append(one)
    carries = []
    for connections in by_process.values():
        clients = {c.raddr.port for c in connections if c.laddr.port in servers}
        if len(clients) == 1:  # a server with one process for all cannot be told apart
            (client,) = clients
            carries += [
                {
                    "client_port": client,
                    "local": c.laddr.ip,
                    "local_port": c.laddr.port,
                    "remote": c.raddr.ip,
                    "remote_port": c.raddr.port,
                }
                for c in connections
                if c.laddr.port not in servers
            ]
    return sorted(carries, key=repr)


def has_clients(table: str, servers: Collection[int]) -> bool:
    """Whether anybody is connected to a server, by the text of ``/proc/net/tcp``: quick to tell,
    where looking at all processes is not."""
    wanted = {f"{port:04X}" for port in servers}
    rows = (line.split() for line in table.splitlines()[1:])
    return any(row[3] == _ESTABLISHED and row[1].rpartition(":")[2] in wanted for row in rows)


def _open(servers: Collection[int]) -> list[dict[str, Any]]:
    tables = (Path(f"/proc/net/{name}") for name in ("tcp", "tcp6"))
    if not any(has_clients(t.read_text(), servers) for t in tables if t.exists()):
        return []
    return carrying(psutil.net_connections("tcp"), servers)


class ConnectionReporter:
    """Reports what has changed."""

    every_s = 0.1

    def __init__(self, servers: Collection[int]) -> None:
        self._servers = servers
        self._said: list[dict[str, Any]] | None = None
        self._looks = 0

    def look(self, post: Post) -> None:
        """See :class:`~.beside.Reporter`."""
        self._looks += 1
        before, self._said = self._said, None
        found = _open(self._servers)
        if found != before or self._looks * self.every_s >= _AGAIN_S:
            post({"connections": found})
            self._looks = 0
        self._said = found
