"""What an archive knows of workflows, kept up to date by reading only what is new in it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

from monitors.archive import Archive, Measurement
from monitors.workflows.overview import Overview, counts, inside, overviews, status_of
from network_provisioner.access import Principal, Role

_METRICS = ("workflow", "status", "held")
_PAGE = 5000

MaySee = Callable[[Measurement], bool]


class KnownWorkflows:
    """Of one archive; threads may share it. ``clock`` gives Unix seconds."""

    def __init__(self, archive: Archive, clock: Callable[[], float], stuck_after_s: float) -> None:
        self._archive = archive
        self._clock = clock
        self._stuck_after_s = stuck_after_s
        self._lock = threading.Lock()
        self._seq: int | None = None
        self._newest: dict[str, dict[str, Measurement]] = {metric: {} for metric in _METRICS}

    def all(self, may_see: MaySee, since: float = -math.inf) -> dict[str, Overview]:
        """Workflows by id as they stand now, the one that changed last first, as far as their
        descriptions (or, without one, their statuses) ``may_see``. Of those that nothing was heard
        of ``since`` a time (Unix seconds), nor of any around or inside them, none: there may be
        very many. Raises ArchiveError."""
        with self._lock:
            self._read_on()
            workflows, statuses, held = (dict(self._newest[metric]) for metric in _METRICS)
        hidden = {key for key, found in workflows.items() if not may_see(found)}
        hidden |= {k for k, m in statuses.items() if k not in workflows and not may_see(m)}
        if since > -math.inf:
            whole = {key: _root(found) for key, found in {**statuses, **workflows}.items()}
            known = (*workflows.values(), *statuses.values())
            heard = {whole[found.subject] for found in known if found.at >= since}
            hidden |= {key for key, root in whole.items() if root not in heard}
        return overviews(
            [found for key, found in workflows.items() if key not in hidden],
            _without(hidden, statuses),
            _without(hidden, held),
            self._clock(),
            self._stuck_after_s,
        )

    def facts(self, workflow: str) -> Measurement | None:
        """The description of a workflow. Raises ArchiveError."""
        return self._archive.get(f"workflow:{workflow}")

    def inside(self, workflow: str, found: Mapping[str, Overview]) -> list[str]:
        """A workflow and all below it among ``found``, itself first."""
        return inside(workflow, {key: one.children for key, one in found.items()})

    def changes(self, workflow: str, most: int) -> list[dict[str, Any]]:
        """The latest changes of a workflow's status, oldest first. Raises ArchiveError."""
        if not most:
            return []
        newest = self._archive.query("status", workflow, newest=True, limit=most)
        return [
            {"at": found.at, "state": str(status.state), "source": found.source, **counts(status)}
            for found in reversed(newest)
            if (status := status_of(found)) is not None
        ]

    def may_answer(self, who: Principal, workflow: str) -> bool:
        """Whether ``who`` may record what a workflow is measured to be: an agent what it described,
        others what is their users'. Raises ArchiveError."""
        facts = self.facts(workflow)
        if who.role is not Role.AGENT and who.users is None:
            return True
        if facts is None:
            return False
        if who.role is Role.AGENT:
            return facts.details.get("by") == who.name
        return who.owns(str(facts.details.get("user", "")))

    def _read_on(self) -> None:
        if self._seq is None:
            # Whatever is recorded after this is read, perhaps twice, by the next look.
            self._seq = self._archive.latest_seq()
            for metric in _METRICS:
                self._newest[metric] = self._archive.latest(metric)
            return
        while True:
            found, reached = self._archive.read_on(self._seq, _METRICS, _PAGE)
            for _, measurement in found:
                newest = self._newest[measurement.metric]
                before = newest.get(measurement.subject)
                if before is None or measurement.at >= before.at:
                    newest[measurement.subject] = measurement
            self._seq = reached
            if len(found) < _PAGE:
                return


def _root(found: Measurement) -> str:
    root = found.details.get("root")
    return root if isinstance(root, str) and root else found.subject


def _without(hidden: set[str], found: Mapping[str, Measurement]) -> dict[str, Measurement]:
    return {key: one for key, one in found.items() if key not in hidden}
