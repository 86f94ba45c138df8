"""Leases: who wants how many jobs to run at once, and for how long. Pure.

A lease is a measurement of the archive (metric ``expansion``), so that the caller needs neither
HTCondor nor a cloud. Of each name the newest counts; 0 slots let go. Leases of different names add
up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from monitors.base.measurement import Measurement
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import format_size

METRIC = "expansion"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@+-]{0,199}\Z")


@dataclass(frozen=True, slots=True)
class Lease:
    """Room for ``slots`` jobs of ``cores`` and ``memory_mb`` each (0: any), until the Unix time
    ``until``. ``bytes`` is what they read, 0 for unknown; ``reason`` is for people.

    Raises InputError for an invalid name, or figures below what they mean.
    """

    name: str
    slots: int
    until: float
    cores: int = 1
    memory_mb: int = 0
    bytes: int = 0
    reason: str = ""

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise InputError(
                f"lease: found name {self.name!r}, expected letters, digits and any of _.:@+-"
            )
        if self.slots < 0 or self.cores < 1 or self.memory_mb < 0 or self.bytes < 0:
            raise InputError(f"lease {self.name}: found {self}, expected no figure below 0")

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready copy."""
        return asdict(self)


def leases_of(measurements: Iterable[Measurement], now: float) -> list[Lease]:
    """Those that count at the Unix second ``now``, by name; of several at the same time the last.
    What is no lease is left out."""
    newest: dict[str, Measurement] = {}
    for measurement in measurements:
        if measurement.subject not in newest or measurement.at >= newest[measurement.subject].at:
            newest[measurement.subject] = measurement
    leases = (_lease(newest[name]) for name in sorted(newest))
    return [lease for lease in leases if lease and lease.slots and now < lease.until < math.inf]


def measurement_of(lease: Lease, now: float) -> Measurement:
    """How it is recorded at the Unix second ``now``: of the workflow in ``WORKFLOW:…``, if that is
    its name."""
    details = lease.as_dict() | {"reason": lease.reason or _reason(lease)}
    name, slots = details.pop("name"), details.pop("slots")
    key = f"{METRIC}:{name}:{now!r}"
    workflow = name.rpartition(":")[0].partition(":")[0]
    return Measurement(key, METRIC, name, float(slots), "1", now, "adon pool", workflow, details)


def _lease(measurement: Measurement) -> Lease | None:
    details = measurement.details
    try:
        return Lease(
            measurement.subject,
            int(measurement.value),
            float(details["until"]),
            int(details.get("cores", 1)),
            int(details.get("memory_mb", 0)),
            int(details.get("bytes", 0)),
            str(details.get("reason", "")),
        )
    except (InputError, KeyError, TypeError, ValueError, OverflowError):
        return None


def _reason(lease: Lease) -> str:
    if not lease.slots:
        return "the lease was ended"
    jobs, verb = (f"{lease.slots} jobs", "are") if lease.slots != 1 else ("1 job", "is")
    cores = f" of {lease.cores} cores" if lease.cores > 1 else ""
    size = f", which read {format_size(lease.bytes)}" if lease.bytes else ""
    return f"{jobs}{cores} {verb} to run at once{size}"
