"""Following workflows as a part of a process that does other things too: a broker, an agent."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from monitors.archive import Archive
from monitors.background import Background
from monitors.follow.condor import Schedd
from monitors.follow.discovery import SINCE_S, Discovery, Found, Source, of_all, of_user
from monitors.follow.elsewhere import Elsewhere, inquiry_into
from monitors.follow.follower import Follower, OnStatus
from monitors.follow.pegasus_status import Fallback
from monitors.follow.sink import Requests, Sink
from monitors.logs.dag_files import DAG, is_file
from monitors.status import Status
from network_provisioner.errors import AdonError, InputError

_log = logging.getLogger(__name__)

USER, ALL = "user", "all"
_AGAIN_S = 10.0  # after what should not have happened
_STOP_S = 60.0


def check_workflows(whose: Sequence[str]) -> None:
    """Whether these can be followed: ``user``, ``all``, or submit directories (or .dag files in
    them) by their absolute paths. Raises InputError."""
    for one in whose:
        if one not in (USER, ALL) and not Path(one).is_absolute():
            raise InputError(
                f"workflows: found {one!r}, expected 'user', 'all' or the absolute path of a submit"
                " directory"
            )


def sources_of(whose: Sequence[str], since: Callable[[], float]) -> list[Source]:
    """Where more workflows are to be looked for; ``since`` as
    :class:`~monitors.follow.discovery.PegasusDatabase`."""
    if ALL in whose:
        return of_all(since)
    return of_user(since) if USER in whose else []


class FollowService:
    """Follows ``whose`` workflows (``user``, ``all``, submit directories) into ``sink`` in a thread
    of its own, from :meth:`start` to :meth:`stop`.

    Directories that are not there yet are followed once they are. ``clock`` gives Unix seconds.
    ``requests`` to measure at once are answered; by default those in the archive that is the sink.
    Raises InputError as :func:`check_workflows`.
    """

    def __init__(
        self,
        sink: Sink,
        whose: Sequence[str],
        clock: Callable[[], float],
        on_status: OnStatus | None = None,
        requests: Requests | None = None,
    ) -> None:
        check_workflows(whose)
        self._requests = requests or (sink if isinstance(sink, Archive) else None)
        self._sink, self._whose, self._clock, self._on_status = sink, whose, clock, on_status
        self._thread = Background("follow", self._run)
        self._stop = self._thread.stopping
        self._follower: Follower | None = None

    def start(self) -> None:
        """Begin; nothing where nobody's workflows are to be followed."""
        if self._whose and self._follower is None:
            self._follower = self._made()
            self._thread.start()

    def stop(self) -> None:
        """End, after what was written until now is recorded. Harmless where it was never started"""
        self._thread.stop(_STOP_S)

    def refresh(self, workflow: str, key: str) -> Status | None:
        """As :meth:`~monitors.follow.follower.Follower.refresh`; None also where nothing is
        followed."""
        return None if self._follower is None else self._follower.refresh(workflow, key)

    def _made(self) -> Follower:
        sources = sources_of(self._whose, lambda: self._clock() - SINCE_S)
        folders = [Path(one) for one in self._whose if one not in (USER, ALL)]
        if folders:
            sources.append(Named(folders))
        return Follower(
            (),
            self._sink,
            on_status=self._on_status,
            discovery=Discovery(sources),
            elsewhere=Elsewhere(Fallback(), inquiry_into(Schedd())),
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
        """See :class:`~monitors.follow.discovery.Source`."""
        files: dict[Path, list[str]] = {}
        for folder in self._folders:
            files.setdefault(folder.parent, []).append(folder.name)
        return files

    def look(self) -> list[Found]:
        """See :class:`~monitors.follow.discovery.Source`."""
        dags = [one for one in self._folders if one.suffix == DAG and is_file(one)]
        folders = [one for one in self._folders if os.path.isdir(one)]  # noqa: PTH112  # Path's raises
        return [*map(Found, folders), *(Found(dag.parent, dag.name) for dag in dags)]
