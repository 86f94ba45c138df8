"""A network whose switches are a process of their own, which can be killed, stopped and started.

    python switch_fault.py PORT        the switches, until they are killed
    controller: {driver: "switch_fault:FarSwitches", options: {port: PORT, answer_s: SECONDS}}

They answer one line of JSON with one, and forget everything when they end.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
from collections.abc import Sequence
from typing import Any

from network_provisioner.base.controller import (
    Capabilities,
    Circuit,
    ControllerError,
    LinkCounter,
    Queue,
)
from network_provisioner.topology.graph import Topology


class FarSwitches:
    """A ``network_provisioner.base.controller.Controller``."""

    def __init__(self, _topology: Topology, port: int, answer_s: float) -> None:
        self._port, self._answer_s = port, answer_s

    def capabilities(self) -> Capabilities:
        """See Controller."""
        return Capabilities(name="far", matches=True)

    def start(self, timeout_s: float) -> None:
        """See Controller; a broker serves also while its switches are away."""

    def apply(self, circuits: Sequence[Circuit], queues: Sequence[Queue] = ()) -> None:
        """See Controller."""
        self._ask({"apply": [circuit.id for circuit in circuits]})

    def circuit_bytes(self, circuit_id: str) -> int:
        """See Controller."""
        return 0

    def installed(self) -> list[str]:
        """See Controller."""
        return sorted(self._ask({}))

    def counters(self) -> list[LinkCounter]:
        """See Controller."""
        return []

    def stop(self) -> None:
        """See Controller."""

    def _ask(self, what: dict[str, Any]) -> list[str]:
        try:
            with socket.create_connection(("127.0.0.1", self._port), self._answer_s) as link:
                link.sendall(json.dumps(what).encode() + b"\n")
                answer: list[str] = json.loads(link.makefile().readline())
        except (OSError, ValueError) as error:
            raise ControllerError(f"the switches do not answer: {error}") from error
        return answer


def main() -> None:
    """The switches."""
    circuits: list[str] = []
    with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
        print("ready", flush=True)
        while True:
            link, _ = server.accept()
            with link, contextlib.suppress(OSError):  # the caller may be gone
                line = link.makefile().readline()
                circuits = json.loads(line or "{}").get("apply", circuits)
                link.sendall(json.dumps(circuits).encode() + b"\n")


if __name__ == "__main__":
    main()
