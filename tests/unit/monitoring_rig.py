"""The whole service as the broker's process puts it together, with keys for every role."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from api_rig import books, keyring, token_of
from broker_rig import Rig
from fastapi import FastAPI

from adon.config.adon_yml import parse_config
from adon.service.serve import monitoring_of
from monitors.archive.archive import Archive
from monitors.archive.outbox import Outbox
from network_provisioner.access import Key, Principal, Role, hash_of
from network_provisioner.api import create_app

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/adon.yml"
TCP = {"tool": "tcp", "from": "mu", "to": "tacc", "every": "60 s", "for": "10 s"}
MONITORING: dict[str, Any] = {
    "agents": [
        {"name": "mu", "address": "192.0.2.2"},
        {"name": "tacc", "address": "192.0.2.3"},
    ],
    "tasks": {"known": TCP},
}


@contextmanager
def monitored(
    folder: Path, rig: Rig, monitoring: dict[str, Any] | None = None
) -> Iterator[tuple[FastAPI, Archive]]:
    """The application around the rig's broker, its services started, and the archive."""
    data = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    data["broker"] = {"archive": str(folder / "archive.sqlite"), "state": str(folder / "x.sqlite")}
    data["monitoring"] = MONITORING if monitoring is None else monitoring
    config = parse_config(data, str(folder / "adon.yml"))
    agents = config.monitoring.agents if config.monitoring else ()
    keys = keyring(rig, *(_agent(agent.name) for agent in agents))
    with Archive(config.broker.archive) as archive:
        parts = monitoring_of(config, folder, Outbox(archive), rig.broker, keys, rig.clock)
        parts.start()
        try:
            yield (
                create_app(
                    rig.broker, keys, books(rig), parts.routers, parts.collectors, parts.pages
                ),
                archive,
            )
        finally:
            parts.stop()


def _agent(name: str) -> Key:
    return Key(Principal(name, Role.AGENT), hash_of(token_of(name)))
