"""What the access point's own schedd says of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import htcondor2

from condor_plugins.collector import defined
from condor_plugins.transfers.decide import QueuedJob
from condor_plugins.transfers.request_builder import job_name, queue_number
from network_provisioner.base.errors import AdonError

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
        """See watcher.Schedd."""
        if not self._name:
            try:
                found = htcondor2.Collector().locate(htcondor2.DaemonType.Schedd)
            except (htcondor2.HTCondorException, OSError, RuntimeError) as error:
                raise AdonError(f"HTCondor's schedd: {error}") from error
            self._name = job_name(str(found["Name"]))
        return self._name

    def jobs(self, names: Iterable[str]) -> dict[str, QueuedJob]:
        """See watcher.Schedd."""
        numbers = sorted({number[1:] for name in names if (number := queue_number(name))})
        found: dict[str, QueuedJob] = {}
        for first in range(0, len(numbers), _AT_ONCE):
            for ad in self._query(numbers[first : first + _AT_ONCE]):
                found[job_name(str(ad.get("GlobalJobId", "")))] = queued(ad)
        return found

    def _query(self, numbers: Sequence[tuple[int, int]]) -> Sequence[Mapping[str, Any]]:
        which = " || ".join(f"(ClusterId == {c} && ProcId == {p})" for c, p in numbers)
        try:
            return defined(htcondor2.Schedd().query(which, list(_ATTRIBUTES)))
        except (htcondor2.HTCondorException, OSError, RuntimeError) as error:
            raise AdonError(f"HTCondor's schedd: {error}") from error


def queued(ad: Mapping[str, Any]) -> QueuedJob:
    """What a job's ad in the queue says."""
    sending = ad.get("TransferringOutput")
    return QueuedJob(
        status=int(ad.get("JobStatus", 0)),
        starts=int(ad.get("NumShadowStarts", 0)),
        executing_since=float(ad.get("JobCurrentStartExecutingDate", 0)),
        sending=sending if isinstance(sending, bool) else None,
    )
