"""Cycles of the expander, with a simulated cloud and pool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import classad2
import pytest

from condor_plugins.pool.cloud.protocol import Server
from condor_plugins.pool.expander import observation
from condor_plugins.pool.expander.condor import Condor
from condor_plugins.pool.expander.cycle import Expander
from condor_plugins.pool.fitness import DEATHS
from condor_plugins.pool.queue import MATCHED, SCHEDD, offline_ad
from condor_plugins.pool.run_times import RunTimes
from condor_plugins.pool.scaling import Flavour, Limits, MachineState
from monitors.archive.archive import Archive

CHEAP, DEAR = Flavour("cheap", 2, 4096, 0.1, 60.0, 10.0), Flavour("dear", 2, 4096, 0.9, 60.0, 10.0)


class World:
    """A cloud, and HTCondor, that do as they are told, and time."""

    collector = ""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.cloud_ahead_s = self.worker_ahead_s = 0.0  # their clocks
        self.over: list[dict[str, Any]] = []
        self.drained: list[str] = []
        self.there: dict[str, Server] = {}
        self.ads: dict[str, classad2.ClassAd] = {}
        self.queue: list[classad2.ClassAd] = []
        self.vacated: list[str] = []

    def flavours(self) -> list[Flavour]:
        return [CHEAP, DEAR]

    def machines(self) -> list[Server]:
        return list(self.there.values())

    def start(self, flavour: str, name: str) -> None:
        self.there[name] = Server(
            name, flavour, MachineState.BOOTING, self.now + self.cloud_ahead_s
        )

    def delete(self, name: str) -> None:
        self.there.pop(name, None)

    def slots(self) -> list[classad2.ClassAd]:
        return list(self.ads.values())

    def jobs(self) -> list[classad2.ClassAd]:
        return self.queue

    def ended(self) -> list[Any]:
        return self.over

    def whole(self, job: classad2.ClassAd) -> classad2.ClassAd:
        return job

    def advertise(self, offline: Iterable[classad2.ClassAd]) -> None:
        pass

    def forget(self, worker: str) -> None:
        del self.ads[worker]

    def drain(self, slot: str, _: str) -> None:
        self.drained.append(slot)
        self.ads[slot.partition("@")[2]]["Draining"] = True

    def vacate(self, jobs: Iterable[Mapping[str, object]]) -> None:
        for job in jobs:
            host = str(job["RemoteHost"])
            assert host.partition("@")[2] in self.ads  # by its slot HTCondor knows the job
            self.vacated.append(host)

    # -- what happens by itself ------------------------------------------------------------------

    def submit(self) -> classad2.ClassAd:
        job = {"ClusterId": len(self.queue) + 1, "ProcId": 0, "JobUniverse": 5, "JobStatus": 1,
               "RequestCpus": 1, "RequestMemory": 64, "RequestDisk": 1, "Requirements": True,
               "User": "ann", "Cmd": "x", "QDate": int(self.now), SCHEDD: "s"}  # fmt: skip
        self.queue.append(classad2.ClassAd(job))
        return self.queue[-1]

    def join(self, name: str, job: classad2.ClassAd | None = None) -> None:
        """It is up, and runs a job."""
        own = int(self.now + self.worker_ahead_s)
        ad = {"Name": f"slot1@{name}", "AdonWorker": name, "Cpus": 1, "TotalSlotCpus": 2,
              "Memory": 4096, "TotalSlotMemory": 4096, "State": "Unclaimed", "Activity": "Idle",
              "LastHeardFrom": int(self.now), "DaemonStartTime": own - 3, "MyCurrentTime": own,
              "Start": True, "Requirements": True}  # fmt: skip
        self.ads[name] = classad2.ClassAd(ad)
        if job is not None:
            job.update({"JobStatus": 2, "RemoteHost": f"slot1_1@{name}"})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    pool = World()
    monkeypatch.setattr(observation, "HTCondorPool", lambda _: pool)
    return pool


def expander(world: Any, archive: Archive, **limits: float) -> Expander:
    def said(_: str) -> None:
        pass

    return Expander(
        "p", {}, Limits(**limits), world, world, archive, RunTimes(archive, 600.0),
        archive.record_many, said, lambda: world.now,
    )  # fmt: skip


def die(world: World, name: str, count: int = DEATHS) -> None:
    """So many jobs, at once, on one machine."""
    world.over += [
        {"ClusterId": 900 + n, "ProcId": 0, "JobStatus": 4, "ExitCode": 1, "User": "ann",
         "Cmd": "x", "LastRemoteHost": f"slot1_{n}@{name}",
         "JobCurrentStartDate": world.now + n, "EnteredCurrentStatus": world.now + n + 1}
        for n in range(count)
    ]  # fmt: skip


def flavours(servers: Mapping[str, Server]) -> Sequence[str]:
    return [server.flavour for server in servers.values()]


@pytest.mark.parametrize("state", [s for s in MachineState if s is not MachineState.DRAINING])
def test_machines_that_were_not_started_for_the_pool_are_left_alone(
    world: World, archive: Archive, state: MachineState
) -> None:
    """Also where a cloud, or the program that is one, reports all that it has."""
    names = ("payroll-db", "p-1", "p-0123abcde", "xp-0123abcd", "q-0123abcd", "P-0123ABCD")
    theirs = {name: Server(name, "cheap", state, world.now - 9e5, "", "off") for name in names}
    world.there |= theirs
    ours = expander(world, archive)
    for _ in range(3):
        assert not ours.run_cycle().acts
        world.now += 500
    assert world.there == theirs


@pytest.mark.parametrize("restarted", [False, True])
def test_one_that_somebody_else_deleted_is_replaced(
    world: World, archive: Archive, restarted: bool
) -> None:
    job = world.submit()
    ours = expander(world, archive)
    ours.run_cycle()
    (name,) = world.there
    world.join(name, job)
    ours.run_cycle()
    del world.there[name]
    if restarted:
        ours = expander(world, archive)
    assert ours.run_cycle().delete == {name: "its cloud no longer has it"}
    assert world.vacated == [f"slot1_1@{name}"]
    assert not world.ads
    if not restarted:  # else nobody knows any more what it was
        assert [measurement.id for measurement in archive.query("machine")] == [f"machine:p:{name}"]
    job.update({"JobStatus": 1})
    del job["RemoteHost"]
    assert ours.run_cycle().plan.start == {"cheap": 1}


@pytest.mark.parametrize("host", ["slot1@{}.lab.example", "slot1_1@10-0-0-5"])
def test_jobs_on_a_slot_of_others_are_not_vacated_with_a_machine_that_has_died(
    world: World, archive: Archive, host: str
) -> None:
    """Its host is called alike, or has the same private address in another network."""
    world.submit()
    ours = expander(world, archive)
    ours.run_cycle()
    (name,) = world.there
    world.join(name)
    ours.run_cycle()
    slot = host.format(name).replace("_1@", "@")
    world.ads["other"] = classad2.ClassAd({**world.ads[name], "Name": slot, "AdonWorker": "x"})
    world.queue[0].update(
        {"JobStatus": 2, "RemoteHost": host.format(name), "PublicClaimId": "<10.0.0.5:9618>#1#2"}
    )
    world.there[name] = Server(name, "cheap", MachineState.ENDED, world.now, "10.0.0.5")
    assert ours.run_cycle().delete.keys() == {name}
    assert not world.vacated


@pytest.mark.parametrize(
    ("address", "claim"),
    [("10.0.0.5", "<10.0.0.5:9618?a=b>#1#2"), ("2001:db8::5", "<[2001:db8::5]:9618?a=b>#1#2")],
)
def test_a_job_is_known_to_be_on_a_machine_by_its_address(address: str, claim: str) -> None:
    servers = {"p-1": Server("p-1", "cheap", MachineState.RUNNING, 0.0, address)}
    job = {"RemoteHost": "slot1_1@elsewhere", "PublicClaimId": claim}
    assert observation._Places(servers, {}, ()).of(job) == "p-1"


def test_offline_machines_of_another_pool_stay_in_the_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    constraints: list[str] = []
    monkeypatch.setattr(Condor, "_invalidate", lambda _, where: constraints.append(where))
    Condor().forget_flavours("p")
    Condor().forget('w" || true || "')
    ads = {pool: offline_ad(CHEAP, {}, "", pool=pool) for pool in ("p", "q")}
    gone, dead = map(classad2.ExprTree, constraints)
    assert {pool: gone.eval(ad) for pool, ad in ads.items()} == {"p": True, "q": False}
    assert dead.eval(classad2.ClassAd({"AdonWorker": "w2"})) is False
    assert ads["p"]["Name"] != ads["q"]["Name"]


def test_a_match_of_another_pools_offline_machine_is_not_ours(
    world: World, archive: Archive
) -> None:
    for pool, at in (("p", 7), ("q", 9)):
        world.ads[pool] = offline_ad(CHEAP, {}, "", pool=pool)
        world.ads[pool][MATCHED] = at
    assert expander(world, archive).run_cycle().matched == {"cheap": 7}


def test_somebody_elses_worker_is_the_pools_own(world: World, archive: Archive) -> None:
    world.join("q-0123abcd", world.submit())
    decision = expander(world, archive).run_cycle()
    assert decision.machines == {"own": 1}
    assert not decision.acts


def test_a_flavour_that_hangs_is_left_alone_for_a_while(world: World, archive: Archive) -> None:
    world.submit()
    ours = expander(world, archive)
    ours.run_cycle()
    (hangs,) = world.there
    world.now += 101.0
    decision = ours.run_cycle()
    assert (decision.plan.give_up, decision.plan.start) == ((hangs,), {"dear": 1})
    assert flavours(world.there) == ["dear"]
    assert not ours.run_cycle().acts


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("ahead_s", [-900.0, 900.0])
def test_clocks_that_are_minutes_apart_lose_no_machine(
    world: World, archive: Archive, ahead_s: float, restarted: bool
) -> None:
    world.cloud_ahead_s, world.worker_ahead_s = ahead_s, -ahead_s
    job = world.submit()
    job["QDate"] = int(world.now + ahead_s)
    ours = expander(world, archive)
    ours.run_cycle()
    (name,) = world.there
    world.now += 30
    if restarted:
        ours = expander(world, archive)
    for _ in range(3):
        assert not ours.run_cycle().acts
        world.now += 10
    world.join(name, job)
    ours.run_cycle()
    assert flavours(world.there) == ["cheap"]
    # A boot takes no 15 minutes longer, or less.
    (boot,) = archive.query("boot")
    assert boot.value == (pytest.approx(57.0) if not restarted else pytest.approx(57.0, abs=60.0))


def test_a_machine_that_does_not_come_up_is_given_up_also_by_a_wrong_clock(
    world: World, archive: Archive
) -> None:
    world.cloud_ahead_s = 900.0
    world.submit()
    ours = expander(world, archive)
    ours.run_cycle()
    (hangs,) = world.there
    world.now += 101.0
    assert ours.run_cycle().plan.give_up == (hangs,)


@pytest.mark.parametrize("step_s", [-1200.0, 1200.0])
def test_a_clock_that_is_set_loses_no_machine(
    world: World, archive: Archive, step_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = world.now
    ours = expander(world, archive)
    monkeypatch.setattr(ours._look, "_ticks", lambda: ticks)
    world.submit()
    ours.run_cycle()
    ticks += 15
    world.now += 15 + step_s
    assert not ours.run_cycle().acts
    ticks += 100
    world.now += 100
    assert len(ours.run_cycle().plan.give_up) == 1


def test_a_machine_on_which_jobs_die_is_drained_and_no_supply(
    world: World, archive: Archive
) -> None:
    ours = expander(world, archive)
    for _ in range(3):
        world.submit()
    ours.run_cycle()
    first = sorted(world.there)
    for name in first:
        world.join(name)
    world.queue[0].update({"JobStatus": 2, "RemoteHost": f"slot1_1@{first[0]}"})
    ours.run_cycle()
    die(world, first[1])
    world.over.append({**world.over[0], "LastRemoteHost": f"slot1@{first[0]}", "ExitCode": 0})
    world.now += 60
    decision = ours.run_cycle()
    assert decision.plan.drain == (first[1],)
    assert world.drained == [f"slot1@{first[1]}"]
    assert decision.plan.why[first[1]] == "the last 4 jobs died there within 60 s"
    # Another is started, of another kind.
    assert decision.plan.start == {"dear": 1}
    assert decision.machines["unfit"] == 1
    # It is said once, and it is not taken back.
    assert not ours.run_cycle().acts
    world.now += 15
    assert ours.run_cycle().delete == {first[1]: "it is drained"}


def test_what_machines_cost_before_midnight_is_not_of_today(world: World, archive: Archive) -> None:
    world.now += 86_400 - world.now % 86_400 - 4 * 3600
    ours = expander(world, archive, money_per_day=0.3)
    job = world.submit()
    assert ours.run_cycle().plan.start == {"cheap": 1}
    (name,) = world.there
    world.join(name, job)
    ours.run_cycle()
    world.now += 3 * 3600
    world.join(name, job)
    for _ in range(6):
        world.submit()
    decision = ours.run_cycle()
    assert decision.plan.why["limits"].startswith("money: enough for 0 of ")
    world.now += 3600 + 60
    world.join(name, job)
    assert ours.run_cycle().plan.start == {"cheap": 3}


def test_jobs_that_die_everywhere_drain_no_more_than_one_machine(
    world: World, archive: Archive
) -> None:
    ours = expander(world, archive)
    for _ in range(3):
        world.submit()
    ours.run_cycle()
    for name in world.there:
        world.join(name)
        die(world, name)
    world.now += 60
    ours.run_cycle()
    assert not world.drained


def test_a_slot_of_the_pool_that_takes_no_job_is_no_supply(world: World, archive: Archive) -> None:
    world.join("own")
    ad = world.ads["own"]
    del ad["AdonWorker"]
    ad["Requirements"] = classad2.ExprTree("TARGET.RequestDisk <= MY.Disk")
    ad.update({"PartitionableSlot": True, "Cpus": 2, "Disk": 0, "TotalSlotDisk": 100})
    world.submit()
    ours = expander(world, archive)
    assert not ours.run_cycle().acts
    world.now += 61
    decision = ours.run_cycle()
    assert decision.plan.start == {"cheap": 1}
    assert "slot1@own: it idles, and takes no job that waits" in decision.reason


def test_a_cloud_that_does_not_list_what_it_accepts_is_asked_for_no_more(
    world: World, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a proxy that takes the tags out of its answers."""
    monkeypatch.setattr(world, "machines", list)
    world.submit()
    ours = expander(world, archive)
    for _ in range(100):
        ours.run_cycle()
        world.now += 15
    assert flavours(world.there) == ["cheap", "dear"]


def test_machines_that_are_over_soon_are_not_started_again_and_again(
    world: World, archive: Archive
) -> None:
    """The second in a row: one may be chance."""
    world.submit()
    ours, started = expander(world, archive), []
    for _ in range(2):
        started += ours.run_cycle().plan.start
        (name,) = world.there
        world.join(name)
        ours.run_cycle()
        world.there[name] = Server(name, "cheap", MachineState.ENDED, world.now, error="it is off")
        world.now += 30
    started += ours.run_cycle().plan.start
    assert started == ["cheap", "cheap", "dear"]
