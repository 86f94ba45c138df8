"""Names: a run of a job, and the transits of its input and output.

    condor:<GlobalJobId, with - for #>:in:<NumShadowStarts>        and :out:

Every start of a shadow is a run of its own, so a path that an earlier run left behind is told from
one that is needed now.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Direction = Literal["in", "out"]

PREFIX = "condor:"
_ID = re.compile(r"condor:(?P<job>[!-~]+):(?P<way>in|out):(?P<starts>[0-9]{1,9})(?:\.[0-9]+)?\Z")
_JOB = re.compile(r"(?P<schedd>[!-~]+)-(?P<cluster>[0-9]+)\.(?P<proc>[0-9]+)-[0-9]+\Z")


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """``job`` is the GlobalJobId with - for #, ``starts`` counts its shadows from 1."""

    job: str
    starts: int

    def transit(self, direction: Direction) -> str:
        """The id of the path for its input or output."""
        return f"{PREFIX}{self.job}:{direction}:{self.starts}"


def job_name(global_job_id: str) -> str:
    """A GlobalJobId as it stands in ids: printable, without spaces."""
    return "".join(c if "!" <= c <= "~" else "_" for c in global_job_id.replace("#", "-"))


def run_of(ad: Mapping[str, Any]) -> Run | None:
    """The run that a job's ad is of; None where it does not say."""
    job, starts = ad.get("GlobalJobId"), ad.get("NumShadowStarts")
    if not isinstance(job, str) or not job or not isinstance(starts, int):
        return None
    return Run(job_name(job), starts)


def parsed(transit_id: str) -> tuple[Run, Direction] | None:
    """Whose transit it is; None where it is no run's."""
    found = _ID.match(transit_id)
    if found is None:
        return None
    way: Direction = "in" if found["way"] == "in" else "out"
    return Run(found["job"], int(found["starts"])), way


def queue_number(job: str) -> tuple[str, int, int] | None:
    """Schedd, cluster and process in a job's name; None where it is not of that shape."""
    found = _JOB.match(job)
    return found and (found["schedd"], int(found["cluster"]), int(found["proc"]))
