"""Machines that are processes of this one, in a real pool: started, used, deleted, killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from startd_world import write_config
from waiting import until

from adon.config.adon_yml import load_config
from adon.config.expansion import cloud_of
from condor_plugins.pool.cloud.protocol import Cloud
from condor_plugins.pool.cloud.startd import Process, _family, _living
from condor_plugins.pool.scaling import MachineState
from examples.testbed.pool import Pool

pytestmark = pytest.mark.component
START = """
import sys
from pathlib import Path
from adon.config.adon_yml import load_config
from adon.config.expansion import cloud_of
path = Path(sys.argv[1])
cloud = cloud_of(load_config(path), path)
cloud.check()
cloud.start("small", sys.argv[2])
cloud.start("small", sys.argv[2])
"""


def started(pool: Pool, folder: Path, name: str) -> Cloud:
    """With the machine ``name``, once its slot is in the pool."""
    config = write_config(folder, pool)
    pool.run([sys.executable, "-I", "-c", START, str(config), name])
    until(lambda: slots(pool, name), "its slot")
    return cloud_of(load_config(config), config)


def slots(pool: Pool, name: str) -> list[str]:
    """Of its machine: kind, cores, memory and site."""
    only = ["-constraint", f'AdonWorker == "{name}"']
    words = ["SlotType", "TotalSlotCpus", "TotalSlotMemory", "PegasusSite"]
    return pool.run(["condor_status", *only, "-af", *words]).split()


def gone(cloud: Cloud) -> bool:
    for machine in cloud.machines():
        cloud.delete(machine.name)
    return not cloud.machines()


def alive(processes: list[int]) -> list[int]:
    return [pid for pid in processes if Process.of(Path(f"/proc/{pid}/stat"))]


def states(cloud: Cloud) -> dict[str, MachineState]:
    return {machine.name: machine.state for machine in cloud.machines()}


def test_a_machine_joins_runs_jobs_and_goes_with_all_that_it_started(
    pool: Pool, tmp_path: Path
) -> None:
    cloud = started(pool, tmp_path, "w1")
    assert states(cloud) == {"w1": MachineState.RUNNING}
    assert slots(pool, "w1") == ["Partitionable", "2", "512", "mu"]
    (tmp_path / "j.sub").write_text(
        "executable = /bin/sleep\narguments = 600\nlog = j.log\nrequest_memory = 64\nqueue 2\n"
    )
    cluster = pool.run(["condor_submit", "-terse", "j.sub"], cwd=tmp_path).split(".")[0]
    log = tmp_path / "j.log"
    until(lambda: log.exists() and log.read_text().count("\n001 ") == 2, "the jobs to start")
    home = tmp_path / "adon-workers/w1"

    def there() -> list[int]:
        processes = _family(home, _living(home))
        return processes if len(processes) >= 6 else []

    # HTCondor reports a job just before it starts it.
    family = until(there, "master, startd, two starters, two jobs")
    cloud.delete("w1")
    assert states(cloud) == {"w1": MachineState.ENDED}

    until(lambda: gone(cloud), "the machine to be gone")
    until(lambda: not slots(pool, "w1"), "its slot to be gone")
    until(lambda: not alive(family), "what it started to end")
    assert (tmp_path / "adon-workers/last-ended/log/MasterLog").exists()
    pool.run(["condor_rm", cluster])


def test_one_that_died_is_told_and_cleared(pool: Pool, tmp_path: Path) -> None:
    cloud = started(pool, tmp_path, "w2")
    home = tmp_path / "adon-workers/w2"
    master = _living(home)
    assert master is not None
    family = _family(home, master)
    assert len(family) >= 2
    os.kill(master.pid, signal.SIGKILL)
    until(lambda: states(cloud) == {"w2": MachineState.ENDED}, "it to have ended")
    until(lambda: gone(cloud), "the machine to be gone")
    until(lambda: not alive(family), "what it started to end")
