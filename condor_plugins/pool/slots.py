"""How many slots a pool has without the workers that joined it for a demand."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from condor_plugins.pool.workerconfig import DEMAND_ATTRIBUTE
from network_provisioner.base.errors import AdonError

_FIELDS = ("SlotType", "TotalSlotCpus", "TotalSlotMemory")
_ASK_S = 10.0


def fitting(rows: Iterable[Sequence[str]], cores: int, memory_mb: int) -> int:
    """How many jobs of ``cores`` and ``memory_mb`` fit at once into slots given as ``_FIELDS``.

    A partitionable slot holds as many as its cores and memory do; those that were carved out of one
    are counted with it.
    """
    count = 0
    for kind, cpus, memory in rows:
        if kind == "Dynamic" or not cpus.isdecimal() or not memory.isdecimal():
            continue
        room = min(int(cpus) // cores, int(memory) // memory_mb if memory_mb else int(cpus))
        count += room if kind == "Partitionable" else min(1, room)
    return count


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool by its collector, asked with HTCondor's own program: bindings would take the settings
    of this process, and those that it has are not the workers'."""

    release: Path
    config: Path
    collector: str

    def present(self, site: str, cores: int, memory_mb: int) -> int:
        """Slots of the pool for such jobs, at ``site`` where that is named. Raises AdonError."""
        ours = f"{DEMAND_ATTRIBUTE} is undefined"
        there = f' && PegasusSite == "{site}"' if site else ""
        words = [str(self.release / "bin/condor_status"), "-pool", self.collector]
        words += ["-constraint", ours + there, "-af", *_FIELDS]
        try:
            done = subprocess.run(
                words,
                env={"PATH": "/usr/bin:/bin", "CONDOR_CONFIG": str(self.config)},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_ASK_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise AdonError(f"condor_status: {error}") from None
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()
            raise AdonError(f"condor_status: {said[-1] if said else 'it failed'}")
        rows = (line.split() for line in done.stdout.splitlines())
        return fitting((row for row in rows if len(row) == len(_FIELDS)), cores, memory_mb)
