"""A driver for ADON, complete and as small as it can be: docs/writing-a-driver.md explains it.

A "panel" is a switch that takes its forwarding table as one file and forgets it when it restarts:
``<directory>/<switch>.table.json``. It counts what it sends, by port, in
``<directory>/<switch>.counts.json``. Where yours has an API instead, change ``_read``, ``_write``
and ``_counts``.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from network_provisioner.base.controller import (
    Capabilities,
    Circuit,
    ControllerError,
    LinkCounter,
    Queue,
)
from network_provisioner.base.errors import AdonError, InputError
from network_provisioner.controllers.plan import make_plan
from network_provisioner.topology.graph import Topology

LOG = logging.getLogger(__name__)
Table = list[dict[str, Any]]


class PanelDriver:
    """A ``network_provisioner.base.controller.Controller``. Thread-safe."""

    def __init__(self, topology: Topology, directory: str, look_every_s: float = 1.0) -> None:
        """Called with the topology and ``controller.options``; reaches for nothing yet."""
        self._topology = topology
        self._directory = Path(directory)
        self._look_every_s = look_every_s
        self._switches = [node for node in topology.nodes.values() if node.kind == "switch"]
        self._circuits: tuple[Circuit, ...] = ()
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._keeper: threading.Thread | None = None

    def capabilities(self) -> Capabilities:
        """Panels keep no rates and end no leases; what is not said, is not asked for."""
        return Capabilities(name="panel", real_packets=True)

    def start(self, timeout_s: float) -> None:
        """See Controller. Files need not be waited for."""
        with self._lock:
            if self._keeper is not None:
                return
            self._lay(self._tables(()))
            self._stopping.clear()
            self._keeper = threading.Thread(target=self._keep, name="panel", daemon=True)
            self._keeper.start()

    def apply(self, circuits: Sequence[Circuit], queues: Sequence[Queue] = ()) -> None:
        """See Controller: exactly these circuits, or an error and those that were there."""
        with self._lock:
            self._require_running()
            if queues or any(circuit.flows or circuit.parts for circuit in circuits):
                raise ControllerError("panels have no queues, and know neither ports nor parts")
            self._lay(self._tables(circuits))
            self._circuits = tuple(circuits)

    def circuit_bytes(self, circuit_id: str) -> int:
        """Panels count by port, not by circuit."""
        return 0

    def installed(self) -> list[str]:
        """See Controller. What counts is what the panels have, not what they were told."""
        with self._lock:
            self._require_running()
            plan = self._plan(self._circuits)
            there = {switch.name: self._read(switch.name) for switch in self._switches}
        names = {switch.dpid: switch.name for switch in self._switches}
        return sorted(
            circuit_id
            for group in plan.groups
            if all(_row(rule) in there[names[rule.dpid]] for rule in plan.rules_of(group))
            for circuit_id in group.data
        )

    def counters(self) -> list[LinkCounter]:
        """See Controller."""
        at = time.time()
        return [
            LinkCounter(end, other, self._counts(end).get(str(link.ports[end]), 0), at)
            for link in self._topology.links
            for end, other in ((link.a, link.b), (link.b, link.a))
            if link.ports and end in link.ports
        ]

    def stop(self) -> None:
        """See Controller. What is on the panels stays."""
        self._stopping.set()
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.join()
        with self._lock:
            self._circuits = ()

    def clear(self) -> None:
        """See Controller. Never fails."""
        with self._lock:
            self._circuits = ()
            for switch in self._switches:
                self._file(switch.name).unlink(missing_ok=True)

    # --- what should be there ------------------------------------------------------------------

    def _plan(self, circuits: Sequence[Circuit]) -> Any:
        """Checks the circuits, leaves out those whose lease has ended, and makes their rules."""
        try:
            return make_plan(self._topology, circuits, time.time(), keep="none")
        except InputError as error:
            raise ControllerError(str(error)) from error

    def _tables(self, circuits: Sequence[Circuit]) -> dict[str, Table]:
        plan = self._plan(circuits)
        rules = [*plan.rules, *plan.routes]
        return {s.name: [_row(r) for r in rules if r.dpid == s.dpid] for s in self._switches}

    # --- making it so --------------------------------------------------------------------------

    def _lay(self, wanted: dict[str, Table]) -> None:
        """All tables or none."""
        before = {name: self._read(name) for name in wanted}
        done: list[str] = []
        try:
            for name, table in wanted.items():
                if before[name] != table:
                    done.append(name)
                    self._write(name, table)
        except ControllerError:
            for name in done:
                try:
                    self._write(name, before[name])
                except ControllerError as error:
                    LOG.warning("not put back: %s", error)
            raise

    def _keep(self) -> None:
        """Lay again what a panel has lost, and take off what has ended."""
        while not self._stopping.wait(self._look_every_s):
            try:
                with self._lock:
                    self._lay(self._tables(self._circuits))
            except AdonError as error:
                LOG.warning("panels are not up to date: %s", error)

    def _require_running(self) -> None:
        if self._keeper is None:
            raise ControllerError("the panel controller is not started")

    # --- one panel -----------------------------------------------------------------------------

    def _file(self, name: str) -> Path:
        return self._directory / f"{name}.table.json"

    def _read(self, name: str) -> Table:
        return self._json(self._file(name), [])

    def _counts(self, name: str) -> dict[str, int]:
        return self._json(self._directory / f"{name}.counts.json", {})

    def _json(self, file: Path, otherwise: Any) -> Any:
        try:
            table = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return otherwise
        except (OSError, ValueError) as error:
            raise ControllerError(f"{file}: cannot be read: {error}") from error
        if type(table) is not type(otherwise):
            raise ControllerError(f"{file}: found no {type(otherwise).__name__}, expected one")
        return table

    def _write(self, name: str, table: Table) -> None:
        file = self._file(name)
        try:
            part = file.with_suffix(".part")
            part.write_text(json.dumps(table), encoding="utf-8")
            part.replace(file)
        except OSError as error:
            raise ControllerError(f"switch {name}: {file}: {error.strerror}") from error
        if self._read(name) != table:
            raise ControllerError(f"switch {name} did not take its table")


def _row(rule: Any) -> dict[str, Any]:
    """What a panel understands of a rule."""
    return {
        "from": rule.src,
        "to": rule.dst,
        "priority": rule.priority,
        "port": rule.out_port,
        "mac": rule.eth_dst,
    }
