"""How large a pool should be: which machines to start, to let go and to keep. Pure.

    demand, machines, flavours, limits ─► the coming schedule, played forward ─► ScalingPlan

The jobs that wait and will come are played on the machines there are; one that boots comes when it
is expected to. A machine more is started where the waiting that it saves is worth more than its
boot and its idle time; how many is searched, for each one more saves less. It is started only for
what is ready when it may be up: what comes later can be decided later. A machine is kept where its
next use comes sooner than ending and booting again would cost, and drained where not, which may be
while its last job runs.

Waiting is counted in core-seconds of the jobs that wait, and is worth ``Limits.worth`` times what
a core-second of a machine costs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby
from statistics import NormalDist, median
from typing import NamedTuple

from condor_plugins.pool.schedule import Job, Played, Supply, play

# Bench P9 chose these figures; loads and seeds were fixed before.
GIVEN_UP = 4.0  # spreads beyond the mean boot time, after which a machine is given up
EARLY = 0.05  # of the machines may be up before the job that they are started for is ready
_EARLY_Z = NormalDist().inv_cdf(EARLY)
SOONER = 0.9  # of the estimated time that jobs may take, and a new machine is still of use
FEW = 4  # submissions, from which on more of them are expected
# An idle machine is kept for a job that is expected within this part of a boot, and a minute at
# least: jobs come later than expected rather than sooner.
KEEP, KEEP_S = 0.6, 60.0
_LONG_S = 1e6  # the wait of a job for which there is no machine
_HOUR_S = 3600.0
_MOST_EXPECTED = 1000  # submissions
_MOST_JOBS = 100_000  # of one demand, and expected in all: each is played forward
_TOGETHER_S = 15.0  # requests for machines within this are taken as one
_PROBES, _ROUGH = 6, 32  # how long a number is searched for, and how exactly, where it is large


class MachineState(Enum):
    """What a machine does. One that is DRAINING takes no new job, and can be taken back. ENDED: it
    is off, or about to be gone, or all but a rest of it is; what has ENDED or is in ERROR comes
    back by itself never, and must be deleted: a decision knows none of these."""

    BOOTING = "booting"
    RUNNING = "running"
    DRAINING = "draining"
    ENDED = "ended"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Flavour:
    """A kind of machine; ``price`` per hour, boot times in seconds from the request until jobs
    match, with their standard deviation."""

    name: str
    cores: int
    memory_mb: int
    price: float = 0.0
    boot_s: float = 180.0
    boot_spread_s: float = 60.0

    def slots(self, cores: int, memory_mb: int) -> int:
        """How many jobs of a size run side by side; 0 if none fits."""
        by_memory = self.memory_mb // memory_mb if memory_mb else self.cores
        return min(self.cores // cores, by_memory)


class RunningJob(NamedTuple):
    """What runs on a machine: cores, expected end (Unix seconds), and whose it is."""

    cores: int
    end: float
    whose: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of the pool. ``since`` is when it was asked for while it boots, else when it
    joined; ``jobs`` are those that run on it. One that is ``fixed`` the pool has without us: it is
    used, neither drained nor counted against limits."""

    name: str
    flavour: Flavour
    state: MachineState
    since: float
    jobs: tuple[RunningJob, ...] = ()
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class JobDemand:
    """``count`` jobs alike that are in the queue since ``ready_at``, or will be (Unix seconds),
    give or take ``ready_spread_s``. One that is not ``sure`` keeps machines, and starts none. They
    run on flavours of the names in ``only``, None for all that have room."""

    count: int
    cores: int
    memory_mb: int
    ready_at: float
    run_s: float
    whose: str = ""
    sure: bool = True
    ready_spread_s: float = 0.0
    only: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Of all machines together, those that drain among them. ``money_per_day`` in the unit of the
    prices; ``back_off``: until which Unix second no machine of a flavour is started; ``worth`` of
    waiting, relative to the machine's price."""

    cores: float = math.inf
    machines: float = math.inf
    money_per_day: float = math.inf
    spent_today: float = 0.0
    back_off: Mapping[str, float] = field(default_factory=dict)
    worth: float = 10.0


@dataclass(frozen=True, slots=True)
class ScalingPlan:
    """Machines to start by flavour; by name, those to drain, to take back from draining, and to
    give up, which are deleted. ``why`` has a line for each flavour and name, and for what is wanted
    and not done."""

    start: Mapping[str, int] = field(default_factory=dict)
    drain: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    give_up: tuple[str, ...] = ()
    why: Mapping[str, str] = field(default_factory=dict)


def expected_arrivals(
    past: Iterable[JobDemand], now: float, window_s: float, until: float
) -> list[JobDemand]:
    """Jobs that no DAG announces, if they continue coming as they did in the last ``window_s``:
    ``past`` are those submitted by then, of which no DAG tells. Who submits many at once has not
    announced as many more: it is submissions that are counted, each of the median size."""
    recent = sorted((d for d in past if d.ready_at > now - window_s), key=lambda d: d.ready_at)
    together = [list(group) for _, group in groupby(recent, key=lambda d: (d.ready_at, d.whose))]
    if len(together) < FEW or recent[0].ready_at >= now:
        return []
    size = round(median(sum(d.count for d in group) for group in together))
    usual = sorted(recent, key=lambda d: d.run_s)[len(recent) // 2]
    every_s = (now - recent[0].ready_at) / len(together)
    most = min(_MOST_EXPECTED, _MOST_JOBS // size, int((until - now) / every_s))
    return [
        replace(usual, count=size, ready_at=now + every_s * (i + 1), sure=False)
        for i in range(most)
    ]


def plan(
    demand: Sequence[JobDemand],
    machines: Sequence[Machine],
    flavours: Sequence[Flavour],
    limits: Limits,
    now: float,
) -> ScalingPlan:
    """What to do at the Unix second ``now``, with a pool of ``machines`` for ``demand``."""
    return _Planner(demand, machines, flavours, limits, now).plan()


class _Due(NamedTuple):
    """Jobs to play, the numbers of those that a machine may be started for, and how many of these
    begin later on the machines there are than on one that is started now."""

    jobs: list[Job]
    due: list[int]
    late: int


class _Size(NamedTuple):
    """What jobs ask for."""

    whose: str
    cores: int
    memory_mb: int
    only: frozenset[str] | None

    def width(self, kind: Flavour) -> int:
        """How many cores of a machine such a job takes, counting memory as cores; 0 if it does
        not run there."""
        if self.only is not None and kind.name not in self.only:
            return 0
        return width(kind, self.cores, self.memory_mb)


class _Planner:
    def __init__(
        self,
        demand: Sequence[JobDemand],
        machines: Sequence[Machine],
        flavours: Sequence[Flavour],
        limits: Limits,
        now: float,
    ) -> None:
        self.flavours = list(dict.fromkeys((*flavours, *(m.flavour for m in machines))))
        self.startable = [
            n
            for n, flavour in enumerate(self.flavours)
            if flavour in flavours and limits.back_off.get(flavour.name, 0.0) <= now
        ]
        self.limits, self.now = limits, now
        ours = [m for m in machines if not m.fixed]
        self.count, self.cores = len(ours), sum(m.flavour.cores for m in ours)
        self.why: dict[str, str] = {}
        self.lost = [m for m in machines if is_lost(m, now)]
        lost = {m.name for m in self.lost}
        # Those that drain come first, for they are taken last.
        there = [m for m in machines if m.name not in lost]
        self.machines = sorted(there, key=lambda m: m.state is not MachineState.DRAINING)
        self.number = {flavour: n for n, flavour in enumerate(self.flavours)}
        sizes = [_Size(d.whose, d.cores, d.memory_mb, d.only) for d in demand]
        self.sizes = list(dict.fromkeys(sizes))
        self.shapes = [[size.width(kind) for kind in self.flavours] for size in self.sizes]
        self.users = [size.whose for size in self.sizes]
        user = {whose: n for n, whose in enumerate(self.users)}
        ups = self._expected_ups()
        self.supply = [
            Supply(
                self.number[m.flavour],
                m.flavour.cores,
                ups.get(m.name, 0.0),
                [(job.cores, max(0.0, job.end - now), user.get(job.whose, -1)) for job in m.jobs],
            )
            for m in self.machines
        ]
        shape = {size: n for n, size in enumerate(self.sizes)}
        self.jobs = [
            (d, Job(max(0.0, d.ready_at - now), d.run_s, shape[size]))
            for d, size in sorted(zip(demand, sizes, strict=True), key=lambda row: row[0].ready_at)
            for _ in range(min(d.count, _MOST_JOBS))
        ]

    def _expected_ups(self) -> dict[str, float]:
        """In how many seconds each booting machine is up. Those that were asked for together come
        one after the other, as boot times spread."""
        together: dict[tuple[Flavour, float], list[Machine]] = {}
        for machine in self.machines:
            if machine.state is MachineState.BOOTING:
                key = machine.flavour, machine.since // _TOGETHER_S
                together.setdefault(key, []).append(machine)
        return {
            machine.name: up_s
            for (flavour, _), group in together.items()
            for machine, up_s in zip(
                group, _ups(flavour, len(group), self.now - group[0].since), strict=True
            )
        }

    # -- the plan --------------------------------------------------------------------------------

    def plan(self) -> ScalingPlan:
        start = self._start()
        drain, keep, give_up = self._let_go(start)
        for machine in self.lost:
            age_s, usual_s = self.now - machine.since, machine.flavour.boot_s
            self.why[machine.name] = f"boots since {age_s:.0f} s, {usual_s:.0f} s is usual"
        return ScalingPlan(
            {self.flavours[n].name: count for n, count in start.items()},
            tuple(drain),
            tuple(keep),
            (*(machine.name for machine in self.lost), *give_up),
            self.why,
        )

    def _start(self) -> dict[int, int]:
        """Machines to start by the number of their flavour."""
        started: Counter[int] = Counter()
        by_flavour: dict[int, list[int]] = {}
        there = {
            self.number[m.flavour] for m in self.machines if m.state is not MachineState.DRAINING
        }
        for shape, size in enumerate(self.sizes):
            fit = [n for n in self.startable if self.shapes[shape][n]]
            if fit:
                best = min(fit, key=lambda n: (self._price(n, shape), self.flavours[n].cores))
                by_flavour.setdefault(best, []).append(shape)
            elif not any(self.shapes[shape][n] for n in there):
                job = f"{size.whose}: a job of {size.cores} cores and {size.memory_mb} MB"
                self.why[job] = "no flavour that may be started now takes it"
        for flavour in sorted(by_flavour, key=lambda n: -self.flavours[n].cores):
            chosen, count = self._how_many(flavour, by_flavour[flavour], started)
            if count:
                started[chosen] += count
        return started

    def _price(self, flavour: int, shape: int) -> float:
        """Of one job of this shape."""
        kind, size = self.flavours[flavour], self.sizes[shape]
        return kind.price / kind.slots(size.cores, size.memory_mb)

    def _how_many(
        self, flavour: int, shapes: Sequence[int], started: Mapping[int, int]
    ) -> tuple[int, int]:
        """The flavour, or a larger one where there may not be this many machines, and how many."""
        supply = [*self.supply, *self._new(started)]
        due = self._due(flavour, shapes, supply)
        if not due.late:
            return flavour, 0
        room = self._room(started)
        if math.ceil(due.late / self._slots(flavour, shapes)) > room:
            fit = [n for n in self.startable if all(self.shapes[shape][n] for shape in shapes)]
            by_size = sorted(fit, key=lambda n: self._slots(n, shapes))
            enough = (n for n in by_size if due.late <= room * self._slots(n, shapes))
            flavour = next(enough, by_size[-1])
        wanted = math.ceil(due.late / self._slots(flavour, shapes))
        allowed = self._allowed(flavour, wanted, started)
        useful = self._of_use(flavour, shapes, supply, allowed)
        useful = self._worthwhile(flavour, due, supply, useful)
        count = self._affordable(flavour, due, supply, useful)
        kind = self.flavours[flavour]
        if count:
            whose = ", ".join(sorted({self.users[shape] for shape in shapes} - {""}))
            self.why[kind.name] = (
                f"{due.late} jobs{f' of {whose}' if whose else ''} would wait for more than "
                f"{kind.boot_s:.0f} s, a boot: {count} are started"
            )
        for most, of, what in ((allowed, wanted, "cores and machines"), (count, useful, "money")):
            if most < of:
                self.why["limits"] = f"{what}: enough for {most} of {of} {kind.name}"
        return flavour, count

    def _due(self, flavour: int, shapes: Sequence[int], supply: Sequence[Supply]) -> _Due:
        """The jobs that a machine that is started now is up for, most likely not before they are
        ready, and those that compete with them for the machines there are."""
        kind = self.flavours[flavour]
        jobs: list[Job] = []
        due: list[int] = []
        for demand, job in self.jobs:
            if demand.sure and job.ready_s <= kind.boot_s:
                spread_s = math.hypot(kind.boot_spread_s, demand.ready_spread_s)
                if job.shape in shapes and job.ready_s <= max(
                    0.0, kind.boot_s + _EARLY_Z * spread_s
                ):
                    due.append(len(jobs))
                jobs.append(job)
        if not due:
            return _Due(jobs, due, 0)
        start_s = play(jobs, self.shapes, self.users, supply).start_s
        return _Due(jobs, due, sum(start_s[number] > kind.boot_s for number in due))

    def _of_use(
        self, flavour: int, shapes: Sequence[int], supply: Sequence[Supply], count: int
    ) -> int:
        """How many of ``count`` machines, and of those that boot, will run a job, also if jobs end
        sooner than is assumed."""
        boot_s = self.flavours[flavour].boot_s
        jobs = [
            job._replace(run_s=job.run_s * SOONER)
            for demand, job in self.jobs
            if job.shape in shapes and (not demand.sure or job.ready_s <= boot_s)
        ]
        sooner = [
            supplied._replace(
                busy=[(n, end_s * SOONER, shape) for n, end_s, shape in supplied.busy]
            )
            for supplied in supply
        ]
        boots = [machine.state is MachineState.BOOTING for machine in self.machines]
        boots += [True] * (len(supply) - len(boots))

        def spare(number: int) -> int:
            new = self._new({flavour: number})
            first_s = play(jobs, self.shapes, self.users, [*sooner, *new]).first_s
            marks = [*boots, *(True for _ in new)]
            return sum(m and f == math.inf for m, f in zip(marks, first_s, strict=True))

        for _ in range(_PROBES):
            too_many = spare(count) if count else 0
            if not too_many:
                return count
            count = max(0, count - too_many)
        low, exact = 0, 1 + count // _ROUGH
        while count - low > exact:
            middle = (low + count) // 2
            low, count = (low, middle) if spare(middle) else (middle, count)
        return low

    def _worthwhile(self, flavour: int, due: _Due, supply: Sequence[Supply], count: int) -> int:
        """The number up to ``count`` that costs least, with waiting as it counts."""
        gains: dict[int, float] = {}

        def cost(number: int) -> float:
            """Core-seconds."""
            if number not in gains:
                new = self._new({flavour: number})
                played = play(due.jobs, self.shapes, self.users, [*supply, *new])
                waited = sum(
                    min(played.start_s[n] - due.jobs[n].ready_s, _LONG_S)
                    * self.sizes[due.jobs[n].shape].cores
                    for n in due.due
                )
                gains[number] = self.limits.worth * waited + self._idle(played, len(supply), new)
            return gains[number]

        low, high = 0, count
        exact = count // _ROUGH
        while high - low > exact:  # the whole is most often right, so what is near it comes first
            middle = (low + high) // 2 if high < count or low else high - max(1, count // 16)
            if cost(middle) > cost(high):
                low = middle + 1
            else:
                high = middle
        return high

    def _idle(self, played: Played, old: int, new: Sequence[Supply]) -> float:
        """Core-seconds of new machines' boots and idle time."""
        idle = 0.0
        for number, machine in enumerate(new, old):
            up_s = max(0.0, played.last_s[number] - machine.up_s)
            idle += machine.cores * (self.flavours[machine.flavour].boot_s + up_s)
            idle -= played.used_s[number]
        return idle

    def _new(self, started: Mapping[int, int]) -> list[Supply]:
        return [
            Supply(n, self.flavours[n].cores, up_s)
            for n, count in started.items()
            for up_s in _ups(self.flavours[n], count)
        ]

    def _slots(self, flavour: int, shapes: Sequence[int]) -> int:
        """Jobs of the largest of the shapes that run side by side."""
        kind, sizes = self.flavours[flavour], [self.sizes[shape] for shape in shapes]
        return min(kind.slots(size.cores, size.memory_mb) for size in sizes)

    # -- limits ----------------------------------------------------------------------------------

    def _room(self, started: Mapping[int, int]) -> float:
        """Machines that there may be more."""
        return max(0, self.limits.machines - self.count - sum(started.values()))

    def _allowed(self, flavour: int, count: int, started: Mapping[int, int]) -> int:
        cores = self.cores + sum(self.flavours[n].cores * more for n, more in started.items())
        by_cores = (self.limits.cores - cores) // self.flavours[flavour].cores
        return int(max(0, min(count, self._room(started), by_cores)))

    def _affordable(self, flavour: int, due: _Due, supply: Sequence[Supply], count: int) -> int:
        """How many of ``count`` today's money is enough for, with what the others will cost until
        their jobs are done."""
        left = self.limits.money_per_day - self.limits.spent_today
        if math.isinf(left) or not count:
            return count
        new = self._new({flavour: count})
        last_s = play(due.jobs, self.shapes, self.users, [*supply, *new]).last_s
        for number, machine in enumerate([*supply, *new]):
            busy_s = max((end_s for _, end_s, _ in machine.busy), default=0.0)
            until_s = max(machine.up_s, last_s[number], busy_s)
            left -= self.flavours[machine.flavour].price * until_s / _HOUR_S
            if left < 0 and number >= len(supply):
                return number - len(supply)
        return count

    # -- letting go ------------------------------------------------------------------------------

    def _let_go(self, start: Mapping[int, int]) -> tuple[list[str], list[str], list[str]]:
        """Names to drain, to take back from draining, and to delete while they boot."""
        jobs = [job for _, job in self.jobs]
        supply = [*self.supply, *self._new(start)]
        first_s = play(jobs, self.shapes, self.users, supply).first_s
        drain, keep, idle, booting = [], [], [], 0
        for number, machine in enumerate(self.machines):
            if machine.fixed:
                continue
            next_s, boot_s = first_s[number], machine.flavour.boot_s
            empty_s = max((end_s for _, end_s, _ in self.supply[number].busy), default=0.0)
            soon = next_s - empty_s <= max(KEEP_S, KEEP * boot_s)
            if machine.state is MachineState.BOOTING:
                booting += 1
                if next_s == math.inf:
                    idle.append(machine.name)
            elif machine.state is MachineState.DRAINING:
                if soon:
                    keep.append(machine.name)
                    self.why[machine.name] = f"of use again in {next_s:.0f} s"
            elif not soon and empty_s <= boot_s:
                drain.append(machine.name)
                coming = "none is in sight" if next_s == math.inf else f"the next in {next_s:.0f} s"
                last = f"its last job ends in {empty_s:.0f} s" if machine.jobs else "no job runs"
                self.why[machine.name] = f"{last}, {coming}, and a boot takes {boot_s:.0f} s"
        # As many more as are of use may boot: some will fail, and estimates may be wrong.
        give_up = idle[booting - len(idle) :]
        self.why |= dict.fromkeys(give_up, "it has no more work")
        return drain, keep, give_up


def is_lost(machine: Machine, now: float) -> bool:
    """Whether it boots for so long that it will not come up."""
    latest_s = machine.flavour.boot_s + GIVEN_UP * machine.flavour.boot_spread_s
    return machine.state is MachineState.BOOTING and now - machine.since > latest_s


def width(flavour: Flavour, cores: int, memory_mb: int) -> int:
    """How many of its cores a job takes, counting memory as cores; 0 if it does not fit."""
    if not flavour.slots(cores, memory_mb):
        return 0
    return max(cores, math.ceil(memory_mb * flavour.cores / flavour.memory_mb))


def _ups(flavour: Flavour, count: int, age_s: float = 0.0) -> Iterable[float]:
    """In how many seconds each of ``count`` machines is up that boot since ``age_s``."""
    if not flavour.boot_spread_s:
        return [max(0.0, flavour.boot_s - age_s)] * count
    spread = NormalDist(flavour.boot_s, flavour.boot_spread_s)
    before = min(spread.cdf(age_s), 0.999) if age_s else 0.0
    return [
        max(0.0, spread.inv_cdf(before + (1 - before) * (i + 0.5) / count) - age_s)
        for i in range(count)
    ]
