"""Folders in the user's cache that are made once: beside their place, and renamed into it, so that
one which is there is whole.

    <cache>/adon/<name>-<key>/    what was made; the key changes with what would be made
                 .<name>.build/   where it is made: what a killed run has downloaded serves the next
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from network_provisioner.base import account
from network_provisioner.base.errors import MissingError
from network_provisioner.base.units import format_size

Progress = Callable[[str], None]
"""Takes one line for each step that takes time."""
_SAY_AFTER_S = 10.0


def cache_root() -> Path:
    """``$XDG_CACHE_HOME/adon``, or ``~/.cache/adon``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else account.home() / ".cache") / "adon"


def make_once(
    home: Path, title: str, need_bytes: int, build: Callable[[Path], None], progress: Progress
) -> Path:
    """``home``, a folder of the cache; where it is not there, ``build`` makes it.

    :param title: what it is, for people.
    :param need_bytes: of free space.
    :param build: gets a folder to work in, and renames what it made to ``home``.
    :raises MissingError: no space, no right to write, or what ``build`` says.
    """
    name = home.name.rpartition("-")[0]
    work = home.with_name(f".{name}.build")
    with cache_errors(title):
        if home.is_dir():
            return home
        home.parent.mkdir(parents=True, exist_ok=True)
        with _locked(home.with_name(f".{name}.lock"), title, progress):
            if not home.is_dir():
                work.mkdir(exist_ok=True)
                _check_space(work, title, need_bytes)
                build(work)
                shutil.rmtree(work, ignore_errors=True)
    return home


@contextlib.contextmanager
def cache_errors(title: str) -> Iterator[None]:
    """Raises MissingError if the cache cannot be read or written."""
    try:
        yield
    except OSError as error:
        raise MissingError(f"{title}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    where = error.filename or cache_root()
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full: {where}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{where} cannot be written; set XDG_CACHE_HOME to a directory that can"
    return f"{where}: {error.strerror or error}"


@contextlib.contextmanager
def _locked(path: Path, title: str, progress: Progress) -> Iterator[None]:
    """One builder at a time; the kernel gives the lock back when its holder ends."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"{title}: waiting for another run that is setting it up")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _check_space(work: Path, title: str, need_bytes: int) -> None:
    free = shutil.disk_usage(work).free
    if free < need_bytes:
        raise MissingError(
            f"{title}: found {format_size(free)} free in {work.parent}, "
            f"expected {format_size(need_bytes)}"
        )


def run_logged(
    words: Sequence[str],
    log: Path,
    tell: Callable[[float], None],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> int:
    """Run a program to its end and return its exit code; what it says goes to ``log``. ``tell`` is
    called every now and then with the seconds that it has run."""
    start = time.monotonic()
    with log.open("wb") as out:
        # Killed with its caller: the next one uses the same directories.
        child = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *words],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            while True:
                try:
                    return child.wait(_SAY_AFTER_S)
                except subprocess.TimeoutExpired:
                    tell(time.monotonic() - start)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
