"""Turns of the expander, with a cloud and a pool made up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import classad2
import pytest

from condor_plugins.pool.cloud.protocol import Server
from condor_plugins.pool.expander import look
from condor_plugins.pool.expander.turn import Expander
from condor_plugins.pool.queue import SCHEDD
from condor_plugins.pool.run_times import RunTimes
from condor_plugins.pool.scaling import Flavour, Limits, MachineState
from monitors.archive.archive import Archive

CHEAP, DEAR = Flavour("cheap", 2, 4096, 0.1, 60.0, 10.0), Flavour("dear", 2, 4096, 0.9, 60.0, 10.0)


class World:
    """A cloud, and HTCondor, that do as they are told, and time."""

    collector = ""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.there: dict[str, Server] = {}
        self.ads: dict[str, classad2.ClassAd] = {}
        self.queue: list[classad2.ClassAd] = []
        self.vacated: list[str] = []

    def flavours(self) -> list[Flavour]:
        return [CHEAP, DEAR]

    def machines(self) -> list[Server]:
        return list(self.there.values())

    def start(self, flavour: str, name: str) -> None:
        self.there[name] = Server(name, flavour, MachineState.BOOTING, self.now)

    def delete(self, name: str) -> None:
        self.there.pop(name, None)

    def slots(self) -> list[classad2.ClassAd]:
        return list(self.ads.values())

    def jobs(self) -> list[classad2.ClassAd]:
        return self.queue

    def ended(self) -> list[Any]:
        return []

    def whole(self, job: classad2.ClassAd) -> classad2.ClassAd:
        return job

    def advertise(self, offline: Iterable[classad2.ClassAd]) -> None:
        pass

    def forget(self, worker: str) -> None:
        del self.ads[worker]

    def vacate(self, jobs: Iterable[Mapping[str, object]]) -> None:
        for job in jobs:
            self.vacated.append(str(job["RemoteHost"]))

    # -- what happens by itself ------------------------------------------------------------------

    def submit(self) -> classad2.ClassAd:
        job = {"ClusterId": len(self.queue) + 1, "ProcId": 0, "JobUniverse": 5, "JobStatus": 1,
               "RequestCpus": 1, "RequestMemory": 64, "RequestDisk": 1, "Requirements": True,
               "User": "ann", "Cmd": "x", "QDate": int(self.now), SCHEDD: "s"}  # fmt: skip
        self.queue.append(classad2.ClassAd(job))
        return self.queue[-1]

    def join(self, name: str, job: classad2.ClassAd) -> None:
        """It is up, and runs a job."""
        ad = {"Name": f"slot1@{name}", "AdonWorker": name, "Cpus": 1, "TotalSlotCpus": 2,
              "Memory": 4096, "TotalSlotMemory": 4096, "State": "Unclaimed", "Activity": "Idle",
              "LastHeardFrom": int(self.now), "DaemonStartTime": int(self.now)}  # fmt: skip
        self.ads[name] = classad2.ClassAd(ad)
        job.update({"JobStatus": 2, "RemoteHost": f"slot1_1@{name}"})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    monkeypatch.setattr(look, "HTCondorPool", lambda _: found)
    return found


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive(tmp_path / "archive.sqlite") as found:
        yield found


def expander(world: Any, archive: Archive) -> Expander:
    def said(_: str) -> None:
        pass

    return Expander(
        "p", {}, Limits(), world, world, archive, RunTimes(archive, 600.0), archive.record_many,
        said, lambda: world.now,
    )  # fmt: skip


def flavours(servers: Mapping[str, Server]) -> Sequence[str]:
    return [server.flavour for server in servers.values()]


@pytest.mark.parametrize("restarted", [False, True])
def test_one_that_somebody_else_deleted_is_replaced(
    world: World, archive: Archive, restarted: bool
) -> None:
    job = world.submit()
    ours = expander(world, archive)
    ours.turn()
    (name,) = world.there
    world.join(name, job)
    ours.turn()
    del world.there[name]
    if restarted:
        ours = expander(world, archive)
    assert ours.turn().delete == {name: "its cloud does not have it any more"}
    assert world.vacated == [f"slot1_1@{name}"]
    assert not world.ads
    if not restarted:  # else nobody knows any more what it was
        assert [one.id for one in archive.query("machine")] == [f"machine:p:{name}"]
    job.update({"JobStatus": 1})
    del job["RemoteHost"]
    assert ours.turn().plan.start == {"cheap": 1}


def test_somebody_elses_worker_is_the_pools_own(world: World, archive: Archive) -> None:
    world.join("q-0123abcd", world.submit())
    decision = expander(world, archive).turn()
    assert decision.machines == {"own": 1}
    assert not decision.acts


def test_a_flavour_that_hangs_is_left_alone_for_a_while(world: World, archive: Archive) -> None:
    world.submit()
    ours = expander(world, archive)
    ours.turn()
    (hangs,) = world.there
    world.now += 101.0
    decision = ours.turn()
    assert (decision.plan.give_up, decision.plan.start) == ((hangs,), {"dear": 1})
    assert flavours(world.there) == ["dear"]
    assert not ours.turn().acts
