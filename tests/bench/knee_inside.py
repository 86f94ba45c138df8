"""Runs inside a box for the bench P13: the knee of real disks, found over real switches.

    python -m tests.bench.knee_inside FOLDER

Writes a line of JSON for each disk: what it takes of a transfer that has half as much bandwidth
again (``true_bps``, as switches count it), the knee that was found first (``bps``), seconds and
changes of the rate until then, the knee ``KEPT_S`` later (``kept_bps``), and seconds until the rate
followed a neighbour that took half of the disk (``followed_s``).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "component"))
from disk_rig import DiskRig, transfer_into
from network_world import slower
from ovs_rig import OvsRig, network_up

from network_provisioner.base.model import IoRecord
from network_provisioner.topology.data import topology_from_dict

RATE_BPS = 150e6
DISKS_BPS = (20e6, 40e6, 80e6)
WINDOW_S, SETTLE_S, KEPT_S, MOST_S = 15.0, 3.0, 20.0, 60.0
FOLLOWED = 0.65


def main(where: Path) -> None:
    """Every disk once."""
    topology = topology_from_dict(slower(RATE_BPS).topology())
    with network_up(where) as network:
        for number, disk_bps in enumerate(DISKS_BPS):
            folder = where / f"disk{number}"
            folder.mkdir()
            with transfer_into(OvsRig(network, topology), folder, disk_bps, RATE_BPS) as rig:
                print(json.dumps({"disk_bps": disk_bps, **one(rig, disk_bps)}), flush=True)


def one(rig: DiskRig, disk_bps: float) -> dict[str, float]:
    """The figures of one disk."""
    seconds = rig.until(lambda: (rig.get().io or IoRecord()).knee is not None, MOST_S)
    transit = rig.get()
    rig.until(lambda: False, KEPT_S)
    later = rig.get()
    rig.disk.set_rate(disk_bps / 2)
    followed_s = rig.until(
        lambda: rig.get().request.max_bps < FOLLOWED * later.request.max_bps, MOST_S
    )
    rig.over.set()
    rig.disk.set_rate(disk_bps)
    rig.broker.change("a", max_bps=1.5 * disk_bps)
    rig.until(lambda: False, SETTLE_S)
    return {
        "bps": transit.io.knee.bps,
        "changes": len(transit.grant.changes),
        "seconds": seconds,
        "kept_bps": later.io.knee.bps,
        "true_bps": rig.goodput(WINDOW_S),
        "followed_s": followed_s,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
