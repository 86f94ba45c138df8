"""How many notices somebody gets: whoever can have a workflow fail could have all told for ever."""

from __future__ import annotations

from monitors.alerts.notices.targets import ANOMALY, Notice, Target

WINDOW_S = 3600.0
OF_WORKFLOW, OF_USER = 5, 20
"""Within :data:`WINDOW_S`, to each target."""


class NoticeLimits:
    """Counts what is told of each workflow and each user. Anomalies belong to nobody, and are told
    once each."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str, str], list[float]] = {}

    def take(self, target: Target, notice: Notice, now: float) -> tuple[bool, str]:
        """Whether ``target`` may be told at ``now`` (seconds that never jump), which counts; and
        of whom nothing more is told for a while, "" where more would be."""
        if notice.kind == ANOMALY:
            return True, ""
        since = now - WINDOW_S
        self._told = {
            of: kept
            for of, times in self._told.items()
            if (kept := [t for t in times if t > since])
        }
        full = ""
        of = {"workflow": OF_WORKFLOW, "user": OF_USER}
        keys = {what: (target.id, what, str(notice.details.get(what, ""))) for what in of}
        for what, most in of.items():
            left = most - len(self._told.get(keys[what], ()))
            if left <= 0:
                return False, ""
            if left == 1:
                full = f"{what} {keys[what][2]}".strip()
        for key in keys.values():
            self._told.setdefault(key, []).append(now)
        return True, full
