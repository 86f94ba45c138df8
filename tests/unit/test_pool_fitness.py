"""Which machines jobs cannot use though they are there, from ClassAds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import classad2
import pytest

from condor_plugins.pool.cloud.protocol import BackOff
from condor_plugins.pool.fitness import (
    DEATHS,
    UNFIT_S,
    Fitness,
    Judge,
    Life,
    Run,
    Runs,
    Waiting,
    black_holes,
    run_of,
)
from condor_plugins.pool.run_times import RunTimes
from condor_plugins.pool.scaling import Flavour, JobDemand, Machine, MachineState, RunningJob
from monitors.archive.archive import Archive
from monitors.base.estimates import Estimate
from monitors.base.measurement import Measurement
from network_provisioner.base.errors import AdonError

NOW = 1_000_000.0
KIND = Flavour("small", 4, 8192)
ONLY = frozenset({"small"})


def ended(**more: Any) -> dict[str, Any]:
    """As condor_history has a job of /bin/false."""
    return {
        "ClusterId": 1, "ProcId": 0, "JobStatus": 4, "ExitCode": 1, "User": "ann", "Cmd": "/x",
        "JobCurrentStartDate": 5000, "EnteredCurrentStatus": 5003, **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("job", "good"),
    [
        (ended(), False),
        (ended(ExitCode=0), True),
        (ended(EnteredCurrentStatus=5100), True),  # it failed for another reason, most likely
        (ended(JobStatus=5, HoldReasonCode=6), False),  # it could not be executed
        (ended(JobStatus=5, HoldReasonCode=13), False),  # its input could not be transferred
        (ended(JobStatus=5, HoldReasonCode=1), None),  # by condor_hold
        (ended(JobStatus=1), False),  # back in the queue: the shadow lost its starter
        (ended(JobStatus=1, ExitCode=0), None),  # it succeeded, and is run again
        ({**ended(JobStatus=1), "JobCurrentStartDate": classad2.Value.Undefined}, None),
        (ended(JobStatus=2, ServerTime=5030), None),
        (ended(JobStatus=2, ServerTime=5061), True),
        (ended(JobStatus=3), None),  # removed by its user
    ],
)
def test_a_start_of_a_job_did_well_or_died_or_tells_nothing(
    job: dict[str, Any], good: bool | None
) -> None:
    run = run_of(job, "m1")
    assert (run.good if run else None) is good


def test_a_job_that_ran_nowhere_tells_nothing() -> None:
    assert run_of(ended(), "") is None


def starts(place: str, kind: str, good: bool, count: int = DEATHS) -> list[Run]:
    return [Run(place, ("ann", kind), (n, 0), 5000.0 + n, good) for n in range(count)]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (starts("m1", "x", False), {"m1"}),
        (starts("m1", "x", False, DEATHS - 1), set()),
        # The jobs are broken: they die everywhere.
        ([*starts("m1", "x", False), *starts("m2", "x", False, 1)], set()),
        # They do well elsewhere.
        ([*starts("m1", "x", False), *starts("m2", "x", True, 1)], {"m1"}),
        # Others do: that says nothing of these.
        ([*starts("m1", "x", False), *starts("m2", "y", True), *starts("m2", "x", False, 1)],
         set()),
        # Two of one image, beside one that is well.
        ([*starts("m1", "x", False), *starts("m2", "x", False), *starts("m3", "x", True, 1)],
         {"m1", "m2"}),
        # One has done well there since.
        ([*starts("m1", "x", False), Run("m1", ("ann", "x"), (9, 0), 6000.0, True)], set()),
        # It was well, and is no more.
        ([Run("m1", ("ann", "x"), (9, 0), 4000.0, True), *starts("m1", "x", False)], {"m1"}),
    ],
)  # fmt: skip
def test_a_black_hole_is_where_jobs_die_that_do_not_die_elsewhere(
    runs: Sequence[Run], expected: set[str]
) -> None:
    known = Runs()
    known.add(runs, NOW)
    known.add(runs, NOW + 15)  # as the history tells them again
    holes = black_holes(known.by_place())
    assert holes.keys() == expected
    assert all("died there within 60 s" in why for why in holes.values())
    known.add((), NOW + 3700)
    assert not known.by_place()


def slot(**more: object) -> classad2.ClassAd:
    """What is left of a partitionable slot, as a startd has it."""
    ad = classad2.ClassAd({"Cpus": 4, "Memory": 8192, "Disk": 1_000_000, "Start": True, **more})
    ad["WithinResourceLimits"] = classad2.ExprTree(
        "MY.Cpus > 0 && TARGET.RequestCpus <= MY.Cpus && TARGET.RequestMemory <= MY.Memory && "
        "TARGET.RequestDisk <= MY.Disk"
    )
    ad["Requirements"] = classad2.ExprTree("START && WithinResourceLimits")
    return ad


def waits(cores: int = 1, memory_mb: int = 1024, only: frozenset[str] = ONLY) -> Waiting:
    ask = {"RequestCpus": cores, "RequestMemory": memory_mb, "RequestDisk": 1024}
    return Waiting(classad2.ClassAd({**ask, "Requirements": True}), only)


def machine(busy: int = 0, state: MachineState = MachineState.RUNNING) -> Machine:
    jobs = (RunningJob(busy, NOW + 900, "ann"),) if busy else ()
    return Machine("m1", KIND, state, NOW - 999, jobs)


def judged(
    candidate: Machine,
    ad: classad2.ClassAd,
    waiting: Sequence[Waiting],
    after_s: float = UNFIT_S,
    **more: Any,
) -> Fitness:
    """Twice, so many seconds apart."""
    judge = Judge()
    given: dict[str, Any] = {"holes": {}, "lives": {}, "demand": (), **more}

    def at(now: float) -> Fitness:
        return judge.of([candidate], slots={"m1": ad}, waiting=waiting, now=now, **given)

    at(NOW)
    return at(NOW + after_s)


@pytest.mark.parametrize(
    ("ad", "waiting"),
    [
        (slot(), [waits()]),
        (slot(Memory=512), [waits(), waits(memory_mb=512)]),  # one of them fits
        (slot(Memory=512), []),
        (slot(Memory=512), [waits(only=frozenset({"large"}))]),  # nobody waits for such a one
    ],
)
def test_a_machine_that_some_job_can_use_is_supply(
    ad: classad2.ClassAd, waiting: Sequence[Waiting]
) -> None:
    assert judged(machine(), ad, waiting) == Fitness((machine(),), {}, {})


@pytest.mark.parametrize("more", [{"Start": False}, {"Disk": 1000}, {"Memory": 100}])
def test_one_that_idles_and_takes_no_job_is_none(more: dict[str, object]) -> None:
    fitness = judged(machine(), slot(**more), [waits()])
    assert (fitness.machines, fitness.unfit.keys()) == ((), {"m1"})
    assert "takes no job that waits: 4 cores, " in fitness.unfit["m1"]
    # Ads and queue may be of two moments.
    assert judged(machine(), slot(**more), [waits()], UNFIT_S - 1).machines == (machine(),)


def test_cores_that_fit_no_job_that_waits_count_again_when_one_ends() -> None:
    """A job of 1 core and nearly all memory leaves 3 cores that the jobs of 2 GB cannot have."""
    fitness = judged(machine(busy=1), slot(Cpus=3, Memory=500), [waits(memory_mb=2048)])
    (candidate,) = fitness.machines
    assert (fitness.unfit, fitness.partly) == ({}, {"m1": 3})
    assert candidate.jobs == (*machine(busy=1).jobs, RunningJob(3, NOW + 900))


@pytest.mark.parametrize(
    ("more", "waiting"),
    [
        ({"PartitionableSlot": True, "Cpus": 0, "TotalSlotCpus": 4}, [waits()]),
        ({"Activity": "Busy"}, []),
    ],
)
def test_cores_of_jobs_that_no_queue_tells_of_are_taken(
    more: dict[str, object], waiting: list[Waiting]
) -> None:
    """Of an access point of another pool, or of another universe."""
    fitness = judged(machine(), slot(**more), waiting)
    (candidate,) = fitness.machines
    assert (fitness.unfit, fitness.partly) == ({}, {"m1": 4})
    assert candidate.jobs == (RunningJob(4, NOW + UNFIT_S + 3600),)


@pytest.mark.parametrize(
    ("left_s", "whole_s", "takes", "fits"),
    [
        (700.0, 72_000.0, [600.0, 9000.0], True),
        (500.0, 72_000.0, [600.0, 9000.0], False),
        (72_000.0, 72_000.0, [90_000.0], True),  # no machine would do
        (35_000.0, 72_000.0, [90_000.0], False),
        (5.0, 72_000.0, [], True),
        (float("inf"), float("inf"), [600.0], True),
    ],
)
def test_one_with_less_life_than_the_shortest_job_takes_is_none(
    left_s: float, whole_s: float, takes: list[float], fits: bool
) -> None:
    demand = [JobDemand(1, 1, 64, NOW, run_s, only=ONLY) for run_s in takes]
    # Neither who may come nor a lease says how long jobs take.
    demand += [JobDemand(1, 1, 64, NOW, 9e5, sure=False, only=ONLY), JobDemand(1, 1, 64, NOW, 9e5)]
    fitness = judged(machine(), slot(), [], lives={"m1": Life(left_s, whole_s)}, demand=demand)
    assert bool(fitness.machines) is fits
    assert fits or "its life ends in" in fitness.unfit["m1"]


def test_what_was_unfit_stays_so_while_it_drains() -> None:
    judge = Judge()
    holes = {"m1": "jobs died there"}
    given: dict[str, Any] = {"waiting": (), "lives": {}, "demand": ()}
    judge.of([machine()], holes, {"m1": slot()}, now=NOW, **given)
    drains = machine(state=MachineState.DRAINING)
    for _ in range(2):
        fitness = judge.of([drains], {}, {"m1": slot()}, now=NOW, **given)
        assert (fitness.machines, fitness.unfit) == ((), holes)
    assert Judge().of([drains], {}, {"m1": slot()}, now=NOW, **given).machines == (drains,)


def test_a_flavour_whose_machines_are_of_no_use_is_asked_for_less_and_less() -> None:
    back_off, times = BackOff(), []
    for n in range(7):
        back_off.failed("small", 1000.0 * n)
        back_off.joined("small")  # the next one boots as well as this
        back_off.worked("small", 1000.0 * n - 1)  # on one of before jobs do well
        times.append(back_off.of(["small"])["small"] - 1000.0 * n)
    assert times == [30, 60, 120, 240, 480, 600, 600]
    back_off.worked("small", 6001.0)
    back_off.failed("small", 9000.0)
    assert back_off.of(["small"])["small"] == 9030


def test_one_that_is_over_soon_may_be_chance_the_second_is_none() -> None:
    back_off = BackOff()
    back_off.failed("small", 1000.0, once_is_chance=True)
    assert back_off.of(["small"]) == {"small": 0.0}
    back_off.failed("small", 1200.0, once_is_chance=True)
    assert back_off.of(["small"])["small"] > 1200.0


JOB = {"User": "ada@x", "Cmd": "/bin/sleep"}
PEGASUS = {**JOB, "pegasus_wf_xformation": "t::nap:1.0", "pegasus_site": "mu"}


def ended_after(seconds: float, **more: Any) -> dict[str, Any]:
    return {**JOB, "JobStatus": 4, "ExitCode": 0, "RemoteWallClockTime": seconds, **more}


def test_the_archive_before_jobs_of_the_program_before_the_default() -> None:
    with Archive(":memory:") as archive:
        times = RunTimes(archive, 600.0, lambda: 1000.0)
        assert times.of_job(PEGASUS) == 600.0
        times.learn(
            [
                ended_after(20.0),
                ended_after(40.0),
                ended_after(5.0, ExitCode=1),
                ended_after(5.0, JobStatus=3),
            ]
        )
        assert times.of_job(PEGASUS) == times.of_job(JOB) == 30.0
        assert times.of_job({**JOB, "User": "bob@x"}) == 600.0
        measurement = Measurement(
            "r", "runtime", "t::nap:1.0@mu", 12.5, "s", at=900.0, source="log"
        )
        archive.record(measurement)
        assert times.of_job(PEGASUS) == 30.0  # it has been asked just now
        assert RunTimes(archive, 600.0, lambda: 1000.0).of_job(PEGASUS) == 12.5


class Dead:
    asked = 0

    def estimate(self, metric: str, subject: str, now: float) -> Estimate | None:
        self.asked += 1
        raise AdonError("disk I/O error")


def test_an_archive_that_does_not_answer_is_told_once_and_not_waited_for() -> None:
    now = [1000.0]
    archive = Dead()
    times = RunTimes(archive, 600.0, lambda: now[0])
    for site in ("mu", "tacc"):
        assert times.of_job({**PEGASUS, "pegasus_site": site}) == 600.0
    assert archive.asked == 1
    assert times.take_warnings() == ["run times are not read from the archive: disk I/O error"]
    now[0] += 60.0
    assert times.of_job(PEGASUS) == 600.0
    assert (archive.asked, times.take_warnings()) == (2, [])
