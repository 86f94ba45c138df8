"""Which machines jobs cannot use, though they are there: no supply, and to be drained. Pure.

- Jobs die on one at once, and not on others: a black hole, which eats a queue.
- One idles, and no waiting job that its flavour takes matches its slot as it is: its disk is full,
  a daemon of its own keeps jobs away. Where jobs run, what they leave may fit no waiting job: those
  cores count again when the next one ends. So do cores that jobs have of which no queue tells.
- One has less life left than the shortest job that would go there.

Durations are differences of one clock: a job's those of its access point's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import classad2

from condor_plugins.pool.queue import HELD, IDLE, RUNNING, amount, number
from condor_plugins.pool.scaling import JobDemand, Machine, MachineState, RunningJob

SOON_S = 60.0  # a job that ends within this has died at once, if it has failed
DEATHS = 4  # in a row, of a machine on which nothing works
UNFIT_S = 60.0  # for so long a slot matches no waiting job: ads and queue are not of one moment
_LONG_S = 3600.0  # what runs without a known end is assumed to run so much longer
_KEPT_S = 3600.0  # how long ended jobs are remembered
_MOST_KINDS = 20  # of waiting jobs that are matched with each slot
_COMPLETED = 4
_BY_PEOPLE = (1, 15, 16)  # HoldReasonCode: condor_hold, submitted on hold, spooling


class Run(NamedTuple):
    """The result of one start of a job: at which place (a machine of ours, a slot of others), when
    it began (Unix seconds of its access point), and whether it succeeded: ended without error, or
    ran for longer than a minute. ``kind`` is what jobs alike have in common."""

    place: str
    kind: tuple[str, str]
    job: tuple[int, int]
    began: float
    good: bool


def run_of(job: Mapping[str, Any], place: str) -> Run | None:
    """The last start of a job that runs, has ended or is back in the queue; None if there was
    none or nothing can be told of it yet."""
    began, status = number(job, "JobCurrentStartDate"), job.get("JobStatus")
    if not place or not began:
        return None
    lasted_s = number(job, "ServerTime" if status == RUNNING else "EnteredCurrentStatus") - began
    failed = {
        RUNNING: False,
        # That it died: one that succeeded runs again only because it is asked to.
        IDLE: job.get("ExitCode") != 0,
        HELD: job.get("HoldReasonCode") not in _BY_PEOPLE,
        _COMPLETED: job.get("ExitCode") != 0,
    }.get(status if isinstance(status, int) else 0)
    good = lasted_s > SOON_S or (status == _COMPLETED and not failed)
    if failed is None or not (good or failed):
        return None
    program = job.get("pegasus_wf_xformation")
    kind = str(job.get("User")), str(program if isinstance(program, str) else job.get("Cmd"))
    id_ = int(number(job, "ClusterId")), int(number(job, "ProcId"))
    return Run(place, kind, id_, began, good)


class Runs:
    """The starts of the last hour."""

    def __init__(self) -> None:
        self._seen: dict[Run, float] = {}

    def add(self, runs: Iterable[Run | None], now: float) -> None:
        """Those that were seen at ``now``, in our time, some of which are known."""
        self._seen |= {run: self._seen.get(run, now) for run in runs if run}
        self._seen = {run: at for run, at in self._seen.items() if now - at < _KEPT_S}

    def by_place(self) -> dict[str, list[Run]]:
        """The oldest first."""
        runs: dict[str, list[Run]] = {}
        for run in sorted(self._seen, key=lambda run: run.began):
            runs.setdefault(run.place, []).append(run)
        return runs


def black_holes(runs: Mapping[str, Sequence[Run]]) -> dict[str, str]:
    """Places where the last few jobs died at once, with why. Where jobs alike die at once at
    another place, too, and do well nowhere, it is the jobs."""
    well = {run.kind for there in runs.values() for run in there if run.good}
    reasons: dict[str, str] = {}
    for place, there in runs.items():
        last = there[-DEATHS:]
        kinds = {run.kind for run in last}
        dies_on_others = any(
            run.kind in kinds for p, rs in runs.items() if p != place for run in rs
        )
        if len(last) < DEATHS or any(run.good for run in last):
            continue
        if kinds & well or not dies_on_others:
            reasons[place] = f"the last {DEATHS} jobs died there within {SOON_S:.0f} s"
    return reasons


class Life(NamedTuple):
    """How long a machine takes jobs from now on, and in all (seconds)."""

    left_s: float
    whole_s: float


class Waiting(NamedTuple):
    """A job that waits: its whole ad, and the flavours that take it."""

    ad: classad2.ClassAd
    only: frozenset[str]


@dataclass(frozen=True, slots=True)
class Fitness:
    """``machines`` are supply, with without the cores that no job can use. ``unfit`` are none, by
    name with why, those that drain already among them; ``partly`` are those of which some cores are
    none."""

    machines: tuple[Machine, ...]
    unfit: Mapping[str, str]
    partly: Mapping[str, int]


@dataclass(slots=True)
class Judge:
    """Judges again and again. What it remembers may be lost: since when slots match no waiting job,
    and what was ``unfit``, which stays so while it drains."""

    since: dict[str, float] = field(default_factory=dict)
    unfit: Mapping[str, str] = field(default_factory=dict)

    def of(
        self,
        machines: Sequence[Machine],
        holes: Mapping[str, str],
        slots: Mapping[str, classad2.ClassAd],
        waiting: Sequence[Waiting],
        lives: Mapping[str, Life],
        demand: Sequence[JobDemand],
        now: float,
    ) -> Fitness:
        """``holes``: by name, with why. ``slots``: by name, as they are at the Unix second
        ``now``."""
        fit: list[Machine] = []
        unfit: dict[str, str] = {}
        partly: dict[str, int] = {}
        since: dict[str, float] = {}
        shortest = _shortest(demand)
        for machine in machines:
            name, slot = machine.name, slots.get(machine.name)
            why = holes.get(name, "")
            if machine.state is MachineState.DRAINING:
                why = why or self.unfit.get(name, "")
            elif machine.state is MachineState.RUNNING and slot is not None and not why:
                why = _too_old(shortest.get(machine.flavour.name), lives.get(name))
                idle = machine.flavour.cores - sum(job.cores for job in machine.jobs)
                busy = bool(machine.jobs) or _is_busy(slot)
                unseen = busy and not machine.jobs and slot.get("PartitionableSlot") is not True
                if idle > 0 and (unseen or _matches_none(machine, slot, waiting)):
                    since[name] = self.since.get(name, now)
                    if now - since[name] >= UNFIT_S and busy:
                        partly[name] = idle
                    elif now - since[name] >= UNFIT_S:
                        why = why or f"it idles, and takes no job that waits: {_rest(slot)}"
            if why:
                unfit[name] = why
                partly.pop(name, None)
            elif name in partly:
                end = min((job.end for job in machine.jobs), default=now + _LONG_S)
                taken = RunningJob(partly[name], end)
                fit.append(replace(machine, jobs=(*machine.jobs, taken)))
            else:
                fit.append(machine)
        self.since, self.unfit = since, unfit
        return Fitness(tuple(fit), unfit, partly)


def _is_busy(slot: classad2.ClassAd) -> bool:
    """Whether something runs there, as the slot says."""
    rest = amount(slot, "Cpus", 0)
    return slot.get("Activity") == "Busy" or rest < amount(slot, "TotalSlotCpus", rest)


def _matches_none(machine: Machine, slot: classad2.ClassAd, waiting: Sequence[Waiting]) -> bool:
    """Whether jobs wait for such a machine, none of which takes what is left of it."""
    jobs = [job.ad for job in waiting if machine.flavour.name in job.only]
    return bool(jobs) and not any(job.symmetricMatch(slot) for job in jobs[:_MOST_KINDS])


def _shortest(demand: Iterable[JobDemand]) -> dict[str, float]:
    """How long the shortest job takes (seconds) that goes to machines of a flavour."""
    shortest: dict[str, float] = {}
    for job in demand:
        if job.sure and job.only:
            for name in job.only:
                shortest[name] = min(job.run_s, shortest.get(name, job.run_s))
    return shortest


def _too_old(takes_s: float | None, life: Life | None) -> str:
    """Why, where it is. Half a life is enough for every job: of those that take longer, none would
    ever begin."""
    if life is None or takes_s is None or life.left_s >= min(takes_s, life.whole_s / 2):
        return ""
    left_s = max(0.0, life.left_s)
    return f"its life ends in {left_s:.0f} s, and the shortest job takes {takes_s:.0f} s"


def _rest(slot: classad2.ClassAd) -> str:
    """What a slot has left, for people."""
    start = "" if slot.get("Start") is not False else ", Start is false"
    disk_mb = amount(slot, "Disk", 0) // 1024
    return (
        f"{amount(slot, 'Cpus', 0)} cores, {amount(slot, 'Memory', 0)} MB of memory and "
        f"{disk_mb} MB of disk are left{start}"
    )
