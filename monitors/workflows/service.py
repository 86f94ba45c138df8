"""Following workflows as a part of a process that does other things too, a broker or an agent; and
measuring one at once: the thesis's remote trigger.

Who asks leaves a request in the archive; whoever follows the workflow looks for requests, reads the
workflow's files and records its status under an id made from the request
(:func:`~monitors.workflows.follower.refresh_key`). So the one who asked knows when its own request
was answered, whichever process did it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from monitors.archive.archive import Archive
from monitors.base.background import Background
from monitors.base.measurement import Measurement
from monitors.jobs.condor import Schedd
from monitors.workflows.discovery import (
    SINCE_S,
    Discovery,
    FoundWorkflow,
    WorkflowSource,
    of_all,
    of_user,
)
from monitors.workflows.followed import FollowedWorkflow
from monitors.workflows.follower import Follower, OnStatus, refresh_key
from monitors.workflows.inquiries import Fallback, Inquiries, inquiry_into
from monitors.workflows.logs.status import Status
from monitors.workflows.planned.foreign_files import is_file
from monitors.workflows.planned.submit_dir import SubmitDir, running
from monitors.workflows.sink import Requests, Sink, record_what_fits
from network_provisioner.base.errors import AdonError, InputError

_log = logging.getLogger(__name__)

USER, ALL = "user", "all"
_AGAIN_S = 10.0  # after what should not have happened
_STOP_S = 60.0
KIND = "refresh"
LOOK_S = 0.2  # how often requests are looked for
LATE_S = 10.0  # after its question was answered a follower asks again at once
_SILENT_S = 86_400.0  # a follower that is silent for so long is not expected any more
_MOST = 1_000  # followers


def check_workflows(workflows: Sequence[str]) -> None:
    """Whether these can be followed: ``user``, ``all``, or submit directories (or .dag files in
    them) by their absolute paths. Raises InputError."""
    for workflow in workflows:
        if workflow not in (USER, ALL) and not Path(workflow).is_absolute():
            raise InputError(
                f"workflows: found {workflow!r}, expected 'user', 'all' or the absolute path of a"
                " submit directory"
            )


def sources_of(workflows: Sequence[str], since: Callable[[], float]) -> list[WorkflowSource]:
    """Where more workflows are to be looked for; ``since`` as
    :class:`~monitors.workflows.discovery.PegasusDatabase`."""
    if ALL in workflows:
        return of_all(since)
    return of_user(since) if USER in workflows else []


class FollowService:
    """Follows these ``workflows`` (``user``, ``all``, submit directories) into ``sink`` in a thread
    of its own, from :meth:`start` to :meth:`stop`.

    Directories that are not there yet are followed once they are. ``clock`` gives Unix seconds.
    ``requests`` to measure at once are answered; by default those in the archive that is the sink.
    Raises InputError as :func:`check_workflows`.
    """

    def __init__(
        self,
        sink: Sink,
        workflows: Sequence[str],
        clock: Callable[[], float],
        on_status: OnStatus | None = None,
        requests: Requests | None = None,
    ) -> None:
        check_workflows(workflows)
        self._requests = requests or (sink if isinstance(sink, Archive) else None)
        self._sink, self._workflows = sink, workflows
        self._clock, self._on_status = clock, on_status
        self._thread = Background("follow", self._run)
        self._stop = self._thread.stopping
        self._follower: Follower | None = None

    def start(self) -> None:
        """Begin; nothing where nobody's workflows are to be followed."""
        if self._workflows and self._follower is None:
            self._follower = self._made()
            self._thread.start()

    def stop(self) -> None:
        """End, after what was written until now is recorded. Harmless where it was never started"""
        self._thread.stop(_STOP_S)

    def refresh(self, workflow: str, key: str) -> Status | None:
        """As :meth:`~monitors.workflows.follower.Follower.refresh`; None also where nothing is
        followed."""
        return None if self._follower is None else self._follower.refresh(workflow, key)

    def _made(self) -> Follower:
        sources = sources_of(self._workflows, lambda: self._clock() - SINCE_S)
        folders = [Path(name) for name in self._workflows if name not in (USER, ALL)]
        if folders:
            sources.append(Named(folders))
        return Follower(
            (),
            self._sink,
            on_status=self._on_status,
            discovery=Discovery(sources),
            inquiries=Inquiries(Fallback(), inquiry_into(Schedd())),
            requests=self._requests,
            keep=True,
        )

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self._follower is not None:
                    self._follower.run(self._stop)
            except AdonError as error:
                _log.warning("%s", error)
            except Exception:  # a fault of ours must not end it for good
                _log.exception("following workflows stopped; it begins again")
                self._follower = self._made()
            self._stop.wait(_AGAIN_S)


class Named:
    """Directories, and DAGs, that are named, whether they are there or not."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    def files(self) -> dict[Path, list[str]]:
        """See :class:`~monitors.workflows.discovery.WorkflowSource`."""
        files: dict[Path, list[str]] = {}
        for folder in self._folders:
            files.setdefault(folder.parent, []).append(folder.name)
        return files

    def observe(self) -> list[FoundWorkflow]:
        """See :class:`~monitors.workflows.discovery.WorkflowSource`."""
        dags = [folder for folder in self._folders if is_file(folder)]
        folders = [folder for folder in self._folders if os.path.isdir(folder)]  # noqa: PTH112  # Path's raises
        return [
            *map(FoundWorkflow, folders),
            *(FoundWorkflow(dag.parent, dag.name) for dag in dags),
        ]


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
    measurements, _ = followed.take()
    return [*measurements, followed.once_more(key)]


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
class RefreshRequest:
    """A request: its number, the id of the status that answers it, and whether it was answered
    ``here``, at once."""

    request: int
    answer: str
    here: bool


class Followers:
    """Who follows workflows from elsewhere and records them here, so that one that stops is missed;
    by their names. ``clock`` gives Unix seconds. Thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._heard: dict[str, tuple[float, float]] = {}  # when, and when it is to ask again

    def heard(self, name: str, wait_s: float, ends: bool) -> None:
        """It asks, and waits for ``wait_s``; or says that it ``ends``."""
        now = self._clock()
        with self._lock:
            self._heard.pop(name, None)
            if not ends:
                self._heard[name] = now, now + wait_s
            while len(self._heard) > _MOST:
                self._heard.pop(next(iter(self._heard)))

    def silent(self) -> dict[str, tuple[float, str]]:
        """Those that should have asked again: since when, and why that is known."""
        now, why = self._clock(), "it follows workflows, and has not polled in time"
        with self._lock:
            return {
                f"follower {name!r}": (at, why)
                for name, (at, due) in self._heard.items()
                if 0 <= now - due - LATE_S < _SILENT_S
            }


class Refresher:
    """Has workflows measured at once, by whoever can.

    ``follows`` is what runs in this process, if anything does.
    """

    def __init__(
        self, archive: Archive, clock: Callable[[], float], follows: FollowService | None = None
    ) -> None:
        self._archive = archive
        self._clock = clock
        self._follows = follows

    def ask(self, workflow: str, facts: Measurement | None) -> RefreshRequest:
        """Have a workflow measured at once: in this process where that can be, else by whoever
        looks for requests. ``facts`` is the ``workflow`` measurement, where there is one.

        Raises ArchiveError.
        """
        at = self._clock()
        request = self._archive.ask(KIND, workflow, at)
        here = self._here(workflow, facts, refresh_key(request, at))
        return RefreshRequest(request, answer_id(workflow, request, at), here)

    def answered(self, request: RefreshRequest) -> bool:
        """Whether it was measured. Raises ArchiveError."""
        return request.here or self._archive.get(request.answer) is not None

    def _here(self, workflow: str, facts: Measurement | None, key: str) -> bool:
        try:
            if self._follows is not None and self._follows.refresh(workflow, key) is not None:
                return True
            measurements = read_now(facts, key) if facts else []
        except InputError as error:
            _log.warning("%s", error)
            return False
        record_what_fits(self._archive, measurements)
        return bool(measurements)
