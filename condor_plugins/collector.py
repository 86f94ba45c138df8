"""Asking a running HTCondor what every site of its pool has to offer now.

Reading collector and schedds is an effect and is behind :class:`PoolState`; what the ads say
is counted by :mod:`condor_plugins.pool.sitepool`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Protocol

import classad2
import htcondor2

from condor_plugins.jobs.sites import Ad
from condor_plugins.pool.sitepool import CLAIM_S, SitePool, summarise
from network_provisioner.base import account
from network_provisioner.base.errors import AdonError

SLOT_ATTRIBUTES = (
    "Name", "Machine", "SlotType", "State", "Activity", "Cpus", "TotalSlotCpus", "Memory",
    "TotalSlotMemory", "IsDataSlot", "Offline", "PegasusSite", "AdonSite",
    "AdonIoWaitSustainedFraction", "AdonMetricsAt", "DetectedCpus", "Mips",
)  # fmt: skip
JOB_ATTRIBUTES = (
    "ClusterId", "ProcId", "JobStatus", "JobUniverse", "AdonSite", "pegasus_site", "Requirements",
    "JobCurrentStartDate", "pegasus_wf_xformation", "RequestMemory", "User", "AccountingGroup",
)  # fmt: skip
ENDED_ATTRIBUTES = (
    *JOB_ATTRIBUTES, "QDate", "JobStartDate", "RemoteWallClockTime", "CompletionDate", "ExitCode",
    "Cmd", "EnteredCurrentStatus", "LastRemoteHost", "LastPublicClaimId",
)  # fmt: skip
_IN_QUEUE = "JobStatus == 1 || JobStatus == 2"  # idle or running
# Jobs looked back at, of each schedd: enough for a mean, read in a fraction of a second.
HISTORY = 300


class PoolState(Protocol):
    """Where ClassAds come from; raises AdonError if they cannot be had."""

    def slots(self) -> Sequence[Ad]:
        """One ad per slot, at least with :data:`SLOT_ATTRIBUTES`."""
        ...

    def jobs(self) -> Sequence[Ad]:
        """One ad per queued job, at least with :data:`JOB_ATTRIBUTES`."""
        ...

    def ended(self) -> Sequence[Ad]:
        """Ads of jobs that ended lately, at least with :data:`ENDED_ATTRIBUTES`."""
        ...

    def priorities(self) -> Mapping[str, float]:
        """The effective priority of each submitter, none if unknown."""
        ...

    def claim_s(self) -> float:
        """For how many seconds a user who has jobs keeps a slot; less than 0: for ever."""
        ...


class HTCondorPool:
    """The real pool that ``CONDOR_CONFIG`` names, or the one given.

    :param collector: ``host:port``, None for the configured one.
    """

    def __init__(self, collector: str | None = None) -> None:
        self._collector = collector

    def slots(self) -> Sequence[Ad]:
        """Slot ads from the collector. Raises AdonError."""
        with answered_by("collector"):
            return defined_attributes(
                self._open().query(htcondor2.AdType.Slot, None, list(SLOT_ATTRIBUTES))
            )

    def jobs(self) -> Sequence[Ad]:
        """Job ads of every schedd that answers, of those that the collector knows. Raises
        AdonError if none does."""
        queues, refusal = self._of_schedds(
            lambda schedd: schedd.query(_IN_QUEUE, list(JOB_ATTRIBUTES))
        )
        if refusal and not queues:
            raise refusal
        return list(chain.from_iterable(queues))

    def ended(self) -> Sequence[Ad]:
        """Ads of the last :data:`HISTORY` jobs of every schedd; none of one that keeps or tells no
        history. Raises AdonError if the collector cannot be asked."""
        histories, _ = self._of_schedds(
            lambda schedd: schedd.history(None, list(ENDED_ATTRIBUTES), HISTORY)
        )
        return list(chain.from_iterable(histories))

    def _of_schedds(
        self, ask: Callable[[htcondor2.Schedd], Iterable[classad2.ClassAd]]
    ) -> tuple[list[list[Ad]], AdonError | None]:
        """What each schedd answers that does, and why the last of the others does not. Raises
        AdonError if the collector cannot be asked."""
        with answered_by("collector"):
            schedds = self._open().locateAll(htcondor2.DaemonType.Schedd)
        answers, refusal = list[list[Ad]](), None
        for schedd in schedds:
            try:
                with answered_by("schedd"):
                    answers.append(defined_attributes(ask(htcondor2.Schedd(schedd))))
            except AdonError as error:
                refusal = error
        return answers, refusal

    def claim_s(self) -> float:
        """For how many seconds a user who has jobs keeps a slot (CLAIM_WORKLIFE), as configured
        here; less than 0: for ever."""
        return float(htcondor2.param.get("CLAIM_WORKLIFE", CLAIM_S))

    def priorities(self) -> Mapping[str, float]:
        """The effective priority of each submitter (``condor_userprio``), without the domain; none
        where the negotiator does not say."""
        ads = list[Ad]()
        with suppress(AdonError), answered_by("negotiator"):
            where = self._open().locate(htcondor2.DaemonType.Negotiator)
            ads = defined_attributes(htcondor2.Negotiator(where).getPriorities())
        return {
            str(ad["Name"]).partition("@")[0]: float(ad["Priority"])
            for ad in ads
            if "Name" in ad and isinstance(ad.get("Priority"), int | float)
        }

    def _open(self) -> htcondor2.Collector:
        return htcondor2.Collector(self._collector) if self._collector else htcondor2.Collector()


@contextmanager
def answered_by(who: str) -> Iterator[None]:
    """All errors of asking a daemon of HTCondor's as AdonError; an ad may lack where it is."""
    try:
        yield
    except (htcondor2.HTCondorException, OSError, RuntimeError, KeyError) as error:
        raise AdonError(f"HTCondor's {who}: {error}") from error


def defined_attributes(ads: Iterable[classad2.ClassAd]) -> list[Ad]:
    """The ads without what is undefined or an error in them: for Python those are the numbers 2
    and 1."""
    return [{k: v for k, v in ad.items() if not isinstance(v, classad2.Value)} for ad in ads]


def read(pool: PoolState, now: float | None = None, user: str = "") -> dict[str, SitePool]:
    """What every site of the pool has now, for jobs of ``user``. Raises AdonError if the
    collector cannot be asked; of a pool whose schedds cannot, the slots."""
    slots = pool.slots()
    jobs, ended = None, list[Ad]()
    with suppress(AdonError):
        jobs = pool.jobs()
        ended += pool.ended()
    at = time.time() if now is None else now
    priority = pool.priorities() if user else None
    return summarise(slots, jobs, at, ended, user, priority, pool.claim_s())


def main(argv: Sequence[str] | None = None) -> int:
    """``python -m condor_plugins.collector [HOST:PORT]``: the pool of CONDOR_CONFIG or of that
    collector, as JSON by site. One line on standard error and exit 1 where it does not answer."""
    given = sys.argv[1:] if argv is None else list(argv)
    try:
        pool = read(HTCondorPool(*given[:1]), user=account.user_name())
    except AdonError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps({site: state.as_dict() for site, state in pool.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
