"""COBalD's controller ``AdonController``: a pool is as large as ADON expects its jobs to need.

    pipeline:
      - !AdonController {archive: /var/lib/adon/archive.sqlite, cores: 8, memory_mb: 16000}
      - !TardisPoolFactory …

The same observation, demand and plan as ``adon pool run``; COBalD, and TARDIS below it, start the
drones and let them go. Read by COBalD alone, which ADON does not need.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from cobald.daemon import service
from cobald.interfaces import Controller
from cobald.interfaces import Pool as CobaldPool

from condor_plugins.pool.cloud.protocol import CloudError, Refusal, Server
from condor_plugins.pool.cloud.workerconfig import site_attributes
from condor_plugins.pool.expander.condor import Condor
from condor_plugins.pool.expander.demand import Demands
from condor_plugins.pool.expander.observation import PoolObserver
from condor_plugins.pool.leases import METRIC, leases_of
from condor_plugins.pool.run_times import RunTimes
from condor_plugins.pool.scaling import (
    Flavour,
    JobDemand,
    Limits,
    Machine,
    MachineState,
    plan,
)
from monitors.archive.archive import Archive
from network_provisioner.base.errors import AdonError

_log = logging.getLogger("cobald.control.adon")
_NAME = "drone"


@dataclass(frozen=True, slots=True)
class Level:
    """How many ``cores`` of drones are wanted, and since when (Unix seconds) each drone is that has
    not joined the pool yet."""

    cores: float
    request_times: tuple[float, ...] = ()


def level(
    jobs: Sequence[JobDemand],
    machines: Sequence[Machine],
    joined: Collection[str],
    request_times: Sequence[float],
    drone: Flavour,
    now: float,
) -> Level:
    """What is wanted at the Unix second ``now``, where of a pool's ``machines`` those are drones
    whose names are in ``joined``; the others are used, and stay."""
    drones = [replace(m, fixed=False) for m in machines if m.name in joined]
    booting = [
        Machine(f"asked-{number}", drone, MachineState.BOOTING, since)
        for number, since in enumerate(request_times)
    ]
    others = [machine for machine in machines if machine.name not in joined]
    decided = plan(jobs, [*others, *drones, *booting], [drone], Limits(), now)
    gone = {*decided.drain, *decided.give_up}
    kept = sum(machine.flavour.cores for machine in drones if machine.name not in gone)
    waits = [machine.since for machine in booting if machine.name not in gone]
    waits += [now] * decided.start.get(drone.name, 0)
    return Level(float(kept + len(waits) * drone.cores), tuple(waits))


class _Drones:
    """What a drone is like, as a cloud that has no machines of its own."""

    def __init__(self, drone: Flavour) -> None:
        self._drone = drone

    def check(self) -> None:
        """Nothing is to be checked."""

    def flavours(self) -> Sequence[Flavour]:
        return (self._drone,)

    def machines(self) -> Sequence[Server]:
        return ()

    def start(self, flavour: str, name: str) -> NoReturn:
        raise CloudError("COBalD starts drones", Refusal.REFUSED)

    def delete(self, name: str) -> NoReturn:
        raise CloudError("COBalD ends drones", Refusal.REFUSED)


@service(flavour=threading)
class AdonController(Controller):  # type: ignore[misc]
    """Sets the demand of ``target``, in cores, every ``interval`` seconds.

    :param archive: where run times and leases are read, a file or ``postgresql://…``.
    :param cores: of a drone, as ``memory_mb`` (MiB) and ``boot``, the seconds until it takes jobs.
    :param site: that drones name as AdonSite, "" where they name none.
    :param mark: the attribute by which a slot shows that it is a drone's; TARDIS's by default.
    :param jobs_take: seconds, of jobs of which nobody knows.
    :param collector: ``host:port``, "" for the one of ``CONDOR_CONFIG``.
    """

    def __init__(
        self,
        target: CobaldPool,
        archive: str,
        cores: int = 1,
        memory_mb: int = 2048,
        boot: float = 180.0,
        site: str = "",
        mark: str = "TardisDroneUuid",
        jobs_take: float = 600.0,
        collector: str = "",
        interval: float = 30.0,
    ) -> None:
        super().__init__(target=target)
        self.interval = interval
        self._drone = Flavour(_NAME, cores, memory_mb, boot_s=boot, boot_spread_s=boot / 3)
        self._mark = mark
        self._request_times: tuple[float, ...] = ()
        self._joined: frozenset[str] = frozenset()
        self._archive = Archive(archive, read_only=True)
        condor, run_times = Condor(collector), RunTimes(self._archive, jobs_take)
        cloud = _Drones(self._drone)
        self._observer = PoolObserver(
            "cobald", site_attributes(site), cloud, condor, self._archive, run_times, _log.warning
        )
        self._demands = Demands(condor.whole, run_times.of_job)
        self._said = ""

    def run(self) -> NoReturn:
        """Regulate for ever."""
        while True:
            try:
                self.regulate(time.time())
                self._said = ""
            except AdonError as error:  # the pool stays as it is
                if str(error) != self._said:
                    _log.warning("the demand stays at %s: %s", self.target.demand, error)
                self._said = str(error)
            time.sleep(self.interval)

    def regulate(self, now: float) -> None:
        """Set the demand for the Unix second ``now``. Raises AdonError."""
        view = self._observer.at(now)
        leases = leases_of(self._archive.latest(METRIC).values(), now)
        jobs = self._demands.at(view, leases).jobs
        joined = frozenset(name for name, ad in view.ads.items() if self._mark in ad)
        waits = self._request_times[len(joined - self._joined) :]
        wanted = level(jobs, view.own, joined, waits, self._drone, now)
        self._joined, self._request_times = joined, wanted.request_times
        if self.target.demand != wanted.cores:
            _log.info("demand %s -> %s cores", self.target.demand, wanted.cores)
        self.target.demand = wanted.cores
