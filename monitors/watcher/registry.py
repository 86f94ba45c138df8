"""Which workflows run: a folder with a file for each, and the watcher that looks after them.

    <folder>/<wf_uuid>.json   {"workflow", "submit_dir", "config", "host"}
    <folder>/lock             held (flock) by the watcher as long as it runs
    <folder>/watcher.log      what it did

Every PRE registers its workflow and wakes the watcher. Neither can get lost, whoever ends when:
PRE writes its file before it looks at the lock, and the watcher gives up the lock before it looks
for files a last time. A file is only dropped where no PRE has touched it since it was read.

The folder belongs to one user of one machine. Standard library only, and quick: PRE waits for it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from monitors.workflows.planned.foreign_files import as_owner, read_text

ENDING = ".json"
LOCK = "lock"
LOG = "watcher.log"
# By these HTCondor knows what belongs to a job, to end it with the job, and its daemons know each
# other.
_CONDORS = ("_CONDOR_", "CONDOR_INHERIT", "CONDOR_PRIVATE_INHERIT")
_POLL_S = 0.05
_MOST_BYTES = 1 << 20
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


@dataclass(frozen=True, slots=True)
class Registration:
    """A registered workflow. ``host`` says on which machine, and among which of its processes, its
    DAGMan runs; ``touched`` tells a later registration from this one."""

    file: Path
    workflow: str
    submit_dir: Path
    config: Path
    host: str = ""
    touched: int = 0


def folder_of(watch: str) -> Path:
    """The folder that the hooks' configuration names; ``~`` is the user's home. Raises OSError for
    one that is not absolute then."""
    path = os.path.expanduser(watch)  # noqa: PTH111 - Path's raises where there is no home
    if not path.startswith("/"):
        raise OSError(errno.ENOENT, "found no absolute path", watch)
    return Path(path)


def register(folder: Path, config_path: Path, submit_dir: Path, workflow: str) -> None:
    """Note that ``workflow`` runs. Raises OSError where the folder cannot be written."""
    file = folder / (_name(workflow or str(submit_dir)) + ENDING)
    now = time.time_ns()
    try:
        os.utime(file, ns=(now, now))
    except FileNotFoundError:
        data = {
            "workflow": workflow,
            "submit_dir": os.path.abspath(submit_dir),  # noqa: PTH100 - Path's takes longer
            "config": os.path.abspath(config_path),  # noqa: PTH100
            "host": this_host(),
        }
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = folder / f".{file.name}.{os.getpid()}"
        out = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(out, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(data) + "\n")
        draft.replace(file)


def wake(folder: Path, config_path: Path, program: Path) -> bool:
    """Start a watcher, the Python ``program``, where none runs; whether one was started.

    It outlives whoever started it: in a session of its own, in ``/``, child of nobody, and without
    the marks by which HTCondor finds what a job leaves behind. Raises OSError where the folder
    cannot be written or no process be made.
    """
    lock = hold(folder)
    if lock is None:
        return False
    try:
        # The lock goes to the watcher as an open file, so that it is never free in between.
        _start_detached(command(program, config_path, lock), lock)
    finally:
        os.close(lock)
    return True


def command(program: Path, config_path: Path, lock: int) -> list[str]:
    """What starts a watcher that has the lock as the open file ``lock``."""
    return [
        sys.executable, "-I", "-S", str(program), "--config", os.path.abspath(config_path),  # noqa: PTH100
        "--lock", str(lock),
    ]  # fmt: skip


def hold(folder: Path) -> int | None:
    """Take the watcher's lock: an open file that holds it until it is closed by all who have it.
    None where somebody else holds it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)  # the number in it was that of one which has ended
    except BlockingIOError:
        os.close(lock)
        return None
    except OSError:
        os.close(lock)
        raise
    return lock


def end(folder: Path, patience_s: float = 5.0) -> bool:
    """Tell the watcher of ``folder`` to end, where one runs; whether none runs then.

    What it had yet to give back is left to leases. Raises OSError where the folder cannot be
    written.
    """
    deadline = time.monotonic() + patience_s
    while (lock := hold(folder)) is None:
        if time.monotonic() > deadline:
            return False
        pid_text = (folder / LOCK).read_text(encoding="ascii", errors="replace").strip()
        # The lock is held, so the process that wrote its number into it has not ended, unless
        # another has taken it since; what has it open is no stranger to whom the number went.
        if pid_text.isdecimal() and _has_open(int(pid_text), folder / LOCK):
            with suppress(ProcessLookupError):
                os.kill(int(pid_text), signal.SIGTERM)
        time.sleep(_POLL_S)
    os.close(lock)
    return True


def _has_open(pid: int, file: Path) -> bool:
    with suppress(OSError):
        descriptors = [fd for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.exists()]
        return any(fd.samefile(file) for fd in descriptors)
    return False


def entries(folder: Path) -> Iterator[Registration]:
    """All that is registered. Files that are no entries are passed over."""
    with suppress(OSError), os.scandir(folder) as scan:
        names = sorted(f.name for f in scan)
        for name in names:
            if name.endswith(ENDING) and not name.startswith("."):
                entry = _read(folder / name)
                if entry is not None:
                    yield entry


def drop(entry: Registration) -> bool:
    """Forget a workflow, unless it was registered again since ``entry`` was read; whether it is
    forgotten."""
    away = entry.file.with_name(f".{entry.file.name}.away")
    try:
        entry.file.rename(away)
        again = away.stat().st_mtime_ns != entry.touched
        if again and not entry.file.exists():
            away.rename(entry.file)
        else:
            away.unlink(missing_ok=True)
    except FileNotFoundError:
        return True
    return not again


def this_host() -> str:
    """The machine, and where the kernel tells it the set of processes that see each other."""
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        space = ""
    return f"{os.uname().nodename} {space}".strip()


def outlasting(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what ties a process to the HTCondor job it was started in."""
    return {name: value for name, value in environment.items() if not name.startswith(_CONDORS)}


def _read(file: Path) -> Registration | None:
    try:
        touched = file.stat().st_mtime_ns
        with as_owner(os.geteuid()):  # the folder is one user's: nobody else registers anything
            data = json.loads(read_text(file, most=_MOST_BYTES))
        return Registration(
            file=file,
            workflow=str(data["workflow"]),
            submit_dir=Path(data["submit_dir"]),
            config=Path(data["config"]),
            host=str(data.get("host", "")),
            touched=touched,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _name(workflow: str) -> str:
    """A file name for a workflow: its uuid as it stands; other characters as their code."""
    return "".join(c if c in _PLAIN else f"%{ord(c):x}." for c in workflow)[-200:]


def _start_detached(command: list[str], lock: int) -> None:
    # Imported where it is needed: hooks that find a watcher at work start sooner without it.
    from network_provisioner.base.detached import detached  # noqa: PLC0415

    environment = outlasting(os.environ)

    def watch() -> None:
        os.chdir("/")
        for number in _open_files():
            if number > 2 and number != lock:
                with suppress(OSError):
                    os.close(number)
        os.set_inheritable(lock, True)
        os.execve(command[0], command, environment)

    detached(watch)


def _open_files() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    except OSError:
        return list(range(3, 256))
