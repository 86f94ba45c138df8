"""Estimates of how long jobs run: from the archive, and from the jobs that HTCondor remembers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Protocol

from condor_plugins.jobs.sites import Ad, site_of_job
from monitors.base.estimates import Estimate
from monitors.workflows.facts.attempts import runtime_subject
from network_provisioner.base.errors import AdonError

JOB_ATTRIBUTES = ("User", "Cmd", "pegasus_wf_xformation", "pegasus_site", "AdonSite")
"""What :meth:`RunTimes.of_job` reads of a job."""
ENDED_ATTRIBUTES = ("User", "Cmd", "JobStatus", "ExitCode", "RemoteWallClockTime")
"""What :meth:`RunTimes.learn` reads of a job that has ended."""

_KEPT_S = 60.0
_COMPLETED = 4


class Estimates(Protocol):
    """An archive, as far as it is asked here; raises AdonError or OSError."""

    def estimate(self, metric: str, subject: str, now: float) -> Estimate | None:
        """What is known about a subject at ``now`` (Unix seconds)."""
        ...


class RunTimes:
    """Seconds by transformation and site as ``archive`` has them, else what jobs of the same user
    and program took on average, else ``default_s``. ``clock`` gives Unix seconds."""

    def __init__(
        self,
        archive: Estimates | None,
        default_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._archive, self._default_s, self._clock = archive, default_s, clock
        self._known: dict[str, tuple[float, float | None]] = {}  # when it was asked, and the answer
        self._silent_until = 0.0
        self._last_problem = ""
        self._warnings: list[str] = []
        self._programs: dict[tuple[str, str], float] = {}

    def learn(self, ended: Iterable[Ad]) -> None:
        """Takes the jobs that ended lately, in place of those it was told before."""
        took: dict[tuple[str, str], list[float]] = {}
        for ad in ended:
            seconds = ad.get("RemoteWallClockTime")
            good = ad.get("JobStatus") == _COMPLETED and ad.get("ExitCode") == 0
            if good and isinstance(seconds, int | float) and seconds > 0:
                took.setdefault(_program(ad), []).append(seconds)
        self._programs = {program: fmean(durations) for program, durations in took.items()}

    def of_job(self, ad: Ad, tasks: Sequence[str] = ()) -> float:
        """Estimated for a job with this ad, before anything of its own workflow is known; ``tasks``
        are the transformations in a clustered job."""
        names: Sequence[object] = tasks or [ad.get("pegasus_wf_xformation")]
        times = [
            self._measured(runtime_subject(name, site_of_job(ad)))
            for name in names
            if isinstance(name, str) and name
        ]
        known = [seconds for seconds in times if seconds is not None]
        if known and len(known) == len(names):
            return sum(known)
        return self._programs.get(_program(ad), self._default_s)

    def take_warnings(self) -> list[str]:
        """What went wrong since it was last called, one line each; what continues is reported
        once."""
        taken, self._warnings = self._warnings, []
        return taken

    def _measured(self, subject: str) -> float | None:
        now = self._clock()
        asked_at, seconds = self._known.get(subject, (-_KEPT_S, None))
        if self._archive is None or now < max(asked_at + _KEPT_S, self._silent_until):
            return seconds
        try:
            estimate = self._archive.estimate("runtime", subject, now)
        except (AdonError, OSError) as error:
            # One that does not answer must not be waited for once for each transformation.
            self._silent_until = now + _KEPT_S
            if str(error) != self._last_problem:
                self._last_problem = str(error)
                self._warnings.append(f"run times are not read from the archive: {error}")
            return seconds
        self._last_problem = ""
        seconds = None if estimate is None else max(0.0, estimate.value)
        self._known[subject] = (now, seconds)
        return seconds


def _program(ad: Ad) -> tuple[str, str]:
    return str(ad.get("User", "")), str(ad.get("Cmd", ""))
