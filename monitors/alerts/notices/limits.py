"""How many notices somebody gets: whoever can have a workflow fail could have all told for ever."""

from __future__ import annotations

from monitors.alerts.notices.targets import ANOMALY, LINK, Notice, Target

WINDOW_S = 3600.0
OF_WORKFLOW, OF_USER = 5, 20
"""Within :data:`WINDOW_S`, to each target; as many of a link as of a user."""


class NoticeLimits:
    """Counts what is told of each workflow and each user, or of each link. Anomalies are told once
    each."""

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
        most = {"workflow": OF_WORKFLOW, "user": OF_USER}
        if notice.kind == LINK:
            most = {"link": OF_USER}
        names = {what: str(notice.details.get(what, "")) for what in most}
        told = {what: self._told.get((target.id, what, name), []) for what, name in names.items()}
        if any(len(told[what]) >= most[what] for what in most):
            return False, ""
        for what, name in names.items():
            self._told[target.id, what, name] = [*told[what], now]
        last = [f"{what} {names[what]}" for what in most if len(told[what]) == most[what] - 1]
        return True, last[-1].strip() if last else ""
