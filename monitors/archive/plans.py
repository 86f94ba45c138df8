"""Plans of workflows in the archive: metric ``plan``, from when a workflow is planned to its end.

Their ids are numbers that rise by one. Who plans reads all plans, with the last number, and records
its own under the next: where somebody else has done so meanwhile, the id is taken, and it plans
again beside the new plan. So of two planners at the same moment only one takes the last room, in
one transaction of either database.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement, number_in
from monitors.workflows.logs.status import Status

LONGEST_S = 30 * 86400.0
_METRIC = "plan"
_ID = re.compile(r"plan:([0-9]{1,15})")  # an engineer may record anything
_MOST = 200  # of the newest plans: more workflows do not run at once
_MOST_WORKFLOWS = 1000
_PLANNING_S = 3600.0  # between a workflow's mapping and its submit directory's own time


@dataclass(frozen=True, slots=True)
class KnownPlan:
    """A plan that was made ``age_s`` seconds ago, with what it will take (``details``), and the
    share of its workflow's jobs that are done, None where the workflow was not seen."""

    name: str
    age_s: float
    details: Mapping[str, Any]
    done: float | None

    def shown(self, name: str) -> dict[str, Any]:
        """JSON-ready, without its name: ``mine`` says whether that is ``name``."""
        mine = self.name == name
        return {"age_s": self.age_s, "done": self.done, "mine": mine, **self.details}


def known_plans(archive: Archive, now: float) -> tuple[int, list[KnownPlan]]:
    """The last number, and the newest plan of each workflow that has not ended, at ``now`` (Unix
    seconds). Raises ArchiveError."""
    rows = archive.query(_METRIC, newest=True, limit=_MOST)
    number = max((int(n.group(1)) for row in rows if (n := _ID.fullmatch(row.id))), default=0)
    newest: dict[str, Measurement] = {}
    for row in rows:
        newest.setdefault(row.subject, row)
    living = {
        name: row
        for name, row in newest.items()
        if row.at + 2 * row.value + _PLANNING_S > now  # a workflow may be late
    }
    if not living:
        return number, []
    statuses = _statuses(archive, living)
    plans = []
    for name, row in living.items():
        status = statuses.get(name)
        if status is None or not status.ended:
            done = None if status is None else status.percent_done / 100
            plans.append(KnownPlan(name, now - row.at, row.details, done))
    return number, plans


def _statuses(archive: Archive, plans: Mapping[str, Measurement]) -> dict[str, Status]:
    """How the workflows of plans stand, by submit directory."""
    oldest = min(row.at for row in plans.values()) - _PLANNING_S
    workflows = archive.query("workflow", since=oldest, newest=True, limit=_MOST_WORKFLOWS)
    folders = {
        row.workflow: str(row.details.get("submit_dir"))
        for row in reversed(workflows)
        if row.details.get("submit_dir") in plans
    }
    latest = archive.latest("status", folders)
    return {
        folders[workflow]: Status.from_measurement(row)
        for workflow, row in latest.items()
        # A workflow that is planned anew in the same directory has not begun.
        if row.at >= plans[folders[workflow]].at
    }


def add_plan(
    archive: Archive, name: str, at: float, details: Mapping[str, Any], after: int
) -> bool:
    """Record a plan made ``at`` (Unix seconds), where ``after`` is still the last number; False
    where it is not. Raises InputError, ArchiveError."""
    return archive.record(
        Measurement(
            f"{_METRIC}:{after + 1}",
            _METRIC,
            name,
            _until_s(details),
            "s",
            at,
            "site selection",
            details=details,
        )
    )


def _until_s(details: Mapping[str, Any]) -> float:
    ends = [row[-1][0] for row in details["cores"].values() if row]
    ends += [row[1] for rows in details["flows"].values() for row in rows]
    return min(LONGEST_S, max((number_in(end) or 0.0 for end in ends), default=0.0))
