"""What machines a pool has, from its cloud's list and its slots' ads. Pure.

A machine boots until its startd is in the collector, and drains as that says. One that was there
and is no more has shut down, or has died without a word: it is deleted, its jobs are vacated.

Clouds, machines and this host have clocks of their own, which may be minutes apart: how long
something takes is the difference of two times of one of them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

from condor_plugins.pool.cloud.protocol import Server
from condor_plugins.pool.queue import Claims, number
from condor_plugins.pool.scaling import GIVEN_UP, Flavour, Machine, MachineState

SILENT_S = 100.0
"""Three updates of a startd (:func:`condor_plugins.pool.cloud.workerconfig.staying`) and some."""
_SETTLED_S = 5.0  # after which no job begins that was on its way to a machine that drains
_HOUR_S = 3600.0
_WEIGHT = 3  # boots that what a flavour is said to take counts as
EARLY_S = 600.0  # a machine that is over so soon after it joined has not been of much use
_OVER = (MachineState.ENDED, MachineState.ERROR)


class WorkerSlot(NamedTuple):
    """The slot of a machine of ours, as its startd said when it was ``heard``, and when that was
    ``started`` (Unix seconds of our clock). One that is ``drained`` has ended its last job; its
    startd shuts down only a while later."""

    name: str
    heard: float
    started: float
    draining: bool
    drained: bool = False

    def silent(self, now: float) -> bool:
        """Whether it should have been heard since."""
        return now - self.heard > SILENT_S


@dataclass(slots=True)
class Memory:
    """What was seen before, in Unix seconds of our clock: since when machines that had joined
    (``joined``) are ``missing``, and since when they are ``draining``, or were told to, which their
    startd says with its next update; when they were ``asked`` for, and seen to have joined
    (``up``). All of it may be lost: boots are in the archive, too."""

    joined: set[str] = field(default_factory=set)
    missing: dict[str, float] = field(default_factory=dict)
    draining: dict[str, float] = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)
    up: dict[str, float] = field(default_factory=dict)

    def forget(self, there: Collection[str]) -> None:
        """All but those that are ``there``."""
        self.joined.intersection_update(there)
        for known in self._times:
            for name in [name for name in known if name not in there]:
                del known[name]

    def shift(self, seconds: float) -> None:
        """Our clock was set."""
        for known in self._times:
            known.update({name: at + seconds for name, at in known.items()})

    def end_of(self, server: Server, slot: WorkerSlot) -> float:
        """When a machine takes no more jobs, by our clock."""
        first = min(slot.started, server.since)
        return self.asked.get(server.name, first) + server.until - server.since

    @property
    def _times(self) -> tuple[dict[str, float], ...]:
        return self.missing, self.draining, self.asked, self.up


@dataclass(frozen=True, slots=True)
class PoolSupply:
    """``machines`` of ours; ``old`` no longer count, and must be drained; ``over`` are to be
    deleted, by name with why; ``dead`` are those of them whose jobs must be vacated, and
    ``early`` those that were over soon after they joined, undrained; ``boots`` are machines that
    have joined since, by name with the seconds that it took."""

    machines: tuple[Machine, ...]
    old: Mapping[str, str]
    over: Mapping[str, str]
    dead: frozenset[str]
    boots: Mapping[str, float]
    early: frozenset[str] = frozenset()


def supply(
    servers: Sequence[Server],
    slots: Mapping[str, WorkerSlot],
    flavours: Iterable[Flavour],
    claims: Claims,
    answering: Collection[str],
    memory: Memory,
    now: float,
) -> PoolSupply:
    """The machines there are at the Unix second ``now``.

    :param slots: in the collector, by the machine's name.
    :param claims: what runs, as the schedds say, by the machine's name.
    :param answering: machines that are known to live. One that has lost its pool (its session with
        the collector ended, or that began anew) may still end its jobs.
    """
    kinds = {flavour.name: flavour for flavour in flavours}
    machines: list[Machine] = []
    old: dict[str, str] = {}
    over: dict[str, str] = {}
    dead: set[str] = set()
    boots: dict[str, float] = {}
    for server in servers:
        name, slot = server.name, slots.get(server.name)
        jobs = claims.get(name, ())
        kind = kinds.get(server.flavour) or Flavour(server.flavour, 1, 1)
        if server.state in _OVER:
            over[name] = server.error or "it has ended"
            dead.add(name)
        elif slot is not None and not slot.silent(now):
            memory.missing.pop(name, None)
            if name not in memory.joined:
                memory.joined.add(name)
                memory.up[name] = now
                boots[name] = max(0.0, slot.started - _asked(server, kind, slot, memory, now))
            drains = _drains(name, slot, memory, now)
            if drains and not jobs and (slot.drained or _settled(name, memory, now)):
                over[name] = "it is drained"
            elif now <= memory.end_of(server, slot):
                state = MachineState.DRAINING if drains else MachineState.RUNNING
                run = tuple(claim.on(kind) for claim in jobs)
                machines.append(Machine(name, kind, state, slot.started, run))
            elif not drains:
                old[name] = f"it is up since {(now - slot.started) / _HOUR_S:.1f} h"
        elif name not in memory.joined:
            requested = _asked(server, kind, None, memory, now)
            machines.append(Machine(name, kind, MachineState.BOOTING, requested))
        elif name in memory.draining and slot is None and not jobs:
            over[name] = "it is drained"
        elif not (jobs and name in answering):
            since = memory.missing.setdefault(name, now if slot is None else slot.heard)
            if now - since > SILENT_S:
                over[name] = f"its startd is silent since {now - since:.0f} s"
                dead.add(name)
    early = {
        n for n in dead - memory.draining.keys() if now - memory.up.get(n, -math.inf) < EARLY_S
    }
    memory.forget({server.name for server in servers})
    return PoolSupply(tuple(machines), old, over, frozenset(dead), boots, frozenset(early))


def _asked(
    server: Server, kind: Flavour, slot: WorkerSlot | None, memory: Memory, now: float
) -> float:
    """When a machine was asked for, as it was noted then. Of one that an earlier process has asked
    for, the cloud tells it by its own clock, which is trusted as far as it is likely: within a
    usual boot while it boots, and a slow one where it has joined."""
    if server.name not in memory.asked:
        latest = now if slot is None else slot.started
        longest_s = kind.boot_s + (GIVEN_UP * kind.boot_spread_s if slot else 0.0)
        memory.asked[server.name] = min(latest, max(server.since, latest - longest_s))
    return memory.asked[server.name]


def _drains(name: str, slot: WorkerSlot, memory: Memory, now: float) -> bool:
    if slot.draining:
        memory.draining.setdefault(name, now)
    elif slot.heard > memory.draining.get(name, math.inf) + _SETTLED_S:
        del memory.draining[name]  # somebody has taken it back
    return name in memory.draining


def _settled(name: str, memory: Memory, now: float) -> bool:
    return now - memory.draining[name] > _SETTLED_S


def boot_time(flavour: Flavour, boots: Collection[float]) -> tuple[float, float]:
    """Mean and standard deviation in seconds, of the boots that were seen and of what the flavour
    says."""
    values = [*boots, *[flavour.boot_s] * _WEIGHT]
    mean = fmean(values)
    spread = sum((value - mean) ** 2 for value in values) + _WEIGHT * flavour.boot_spread_s**2
    return mean, (spread / len(values)) ** 0.5


def worker_slot(ad: Mapping[str, Any], late_s: float) -> WorkerSlot:
    """The slot of an ad. ``late_s`` is how far the collector's clock is behind ours."""
    heard = number(ad, "LastHeardFrom") + late_s
    # Both by the machine's clock.
    started = heard - max(0.0, number(ad, "MyCurrentTime") - number(ad, "DaemonStartTime"))
    drained = (ad.get("State"), ad.get("Activity")) == ("Drained", "Idle")
    return WorkerSlot(str(ad.get("Name")), heard, started, ad.get("Draining") is True, drained)
