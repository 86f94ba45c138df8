"""A site below COBalD whose drones are processes of this machine."""

from __future__ import annotations

import math
from pathlib import Path

from cobald.interfaces import Pool

from adon.config.adon_yml import load_config
from adon.config.expansion import cloud_of
from condor_plugins.pool.scaling import MachineState

CORES = 2  # of its flavour "small"


class ProcessSite(Pool):
    """``config`` is the adon.yml that says what drones are."""

    def __init__(self, config: str) -> None:
        self._cloud = cloud_of(load_config(Path(config)), Path(config))
        self._demand, self._count, self._deleted = 0.0, 0, set[str]()

    @property
    def demand(self) -> float:
        return self._demand

    @demand.setter
    def demand(self, value: float) -> None:
        self._demand = value
        servers = self._cloud.machines()
        for server in servers:
            if server.state is MachineState.ENDED:
                self._cloud.delete(server.name)
        there = [s.name for s in servers if s.state is not MachineState.ENDED]
        there = [name for name in there if name not in self._deleted]
        wanted = math.ceil(value / CORES)
        for _ in range(wanted - len(there)):
            self._count += 1
            self._cloud.start("small", f"drone-{self._count}")
        for name in there[wanted:]:
            self._cloud.delete(name)  # ADON lets go of idle ones
            self._deleted.add(name)

    @property
    def supply(self) -> float:
        return float(CORES * len(self._cloud.machines()))

    @property
    def utilisation(self) -> float:
        return 1.0

    @property
    def allocation(self) -> float:
        return 1.0
