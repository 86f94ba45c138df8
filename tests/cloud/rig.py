"""What tests with a real cloud share: drivers, workers that they make, waiting for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from condor_plugins.pool.cloud.openstack import OpenStackCloud, OpenStackSettings
from condor_plugins.pool.cloud.protocol import Server
from condor_plugins.pool.cloud.workerconfig import ExecuteNode, boot_token, user_data
from condor_plugins.pool.scaling import Flavour, MachineState
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import DOMAIN
from tests.cloud.services import CLOUD, IMAGE, NETWORK
from tests.waiting import until

SETTINGS = OpenStackSettings(CLOUD, "p1", {"small": 0.1, "large": 0.4}, IMAGE, NETWORK)
NOTHING = "#cloud-config\n{}\n"
WORKER = "worker@pool"  # as docs/clouds.md has it


def driver(**more: Any) -> OpenStackCloud:
    """One that knows nothing of any other, as after a restart."""
    return OpenStackCloud(replace(SETTINGS, **more), lambda _flavour, _name: NOTHING)


def machine(cloud: OpenStackCloud, name: str) -> Server | None:
    return next((m for m in cloud.machines() if m.name == name), None)


def until_state(
    cloud: OpenStackCloud, name: str, then: MachineState, now: MachineState = MachineState.BOOTING
) -> Server:
    """The machine, when it is no longer in the state ``now`` but in another."""

    def there() -> Server | None:
        current = machine(cloud, name)
        assert current is not None and current.state in (now, then), current
        return current if current.state is then else None

    return until(there, f"{name} to be {then}")


def until_gone(cloud: OpenStackCloud) -> None:
    def none_left() -> bool:
        machines = cloud.machines()
        for m in machines:
            cloud.delete(m.name)
        return not machines

    until(none_left, "the machines to be gone")


def worker_cloud(pool: Pool, lifetime_s: int = 600) -> OpenStackCloud:
    node = ExecuteNode(
        pool.collector, "cloud", 300.0, {"UID_DOMAIN": DOMAIN, "UPDATE_INTERVAL": "5"}
    )

    def worker_user_data(_flavour: Flavour, name: str) -> str:
        return user_data(node, name, boot_token(pool.run, lifetime_s, WORKER))

    return OpenStackCloud(SETTINGS, worker_user_data)


def advertised(pool: Pool, name: str) -> list[str]:
    """A worker's machine in the cloud, its site and when it started; nothing of one that is not
    there."""
    words = ["CloudInstanceId", "PegasusSite", "DaemonStartTime"]
    only = ["-constraint", f'AdonWorker == "{name}" && SlotType == "Partitionable"']
    return pool.run(["condor_status", *only, "-af", *words]).split()
