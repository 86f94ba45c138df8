"""What a caller may see of workflows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from monitors.archive import Archive, Measurement
from monitors.jobs.condor_moves import TOOL as CONDOR
from monitors.rules import Rules
from monitors.workflows.known import KnownWorkflows
from monitors.workflows.overview import Overview
from network_provisioner.access import May, Principal
from network_provisioner.api.shapes import MOST
from network_provisioner.errors import BrokerError
from network_provisioner.model import Transit

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
        return self.known.all(lambda found: self._rules.may_see(caller, found))

    def one(self, caller: Principal, workflow: str) -> tuple[Overview, dict[str, Overview]]:
        """A workflow, and :meth:`all`. Raises BrokerError ``unknown_workflow``: whether there is
        one is for those alone who may see it."""
        found = self.all(caller)
        if workflow not in found:
            raise BrokerError(f"unknown workflow {workflow!r:.200}", "unknown_workflow")
        return found[workflow], found

    def of(self, caller: Principal, metric: str, ids: Sequence[str]) -> list[Measurement]:
        """What was measured of these workflows, oldest first. Raises ArchiveError."""
        found = [m for key in ids for m in self.archive.query(metric, workflow=key)]
        return [m for m in found if 0 <= m.value < MOST and self._rules.may_see(caller, m)]

    def transfers(self, caller: Principal, ids: Sequence[str]) -> list[Measurement]:
        """What jobs of these workflows moved, oldest first, with all paths that are known. Raises
        ArchiveError, StoreError."""
        found = self.of(caller, "job_transfer", ids)
        unknown = {m.workflow for m in found if _may_have_path(m)}
        transits = {workflow: self._transits_of(workflow) for workflow in unknown}
        return [_with_path(m, transits[m.workflow]) if _may_have_path(m) else m for m in found]


def _may_have_path(moved: Measurement) -> bool:
    return moved.details.get("tool") == CONDOR and moved.details.get("path") is None


def _with_path(moved: Measurement, transits: Sequence[Transit]) -> Measurement:
    """With the path of the last transit that was asked for it before it was over."""
    src, _, dst = moved.subject.partition(">")
    mine = [
        transit
        for transit in transits
        if transit.id.startswith(_CONDORS)
        and (transit.job, transit.src, transit.dst) == (moved.details.get("job"), src, dst)
        and transit.requested_at <= moved.at
    ]
    if not mine:
        return moved
    last = max(mine, key=lambda transit: (transit.requested_at, transit.id))
    return replace(moved, details={**moved.details, "path": list(last.path), "transit": last.id})
