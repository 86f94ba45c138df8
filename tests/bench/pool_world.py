"""A pool of machines in virtual time, for policies that make it larger and smaller.

    jobs become ready ─► HTCondor matches them to free cores ─► they run, and their children follow
    a policy's turn   ─► machines boot (some fail), drain, are deleted

What HTCondor does: a cycle of the negotiator gives idle jobs free cores, the oldest job first, the
machine with the fewest free cores first (its ``NEGOTIATOR_PRE_JOB_RANK``); a core whose job has
ended takes the same user's next job at once (claims are used again); a draining machine takes none.
DAGMan submits a job ``LAG_S`` after its last parent has ended. A policy sees a :class:`View`, which
has no true run time, no boot time of a machine that still boots, and nothing of the future.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Protocol

LAG_S = 3.0  # from a job's end to its children's submission: measured, see docs/benchmarks.md
CYCLE_S = 10.0  # of the negotiator
TURN_S = 5.0  # of a policy, where anything has changed
REST_S = 60.0  # of a policy, where nothing has
FAILS = 0.10  # of the machines
LONGEST_S = 60 * 86400.0
_Z99 = 2.326  # the standard normal distribution's 99th percentile


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of machine. ``price`` per hour."""

    name: str
    cores: int
    memory_mb: int
    price: float


KINDS = tuple(Kind(f"c{n}", n, 4096 * n, float(n)) for n in (1, 2, 4, 8, 16))


@dataclass(frozen=True, slots=True)
class Boot:
    """Boot times are lognormal with this mean and standard deviation in seconds."""

    mean_s: float
    spread_s: float

    def draw(self, rng: Random) -> float:
        mu, sigma = self._shape()
        return rng.lognormvariate(mu, sigma)

    @property
    def long_s(self) -> float:
        """What 99 of 100 machines take at most."""
        mu, sigma = self._shape()
        return math.exp(mu + _Z99 * sigma)

    def _shape(self) -> tuple[float, float]:
        sigma = math.sqrt(math.log(1 + (self.spread_s / self.mean_s) ** 2))
        return math.log(self.mean_s) - sigma**2 / 2, sigma


@dataclass(frozen=True, slots=True)
class Dag:
    """What anybody can see of a workflow; parents come before children. One that is not ``known``
    is jobs in the queue and no more."""

    user: str
    at: float
    kinds: tuple[str, ...]
    parents: tuple[tuple[int, ...], ...]
    level: tuple[int, ...]
    cores: tuple[int, ...]
    known: bool = True


@dataclass(frozen=True, slots=True)
class Load:
    """Workflows in order of their submission, the true run times of their jobs, the job of each
    that fails (-1: none), and what is believed of run times by kind beforehand."""

    name: str
    dags: tuple[Dag, ...]
    run_s: tuple[tuple[float, ...], ...]
    fails: tuple[int, ...]
    believed_s: Mapping[str, float]


JobId = tuple[int, int]
"""The number of the workflow, and of the job in it."""


@dataclass(slots=True)
class Box:
    """A machine. ``up`` is None while it boots, ``gone`` until it is deleted; ``error`` is when its
    boot was seen to fail."""

    name: str
    kind: Kind
    asked: float
    up: float | None = None
    gone: float | None = None
    error: float | None = None
    draining: float | None = None
    free: int = 0
    jobs: dict[JobId, float] = field(default_factory=dict)
    ran: int = 0
    fails: bool = False
    first: float | None = None
    last: float | None = None
    used_s: float = 0.0  # core-seconds


@dataclass(slots=True)
class View:
    """What a policy can see at ``now``. ``idle`` has when each job was submitted; ``ended`` what
    each job that has ended took, and ``failed`` those that did not do well."""

    now: float
    dags: Sequence[Dag]
    idle: Mapping[JobId, float]
    running: Mapping[JobId, float]
    ended: Mapping[JobId, float]
    failed: frozenset[JobId]
    boxes: Sequence[Box]


@dataclass(frozen=True, slots=True)
class Actions:
    """Machines to start by kind; to drain, to take back and to delete by name. A drained one is
    deleted by the world when a turn finds it empty."""

    start: Sequence[Kind] = ()
    drain: Sequence[str] = ()
    keep: Sequence[str] = ()
    delete: Sequence[str] = ()


class Policy(Protocol):
    """``turn_s`` between two looks; ``idle_s`` after which an empty machine ends by itself (None:
    it does not), ``hang_s`` after which one that boots is given up."""

    turn_s: float
    idle_s: float | None
    hang_s: float

    def turn(self, view: View) -> Actions: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it. Times in seconds, ``cost`` and the others in core-seconds.

    ``waits`` of each job from its submission until it ran, and ``apart`` of those whose machine
    failed to boot; ``forced_s`` is the idle time before a machine's first match and after its last
    job's end, of all its cores; ``wasted_s`` is what machines that never ran a job cost.
    """

    waits: tuple[float, ...]
    apart: tuple[float, ...]
    machines: int
    failed: int
    never: int
    wasted_s: float
    used_s: float
    idle_s: float
    forced_s: float
    boot_s: float
    reversals: int
    end: float

    @property
    def cost_s(self) -> float:
        return self.used_s + self.idle_s + self.boot_s


class World:
    """One run of a load under a policy."""

    def __init__(self, load: Load, boot: Boot, seed: int) -> None:
        self.load, self.boot = load, boot
        self.rng = Random(seed)
        self.now = 0.0
        self.events: list[tuple[float, int, str, object]] = []
        self.count = 0
        self.idle: dict[JobId, float] = {}
        self.queues: dict[str, deque[JobId]] = defaultdict(deque)
        self.running: dict[JobId, float] = {}
        self.ended: dict[JobId, float] = {}
        self.failed: set[JobId] = set()
        self.waits: dict[JobId, float] = {}
        self.apart: set[JobId] = set()
        self.left = [[len(p) for p in dag.parents] for dag in load.dags]
        self.children = [_children(dag) for dag in load.dags]
        self.boxes: dict[str, Box] = {}
        self.all: list[Box] = []
        self.levels: dict[tuple[int, int], float] = {}  # when the first job of each was ready
        self.acts: list[tuple[float, str, str]] = []
        self.changed = True
        self.looked = -math.inf
        self.negotiating = False
        self.turning = False

    # -- running ---------------------------------------------------------------------------------

    def run(self, policy: Policy) -> Outcome:
        """Until all jobs that can have run, and every machine is gone."""
        for number, dag in enumerate(self.load.dags):
            self._at(dag.at, "arrive", number)
        self._at(0.0, "turn", None)
        while self.events:
            self.now, _, what, value = heappop(self.events)
            assert self.now < LONGEST_S, "jobs wait for ever"
            if what == "turn":
                self._turn(policy)
            else:
                self.changed = True
                getattr(self, f"_{what}")(value)
        return self._outcome()

    def _at(self, when: float, what: str, value: object) -> None:
        self.count += 1
        heappush(self.events, (when, self.count, what, value))

    def _arrive(self, number: int) -> None:
        for job, left in enumerate(self.left[number]):
            if not left:
                self._submit((number, job))

    def _submit(self, job: JobId) -> None:
        dag = self.load.dags[job[0]]
        self.levels.setdefault((job[0], dag.level[job[1]]), self.now)
        self.idle[job] = self.now
        self.queues[dag.user].append(job)
        self._wake_negotiator()

    def _wake_negotiator(self) -> None:
        if not self.negotiating:
            self.negotiating = True
            self._at((math.floor(self.now / CYCLE_S) + 1) * CYCLE_S, "negotiate", None)

    def _negotiate(self, _: object) -> None:
        self.negotiating = False
        open_boxes = [b for b in self.boxes.values() if b.free and b.draining is None]
        for job in sorted(self.idle, key=lambda j: (self.idle[j], j)):
            if not open_boxes:
                break
            cores = self._cores(job)
            fit = [b for b in open_boxes if b.free >= cores]
            if fit:
                box = min(fit, key=lambda b: b.free)
                self._begin(job, box)
                if not box.free:
                    open_boxes.remove(box)

    def _begin(self, job: JobId, box: Box) -> None:
        self.waits[job] = self.now - self.idle.pop(job)
        box.free -= self._cores(job)
        box.jobs[job] = self.running[job] = self.now
        box.ran += 1
        box.first = self.now if box.first is None else box.first
        number, index = job
        self._at(self.now + self.load.run_s[number][index], "end", (job, box))

    def _end(self, value: tuple[JobId, Box]) -> None:
        job, box = value
        number, index = job
        began = box.jobs.pop(job)
        del self.running[job]
        took = self.now - began
        box.free += self._cores(job)
        box.used_s += took * self._cores(job)
        box.last = self.now
        self.ended[job] = took
        if self.load.fails[number] == index:
            self.failed.add(job)
        else:
            for child in self.children[number][index]:
                self.left[number][child] -= 1
                if not self.left[number][child]:
                    self._at(self.now + LAG_S, "submit", (number, child))
        if box.draining is None:
            self._use_claim_again(box, self.load.dags[number].user)
            if box.free and self.idle:
                self._wake_negotiator()

    def _use_claim_again(self, box: Box, user: str) -> None:
        queue = self.queues[user]
        while queue and queue[0] not in self.idle:
            queue.popleft()
        for job in queue:
            if job in self.idle:
                if self._cores(job) <= box.free:
                    self._begin(job, box)
                return

    def _cores(self, job: JobId) -> int:
        return self.load.dags[job[0]].cores[job[1]]

    # -- machines --------------------------------------------------------------------------------

    def _turn(self, policy: Policy) -> None:
        over = not (self.idle or self.running) and not any(e[2] != "turn" for e in self.events)
        if over and not self.boxes:
            return
        self._at(self.now + policy.turn_s, "turn", None)
        for box in list(self.boxes.values()):
            if box.up is None and (box.error is not None or self._hangs(box, policy)):
                self._delete(box, failed=True)
            elif box.up is not None and not box.jobs:
                empty_s = self.now - max(box.up, box.last or 0.0)
                ends = policy.idle_s is not None and empty_s >= policy.idle_s
                if ends or box.draining is not None:
                    self._delete(box)
        if not self.changed and self.now - self.looked < max(REST_S, policy.turn_s):
            return
        self.changed, self.looked = False, self.now
        came = [dag for dag in self.load.dags if dag.at <= self.now]
        view = View(
            self.now, came, self.idle, self.running, self.ended, frozenset(self.failed),
            list(self.boxes.values()),
        )  # fmt: skip
        self._do(policy.turn(view))

    def _hangs(self, box: Box, policy: Policy) -> bool:
        return self.now - box.asked >= policy.hang_s

    def _do(self, actions: Actions) -> None:
        for name in actions.keep:
            if name in self.boxes and self.boxes[name].draining is not None:
                self.boxes[name].draining = None
                self._wake_negotiator()
                self.changed = True
        for name in actions.drain:
            box = self.boxes.get(name)
            if box is not None and box.draining is None:
                box.draining = self.now
                self.changed = True
        for name in actions.delete:
            if name in self.boxes and not self.boxes[name].jobs:
                box = self.boxes[name]
                self._delete(box, failed=box.up is None and box.fails)
        for kind in actions.start:
            self._start(kind)

    def _start(self, kind: Kind) -> None:
        box = Box(f"m{len(self.all)}", kind, self.now)
        self.all.append(box)
        self.boxes[box.name] = box
        self.acts.append((self.now, "start", kind.name))
        luck, boot_s = self.rng.random(), self.boot.draw(self.rng)
        box.fails = luck < FAILS
        if luck < FAILS / 2:  # an error that the cloud tells; the other half hangs
            self._at(self.now + boot_s, "error", box)
        elif luck >= FAILS:
            self._at(self.now + boot_s, "up", box)

    def _error(self, box: Box) -> None:
        box.error = self.now

    def _up(self, box: Box) -> None:
        if box.gone is None:
            box.up, box.free = self.now, box.kind.cores
            self._wake_negotiator()

    def _delete(self, box: Box, failed: bool = False) -> None:
        box.gone = self.now
        del self.boxes[box.name]
        self.changed = True
        if failed:
            self.acts.append((self.now, "failed", box.kind.name))
            # The youngest jobs that wait are those that it was for; each is so for one machine.
            late = sorted(self.idle.keys() - self.apart, key=lambda job: (self.idle[job], job))
            self.apart.update(late[-box.kind.cores :])
        else:
            since = self.now if box.draining is None else box.draining
            self.acts.append((since, "stop", box.kind.name))

    # -- what came of it -------------------------------------------------------------------------

    def _outcome(self) -> Outcome:
        well = [box for box in self.all if box.up is not None]
        gone = {box.name: box.gone for box in self.all if box.gone is not None}
        assert len(gone) == len(self.all), "a machine was left behind"
        never = [box for box in self.all if not box.ran and not box.fails]
        idle_s = forced_s = boot_s = 0.0
        for box in self.all:
            up = gone[box.name] if box.up is None else box.up
            boot_s += box.kind.cores * (up - box.asked)
            idle_s += box.kind.cores * (gone[box.name] - up) - box.used_s
            if box.first is not None and box.last is not None:
                forced_s += box.kind.cores * (box.first - up + gone[box.name] - box.last)
        return Outcome(
            tuple(wait for job, wait in self.waits.items() if job not in self.apart),
            tuple(wait for job, wait in self.waits.items() if job in self.apart),
            len(self.all),
            sum(box.fails for box in self.all),
            # One that is deleted before it could tell whether it would boot was for nothing, too.
            len(never),
            sum(box.kind.cores * (gone[box.name] - box.asked) for box in never),
            sum(box.used_s for box in well),
            idle_s,
            forced_s,
            boot_s,
            reversals(self.acts, sorted(set(self.levels.values())), self.boot.long_s),
            max(gone.values(), default=0.0),
        )


def _children(dag: Dag) -> list[list[int]]:
    out: list[list[int]] = [[] for _ in dag.parents]
    for child, parents in enumerate(dag.parents):
        for parent in parents:
            out[parent].append(child)
    return out


def reversals(
    acts: Sequence[tuple[float, str, str]], levels: Sequence[float], boot_s: float
) -> int:
    """Starts of a kind after a stop of it, with no level beginning between the stop and one boot
    after the start; starts in place of boots that failed apart. One stop counts once."""
    stopped: dict[str, list[float]] = defaultdict(list)
    failed: dict[str, int] = defaultdict(int)
    count = 0
    for at, what, kind in sorted(acts):
        if what == "stop":
            stopped[kind].append(at)
        elif what == "failed":
            failed[kind] += 1
        elif failed[kind]:
            failed[kind] -= 1
        else:
            before = stopped[kind]
            coming = bisect_right(levels, at + boot_s)
            since = levels[coming - 1] if coming else -math.inf
            while before and before[0] < since:
                before.pop(0)
            if before:
                before.pop(0)
                count += 1
    return count


# -- who knows everything ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Clairvoyant:
    """The cheapest pool in which no job waits, in core-seconds."""

    used_s: float
    idle_s: float
    boot_s: float

    @property
    def cost_s(self) -> float:
        return self.used_s + self.idle_s + self.boot_s


def clairvoyant(load: Load, boot: Boot) -> Clairvoyant:
    """Every job begins as it is submitted, on machines of one core that are up just then. The n-th
    of them is up while n cores are in use, and through gaps that are shorter than a boot, which
    takes its mean and never fails."""
    steps: list[tuple[float, int]] = []
    for number, dag in enumerate(load.dags):
        ends: list[float | None] = []
        for job, parents in enumerate(dag.parents):
            before = [ends[parent] for parent in parents]
            if None in before or load.fails[number] in parents:
                ends.append(None)
                continue
            start = max((end + LAG_S for end in before if end is not None), default=dag.at)
            end = start + load.run_s[number][job]
            ends.append(end)
            steps += [(start, dag.cores[job]), (end, -dag.cores[job])]
    free_since: list[float] = []  # of the cores that are up or were; the one freed last is last
    used = idle = boots = 0.0
    for at, cores in sorted(steps):
        if cores < 0:
            free_since += [at] * -cores
            used += at * -cores
            continue
        used -= at * cores
        for _ in range(cores):
            if free_since and at - free_since[-1] < boot.mean_s:
                idle += at - free_since.pop()
            else:
                free_since.clear()
                boots += boot.mean_s
    return Clairvoyant(used, idle, boots)
