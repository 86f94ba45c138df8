"""Puts the reservations of one workflow together from its submit directory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from monitors.archive.archive import Archive
from monitors.archive.knowledge import Knowledge
from monitors.watcher.events import Event, Watched
from monitors.workflows.planned.dag import read_dag
from network_provisioner.base.errors import AdonError
from network_provisioner.base.model import TransitRequest
from network_provisioner.client.hookclient import client_of
from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.stores.database_url import place
from network_provisioner.topology.graph import Topology
from pegasus_hooks.advance.beliefs import Beliefs, Believer
from pegasus_hooks.advance.booking import Booking, Broker
from pegasus_hooks.advance.correct import Rules
from pegasus_hooks.advance.listening import Ahead
from pegasus_hooks.advance.predict import Pair
from pegasus_hooks.prepost import prejob

log = logging.getLogger(__name__)


def ahead_of(
    submit_dir: Path,
    config: HookConfig,
    broker: Broker,
    topology: Topology | None = None,
    rules: Rules | None = None,
) -> Ahead:
    """What reserves for the workflow planned to ``submit_dir``. Raises InputError."""
    dag = read_dag(submit_dir)
    booking = Booking(dag.workflow, broker, partial(requests_of, submit_dir, config))
    believer = Believer(dag, topology)
    archive = place(config.archive) if config.archive else None
    return Ahead(dag, booking, partial(believed_of, believer, archive), rules or Rules())


def requests_of(submit_dir: Path, config: HookConfig, job: str) -> dict[Pair, TransitRequest]:
    """What the first PRE of ``job`` will ask for. Raises InputError."""
    place, listing, _ = prejob.place_of(submit_dir, job, 0, 0.0)
    found = prejob.requests_of(place, listing, config)
    return {(request.src, request.dst): request for request, _ in found}


def believed_of(believer: Believer, archive: str | Path | None, now: float) -> Beliefs:
    """What is believed at Unix second ``now``, with what ``archive`` has by then. Raises
    InputError."""
    if archive is None or (isinstance(archive, Path) and not archive.exists()):
        return believer(None, now)
    with Archive(archive, read_only=True) as measured:
        return believer(Knowledge(measured), now)


class Starting:
    """Listens from the start, while the submit directory of a large workflow is still being read:
    the watcher has others to look after meanwhile."""

    def __init__(self, make: Callable[[], Ahead], workflow: str) -> None:
        self._make = make
        self._workflow = workflow
        self._heard: list[tuple[Event, Watched]] = []
        self.listener: Ahead | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def on(self, event: Event, workflow: Watched, /) -> None:
        """Pass it on, or keep it until there is who listens."""
        ahead = self._ready()
        if ahead is not None:
            ahead.on(event, workflow)
        elif self._reader.is_alive():
            self._heard.append((event, workflow))

    def tick(self, now: float, /) -> None:
        """Pass it on."""
        ahead = self._ready()
        if ahead is not None:
            ahead.tick(now)

    def join(self) -> None:
        """Wait until everything is read."""
        self._reader.join()

    def _ready(self) -> Ahead | None:
        if self._reader.is_alive() or self.listener is None:
            return None
        for event, workflow in self._heard:
            self.listener.on(event, workflow)
        self._heard.clear()
        return self.listener

    def _read(self) -> None:
        try:
            self.listener = self._make()
        except (AdonError, OSError) as error:
            log.warning("%s: nothing is reserved in advance: %s", self._workflow, error)


def listener_of(watched: Watched) -> Starting:
    """What the watcher tells of a workflow. Raises InputError for a broker that cannot be."""
    broker = client_of(watched.config)
    make = partial(ahead_of, watched.submit_dir, watched.config, broker)
    return Starting(make, watched.workflow)
