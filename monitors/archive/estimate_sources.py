"""Where a user's estimates come from.

They are asked for once for a whole workflow: of the broker first, for it alone opens its archive;
where none answers, of the archive itself, if this user may read it.

Anybody may say anything of a transfer of theirs. Where nobody vouches for what is said, the source
of the measurement has the user's name, and the estimates of others leave it out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitors.archive.archive import Archive, Selection
from monitors.archive.knowledge import known_estimates
from monitors.base.estimates import Estimate
from monitors.base.measurement import Measurement
from network_provisioner.base.errors import AdonError
from network_provisioner.client.broker import BrokerClient

LEFT_OUT = "measurements are left out, and the catalogs believed"


@dataclass(frozen=True, slots=True)
class EstimateSnapshot:
    """Estimates at one moment, by metric and subject. ``note``, one line, says why measurements are
    left out, if they are."""

    known: Mapping[tuple[str, str], Estimate] = field(default_factory=dict)
    note: str = ""

    def estimate(self, metric: str, subject: str, now: float) -> Estimate | None:
        """One of them, or None."""
        return self.known.get((metric, subject))


def ask(
    broker: BrokerClient | None,
    archive: str | Path | None,
    sites: Collection[str],
    transformations: Collection[str],
    now: float,
) -> EstimateSnapshot:
    """The estimates of these sites, the paths between them, and transformations at ``now`` (Unix
    seconds). Never raises: the note names a source that does not answer."""
    why = []
    if broker is not None:
        try:
            return EstimateSnapshot(_of_broker(broker, sites, transformations))
        except AdonError as error:
            why.append(str(error))
    try:
        known = {} if archive is None else of_archive(archive, sites, transformations, now)
        if known:
            return EstimateSnapshot(known)
    except (AdonError, ValueError) as error:
        why.append(str(error))
    return EstimateSnapshot({}, f"{'; '.join(why)}; {LEFT_OUT}" if why else "")


def of_archive(
    archive: str | Path, sites: Collection[str], transformations: Collection[str], now: float
) -> dict[tuple[str, str], Estimate]:
    """The same from an archive. Raises InputError, ArchiveError."""
    with Archive(archive, read_only=True) as opened:
        return known_estimates(opened, sites, transformations, now)


def _of_broker(
    broker: BrokerClient, sites: Collection[str], transformations: Collection[str]
) -> dict[tuple[str, str], Estimate]:
    body = {"sites": [*sites], "transformations": [*transformations]}
    return broker.read(_estimates, "POST", "/v1/estimates", body)


def _estimates(answer: Any) -> dict[tuple[str, str], Estimate]:
    return {
        (str(row["metric"]), str(row["subject"])): Estimate(
            float(row["value"]), float(row["spread"]), int(row["count"]), float(row["at"]),
            str(row["source"]), str(row["unit"]), note=str(row["note"]),
        )
        for row in answer["estimates"]
    }  # fmt: skip


class UserArchive:
    """An archive without the measurements that decisions of ``users`` must not use
    (:class:`monitors.archive.knowledge.Source`); roll-ups, which have no user, are left out."""

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
        selection = Selection((metric,), subject, until=until, users=self._users)
        return [
            measurement
            for _, measurement in self._archive.page(selection, newest=newest, limit=limit)
        ]
