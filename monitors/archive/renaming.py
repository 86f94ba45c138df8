"""Measurements of what has another name now."""

from __future__ import annotations

from collections.abc import Callable

from monitors.archive.stores.base import Engine
from monitors.base.measurement import OF_WORKFLOWS


def rename_subjects(engine: Engine, renamed: Callable[[str], str]) -> None:
    """Give measurements and roll-ups the subjects that ``renamed`` makes of theirs, all or none.
    Of a subject that has roll-ups of its own, they stay as they are. Raises ArchiveError."""
    for table in ("measurement", "rollup"):
        known = set(engine.rows(f"SELECT DISTINCT metric, subject FROM {table}"))
        pairs = [
            (metric, subject, new)
            for metric, subject in known
            if metric not in OF_WORKFLOWS and (new := renamed(subject)) != subject
            if table == "measurement" or (metric, new) not in known
        ]
        if pairs:
            with engine.write() as writing, writing.unlocked():
                for metric, subject, new in pairs:
                    writing.run(
                        f"UPDATE {table} SET subject = ? WHERE metric = ? AND subject = ?",
                        (new, metric, subject),
                    )
