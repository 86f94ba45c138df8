"""What somebody decides by: all that was measured, but of what transfers claim only their own.

Anybody may say anything of a transfer of theirs. Where nobody vouches for what is said, the source
of the measurement has the user's name, and others do not decide by it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from monitors.archive.archive import Archive
from monitors.archive.stores.selection import Selection
from monitors.base.estimates import Estimate
from monitors.base.measurement import Measurement


class BelievedBy:
    """An archive as ``users`` decide by it (:class:`monitors.archive.knowledge.Source`); what was
    rolled up, whose nobody knows, is left out."""

    def __init__(self, archive: Archive, users: Collection[str]) -> None:
        self._archive = archive
        self._users = frozenset(users)
        self.subjects = archive.subjects

    def estimate(
        self, metric: str, subject: str, now: float, max_age_s: float | None = None
    ) -> Estimate | None:
        """As the archive's."""
        return self._archive.estimate(metric, subject, now, max_age_s, self._users)

    def query(
        self, metric: str, subject: str, *, until: float, newest: bool, limit: int
    ) -> Sequence[Measurement]:
        """As the archive's."""
        wanted = Selection((metric,), subject, until=until, users=self._users)
        return [found for _, found in self._archive.page(wanted, newest=newest, limit=limit)]
