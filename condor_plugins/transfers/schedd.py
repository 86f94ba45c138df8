"""What the access point's own schedd says of jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import htcondor2

from condor_plugins.collector import answered_by, defined_attributes
from condor_plugins.jobs.request_builder import (
    Run,
    job_name,
    queue_number,
    run_of,
    shadow_number,
)
from condor_plugins.transfers.decide import QueuedJob
from condor_plugins.urls.transfer_history import Ad, disk_waits

_AT_ONCE = 200  # jobs in one question
_ATTRIBUTES = (
    "GlobalJobId", "JobStatus", "NumShadowStarts", "JobCurrentStartExecutingDate",
    "TransferringOutput",
)  # fmt: skip


class LocalSchedd:
    """The schedd of the machine that ``CONDOR_CONFIG`` describes."""

    def __init__(self) -> None:
        self._name = ""

    def name(self) -> str:
        """See access_point.JobQueue."""
        if not self._name:
            with answered_by("schedd"):
                ad = htcondor2.Collector().locate(htcondor2.DaemonType.Schedd)
                self._name = job_name(str(ad["Name"]))
        return self._name

    def jobs(self, names: Iterable[str]) -> dict[str, QueuedJob]:
        """See access_point.JobQueue."""
        numbers = sorted({number[1:] for name in names if (number := queue_number(name))})
        queued_jobs: dict[str, QueuedJob] = {}
        for first in range(0, len(numbers), _AT_ONCE):
            for ad in self._query(numbers[first : first + _AT_ONCE]):
                queued_jobs[job_name(str(ad.get("GlobalJobId", "")))] = queued_job(ad)
        return queued_jobs

    def input_history(self, runs: Collection[Run]) -> dict[Run, Ad]:
        """See access_point.JobQueue."""
        numbers = [(*number, run.starts) for run in runs if (number := shadow_number(run.job))]
        which = " || ".join(
            f"(ClusterId == {c} && ProcId == {p} && NumShadowStarts == {n})" for c, p, n in numbers
        )
        with answered_by("history of transfers"):
            # It is read from its end, and no further than to the last that is found.
            history = htcondor2.Schedd().jobEpochHistory(
                f'TransferClass == "INPUT" && ({which})', [], len(numbers), ad_type="TRANSFER"
            )
            ads = defined_attributes(history)
        return {run: ad for ad in ads if (run := run_of(ad)) and run in runs}

    def disk_waits(self, machine: str, since: float) -> bool:
        """See access_point.JobQueue."""
        names = ["AdonIoWaitFraction", "AdonMetricsAt", "DetectedCpus"]
        with answered_by("collector"):
            ads = htcondor2.Collector().query(
                htcondor2.AdType.Slot, f'Machine == "{machine}"', names
            )
        return any(disk_waits(ad, since) for ad in defined_attributes(ads))

    def _query(self, numbers: Sequence[tuple[int, int]]) -> Sequence[Mapping[str, Any]]:
        which = " || ".join(f"(ClusterId == {c} && ProcId == {p})" for c, p in numbers)
        with answered_by("schedd"):
            return defined_attributes(htcondor2.Schedd().query(which, list(_ATTRIBUTES)))


def queued_job(ad: Mapping[str, Any]) -> QueuedJob:
    """What a job's ad in the queue says."""
    sending = ad.get("TransferringOutput")
    return QueuedJob(
        status=int(ad.get("JobStatus", 0)),
        starts=int(ad.get("NumShadowStarts", 0)),
        executing_since=float(ad.get("JobCurrentStartExecutingDate", 0)),
        sending=sending if isinstance(sending, bool) else None,
    )
