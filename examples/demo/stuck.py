"""Jobs that wait in vain, told while the workflow runs instead of waiting without a word."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence

from condor_plugins.waiting import StuckJob
from examples.demo.steps import ROOT, Say
from examples.testbed.pool import Pool
from monitors.workflows.facts.attempts import Attempt, Outcome

PATIENCE_S = 20.0
_LOOK_EVERY_S = 15.0
_SAY_AGAIN_S = 60.0
_MOST_NAMES = 3


class StuckJobs:
    """Asks the pool when jobs have waited for long, and says what they wait for.

    ``found`` is what the pool said last.
    """

    def __init__(self, pool: Pool, cluster: int, say: Say) -> None:
        self.found: list[StuckJob] = []
        self._pool = pool
        self._cluster = cluster
        self._say = say
        self._looked = 0.0
        self._said: dict[str, float] = {}

    def look(self, attempts: Iterable[Attempt], now: float) -> None:
        """Ask, at ``now`` (Unix seconds), if any of ``attempts`` makes it worth it and the last
        time was not just now. Raises AdonError where the pool does not answer."""
        if now - self._looked < _LOOK_EVERY_S:
            return
        if not any(waits(attempt, now) for attempt in attempts):
            self.found = []
            return
        self._looked = now
        command = [sys.executable, "-m", "condor_plugins.waiting", "--dag", str(self._cluster)]
        text = self._pool.run([*command, "--patience", str(PATIENCE_S)], cwd=ROOT)
        self.found = [StuckJob(**row) for row in json.loads(text)]
        for words in stuck_words(self.found):
            if now - self._said.get(words, -_SAY_AGAIN_S) >= _SAY_AGAIN_S:
                self._said[words] = now
                self._say(words)


def waits(attempt: Attempt, now: float) -> bool:
    """Whether a job is on hold, or has been in the queue for long."""
    if attempt.outcome is Outcome.HELD:
        return True
    return attempt.outcome is Outcome.QUEUED and now - attempt.submit >= PATIENCE_S


def stuck_words(found: Sequence[StuckJob]) -> list[str]:
    """A line for each reason, with the first of the jobs that wait for it."""
    jobs: dict[str, list[str]] = {}
    for stuck in found:
        jobs.setdefault(stuck.why, []).append(stuck.job)
    lines = []
    for why, names in jobs.items():
        if len(names) == 1:
            lines.append(f"job {names[0]} {why}")
            continue
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        lines.append(f"{len(names)} jobs wait, {', '.join(names[:_MOST_NAMES])}{more}: each {why}")
    return lines
