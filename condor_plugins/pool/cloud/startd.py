"""Workers on this machine: real ``condor_master`` processes that join the pool and leave it.

Each has a folder below ``directory`` with its configuration, logs and ``worker.json``. It runs on
by itself, whoever started it; it is known by its process id and the time it started, and told to go
by a signal: SIGTERM, upon which HTCondor lets running jobs end and takes no new ones.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from condor_plugins.pool.cloud.workerconfig import (
    DEMAND_ATTRIBUTE,
    StartdSettings,
    WorkerShape,
    client_config,
    worker_config,
)
from condor_plugins.pool.demand import (
    ENDING,
    RUNNING,
    Expanded,
    ExpansionLimits,
    ExpansionPlan,
    SlotDemand,
    Worker,
    plan,
)
from network_provisioner.base.errors import AdonError, InputError, MissingError


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """``started`` in clock ticks since the machine was booted."""

    pid: int
    started: int


def identify(pid: int) -> ProcessIdentity | None:
    """The process that has this id now, None where none runs (zombies have ended)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        # A name may hold anything, parentheses too.
        fields = text.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else ProcessIdentity(pid, int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None


_FIELDS = ("SlotType", "TotalSlotCpus", "TotalSlotMemory")
_ASK_S = 10.0


def fitting(rows: Iterable[Sequence[str]], cores: int, memory_mb: int) -> int:
    """How many jobs of ``cores`` and ``memory_mb`` fit at once into slots given as ``_FIELDS``.

    A partitionable slot holds as many as its cores and memory do; those that were carved out of one
    are counted with it.
    """
    count = 0
    for kind, cpus, memory in rows:
        if kind == "Dynamic" or not cpus.isdecimal() or not memory.isdecimal():
            continue
        room = min(int(cpus) // cores, int(memory) // memory_mb if memory_mb else int(cpus))
        count += room if kind == "Partitionable" else min(1, room)
    return count


def slots_present(settings: StartdSettings, config: Path, cores: int, memory_mb: int) -> int:
    """Slots that the pool has for such jobs without our workers. Raises AdonError.

    Its collector is asked with HTCondor's own program: bindings would take the settings of this
    process, and those that it has are not the workers'.
    """
    ours = f"{DEMAND_ATTRIBUTE} is undefined && IsDataSlot =!= true"
    there = f' && (AdonSite ?: PegasusSite) == "{settings.site}"' if settings.site else ""
    words = [str(settings.release / "bin/condor_status"), "-pool", settings.collector]
    words += ["-constraint", ours + there, "-af", *_FIELDS]
    try:
        done = subprocess.run(
            words, env={"PATH": "/usr/bin:/bin", "CONDOR_CONFIG": str(config)},
            capture_output=True, text=True, errors="replace", timeout=_ASK_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AdonError(f"condor_status: {error}") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise AdonError(f"condor_status: {said[-1] if said else 'it failed'}")
    rows = (line.split() for line in done.stdout.splitlines())
    return fitting((row for row in rows if len(row) == len(_FIELDS)), cores, memory_mb)


_RECORD = "worker.json"
_LAST = "last-ended"
_PARTS = ("log", "spool", "execute", "lock", "run", "keys")
_START_S = 20.0
# The shell ends at once, so that the master is nobody's child: what started us may end with all
# that it started, as a job of HTCondor's does.
_DETACHED = '"$@" < /dev/null >> log/master.out 2>&1 & echo $!'


class StartdExpansion:
    """Grows the pool by workers on this machine.

    :param clock: Unix seconds.
    :raises InputError: for a collector that is none, MissingError where HTCondor is not installed.
    """

    def __init__(
        self,
        settings: StartdSettings,
        limits: ExpansionLimits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not settings.collector:
            raise InputError("expansion: found no collector, expected pool.collector as HOST:PORT")
        self._settings = replace(settings, directory=settings.directory.absolute())
        self._limits = limits
        self._clock = clock
        self._master = settings.release / "sbin/condor_master"
        if not self._master.exists():
            raise MissingError(f"{self._master}: not found, expected HTCondor below its 'release'")

    def enlarge(self, demand: SlotDemand) -> Expanded:
        """See :class:`condor_plugins.pool.demand.Expansion`. Raises AdonError."""
        with self._turn():
            self._prepare()
            found = self._living()
            present, note = self._present(demand)
            todo = plan(demand, [w for w, _ in found.values()], present, self._limits)
            self._carry_out(todo, demand, found)
            grown = tuple(
                w for w, _ in self._living().values()
                if w.demand == demand.id and w.state == RUNNING
            )  # fmt: skip
        if todo.refused:
            more = f"{todo.refused} slots more are beyond the limit of {self._limits.most}"
            note = "; ".join(filter(None, (note, more)))
        return Expanded(grown, note)

    def shrink(self, demand_id: str) -> int:
        """The same."""
        with self._turn():
            found = self._living()
            own = [name for name, (worker, _) in found.items() if worker.demand == demand_id]
            for name in own:
                self._stop(*found[name])
        return len(own)

    def workers(self) -> Sequence[Worker]:
        """The same; those whose processes run."""
        return [worker for worker, _ in self._living().values()]

    # -- within ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """One at a time: two levels of two workflows may begin together."""
        folder = self._settings.directory
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield
        finally:
            os.close(held)

    def _prepare(self) -> None:
        """The token where HTCondor looks for it, in its newest form, and the client's settings."""
        folder, token = self._settings.directory, self._settings.token_file
        (folder / "tokens.d").mkdir(exist_ok=True, mode=0o700)
        (folder / "client").mkdir(exist_ok=True)
        (folder / "client/condor_config").write_text(client_config(self._settings))
        if token is None:
            return
        try:
            _write_secret(folder / "tokens.d/pool", token.read_bytes())
        except OSError as error:
            raise InputError(f"{token}: {error.strerror}, expected a token of the pool") from None

    def _present(self, demand: SlotDemand) -> tuple[int, str]:
        settings, config = self._settings, self._settings.directory / "client/condor_config"
        try:
            memory = demand.memory_mb or settings.memory_mb
            return slots_present(settings, config, demand.cores, memory), ""
        except AdonError as error:
            return 0, f"slots that are there already are not counted: {error}"

    def _carry_out(
        self,
        todo: ExpansionPlan,
        demand: SlotDemand,
        found: dict[str, tuple[Worker, ProcessIdentity]],
    ) -> None:
        for name in todo.stop:
            self._stop(*found[name])
        for name in todo.keep:
            self._keep(*found[name], demand)
        for slots in todo.start:
            self._start(demand, slots)

    def _start(self, demand: SlotDemand, slots: int) -> None:
        name = f"adon-{secrets.token_hex(4)}"
        home = self._settings.directory / name
        for part in _PARTS:
            (home / part).mkdir(parents=True)
        shape = WorkerShape(name, demand.id, slots, demand.cores, demand.memory_mb, demand.until)
        (home / "condor_config").write_text(worker_config(self._settings, shape))
        # A clean environment: transfer plug-ins inherit from daemons, and HTCondor's marks of the
        # job that we may be part of would have the worker end with it.
        own = {key: os.environ[key] for key in ("HOME", "USER", "LOGNAME") if key in os.environ}
        places = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        done = subprocess.run(
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
            text=True,
            timeout=_START_S,
            start_new_session=True,
            check=False,
        )
        process = identify(int(done.stdout)) if done.stdout.strip().isdecimal() else None
        if process is None:
            said = (home / "log/master.out").read_text(errors="replace").strip().splitlines()
            shutil.rmtree(home, ignore_errors=True)
            raise AdonError(f"{self._master}: ended at once: {said[-1] if said else 'no word'}")
        worker = Worker(name, demand.id, slots, demand.until)
        self._record(worker, process, demand)

    def _keep(self, worker: Worker, process: ProcessIdentity, demand: SlotDemand) -> None:
        """A lease is only ever made longer; HTCondor reads its settings anew upon SIGHUP."""
        if demand.until <= worker.until + 1:
            return
        home = self._settings.directory / worker.name
        row = _read(home / _RECORD)
        shape = WorkerShape(
            worker.name, worker.demand, worker.slots, int(row["cores"]), int(row["memory_mb"]),
            demand.until,
        )  # fmt: skip
        draft = home / "condor_config.new"
        draft.write_text(worker_config(self._settings, shape))
        draft.replace(home / "condor_config")
        self._record(replace(worker, until=demand.until), process, demand)
        _signal(process, signal.SIGHUP)

    def _stop(self, worker: Worker, process: ProcessIdentity) -> None:
        if worker.state == RUNNING:
            row = _read(self._settings.directory / worker.name / _RECORD)
            self._write(worker.name, {**row, "state": ENDING})
        _signal(process, signal.SIGTERM)

    def _record(self, worker: Worker, process: ProcessIdentity, demand: SlotDemand) -> None:
        more = {"cores": demand.cores, "memory_mb": demand.memory_mb}
        marks = {"pid": process.pid, "started": process.started}
        self._write(worker.name, {**worker.as_dict(), **more, **marks})

    def _write(self, name: str, row: dict[str, Any]) -> None:
        path = self._settings.directory / name / _RECORD
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(row) + "\n")
        draft.replace(path)

    def _living(self) -> dict[str, tuple[Worker, ProcessIdentity]]:
        """Workers whose processes run; the folders of others are cleared away."""
        out = {}
        for path in sorted(self._settings.directory.glob(f"*/{_RECORD}")):
            try:
                row = _read(path)
                worker = Worker(
                    str(row["name"]), str(row["demand"]), int(row["slots"]), float(row["until"]),
                    str(row["state"]),
                )  # fmt: skip
                process = ProcessIdentity(int(row["pid"]), int(row["started"]))
            except (OSError, ValueError, KeyError, TypeError):
                continue  # being written, or being cleared away by somebody else
            if identify(process.pid) == process:
                out[worker.name] = (worker, process)
            else:
                self._clear_away(path.parent)
        return out

    def _clear_away(self, home: Path) -> None:
        """The logs of the last worker that ended are kept: they say why, if it was too soon."""
        last = self._settings.directory / _LAST
        (home / _RECORD).unlink(missing_ok=True)
        shutil.rmtree(last, ignore_errors=True)
        with contextlib.suppress(OSError):  # somebody else clears away, too
            home.rename(last)


def _read(path: Path) -> dict[str, Any]:
    row = json.loads(path.read_text())
    if not isinstance(row, dict):
        raise ValueError(path)
    return row


def _write_secret(path: Path, content: bytes) -> None:
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    out = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(out, "wb") as stream:
        stream.write(content)
    draft.replace(path)


def _signal(process: ProcessIdentity, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        if identify(process.pid) == process:
            os.kill(process.pid, number)
