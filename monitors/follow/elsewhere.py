"""What others than a workflow's own files tell of it."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from monitors.follow.condor import Dagman, Dagmans, Gone
from monitors.follow.family import Member
from monitors.follow.inquiry import Inquiry
from monitors.follow.pegasus_status import Fallback, key_of

SILENT_S = 600.0
"""After so long without a word of a DAGMan, HTCondor is asked whether it is still there."""

_PATIENCE_S, _AGAIN_S = 5.0, 300.0


def inquiry_into(
    dagmans: Dagmans, patience_s: float = _PATIENCE_S, again_s: float = _AGAIN_S
) -> Inquiry[Dagman, Gone]:
    """Has HTCondor asked in a thread of its own."""
    return Inquiry(dagmans.gone, "dagmans", patience_s, again_s)


@dataclass
class Elsewhere:
    """``fallback`` is asked where DAGMan is not understood, ``dagmans`` where nothing was written
    for ``silent_s`` and DAGMan should run."""

    fallback: Fallback | None = None
    dagmans: Inquiry[Dagman, Gone] | None = None
    silent_s: float = SILENT_S

    def look(self, members: Collection[Member], now: float) -> list[Member]:
        """Notes what was answered, and asks about what there is to ask now (Unix seconds); which
        workflows it changed. Never waits."""
        return [*self._by_pegasus(members), *self._by_condor(members, now)]

    def _by_pegasus(self, members: Collection[Member]) -> list[Member]:
        if self.fallback is None:
            return []
        puzzling = {m.dir.path: m for m in members if m.puzzling and m.is_planned}
        answers = self.fallback.look(puzzling)
        for folder, status in answers.items():
            puzzling[folder].note(status, key_of(status), "pegasus-status")
        return [puzzling[folder] for folder in answers]

    def _by_condor(self, members: Collection[Member], now: float) -> list[Member]:
        if self.dagmans is None:
            return []
        silent: dict[Dagman, Member] = {}
        for member in members:
            dagman = None if member.is_over else member.dagman
            if dagman is None:
                continue
            # One that was begun just now, such as a sub-workflow's that is tried again, is not
            # silent, however old its files are.
            if now - max(member.written_at, dagman.submitted) >= self.silent_s:
                silent[dagman] = member
        answers = self.dagmans.look(list(silent))
        for dagman, gone in answers.items():
            with suppress(Exception):  # whoever reads it next complains
                silent[dagman].step()  # its last words, where they come now
            silent[dagman].gone(dagman, gone)
        return [silent[dagman] for dagman in answers]

    def close(self) -> None:
        """Asks nobody any more."""
        for one in (self.fallback, self.dagmans):
            if one is not None:
                one.close()
