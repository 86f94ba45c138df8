"""Measurement tasks that were added, in the store that brokers share, for each new leader."""

from __future__ import annotations

from dataclasses import asdict

from monitors.measurements.run_store import KeptTask
from network_provisioner.stores.store import Store

_KIND = "measurement-task"


class SharedTasks:
    """Every method may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def write(self, name: str, kept: KeptTask | None) -> None:
        """Keep a task under its name; None takes it away."""
        if kept is None:
            self._store.delete_document(_KIND, name)
        else:
            self._store.put_document(_KIND, name, asdict(kept), keep=1)

    def read(self) -> dict[str, KeptTask] | None:
        """All by name; None where no broker has ever written one."""
        if not self._store.documents_stamp(_KIND):
            return None
        return {d.name: KeptTask(**d.body) for d in self._store.documents(_KIND) if d.body}
