"""A planned DAG that runs in a time of its own, on a broker that is real but for its clock.

DAGMan, the sites' workers, the hooks and the watcher are played here, second by second, from true
run times and sizes that nobody else knows. What is counted: of the byte-seconds that the broker
kept for transfers whose time had come, how much their bytes really used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from broker_rig import Rig
from job_events import EventKind, happened

from monitors.jobs.jobs import AnyEvent, Jobs
from monitors.workflows.planned.dag import Node, PlannedDag
from network_provisioner.base.model import (
    ENDED,
    LIVE,
    ON_SWITCHES,
    RequestAnswer,
    Transit,
    TransitRequest,
)
from network_provisioner.base.model import TransitState as State
from pegasus_hooks.advance.booking import CorrectionRules, WorkflowReservations, reserved_in_advance
from pegasus_hooks.advance.job_estimates import JobEstimates
from pegasus_hooks.advance.listening import AdvanceReservations
from pegasus_hooks.advance.predict import Pair

BEST_EFFORT_BPS = 10e6
PATIENCE_S = 20.0


class Direct:
    """A broker's client without a network between."""

    def __init__(self, rig: Rig) -> None:
        self.broker = rig.broker
        self.calls = 0

    def ask(self, requests: Sequence[TransitRequest], /) -> list[RequestAnswer]:
        self.calls += 1
        return [RequestAnswer(a.transit, a.service, a.error) for a in self.broker.ask(requests)]

    def get(self, transit_id: str, /) -> Transit:
        return self.broker.get(transit_id)

    def shift(
        self, transit_id: str, start: float, end: float, size_bytes: int | None = None, /
    ) -> Transit:
        self.calls += 1
        return self.broker.shift(transit_id, start, end, size_bytes)

    def release(
        self, transit_id: str, bytes_moved: int = 0, seconds: float = 0.0, outcome: str = ""
    ) -> Transit:
        self.calls += 1
        return self.broker.release(transit_id, bytes_moved, seconds, outcome)

    def list(self, state: str | None = None, workflow: str | None = None) -> list[Transit]:
        return self.broker.list(state, workflow)


@dataclass(frozen=True)
class Truth:
    """Seconds and bytes as they are. ``lag_s`` is DAGMan's, ``startup_s`` the transfer tool's; the
    ``lost`` jobs fail for good."""

    run_s: Mapping[str, float]
    sizes: Mapping[tuple[str, Pair], float]
    workers: Mapping[str, int]
    lag_s: float = 1.0
    startup_s: float = 2.0
    lost: frozenset[str] = frozenset()


@dataclass
class _Moving:
    id: str
    pair: Pair
    left: float
    asked: float
    moved: float = 0.0
    path: bool = False


@dataclass
class _Job:
    node: Node
    ready: float | None = None
    began: float | None = None
    left: float = 0.0
    moving: list[_Moving] = field(default_factory=list)
    done: bool = False


class VirtualRun:
    """One run of ``dag``. ``reserve`` says whether the watcher reserves for it and corrects that,
    reserves once as it starts, or leaves all to the hooks."""

    def __init__(
        self,
        rig: Rig,
        dag: PlannedDag,
        estimates: JobEstimates,
        truth: Truth,
        reserve: Literal["always", "once", "never"] = "always",
        rules: CorrectionRules | None = None,
        template: str = "default",
        step_s: float = 0.5,
        watch: Callable[[VirtualRun], None] = lambda _: None,
    ) -> None:
        self.rig, self.dag, self.truth, self.step_s = rig, dag, truth, step_s
        self.template = template
        self.watch = watch
        self.client = Direct(rig)
        self.jobs = {name: _Job(node) for name, node in dag.nodes.items()}
        self.reserved = self.used = self.moved = 0.0  # bytes
        self.planned: dict[str, bool] = {}  # of each transfer: whether its path had been reserved
        booking = WorkflowReservations(dag.workflow, self.client, self.requests_of)
        self.ahead = AdvanceReservations(
            dag, booking, lambda _: estimates, rules or CorrectionRules(), lambda: rig.clock.now
        )
        self.reserve = reserve
        self.events: list[AnyEvent] = []
        self.log = Jobs()

    def requests_of(self, job: str) -> dict[Pair, TransitRequest]:
        return {
            moving.pair: TransitRequest(
                f"{self.dag.workflow}:{job}:0:{moving.src}-{moving.dst}",
                moving.src,
                moving.dst,
                size_bytes=round(self.truth.sizes[job, moving.pair]),
                template=self.template,
                workflow=self.dag.workflow,
                job=job,
            )
            for moving in self.dag.nodes[job].first
        }

    def run(self, most_s: float = 50_000.0) -> float:
        """To the end, or to where nothing goes on; returns how many seconds it took."""
        start = self.rig.clock.now
        self.tell(EventKind.DAG_STARTED, "")
        self.next_jobs()
        while any(not job.done for job in self.jobs.values()):
            self.step()
            assert self.rig.clock.now < start + most_s, "it never ends"
            if not self.anything_goes_on():
                break
        took = self.rig.clock.now - start
        self.tell(EventKind.DAG_ENDED, "")
        for _ in range(3):
            self.step()
        return took

    def anything_goes_on(self) -> bool:
        return any(job.ready is not None and not job.done for job in self.jobs.values())

    # -- one step ----------------------------------------------------------------------------------

    def step(self) -> None:
        self.count()
        self.rig.clock.now += self.step_s
        now = self.rig.clock.now
        self.rig.broker.sweep()
        for job in self.jobs.values():
            if job.began is not None and not job.done:
                self.go_on(job, now)
        self.begin_jobs(now)
        if self.reserve != "never":
            for event in self.events:
                if (name := self.log.take(event)) is not None:
                    self.ahead.on(self.log, name)
            self.events.clear()
            self.ahead.tick(now)
            if self.reserve == "once":
                self.reserve = "never"
        self.watch(self)

    def count(self) -> None:
        now = self.rig.clock.now
        for transit in self.rig.broker._active.all.values():
            if transit.state in LIVE and transit.request.start <= now:
                self.reserved += transit.request.min_bps / 8 * self.step_s

    def begin_jobs(self, now: float) -> None:
        waiting = [j for j in self.jobs.values() if j.ready is not None and j.began is None]
        busy: dict[str, int] = {}
        for job in self.jobs.values():
            if job.node.takes_worker and job.began is not None and not job.done:
                busy[job.node.site] = busy.get(job.node.site, 0) + 1
        for job in sorted(waiting, key=lambda j: -j.node.priority):
            site = job.node.site
            if job.ready is None or job.ready > now:
                continue
            if job.node.takes_worker:
                if busy.get(site, 0) >= self.truth.workers.get(site, 4):
                    continue
                busy[site] = busy.get(site, 0) + 1
                self.tell(EventKind.SUBMITTED, job.node.name)
                self.tell(EventKind.RUNNING, job.node.name)
            job.began, job.left = now, self.truth.run_s.get(job.node.name, 0.0)
            if job.node.first:
                self.pre(job, now)

    def pre(self, job: _Job, now: float) -> None:
        name = job.node.name
        self.tell(EventKind.PRE_STARTED, name)
        for request in self.requests_of(name).values():
            held = [
                t for t in self.rig.broker._active.all.values()
                if t.request.job == name
                and (t.request.src, t.request.dst) == (request.src, request.dst)
            ]  # fmt: skip
            (answer,) = self.client.ask([request])
            assert answer.transit is not None, answer.error
            assert reserved_in_advance(answer.transit) is None
            pair = request.src, request.dst
            self.planned[request.id] = bool(held) and held[0].state in LIVE
            job.moving.append(_Moving(answer.transit.id, pair, self.truth.sizes[name, pair], now))
        job.left = self.truth.startup_s
        self.tell(EventKind.SUBMITTED, name)

    def go_on(self, job: _Job, now: float) -> None:
        if not job.moving:
            job.left -= self.step_s
            if job.left <= 0:
                self.end(job)
            return
        waits = False
        for moving in job.moving:
            transit = self.rig.broker.get(moving.id)
            if transit.state in (State.QUEUED, State.HELD):
                if now - moving.asked < PATIENCE_S:
                    waits = True
                else:
                    self.client.release(moving.id, outcome="gave_up")
        if waits:
            return
        job.left -= self.step_s
        if job.left > 0:
            return
        for moving in job.moving:
            transit = self.rig.broker.get(moving.id)
            on = transit.state in ON_SWITCHES
            rate = (transit.grant.granted_bps if on else BEST_EFFORT_BPS) / 8 * self.step_s
            part = min(rate, moving.left)
            moving.left -= part
            moving.moved += part
            self.moved += part
            if on:
                self.used += min(part, transit.request.min_bps / 8 * self.step_s)
        if all(moving.left <= 0 for moving in job.moving):
            self.tell(
                EventKind.ENDED, job.node.name, 0 if job.node.name not in self.truth.lost else 1
            )
            for moving in job.moving:
                seconds = now - moving.asked
                self.client.release(moving.id, round(moving.moved), seconds, "success")
            self.end(job, reported=True)

    def end(self, job: _Job, reported: bool = False) -> None:
        job.done = True
        lost = job.node.name in self.truth.lost
        if not reported:
            self.tell(EventKind.ENDED, job.node.name, 1 if lost else 0)
        if not lost:
            self.next_jobs()

    def next_jobs(self) -> None:
        for job in self.jobs.values():
            if job.ready is None and all(self.is_over(parent) for parent in job.node.parents):
                job.ready = self.rig.clock.now + self.truth.lag_s

    def is_over(self, name: str) -> bool:
        return self.jobs[name].done and name not in self.truth.lost

    def tell(self, what: EventKind, job: str, code: int | None = None) -> None:
        cluster = 1 + list(self.jobs).index(job) if job else 0
        self.events.append(happened(what, self.rig.clock.now, job, code, cluster))

    # -- what came of it ---------------------------------------------------------------------------

    @property
    def share(self) -> float:
        """Of the byte-seconds that were kept, how many were used."""
        return self.used / self.reserved if self.reserved else 1.0

    def left(self) -> list[Transit]:
        """What has not ended."""
        return [t for t in self.rig.broker.list() if t.state not in ENDED]
