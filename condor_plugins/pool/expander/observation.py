"""What there is: machines, slots, jobs, DAGs, and the estimates of them."""

from __future__ import annotations

import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import classad2
import htcondor2

from condor_plugins.collector import HTCondorPool
from condor_plugins.jobs.sites import Ad
from condor_plugins.pool.cloud.protocol import Cloud, Server
from condor_plugins.pool.cloud.workerconfig import WORKER_ATTRIBUTE
from condor_plugins.pool.dags import FollowedDag, FollowedDags
from condor_plugins.pool.expander.condor import Condor, answers
from condor_plugins.pool.expander.decision import key
from condor_plugins.pool.expander.supply import (
    Memory,
    PoolSupply,
    WorkerSlot,
    boot_time,
    supply,
    worker_slot,
)
from condor_plugins.pool.fitness import Life, Runs, black_holes, run_of
from condor_plugins.pool.queue import (
    FLAVOUR,
    MATCHED,
    POOL,
    JobKey,
    Matching,
    address_of,
    claim_of,
    dag_key,
    host_and_port,
    job_key,
    number,
    offline_ad,
    own_machines,
    runs,
    slot_of,
)
from condor_plugins.pool.run_times import RunTimes
from condor_plugins.pool.scaling import Flavour, Machine, MachineState
from monitors.archive.archive import Archive
from monitors.workflows.planned.forecast import RunningJob, expected_ends

_RARELY_S = 60.0  # between two looks at what changes slowly
_HISTORY_S = 15.0  # between two looks at the jobs that have ended
_STEP_S = 2.0  # by which a clock goes wrong no more without being set
_BOOTS = 50
_UNSEEN_S = 60.0  # until a cloud lists a machine that it accepted


@dataclass(frozen=True, slots=True)
class View:
    """At the Unix second ``now``. ``own`` are machines that the pool has without us; ``slots``
    names the slot of each of ours, ``ads`` are those of the slots of all; ``jobs_of`` has the jobs
    that run there; ``matched`` is when the negotiator last matched a flavour; ``offered`` are ads
    of machines that could be started, by flavour. Jobs die at once on ``holes``, with why, and do
    well on machines of ours that ``worked``, which joined at that Unix second. ``lives`` are of
    machines of ours. The cloud has accepted requests for machines that are ``unlisted``, which it
    does not report: they cannot be counted, or deleted."""

    now: float
    jobs: Sequence[classad2.ClassAd]
    dags: Sequence[FollowedDag]
    flavours: Sequence[Flavour]
    matching: Matching
    supply: PoolSupply
    own: Sequence[Machine]
    slots: Mapping[str, str]
    jobs_of: Mapping[str, Sequence[classad2.ClassAd]]
    servers: Mapping[str, Server]
    matched: Mapping[str, float]
    offered: Mapping[str, classad2.ClassAd]
    ads: Mapping[str, classad2.ClassAd] = field(default_factory=dict)
    holes: Mapping[str, str] = field(default_factory=dict)
    worked: Mapping[str, float] = field(default_factory=dict)
    lives: Mapping[str, Life] = field(default_factory=dict)
    unlisted: Sequence[Server] = ()

    @property
    def machines(self) -> list[Machine]:
        """All that take jobs."""
        return [*self.own, *self.supply.machines]

    @property
    def leaving(self) -> list[Server]:
        """Servers that are no supply any more."""
        there = {machine.name for machine in self.supply.machines}
        return [server for name, server in self.servers.items() if name not in there]


class PoolObserver:
    """Observes the pool again and again; what it remembers may be lost.

    :param reported: what machines advertise by their settings.
    :param say: takes a line for people.
    """

    def __init__(
        self,
        pool: str,
        reported: Mapping[str, Any],
        cloud: Cloud,
        condor: Condor,
        archive: Archive,
        run_times: RunTimes,
        say: Callable[[str], None],
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool, self._reported = pool, reported
        self._cloud, self._condor, self._archive = cloud, condor, archive
        self._history = HTCondorPool(condor.collector or None)
        self._run_times, self._say, self._ticks = run_times, say, ticks
        self._ahead = math.nan  # of our clock, before ``ticks``
        self._dags = FollowedDags(run_times)
        self._memory = Memory()
        self._named = re.compile(rf"{re.escape(pool)}-[0-9a-f]{{8}}")
        self._accepted: dict[str, Server] = {}
        self._unlisted: Sequence[Server] = ()
        self._known: dict[str, Server] = {}
        self._like: dict[str, classad2.ClassAd] = {}  # a slot of each flavour that was seen
        self._matched: dict[str, float] = {}
        self._flavours: list[Flavour] = []
        self._looked = self._remembered = float("-inf")
        self._ended: Sequence[Ad] = ()
        self._runs = Runs()

    def at(self, now: float) -> View:
        """All of it. Raises AdonError if something cannot be seen."""
        self._follow_clock(now)
        self._look_rarely(now)
        servers = {server.name: server for server in self._servers(now)}
        ads = self._condor.slots()
        jobs = self._condor.jobs()
        dags = self._dags.observe(jobs, now)  # after the queue: what has left it is in the logs
        for line in (*self._dags.take_warnings(), *self._run_times.take_warnings()):
            self._say(line)
        offline, there = list[classad2.ClassAd](), list[classad2.ClassAd]()
        for ad in ads:
            (offline if ad.get("Offline") is True else there).append(ad)
        ours: dict[str, classad2.ClassAd] = {}
        for ad in there:
            name = ad.get(WORKER_ATTRIBUTE)
            if not isinstance(name, str):
                continue
            ours_once = name not in servers and self._named.fullmatch(name)
            # A cloud may not list all that it has.
            if ours_once and not answers(address_of(ad, "MyAddress")):
                servers[name] = self._gone(name, ad)
            if name in servers:
                ours[name] = ad
        self._known = servers
        self._matched = {
            str(ad.get(FLAVOUR)): at
            for ad in offline
            if ad.get(POOL) == self._pool and (at := number(ad, MATCHED))
        }
        # By the collector's clock, by which all were heard.
        late_s = now - max((number(ad, "LastHeardFrom") for ad in ads), default=now)
        slots = {name: worker_slot(ad, late_s) for name, ad in ours.items()}
        others = [ad for ad in there if ad.get(WORKER_ATTRIBUTE) not in servers]
        places = _Places(servers, slots, {str(ad.get("Name")) for ad in others})
        ends = self._ends(jobs, dags, now)
        jobs_of: defaultdict[str, list[classad2.ClassAd]] = defaultdict(list)
        for job in filter(runs, jobs):
            jobs_of[places.of(job)].append(job)
        claims = {
            place: [claim_of(job, ends[job_key(job)]) for job in queued]
            for place, queued in jobs_of.items()
        }
        self._know_joined(servers)
        answering = {
            name
            for name, queued in jobs_of.items()
            if name in servers and (name not in slots or slots[name].silent(now))
            if answers(address_of(queued[0], "PublicClaimId"))
        }
        supplied = supply(
            list(servers.values()), slots, self._flavours, claims, answering, self._memory, now
        )
        own, own_ads = own_machines(others, claims)
        self._runs.add((run_of(job, places.of(job)) for job in (*jobs, *self._ended)), now)
        by_place = self._runs.by_place()
        for name, ad in ours.items():
            self._like.setdefault(servers[name].flavour, ad)
        offered = self._offered()
        return View(
            now,
            jobs,
            dags,
            self._flavours,
            Matching({**offered, **own_ads}),
            supplied,
            own,
            {name: slot.name for name, slot in slots.items()},
            jobs_of,
            servers,
            self._matched,
            offered,
            {**{str(ad.get("Name")): ad for ad in others}, **ours},
            black_holes(by_place),
            {
                name: slot.started
                for name, slot in slots.items()
                if any(run.good for run in by_place.get(name, ()))
            },
            {name: self._life(servers[name], slot, now) for name, slot in slots.items()},
            self._unlisted,
        )

    def accepted(self, server: Server) -> None:
        """A cloud may list it only later."""
        self._accepted[server.name] = server
        self._memory.asked[server.name] = server.since

    def drains(self, name: str, now: float) -> None:
        """Its startd may say so only later, or be gone by then."""
        self._memory.draining[name] = now

    def kept(self, name: str) -> None:
        """It drains no more."""
        self._memory.draining.pop(name, None)

    # -- within ------------------------------------------------------------------------------

    def _offered(self) -> dict[str, classad2.ClassAd]:
        """What machines that could be started will advertise."""
        version = str(htcondor2.version())
        ads = {}
        for flavour in self._flavours:
            like = self._like.get(flavour.name)
            ad = offline_ad(flavour, self._reported, version, like, self._pool)
            if flavour.name in self._matched:
                ad[MATCHED] = int(self._matched[flavour.name])
            ads[flavour.name] = ad
        return ads

    def _life(self, server: Server, slot: WorkerSlot, now: float) -> Life:
        left_s = self._memory.end_of(server, slot) - now
        return Life(left_s, server.until - server.since)

    def _follow_clock(self, now: float) -> None:
        """What is remembered goes with our clock, if that was set since."""
        ahead = now - self._ticks()
        if abs(ahead - self._ahead) > _STEP_S:
            self._memory.shift(ahead - self._ahead)
        self._ahead = ahead

    def _look_rarely(self, now: float) -> None:
        if abs(now - self._remembered) >= _HISTORY_S:
            self._ended = self._history.ended()
            self._remembered = now
        if abs(now - self._looked) < _RARELY_S:
            return
        ads = []
        for flavour in self._cloud.flavours():
            boots = self._archive.query("boot", flavour.name, newest=True, limit=_BOOTS)
            mean_s, spread_s = boot_time(flavour, [boot.value for boot in boots])
            ads.append(replace(flavour, boot_s=mean_s, boot_spread_s=spread_s))
        self._flavours = ads
        self._run_times.learn(self._ended)
        self._looked = now

    def _servers(self, now: float) -> list[Server]:
        # A program that is a cloud may report machines that it has for others.
        listed = [s for s in self._cloud.machines() if self._named.fullmatch(s.name)]
        names = {server.name for server in listed}
        unlisted = {n: server for n, server in self._accepted.items() if n not in names}
        self._accepted = {
            name: server
            for name, server in unlisted.items()
            if now - self._memory.asked.get(name, 0.0) < _UNSEEN_S
        }
        self._unlisted = [s for n, s in unlisted.items() if n not in self._accepted]
        return [*listed, *self._accepted.values()]

    def _gone(self, name: str, slot: classad2.ClassAd) -> Server:
        """A machine that was deleted by somebody else, or before its startd had said good-bye."""
        ended = Server(name, "", MachineState.ENDED, number(slot, "DaemonStartTime"))
        last = self._known.get(name, ended)
        return replace(last, state=MachineState.ENDED, error="its cloud no longer has it")

    def _know_joined(self, servers: Mapping[str, Server]) -> None:
        """After a restart the archive reports which machines have been in the pool before."""
        unknown = {key("boot", self._pool, n): n for n in servers if n not in self._memory.joined}
        for id_ in self._archive.those(list(unknown)):
            self._memory.joined.add(unknown[id_])

    def _ends(
        self, jobs: Sequence[classad2.ClassAd], dags: Sequence[FollowedDag], now: float
    ) -> dict[JobKey, float]:
        """When jobs that run are expected to end (Unix seconds)."""
        by_dag = {(dag.schedd, dag.cluster): dag.state.running for dag in dags}
        ends: dict[JobKey, float] = {}
        others: dict[JobKey, RunningJob] = {}
        for job in filter(runs, jobs):
            end = by_dag.get(dag_key(job), {}).get(str(job.get("DAGNodeName")))
            if end is None:
                since = number(job, "JobCurrentStartDate") or now
                kind = f"{job.get('User')} {job.get('Cmd')}"
                others[job_key(job)] = RunningJob(kind, self._run_times.of_job(job), since)
            else:
                ends[job_key(job)] = end
        return ends | expected_ends(others, now)


class _Places:
    """Which machine of ours a job runs on, also one whose ad the collector has no more. Slots of
    ``others`` are theirs, whatever their hosts are called and their addresses are."""

    def __init__(
        self,
        servers: Mapping[str, Server],
        slots: Mapping[str, WorkerSlot],
        others: Collection[str],
    ) -> None:
        self._servers, self._others = servers, others
        self._slots = {slot.name: name for name, slot in slots.items()}
        self._addresses = {s.address: name for name, s in servers.items() if s.address}

    def of(self, job: Mapping[str, Any]) -> str:
        """Its name, else that of the slot, "" if there is none; where it ran last, if it runs
        no more."""
        last = "" if isinstance(job.get("RemoteHost"), str) else "Last"
        host = job.get(f"{last}RemoteHost")
        if not isinstance(host, str):
            return ""
        slot = slot_of(host)
        if slot in self._others:
            return slot
        hosts = [part.partition(".")[0] for part in slot.split("@")[1:]]
        named = next((host for host in hosts if host in self._servers), "")
        address, _ = host_and_port(address_of(job, f"{last}PublicClaimId"))
        return self._slots.get(slot) or named or self._addresses.get(address) or slot
