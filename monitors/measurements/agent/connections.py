"""The connections of this host's transfer servers, reported as they open.

A transfer server gives each client a process. What that process has open beside the client's own
connection carries files, and by it the switches know the transfer's packets: see
:mod:`network_provisioner.reservations.connections`.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from monitors.measurements.agent.broker_link import BrokerLink
from monitors.measurements.agent.settings import AgentSettings
from network_provisioner.base.errors import AdonError

_log = logging.getLogger(__name__)

LOOK_S = 0.1
_AGAIN_S = 10.0  # what has not changed is said again: the broker shall know that somebody looks
_TIMEOUT_S = 5.0
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


@contextmanager
def reporting(settings: AgentSettings) -> Iterator[None]:
    """Report them meanwhile, where the settings name servers."""
    if not settings.servers:
        yield
        return
    over = threading.Event()
    link = BrokerLink(settings)
    thread = threading.Thread(target=_report, args=(settings.servers, link, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        link.close()
        thread.join()


def _report(servers: Collection[int], link: BrokerLink, over: threading.Event) -> None:
    said: list[dict[str, Any]] | None = None
    looks, trouble = 0, ""
    while not over.wait(LOOK_S):
        looks += 1
        try:
            found = _open(servers)
            if found != said or looks * LOOK_S >= _AGAIN_S:
                body = json.dumps({"connections": found}).encode()
                link.ask("connections", _TIMEOUT_S, body=body)
                said, looks, trouble = found, 0, ""
        except (AdonError, OSError, psutil.Error) as error:
            if str(error) != trouble and not over.is_set():
                trouble = str(error)
                _log.warning("connections are not reported: %s", error)
            said = None
            over.wait(1.0)
