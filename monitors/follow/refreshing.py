"""Measuring a workflow at once: the thesis's remote trigger.

Who asks leaves a request in the archive; whoever follows the workflow looks for requests, reads the
workflow's files and records its status under an id made from the request
(:func:`monitors.follow.follower.refresh_key`). So the one who asked knows when its own request was
answered, whichever process did it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from monitors.archive import Archive
from monitors.follow.follower import refresh_key
from monitors.follow.workflow import FollowedWorkflow
from monitors.logs.submit_dir import SubmitDir, running
from monitors.measurement import Measurement
from monitors.status import Status
from network_provisioner.errors import InputError

_log = logging.getLogger(__name__)

KIND = "refresh"
LOOK_S = 0.2  # how often requests are looked for


class Follows(Protocol):
    """Something that follows workflows."""

    def refresh(self, workflow: str, key: str) -> Status | None:
        """Read everything of a workflow now and record a status with ``key`` in its id; None where
        it is not followed here."""


def answer_id(workflow: str, request: int, at: float) -> str:
    """The id of the status that answers a request which was asked at an instant (Unix seconds)."""
    return f"status:{workflow}:{refresh_key(request, at)}"


def read_now(facts: Measurement, key: str) -> list[Measurement]:
    """Everything that the files of a workflow say, and its status once more with ``key`` in its id.

    ``facts`` is its ``workflow`` measurement. Empty where its directory is not on this machine.
    Raises InputError where it cannot be read.
    """
    path = facts.details.get("submit_dir")
    # What somebody sent over the network names a directory that this process may be able to read,
    # and the sender not.
    if not isinstance(path, str) or not path or facts.details.get("by"):
        return []
    if facts.details.get("host") != os.uname().nodename or not os.path.isdir(path):  # noqa: PTH112
        return []
    here = _planned(Path(path), facts)
    if here is None:
        return []
    followed = FollowedWorkflow(here, str(facts.details.get("root", "")))
    followed.step()
    found, _ = followed.take()
    return [*found, followed.once_more(key)]


def _planned(folder: Path, facts: Measurement) -> SubmitDir | None:
    """The workflow itself; None where another is in its place meanwhile. Raises InputError."""
    name = facts.details.get("dag")
    here = running(folder, name) if isinstance(name, str) and name else SubmitDir(folder)
    if here.workflow == facts.subject:
        return here
    if here.braindump or not facts.details.get("parent"):
        return None
    return SubmitDir(folder, here.dag, facts.subject)  # a part without a UUID of its own


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its number, the id of the status that answers it, and whether it was answered
    ``here``, at once."""

    request: int
    answer: str
    here: bool


class Refresher:
    """Has workflows measured at once, by whoever can.

    ``follows`` is what runs in this process, if anything does.
    """

    def __init__(
        self, archive: Archive, clock: Callable[[], float], follows: Follows | None = None
    ) -> None:
        self._archive = archive
        self._clock = clock
        self._follows = follows

    def ask(self, workflow: str, facts: Measurement | None) -> Asked:
        """Have a workflow measured at once: in this process where that can be, else by whoever
        looks for requests. ``facts`` is the ``workflow`` measurement, where there is one.

        Raises ArchiveError.
        """
        at = self._clock()
        request = self._archive.ask(KIND, workflow, at)
        here = self._here(workflow, facts, refresh_key(request, at))
        return Asked(request, answer_id(workflow, request, at), here)

    def answered(self, asked: Asked) -> bool:
        """Whether it was measured. Raises ArchiveError."""
        return asked.here or self._archive.get(asked.answer) is not None

    def _here(self, workflow: str, facts: Measurement | None, key: str) -> bool:
        try:
            if self._follows is not None and self._follows.refresh(workflow, key) is not None:
                return True
            found = read_now(facts, key) if facts else []
        except InputError as error:
            _log.warning("%s", error)
            return False
        self._archive.record_many(found)
        return bool(found)
