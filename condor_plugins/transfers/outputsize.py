"""How much a job will send back: nobody knows before it has, but its like were seen before."""

from __future__ import annotations

from collections import OrderedDict, deque
from statistics import median

from condor_plugins.transfers.jobad import JobAd, number, text

_LAST, _KINDS = 7, 1000  # runs remembered of each kind of job, and kinds of jobs


class Outputs:
    """Bytes that runs sent back, by what they ran: the transformation where Pegasus names it, else
    the program, for each owner."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], deque[int]] = OrderedDict()

    def learn(self, ad: JobAd, sent_bytes: int) -> None:
        """Remember what a run sent."""
        seen = self._seen.setdefault(_kind(ad), deque(maxlen=_LAST))
        seen.append(sent_bytes)
        self._seen.move_to_end(_kind(ad))
        if len(self._seen) > _KINDS:
            self._seen.popitem(last=False)

    def expected(self, ad: JobAd) -> int | None:
        """The median of what its like sent; else what its sandbox holds beyond its input, the most
        it can send; None where neither is known."""
        if seen := self._seen.get(_kind(ad)):
            return int(median(seen))
        used, got = number(ad, "DiskUsage"), number(ad, "AdonInBytes")
        return None if used is None else max(0, int(used * 1024 - (got or 0)))


def _kind(ad: JobAd) -> tuple[str, str]:
    return text(ad, "Owner"), text(ad, "pegasus_wf_xformation", "Cmd")
