"""Machines that are processes of this one: each a ``condor_master`` that joins the pool.

Each has a folder below ``directory`` with its configuration, its logs, ``machine.json``, which is
there before it is started, and ``process``, by which it is known: its process id and the time it
started, written by itself before it is HTCondor. It outlives the process that started it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from condor_plugins.pool.cloud.protocol import CloudError, Refusal, Server
from condor_plugins.pool.cloud.workerconfig import StartdSettings, worker_config
from condor_plugins.pool.scaling import Flavour, MachineState
from network_provisioner.base.errors import InputError

_RECORD = "machine.json"
_PROCESS = "process"
_LAST = "last-ended"
_DRAFT = ".adon-draft"
_PARTS = ("log", "spool", "execute", "lock", "run", "keys")
_START_S = 20.0
_PATIENCE_S = 20.0  # HTCondor has so long to shut down fast, which takes it a few
# The shell ends at once, so that the master is nobody's child: what started us may end with all
# that it started, as a job of HTCondor's does. It is waited for until the master is on its way,
# who has its output no longer.
_DETACHED = (
    f'(read -r stat < /proc/self/stat && echo "$stat" > {_PROCESS} && '
    'exec "$@" < /dev/null >> log/master.out 2>&1) &'
)


class Process(NamedTuple):
    """A process that runs; ``started`` in clock ticks since the machine was booted, which tells it
    from a later one of the same id."""

    pid: int
    parent: int
    started: int

    @classmethod
    def of(cls, stat: Path) -> Process | None:
        """From ``/proc/PID/stat`` or a copy; None if it has ended, as zombies have. Raises
        OSError if that cannot be told."""
        try:
            pid, _, rest = stat.read_text(errors="replace").partition(" (")
            # A name may hold anything, parentheses too.
            fields = rest.rpartition(")")[2].split()
            process = cls(int(pid), int(fields[1]), int(fields[19]))
            return None if fields[0] in "ZX" else process
        except (FileNotFoundError, ProcessLookupError, IndexError, ValueError):
            return None


class StartdCloud:
    """See :class:`condor_plugins.pool.cloud.protocol.Cloud`.

    :param clock: Unix seconds.
    """

    def __init__(self, settings: StartdSettings, clock: Callable[[], float] = time.time) -> None:
        self._settings = replace(settings, directory=settings.directory.absolute())
        self._directory = self._settings.directory
        self._clock = clock
        self._master = settings.release / "sbin/condor_master"

    def check(self) -> None:
        """The same."""
        token = self._settings.token_file
        if not os.access(self._master, os.X_OK):
            raise InputError(f"{self._master}: not found, expected HTCondor below its 'release'")
        try:
            with self._turn():
                (self._directory / _DRAFT).mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{self._directory}: {error.strerror}, expected a folder to write to"
            ) from None
        try:
            empty = token is not None and not token.read_bytes().strip()
        except OSError as error:
            raise InputError(f"{token}: {error.strerror}, expected a token of the pool") from None
        if empty:
            raise InputError(f"{token}: found nothing, expected a token of the pool")

    def flavours(self) -> Sequence[Flavour]:
        """The same."""
        return self._settings.flavours

    def machines(self) -> Sequence[Server]:
        """The same. What has ended has the last line that HTCondor said."""
        with self._as_cloud_error("list"):
            homes = sorted(self._directory.iterdir()) if self._directory.exists() else []
            return [
                self._server(home, row)
                for home in homes
                if home.name != _LAST and (row := _read(home / _RECORD))
            ]

    def start(self, flavour: str, name: str) -> None:
        """The same."""
        kind = next((f for f in self.flavours() if f.name == flavour), None)
        if kind is None:
            raise InputError(f"flavour: found {flavour!r}, expected one of the configuration")
        home, draft = self._directory / name, self._directory / _DRAFT / name
        with self._as_cloud_error(f"start {name}"), self._turn():
            if home.exists():
                return
            self._renew_token()
            shutil.rmtree(draft.parent, ignore_errors=True)  # of who was killed here
            for part in _PARTS:
                (draft / part).mkdir(parents=True)
            (draft / "condor_config").write_text(worker_config(self._settings, kind, name))
            _write(draft / _RECORD, {"flavour": flavour, "since": self._clock()})
            draft.rename(home)
            self._run(home)

    def delete(self, name: str) -> None:
        """The same: HTCondor shuts down fast; asked again some seconds later, it is killed."""
        home = self._directory / name
        with self._as_cloud_error(f"delete {name}"):
            row = _read(home / _RECORD)
            master = _living(home)
            if not row:
                return
            if master is None:
                # One that is on its way now, for who started it was killed, finds nothing to read.
                (home / "condor_config").unlink(missing_ok=True)
                if not _kill(home, None):
                    with self._turn():
                        # Its logs say why, if it was too soon.
                        last = self._directory / _LAST
                        if last.exists() and not _read(last / _RECORD):  # it is another's
                            shutil.rmtree(home)
                            return
                        shutil.rmtree(last, ignore_errors=True)
                        home.rename(last)
                return
            told_at = row.setdefault("deleted", self._clock())
            _write(home / _RECORD, row)
            if self._clock() < told_at + _PATIENCE_S:
                _signal(master.pid, signal.SIGQUIT)  # which one that has just begun does not hear
            else:
                _kill(home, master)

    # -- within ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _as_cloud_error(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CloudError(f"{self._directory}: {what}: {error}", Refusal.BUSY) from error

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """One starts at a time."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        held = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield
        finally:
            os.close(held)

    def _renew_token(self) -> None:
        """The token where HTCondor looks for it, in its newest form."""
        folder = self._directory / "tokens.d"
        folder.mkdir(exist_ok=True, mode=0o700)
        if self._settings.token_file is not None:
            draft = folder / ".pool.new"
            draft.unlink(missing_ok=True)
            draft.touch(0o600)
            draft.write_bytes(self._settings.token_file.read_bytes())
            draft.replace(folder / "pool")

    def _run(self, home: Path) -> None:
        # A clean environment: transfer plug-ins inherit from daemons, and HTCondor's marks of the
        # job that we may be part of would have it end with us.
        own = {key: os.environ[key] for key in ("HOME", "USER", "LOGNAME") if key in os.environ}
        places = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        subprocess.run(
            ["sh", "-c", _DETACHED, "sh", str(self._master), "-f"],
            cwd=home,
            env={
                "PATH": places,
                "LANG": "C.UTF-8",
                **own,
                **self._settings.environment,
                "CONDOR_CONFIG": str(home / "condor_config"),
            },
            capture_output=True,
            timeout=_START_S,
            start_new_session=True,
            check=False,
        )

    def _server(self, home: Path, row: dict[str, Any]) -> Server:
        runs = _living(home) is not None
        state = MachineState.RUNNING if runs and "deleted" not in row else MachineState.ENDED
        return Server(
            home.name, row["flavour"], state, row["since"], error="" if runs else _last_word(home)
        )


def _living(home: Path) -> Process | None:
    """The master of a machine."""
    noted = Process.of(home / _PROCESS)
    process = Process.of(Path(f"/proc/{noted.pid}/stat")) if noted else None
    return process if noted and process and process.started == noted.started else None


def _family(home: Path, master: Process | None) -> list[int]:
    """Ids of a machine's processes: its daemons, known by their configuration also where their
    master is gone (they would end a minute later), and what they started."""
    mark = f"CONDOR_CONFIG={home}/condor_config".encode()
    parents, pids = {}, {master.pid} if master else set()
    for path in Path("/proc").iterdir():
        if path.name.isdecimal() and (process := Process.of(path / "stat")):
            parents[process.pid] = process.parent
            with contextlib.suppress(OSError):  # another user's
                if mark in (path / "environ").read_bytes().split(b"\0"):
                    pids.add(process.pid)
    while more := {pid for pid, parent in parents.items() if parent in pids} - pids:
        pids |= more
    return sorted(pids)


def _kill(home: Path, master: Process | None) -> bool:
    """Whether there was anything."""
    pids = _family(home, master)
    for pid in pids:
        _signal(pid, signal.SIGKILL)
    return bool(pids)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _last_word(home: Path) -> str:
    try:
        lines = (home / "log/master.out").read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


def _read(path: Path) -> dict[str, Any]:
    """A machine's record; nothing where it has none. Raises OSError if that cannot be told."""
    try:
        row = json.loads(path.read_text())
        return {**row, "flavour": str(row["flavour"]), "since": float(row["since"])}
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return {}


def _write(path: Path, row: dict[str, Any]) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(row) + "\n")
    draft.replace(path)
