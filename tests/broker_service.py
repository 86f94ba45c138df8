"""A broker behind its REST API, on the simulated controller, inside the test's own process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import uvicorn
from network_world import TEMPLATES

from examples.testbed.ports import free_port
from network_provisioner.api import create_app
from network_provisioner.base.model import ENDED, Transit
from network_provisioner.broker import Broker
from network_provisioner.client.broker import BrokerClient
from network_provisioner.controllers.simulated import SimulatedController
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.templates.data import BUILT_IN, templates_from_dict
from network_provisioner.topology.data import topology_from_dict

PATIENT_S = 300.0  # far above what any answer takes


class BrokerService(AbstractContextManager["BrokerService"]):
    """It can go away and come back, always at the same address and with what it knew."""

    def __init__(
        self, folder: Path, network: dict[str, Any], templates: Mapping[str, Any] | None = None
    ) -> None:
        # What is small must not depend on how long this machine takes to set up a circuit.
        self._templates = templates or {"default": {**BUILT_IN["default"], "break_even": "1 MiB"}}
        self._folder, self._network = folder, network
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = BrokerClient(self.url, PATIENT_S)
        self._stop: Callable[[], None] = lambda: None

    def up(self) -> None:
        topology = topology_from_dict(self._network)
        store = SqliteStore(self._folder / "broker.sqlite")
        templates = templates_from_dict(TEMPLATES | dict(self._templates or {}))
        broker = Broker(topology, templates, SimulatedController(topology), store)
        broker.start()
        sock = socket.create_server(("127.0.0.1", self.port))
        settings = uvicorn.Config(create_app(broker), log_level="warning", access_log=False)
        server = uvicorn.Server(settings)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()

        def stop() -> None:
            server.should_exit = True
            thread.join(PATIENT_S)
            broker.stop()
            sock.close()

        self._stop = stop

    def down(self) -> None:
        self._stop()
        self._stop = lambda: None

    def held(self, workflow: str) -> list[Transit]:
        """What a workflow holds or waits for now."""
        return [t for t in self.client.list(workflow=workflow) if t.state not in ENDED]

    def __enter__(self) -> BrokerService:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()
