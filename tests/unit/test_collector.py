"""Counting slots and jobs per site."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import classad2
import htcondor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from condor_plugins.collector import HTCondorPool, defined_attributes, read
from condor_plugins.jobs.sites import Ad, site_of_job, site_of_slot
from condor_plugins.pool.shares import share_of, starts_before
from condor_plugins.pool.sitepool import CLAIM_S, SitePool, pool_from_json, summarise, workers
from network_provisioner.base.errors import AdonError

sites = st.sampled_from(["mu", "tacc", "iplant"])
slots = st.fixed_dictionaries(
    {
        "PegasusSite": sites,
        "State": st.sampled_from(["Unclaimed", "Claimed", "Owner"]),
        "Activity": st.sampled_from(["Idle", "Busy"]),
        "Memory": st.integers(0, 4096),
    },
)
jobs = st.fixed_dictionaries({"JobStatus": st.integers(1, 7), "pegasus_site": sites})


@settings(max_examples=25)
@given(st.lists(slots), st.lists(jobs))
def test_every_slot_and_job_is_counted_once(
    slot_ads: list[dict[str, Any]], job_ads: list[dict[str, Any]]
) -> None:
    pools = summarise(slot_ads, job_ads, 5.0)
    open_slots = [ad for ad in slot_ads if ad["State"] != "Owner"]
    assert sum(p.slots for p in pools.values()) == len(open_slots)
    assert sum(p.memory_bytes for p in pools.values()) == sum(
        ad["Memory"] * 2**20 for ad in slot_ads
    )
    assert sum(p.idle_jobs for p in pools.values()) == sum(j["JobStatus"] == 1 for j in job_ads)
    assert sum(p.running_jobs for p in pools.values()) == sum(j["JobStatus"] == 2 for j in job_ads)
    for site, pool in pools.items():
        assert 0 <= pool.idle_slots <= pool.slots
        assert (pool.site, pool.at, pool.source) == (site, 5.0, "collector")
    assert workers(pools) == {site: pool.slots for site, pool in pools.items()}


def test_a_partitionable_slot_counts_its_cores_and_its_parts_not_again() -> None:
    ads: list[Ad] = [
        {"AdonSite": "mu", "SlotType": "Partitionable", "TotalSlotCpus": 8, "Cpus": 5,
         "Memory": 5000},
        {"AdonSite": "mu", "SlotType": "Dynamic", "Cpus": 3, "Memory": 3000, "State": "Claimed"},
    ]  # fmt: skip
    assert summarise(ads, [], 0.0) == {
        "mu": SitePool("mu", 0.0, slots=8, idle_slots=5, memory_bytes=8000 * 2**20, ahead=0.0)
    }


def test_cores_without_memory_for_a_job_are_no_workers() -> None:
    ads: list[Ad] = [
        {"AdonSite": "mu", "SlotType": "Partitionable", "TotalSlotCpus": 8, "Cpus": 5,
         "TotalSlotMemory": 12_000, "Memory": 3_000},
        {"AdonSite": "mu", "SlotType": "Partitionable", "TotalSlotCpus": 8, "Cpus": 8,
         "TotalSlotMemory": 12_000, "Memory": 12_000, "State": "Drained"},
        {"AdonSite": "mu", "SlotType": "Static", "State": "Unclaimed", "Memory": 1_000},
    ]  # fmt: skip
    jobs: list[Ad] = [
        {"JobStatus": 1, "AdonSite": "mu", "RequestMemory": memory} for memory in (500, 2000, 4000)
    ]
    expression = {"JobStatus": 1, "AdonSite": "mu", "RequestMemory": classad2.ExprTree("1 + 1")}
    mu = summarise(ads, [*jobs, expression], 0.0)["mu"]
    assert (mu.slots, mu.idle_slots) == (6, 1)
    mu = summarise(ads, [expression], 0.0, jobs[:1])["mu"]
    assert (mu.slots, mu.idle_slots) == (9, 6)  # as ended jobs asked for
    never = {"JobStatus": 1, "AdonSite": "mu", "RequestMemory": 10**6}
    mu = summarise(ads, [never], 0.0)["mu"]
    assert (mu.slots, mu.idle_slots) == (9, 6)  # no slot has so much


def test_slots_and_jobs_without_a_site_are_left_out() -> None:
    assert summarise([{"State": "Unclaimed"}], [{"JobStatus": 1}], 0.0) == {}


@pytest.mark.parametrize(
    ("ad", "site"),
    [
        ({"AdonSite": "mu", "pegasus_site": "tacc"}, "mu"),
        ({"pegasus_site": "tacc"}, "tacc"),
        ({"Requirements": '(TARGET.PegasusSite == "mu") && (TARGET.Memory > 1)'}, "mu"),
        ({"Requirements": '(PegasusSite=?="iplant")'}, "iplant"),
        ({"Requirements": '(Machine == "mu")'}, ""),
        ({}, ""),
    ],
)
def test_a_jobs_site_is_its_word_or_its_requirement(ad: Ad, site: str) -> None:
    assert site_of_job(ad) == site


class Recorded:
    """A pool state of values."""

    def slots(self) -> Sequence[Ad]:
        return [{"AdonSite": "mu", "State": "Unclaimed", "Memory": 1}]

    def jobs(self) -> Sequence[Ad]:
        return [{"AdonSite": "mu", "JobStatus": 1}]

    def ended(self) -> Sequence[Ad]:
        return [ended("mu", 10.0)]

    def priorities(self) -> dict[str, float]:
        return {"ada": 500.0}

    def claim_s(self) -> float:
        return CLAIM_S


def ended(site: str, held: float, **more: object) -> dict[str, Any]:
    """A job that succeeded after ``held`` seconds on a slot."""
    return {"pegasus_site": site, "JobStatus": 4, "RemoteWallClockTime": held, **more}


def test_a_reading_carries_its_time() -> None:
    assert read(Recorded(), now=3.0)["mu"] == SitePool(
        "mu", 3.0, slots=1, idle_slots=1, memory_bytes=2**20, idle_jobs=1, ahead=1.0, run_s=10.0
    )


def test_an_odd_slot_costs_only_itself() -> None:
    odd = {"AdonSite": "mu", "State": "Unclaimed"}
    odd |= dict.fromkeys(("Memory", "Cpus", "TotalSlotCpus", "Mips"), classad2.ExprTree("a + 1"))
    good: Ad = {"AdonSite": "mu", "State": "Unclaimed", "Memory": 1}
    for kind in ("Static", "Partitionable"):
        mu = summarise([good, odd | {"SlotType": kind}], [], 0.0)["mu"]
        assert mu.slots >= 1 and mu.memory_bytes == 2**20


def test_a_schedd_that_does_not_answer_costs_only_its_own_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Schedd:
        def __init__(self, name: str) -> None:
            if name == "odd":
                raise KeyError("MyAddress")
            self.name = name

        def query(self, *_: object) -> list[classad2.ClassAd]:
            if self.name == "gone":
                raise htcondor2.HTCondorException("no answer")
            return [classad2.ClassAd({"JobStatus": 1})]

    class Collector:
        def locateAll(self, _: object) -> list[str]:
            return schedds

    monkeypatch.setattr(htcondor2, "Schedd", Schedd)
    monkeypatch.setattr(htcondor2, "Collector", Collector)
    schedds = ["gone", "odd", "here"]
    assert HTCondorPool().jobs() == [{"JobStatus": 1}]
    schedds = ["gone"]
    with pytest.raises(AdonError, match="schedd: no answer"):
        HTCondorPool().jobs()


def test_jobs_that_may_run_anywhere_are_ahead_everywhere_in_proportion() -> None:
    slot = {"State": "Claimed", "Activity": "Busy"}
    slots = [{"AdonSite": "mu", **slot}] + [{"AdonSite": "tacc", **slot}] * 3
    queue: list[Ad] = [{"JobStatus": 1}] * 8 + [{"JobStatus": 1, "AdonSite": "mu"}]
    pools = summarise(slots, queue, 0.0)
    assert {site: pool.ahead for site, pool in pools.items()} == {"mu": 1 + 2, "tacc": 6}
    assert pools["mu"].idle_jobs == 1


class Deaf(Recorded):
    """A pool whose schedds do not answer."""

    def jobs(self) -> Sequence[Ad]:
        raise AdonError("HTCondor's schedd: no answer")


def test_without_a_schedd_the_slots_are_known_and_the_queue_is_not() -> None:
    assert read(Deaf(), now=3.0)["mu"] == SitePool(
        "mu", 3.0, slots=1, idle_slots=1, memory_bytes=2**20, ahead=None
    )


def test_jobs_of_the_submit_host_wait_for_no_slot() -> None:
    dagman: Ad = {"JobStatus": 1, "JobUniverse": 7}
    local: Ad = {"JobStatus": 1, "JobUniverse": 12, "pegasus_site": "mu"}
    pools = summarise([{"AdonSite": "mu", "State": "Unclaimed"}], [dagman, local], 0.0)
    assert pools["mu"].ahead == 0


def test_what_ended_jobs_tell() -> None:
    past = [
        ended("mu", 10.0, QDate=100, JobStartDate=101, pegasus_wf_xformation="t::a:1"),
        ended("mu", 20.0, QDate=100, JobStartDate=103, pegasus_wf_xformation="t::a:1"),
        ended("mu", 90.0, QDate=100, JobStartDate=400, pegasus_wf_xformation="t::b:1"),
        ended("mu", 7000.0, ExitCode=1),
        {**ended("mu", 8000.0), "JobStatus": 3},
        ended("mu", 9000.0, JobUniverse=12),
        {"JobStatus": 4, "RemoteWallClockTime": 1.0},
    ]
    pool = summarise([{"AdonSite": "mu"}], [], 0.0, past)["mu"]
    assert pool.run_s == 40.0
    assert pool.start_s == 2.0  # a quarter of 1, 3 and 300 s waited no longer
    assert pool.runtimes == {"t::a:1": (15.0, 2), "t::b:1": (90.0, 1)}


def test_running_jobs_tell_how_long_they_run_where_none_has_ended() -> None:
    queue = [
        {"AdonSite": "mu", "JobStatus": 2, "JobCurrentStartDate": 900},
        {"AdonSite": "mu", "JobStatus": 2, "JobCurrentStartDate": 960},
    ]
    slots = [{"AdonSite": "mu"}]
    assert summarise(slots, queue, 1000.0)["mu"].run_s == 70.0
    assert summarise(slots, queue, 1000.0, [ended("mu", 5.0)])["mu"].run_s == 5.0


def test_a_job_that_has_run_much_longer_than_others_keeps_its_slot() -> None:
    queue = [
        {"AdonSite": "mu", "JobStatus": 2, "JobCurrentStartDate": began}
        for began in (100, 880, 990)
    ]
    slots = [{"AdonSite": "mu"}] * 3
    assert summarise(slots, queue, 1000.0, [ended("mu", 5.0)])["mu"].kept == 2  # over a minute
    assert summarise(slots, queue, 1000.0, [ended("mu", 50.0)])["mu"].kept == 1  # three times 50 s
    assert summarise(slots, queue, 1000.0)["mu"].kept == 0  # nothing is usual yet
    assert summarise(slots, queue, 1000.0, claim_s=600.0)["mu"].kept == 1


def test_the_speed_of_a_site_is_that_of_its_typical_core() -> None:
    slots: list[Ad] = [{"AdonSite": "mu", "Mips": m} for m in (100, 300, 5000)]
    slots.append({"AdonSite": "tacc"})
    pools = summarise(slots, [], 0.0)
    assert (pools["mu"].mips, pools["tacc"].mips) == (300.0, None)


def test_cores_that_stand_still_for_disks_are_counted_once_for_each_machine() -> None:
    ad = {"AdonSite": "mu", "AdonMetricsAt": 1000.0, "DetectedCpus": 8}
    slots: list[Ad] = [
        *({**ad, "Machine": "a", "AdonIoWaitSustainedFraction": 0.25} for _ in range(8)),
        {**ad, "Machine": "b", "AdonIoWaitSustainedFraction": 0.5},
        {**ad, "Machine": "c"},
    ]
    assert summarise(slots, [], 1800.0)["mu"].stalled == 2 + 4
    assert summarise(slots, [], 2000.0)["mu"].stalled == 0  # nobody has told for a while


def test_a_data_slot_is_no_worker() -> None:
    data = {"AdonSite": "mu", "IsDataSlot": True, "State": "Claimed", "Activity": "Idle"}
    for kind in ("Dynamic", "Static"):
        pools = summarise([{"AdonSite": "mu"}, {**data, "SlotType": kind, "Cpus": 0}], [], 0.0)
        assert (pools["mu"].slots, pools["mu"].idle_slots) == (1, 0)


def test_a_machine_that_could_be_started_is_none_yet() -> None:
    offline = {"AdonSite": "mu", "Offline": True, "SlotType": "Partitionable", "TotalSlotCpus": 8}
    assert summarise([offline], [], 0.0) == {}
    assert summarise([{"AdonSite": "mu"}, offline], [], 0.0)["mu"].slots == 1


def test_a_pool_survives_its_own_json() -> None:
    past = [ended("mu", 10.0, pegasus_wf_xformation="t::a:1")]
    pools = summarise([{"AdonSite": "mu", "Mips": 5}], [{"JobStatus": 1}], 7.0, past)
    text = json.dumps({site: pool.as_dict() for site, pool in pools.items()})
    assert pool_from_json(text) == pools


@pytest.mark.parametrize("text", ["", "no pool", "[]", '{"mu": {"colour": 1}}', '{"mu": 3}'])
def test_what_is_no_pool_is_one_line(text: str) -> None:
    with pytest.raises(AdonError, match="expected sites of a pool as JSON") as refused:
        pool_from_json(text)
    assert "\n" not in str(refused.value)


def test_what_is_undefined_in_an_ad_is_not_there() -> None:
    slot = classad2.ClassAd('[AdonSite = undefined; PegasusSite = "mu"; Memory = error; Cpus = 2]')
    assert site_of_slot(slot) == "mu"
    assert defined_attributes([slot]) == [{"PegasusSite": "mu", "Cpus": 2}]
    job = classad2.ClassAd('[AdonSite = undefined; pegasus_site = "tacc"; JobStatus = undefined]')
    assert site_of_job(job) == "tacc"
    assert defined_attributes([job]) == [{"pegasus_site": "tacc"}]


@pytest.mark.parametrize(
    ("running", "idle", "priority", "before", "share"),
    [
        ({}, {}, {}, 0, 1.0),
        ({"bob": 4}, {"bob": 100}, {}, 0, 1 / 2),  # who has nothing gets the next slot
        ({"bob": 4}, {"bob": 100}, {"bob": 5.0, "ada": 5000.0}, 0, 1 / 1001),
        ({"ada": 2, "bob": 2}, {"ada": 3, "bob": 3}, {}, 6, 1 / 2),  # turn and turn about
        ({"ada": 4}, {"bob": 3}, {}, 3, 1 / 2),  # who has all waits for the others
        ({"ada": 4}, {"ada": 5}, {}, 5, 1.0),
        ({"ada": 2, "bob": 2}, {"bob": 3, "eve": 2}, {"bob": 1000.0}, 2, 2 / 5),
    ],
)
def test_users_share_a_site_by_their_priorities(
    running: dict[str, float],
    idle: dict[str, float],
    priority: dict[str, float],
    before: float,
    share: float,
) -> None:
    assert starts_before("ada", 4, running, idle, priority) == before
    assert share_of("ada", idle, priority) == pytest.approx(share)


def test_a_queue_of_a_hundred_thousand_jobs_is_looked_at_in_part() -> None:
    idle = {"ada": 60_000.0, "bob": 40_000.0}
    before = starts_before("ada", 400, {"ada": 200, "bob": 200}, idle, {"bob": 1000.0})
    assert before == pytest.approx(60_000 + 30_000, rel=0.05)  # two of ada's for each of bob's


def test_jobs_are_counted_for_who_pays_for_them() -> None:
    def of(user: str, status: int, count: int, site: str = "mu", **more: str) -> list[Ad]:
        ad = {"User": f"{user}@campus", "JobStatus": status, "pegasus_site": site, **more}
        return [ad] * count

    slots = [{"AdonSite": site, "State": "Claimed", "Memory": 1} for site in ("mu", "tacc") * 2]
    jobs = [
        *of("ada", 2, 2, AccountingGroup="physics.ada"),
        *of("bob", 1, 2),
        *of("eve", 1, 4, site=""),  # anywhere: half of them count at mu
    ]
    mu = summarise(slots, jobs, 0.0, user="ada", priority={"physics.ada": 1000.0})["mu"]
    assert (mu.ahead, mu.before, mu.share) == (4, 4, pytest.approx(1 / 5))
    unknown = summarise(slots, jobs, 0.0)["mu"]
    assert (unknown.ahead, unknown.before, unknown.share) == (4, None, 0.5)
