"""What PRE asked for and got, on disk as ``<dir>/<job>.adon.json``, for the hooks that follow it:
its own next run, POST, the watcher.

    job, retry, workflow  whose it is
    whose                 user, project, experiment and application, as the broker was told
    at, since             when this PRE began, and when the first of those that it deferred did
    pairs                 a :class:`~monitors.watcher.decision_file.Pair` for each pair of sites
    service               how the template wants it served; null where no broker said so
    tuned                 what the transfer was tuned with, by PRE's edit of the submit file
    told                  whether the broker knows of everything that goes without a path
    deferred              whether PRE left it to DAGMan to ask again
    left_over             ids of former runs that could not be released
    given_back            whether nothing of all this is left to release
    warnings              what went wrong, as text

The file is on disk before anything is asked, with every pair in state ``unasked``. Standard library
only: the hooks import this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitors.watcher.decision_file import Pair
from monitors.workflows.planned import job_files
from network_provisioner.client.path_requests import UNASKED


@dataclass(slots=True)
class PathDecision:
    """The file's content; see the module. ``left_over`` says of each id whether it is one that was
    never answered for."""

    job: str
    retry: int
    workflow: str
    at: float
    since: float
    pairs: list[Pair]
    whose: Mapping[str, str] = field(default_factory=dict)
    service: Mapping[str, Any] | None = None
    tuned: Mapping[str, int] = field(default_factory=dict)
    deferred: bool = False
    left_over: Mapping[str, bool] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Put it in place, whole. Raises OSError."""
        job_files.write_json(
            path,
            {
                "job": self.job,
                "retry": self.retry,
                "workflow": self.workflow,
                "whose": dict(self.whose),
                "at": self.at,
                "since": self.since,
                "pairs": [pair.as_json() for pair in self.pairs],
                "service": self.service,
                "tuned": dict(self.tuned),
                "told": all(pair.told for pair in self.pairs),
                "deferred": self.deferred,
                "warnings": self.warnings,
                "left_over": sorted(self.left_over),
                "given_back": False,
            },
        )


def to_give_back(data: Mapping[str, Any]) -> dict[str, bool]:
    """The ids in a decision file that may still hold something, and of each whether it was never
    answered for: then the broker may have given it, or a later one of its ids."""
    if data.get("given_back"):
        return {}
    out = {i: True for i in data.get("left_over", []) if isinstance(i, str)}
    for pair in data.get("pairs", []):
        if isinstance(pair, dict) and isinstance(pair.get("id"), str):
            out[pair["id"]] = pair.get("state") == UNASKED
    return out


def since(data: Mapping[str, Any], retry: int, now: float) -> float:
    """When a PRE that begins now really began: where DAGMan deferred it, the first time."""
    before = data.get("since")
    same = bool(data.get("deferred")) and data.get("retry") == retry and not data.get("given_back")
    return min(before, now) if same and isinstance(before, int | float) else now
