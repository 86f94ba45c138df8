"""Counting slots and jobs per site."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_plugins.collector import Ad, SitePool, read, site_of_job, summarise, workers

sites = st.sampled_from(["mu", "tacc", "iplant"])
slots = st.fixed_dictionaries(
    {
        "PegasusSite": sites,
        "State": st.sampled_from(["Unclaimed", "Claimed", "Owner"]),
        "Activity": st.sampled_from(["Idle", "Busy"]),
        "Memory": st.integers(0, 4096),
    },
    optional={"AdonIoWait": st.floats(0, 1)},
)
jobs = st.fixed_dictionaries({"JobStatus": st.integers(1, 7), "pegasus_site": sites})


@given(st.lists(slots), st.lists(jobs))
def test_every_slot_and_job_is_counted_once(
    slot_ads: list[dict[str, Any]], job_ads: list[dict[str, Any]]
) -> None:
    found = summarise(slot_ads, job_ads, 5.0)
    assert sum(p.slots for p in found.values()) == len(slot_ads)
    assert sum(p.memory_bytes for p in found.values()) == sum(
        ad["Memory"] * 2**20 for ad in slot_ads
    )
    assert sum(p.idle_jobs for p in found.values()) == sum(j["JobStatus"] == 1 for j in job_ads)
    assert sum(p.running_jobs for p in found.values()) == sum(j["JobStatus"] == 2 for j in job_ads)
    for site, pool in found.items():
        assert 0 <= pool.idle_slots <= pool.slots
        waits = [ad["AdonIoWait"] for ad in slot_ads if ad["PegasusSite"] == site
                 and "AdonIoWait" in ad]  # fmt: skip
        assert pool.io_wait == max(waits, default=None)
        assert (pool.site, pool.at, pool.source) == (site, 5.0, "collector")
    assert workers(found) == {site: pool.slots for site, pool in found.items()}


def test_a_partitionable_slot_counts_its_cores_and_its_parts_not_again() -> None:
    ads: list[Ad] = [
        {"AdonSite": "mu", "SlotType": "Partitionable", "TotalSlotCpus": 8, "Cpus": 5,
         "Memory": 5000},
        {"AdonSite": "mu", "SlotType": "Dynamic", "Cpus": 3, "Memory": 3000, "State": "Claimed"},
    ]  # fmt: skip
    assert summarise(ads, [], 0.0) == {
        "mu": SitePool("mu", 0.0, slots=8, idle_slots=5, memory_bytes=8000 * 2**20)
    }


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


def test_a_reading_carries_its_time() -> None:
    assert read(Recorded(), now=3.0)["mu"] == SitePool(
        "mu", 3.0, slots=1, idle_slots=1, memory_bytes=2**20, idle_jobs=1
    )
