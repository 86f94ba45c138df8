"""What a caller may see of workflows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from monitors.archive.archive import Archive, Measurement, Selection
from monitors.rules import Rules
from monitors.workflows.facts.condor_transfers import TOOL as CONDOR
from monitors.workflows.facts.plan import placement_id
from monitors.workflows.overview import KnownWorkflows, Overview
from network_provisioner.access import May, Principal
from network_provisioner.api.shapes import MOST
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import Transit

_PAGE = 5000  # measurements that are read at once
_CONDORS = "condor:"  # how ids of transits for HTCondor's own transfers begin


TransitsOf = Callable[[str], Sequence[Transit]]
"""All transits of a workflow."""


def _none(_: str) -> Sequence[Transit]:
    return ()


class Visible:
    """Workflows and their measurements in an archive, filtered by rules. ``transits_of`` knows
    which paths HTCondor's own transfers had: who follows a workflow does not."""

    def __init__(
        self,
        archive: Archive,
        rules: Rules,
        known: KnownWorkflows,
        transits_of: TransitsOf = _none,
    ) -> None:
        self.archive = archive
        self._transits_of = transits_of
        self.known = known
        self._rules = rules

    def all(self, caller: Principal) -> dict[str, Overview]:
        """Every workflow that ``caller`` may see, the one that changed last first. Raises
        BrokerError ``forbidden``, ArchiveError."""
        caller.need(May.SEE)
        return self.known.all(lambda measurement: self._rules.may_see(caller, measurement))

    def workflow(self, caller: Principal, workflow: str) -> tuple[Overview, dict[str, Overview]]:
        """A workflow, and :meth:`all`. Raises BrokerError ``unknown_workflow``: whether there is
        one is for those alone who may see it."""
        overviews = self.all(caller)
        if workflow not in overviews:
            raise BrokerError(f"unknown workflow {workflow!r:.200}", "unknown_workflow")
        return overviews[workflow], overviews

    def of(self, caller: Principal, metric: str, ids: Sequence[str]) -> Iterator[Measurement]:
        """What was measured of these workflows, oldest first. Raises ArchiveError."""
        for key in ids:
            may_see: dict[str, bool] = {}  # of jobs and DAGs the subject decides
            for measurement in self.archive.each(Selection((metric,), workflow=key)):
                subject = measurement.subject
                if subject not in may_see:
                    may_see[subject] = self._rules.may_see(caller, measurement)
                if may_see[subject] and 0 <= measurement.value < MOST:
                    yield measurement

    def some(
        self,
        caller: Principal,
        metric: str,
        workflow: str,
        offset: int,
        limit: int,
        newest: bool,
        wanted: Callable[[Measurement], bool] = lambda _: True,
    ) -> list[Measurement]:
        """What was measured of a workflow and is ``wanted``, oldest or ``newest`` first, after
        ``offset`` others at most ``limit``. No more is read than that takes. Raises ArchiveError"""
        selection, cursor = Selection((metric,), workflow=workflow), None
        measurements: list[Measurement] = []
        most = offset + limit
        while len(measurements) < most:
            page = self.archive.page(selection, cursor, newest=newest, limit=min(most, _PAGE))
            measurements += (m for _, m in page if wanted(m) and self._may_see(caller, m))
            if len(page) < min(most, _PAGE):
                break
            cursor = page[-1][0]
        return measurements[offset:most]

    def between(
        self, caller: Principal, metric: str, subject: str, limit: int
    ) -> list[Measurement]:
        """The newest of a subject, whatever workflow they are of. Raises ArchiveError."""
        newest = self.archive.query(metric, subject, newest=True, limit=limit)
        return [m for m in newest if self._may_see(caller, m)]

    def placements(
        self, caller: Principal, workflow: str, jobs: Collection[str]
    ) -> dict[str, Measurement]:
        """Why these jobs of a workflow are where they are, or tasks of what it was planned from.
        Raises ArchiveError."""
        keys = {placement_id(workflow, job): job for job in jobs}
        measurements = self.archive.those(list(keys))
        return {
            keys[key]: m
            for key, m in measurements.items()
            # Ids are what somebody recorded, and names may hold what parts them.
            if (m.metric, m.workflow) == ("placement", workflow) and self._may_see(caller, m)
        }

    def _may_see(self, caller: Principal, measurement: Measurement) -> bool:
        return 0 <= measurement.value < MOST and self._rules.may_see(caller, measurement)

    def transfers(self, caller: Principal, ids: Sequence[str]) -> list[Measurement]:
        """What jobs of these workflows moved, oldest first, with all paths that are known. Raises
        ArchiveError, StoreError."""
        return self.with_paths(list(self.of(caller, "job_transfer", ids)))

    def with_paths(self, measurements: Sequence[Measurement]) -> list[Measurement]:
        """Transfers with all paths that are known. Raises StoreError."""
        unknown = {m.workflow for m in measurements if _may_have_path(m)}
        transits = {workflow: self._transits_of(workflow) for workflow in unknown}
        return [
            _with_path(m, transits[m.workflow]) if _may_have_path(m) else m for m in measurements
        ]


def _may_have_path(moved: Measurement) -> bool:
    return moved.details.get("tool") == CONDOR and moved.details.get("path") is None


def _with_path(moved: Measurement, transits: Sequence[Transit]) -> Measurement:
    """With the path of the last transit that was asked for it before it was over."""
    src, _, dst = moved.subject.partition(">")
    mine = [
        transit
        for transit in transits
        if transit.id.startswith(_CONDORS)
        and (transit.request.job, transit.request.src, transit.request.dst)
        == (moved.details.get("job"), src, dst)
        and transit.request.requested_at <= moved.at
    ]
    if not mine:
        return moved
    last = max(mine, key=lambda transit: (transit.request.requested_at, transit.id))
    return replace(
        moved, details={**moved.details, "path": list(last.grant.path), "transit": last.id}
    )
