"""What a run's makespan was made of, along the chain of jobs that its end waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adon.report.run_facts import Bar


@dataclass(frozen=True, slots=True)
class Split:
    """Seconds: in a queue, computing, in transfer jobs, and from a job's end to the next one's
    submission, which is DAGMan's, the hooks' and the planner's own jobs."""

    queue: float = 0.0
    computing: float = 0.0
    moving: float = 0.0
    between: float = 0.0


def split(
    bars: Sequence[Bar], parents: Mapping[str, Sequence[str]], started: float, ended: float
) -> Split:
    """The parts of ``ended - started`` (Unix seconds), which they add up to.

    Backwards from the job that ended last, each time to the parent that ended last.
    """
    last: dict[str, Bar] = {}
    for bar in bars:
        if bar.ok and (bar.job not in last or bar.end > last[bar.job].end):
            last[bar.job] = bar
    queue = computing = moving = between = 0.0
    at, chain = ended, list(last.values())
    while chain:
        bar = max(chain, key=lambda other: other.end)
        between += at - bar.end
        if bar.kind == "transfer":
            moving += bar.end - bar.start
        elif bar.kind == "compute":
            computing += bar.end - bar.start
        else:
            between += bar.end - bar.start
        queue += bar.start - bar.submit
        at = bar.submit
        chain = [last[name] for name in parents.get(bar.job, ()) if name in last]
    return Split(queue, computing, moving, between + at - started)
