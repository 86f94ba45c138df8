"""What the pool was asked for, in the archive: the dashboard shows it beside the pool's size."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from network_provisioner.base.errors import AdonError
from network_provisioner.base.units import format_size

if TYPE_CHECKING:
    from adon.config.adon_yml import Config
    from condor_plugins.pool.demand import Expanded, SlotDemand
    from monitors.archive.measurement import Measurement


def enlarged(demand: SlotDemand, grown: Expanded, now: float) -> Measurement:
    """A demand and what came of it: the value is the slots that were asked for."""
    from monitors.archive.measurement import Measurement

    jobs = f"{demand.slots} jobs" if demand.slots != 1 else "1 job"
    cores = f" of {demand.cores} cores" if demand.cores > 1 else ""
    size = f", which read {format_size(demand.bytes)}" if demand.bytes else ""
    verb = "are" if demand.slots != 1 else "is"
    reason = demand.reason or f"{jobs}{cores} {verb} to run at once{size}"
    details = {
        "granted": sum(worker.slots for worker in grown.workers),
        "workers": len(grown.workers),
        "until": demand.until,
        "cores": demand.cores,
        "memory_mb": demand.memory_mb,
        "bytes": demand.bytes,
        "reason": reason,
        "note": grown.note,
    }
    key = f"expansion:{demand.id}:{now!r}"
    return Measurement(
        key, "expansion", demand.id, float(demand.slots), "1", now, "adon pool", "", details
    )


def shrunk(name: str, workers: int, now: float) -> Measurement:
    """A demand that is over."""
    from monitors.archive.measurement import Measurement

    details = {"workers": workers, "reason": "it was let go: its workers leave as jobs end"}
    key = f"expansion:{name}:{now!r}"
    return Measurement(key, "expansion", name, 0.0, "1", now, "adon pool", "", details)


def record(config: Config, found: Measurement) -> None:
    """Into the broker's archive, where there is one. The pool has changed already, so what cannot
    be recorded is told and is no failure."""
    from monitors.archive.archive import Archive

    where = config.broker.archive
    if "://" not in where and not Path(where).exists():
        return  # no broker works in this folder, and a new file would be found by nobody
    try:
        with Archive(where) as archive:
            archive.record(found)
    except AdonError as error:
        print(f"adon: not recorded: {error}", file=sys.stderr)
