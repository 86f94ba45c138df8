"""What machines a pool has, from its cloud's list and its slots' ads. Pure.

A machine boots until its startd is in the collector, and drains as that says. One that was there
and is no more has shut down, or has died without a word: it is deleted, its jobs are vacated.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

from condor_plugins.pool.cloud.protocol import Server
from condor_plugins.pool.queue import Claims, seconds
from condor_plugins.pool.scaling import Flavour, Machine, MachineState

SILENT_S = 200.0
"""Three updates of a startd (:func:`condor_plugins.pool.cloud.workerconfig.staying`) and some."""
_UNHEARD_S = 10.0  # until a startd that was told to drain says so
_WEIGHT = 3  # boots that what a flavour is said to take counts as
_OVER = (MachineState.ENDED, MachineState.ERROR)


class WorkerSlot(NamedTuple):
    """The slot of a machine of ours, as its startd said when it was ``heard`` (Unix seconds). One
    that is ``drained`` has ended its last job; its startd shuts down only a while later."""

    name: str
    heard: float
    started: float
    draining: bool
    drained: bool = False


@dataclass(slots=True)
class Memory:
    """What was seen before: since when machines that had joined (``joined``) are ``missing``, and
    when those were last known to be ``draining`` that were, or were told to. All of it may be lost:
    boots are in the archive, too."""

    joined: set[str] = field(default_factory=set)
    missing: dict[str, float] = field(default_factory=dict)
    draining: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PoolSupply:
    """``machines`` of ours; ``over`` are to be deleted, by name with why; ``dead`` are those of
    them whose jobs are to be vacated; ``boots`` are machines that have joined since, by name with
    the seconds that it took."""

    machines: tuple[Machine, ...]
    over: Mapping[str, str]
    dead: frozenset[str]
    boots: Mapping[str, float]


def supply(
    servers: Sequence[Server],
    slots: Mapping[str, WorkerSlot],
    flavours: Iterable[Flavour],
    claims: Claims,
    memory: Memory,
    now: float,
) -> PoolSupply:
    """The machines there are at the Unix second ``now``.

    :param slots: of machines of ours, by the machine's name.
    """
    kinds = {flavour.name: flavour for flavour in flavours}
    machines: list[Machine] = []
    over: dict[str, str] = {}
    dead: set[str] = set()
    boots: dict[str, float] = {}
    for server in servers:
        name, slot = server.name, slots.get(server.name)
        silent = slot is None or now - slot.heard > SILENT_S
        if server.state in _OVER:
            over[name] = server.error or "it has ended"
            dead.add(name)
            continue
        kind = kinds.get(server.flavour) or Flavour(server.flavour, 1, 1)
        if slot is not None and not silent and slot.drained and not claims.get(slot.name):
            over[name] = "it is drained"
        elif slot is not None and not silent:
            memory.missing.pop(name, None)
            if name not in memory.joined:
                memory.joined.add(name)
                boots[name] = max(0.0, slot.started - server.since)
            if slot.draining:
                memory.draining[name] = now
            drains = now - memory.draining.get(name, -math.inf) < _UNHEARD_S
            state = MachineState.DRAINING if drains else MachineState.RUNNING
            jobs = tuple(claim.on(kind) for claim in claims.get(slot.name, ()))
            machines.append(Machine(name, kind, state, slot.started, jobs))
        elif name not in memory.joined:
            machines.append(Machine(name, kind, MachineState.BOOTING, server.since))
        elif slot is None and name in memory.draining:
            over[name] = "it is drained"
        else:
            since = memory.missing.setdefault(name, now if slot is None else slot.heard)
            if now - since > SILENT_S:
                over[name] = f"its startd is silent since {now - since:.0f} s"
                dead.add(name)
    there = {server.name for server in servers}
    memory.joined &= there
    for known in (memory.missing, memory.draining):
        for name in known.keys() - there:
            del known[name]
    return PoolSupply(tuple(machines), over, frozenset(dead), boots)


def boot_time(flavour: Flavour, boots: Collection[float]) -> tuple[float, float]:
    """Mean and standard deviation in seconds, of the boots that were seen and of what the flavour
    says."""
    values = [*boots, *[flavour.boot_s] * _WEIGHT]
    mean = fmean(values)
    spread = sum((value - mean) ** 2 for value in values) + _WEIGHT * flavour.boot_spread_s**2
    return mean, (spread / len(values)) ** 0.5


def worker_slot(ad: Mapping[str, Any], late_s: float) -> WorkerSlot:
    """The slot of an ad. ``late_s`` is how far the collector's clock is behind ours."""
    heard = seconds(ad, "LastHeardFrom") + late_s
    started = seconds(ad, "DaemonStartTime")
    drained = (ad.get("State"), ad.get("Activity")) == ("Drained", "Idle")
    return WorkerSlot(str(ad.get("Name")), heard, started, ad.get("Draining") is True, drained)
