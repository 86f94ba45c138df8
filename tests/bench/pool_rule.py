"""Has a policy of :mod:`tests.bench.pool_world` drive a real cloud and a real pool.

    python -m tests.bench.pool_rule adon.yml RULE MOST EVERY IDLE

RULE is ``access-provisioner``, or ``at once``, which starts MOST machines and lets none go. Looks
EVERY so many seconds; a machine without a job for IDLE seconds is deleted. Ends by SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

from adon.config.adon_yml import load_config
from adon.config.expansion import cloud_of
from condor_plugins.pool.cloud.protocol import Cloud
from condor_plugins.pool.cloud.workerconfig import WORKER_ATTRIBUTE
from condor_plugins.pool.expander.condor import Condor
from condor_plugins.pool.queue import VANILLA, runs, waits_for_a_slot
from condor_plugins.pool.scaling import MachineState
from network_provisioner.base.errors import AdonError
from tests.bench.pool_peers import AccessProvisioner
from tests.bench.pool_world import KINDS, Actions, Box, Dag, View


class AtOnce:
    """All machines, at the first turn."""

    def __init__(self, most: int) -> None:
        self._left = most

    def turn(self, view: View) -> Actions:
        count, self._left = self._left, 0
        return Actions([KINDS[0]] * count)


class Driven:
    """A policy with what it drives; ``now`` is in Unix seconds."""

    def __init__(
        self, policy: AccessProvisioner | AtOnce, cloud: Cloud, condor: Condor, idle_s: float
    ) -> None:
        self._policy, self._cloud, self._condor, self._idle_s = policy, cloud, condor, idle_s
        (self._flavour,) = cloud.flavours()
        self._used: dict[
            str, float
        ] = {}  # when each machine was last seen to run a job, or to join
        self._count = 0

    def turn(self, now: float) -> None:
        """Raises AdonError."""
        jobs = [job for job in self._condor.jobs() if job.get("JobUniverse") == VANILLA]
        busy = {str(job.get("RemoteHost")).split("@")[1] for job in jobs if runs(job)}
        joined = {str(ad.get(WORKER_ATTRIBUTE)) for ad in self._condor.slots()}
        boxes = []
        for server in sorted(self._cloud.machines(), key=lambda server: server.since):
            name = server.name
            if name in joined:
                self._used.setdefault(name, now)
            if name in busy:
                self._used[name] = now
            if (
                server.state is MachineState.ENDED
                or now - self._used.get(name, now) >= self._idle_s
            ):
                self._cloud.delete(name)
            else:
                boxes.append(Box(name, KINDS[0], server.since, up=self._used.get(name)))
        owners = list(dict.fromkeys(str(job.get("User")) for job in jobs))
        number = {owner: n for n, owner in enumerate(owners)}
        keys = [(number[str(job.get("User"))], n) for n, job in enumerate(jobs)]
        pairs = list(zip(keys, jobs, strict=True))
        view = View(
            now,
            [Dag(owner, 0.0, (), (), (), ()) for owner in owners],
            {key: now for key, job in pairs if waits_for_a_slot(job)},
            {key: now for key, job in pairs if runs(job)},
            {},
            frozenset(),
            boxes,
        )
        for _ in self._policy.turn(view).start:
            self._count += 1
            self._cloud.start(self._flavour.name, f"rule-{self._count}")


def main(path: Path, rule: str, most: int, every_s: float, idle_s: float) -> None:
    """Until it is told to end."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    config = load_config(path)
    assert config.pool is not None
    policy = AccessProvisioner(most) if rule == "access-provisioner" else AtOnce(most)
    driven = Driven(policy, cloud_of(config, path), Condor(config.pool.collector), idle_s)
    print("at work", file=sys.stderr, flush=True)
    while not over.is_set():
        now = time.time()
        try:
            driven.turn(now)
        except AdonError as error:
            print(error, file=sys.stderr, flush=True)
        over.wait(max(0.0, now + every_s - time.time()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:4]), *map(float, sys.argv[4:6]))
