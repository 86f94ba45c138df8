"""A real PostgreSQL server of its own: data, socket and log below one directory.

For tests of what several brokers share. It is reached by a socket in that directory, and by a
password over loopback where that is asked for. PostgreSQL refuses to run as uid 0; for root it runs
in a user namespace, as the pool does (:mod:`examples.testbed.pooluser`). It ends with the process
that started it; what a killed run left is found and ended by the next start or stop there.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
from pathlib import Path
from urllib.parse import quote

import psutil

from examples.testbed.pooluser import PoolUser
from examples.testbed.ports import LOOPBACK, free_port
from examples.testbed.procs import MARK, Daemon, kill_all, run, those
from network_provisioner.base.errors import AdonError, InputError, MissingError

USER, DATABASE = "adon", "postgres"
_PORT = 5432  # part of the socket's name, too
_PROGRAMS = ("postgres", "initdb")
_READY_S, _STOP_S = 60.0, 20.0
_PIDFILE, _SEGMENT_LINE, _STATUS_LINE = "postmaster.pid", 6, 7
_LONGEST_SOCKET = 107  # bytes of sun_path in sys/un.h, without the zero at its end
_FAST = {"fsync": "off", "full_page_writes": "off"}
"""A test's data need not survive the machine, only the server."""
_ALWAYS = {
    "jit": "off",  # its compiler is not unpacked
    "dynamic_shared_memory_type": "mmap",  # nothing outside of the directory
    "timezone": "GMT",
    "log_timezone": "GMT",
    "max_connections": "50",
    "shared_buffers": "16MB",
}


class Postgres:
    """One server below ``run_dir``, as a context manager or by :meth:`start` and :meth:`stop`."""

    def __init__(
        self, run_dir: Path, bin_dir: Path, *, durable: bool = False, tcp: bool = False
    ) -> None:
        """``bin_dir`` has the programs (``packages.ensure("postgresql") / "wrap"``).

        :param durable: write to disk as a real server does, slower.
        :param tcp: listen on loopback, too.
        :raises InputError: for a directory whose name is too long for a socket.
        """
        self._dir = run_dir.resolve()
        self._bin = bin_dir
        self._durable = durable
        self._tcp = tcp
        self._port = free_port() if tcp else _PORT
        self._user = PoolUser(self._dir)
        self._data = self._dir / "data"
        self._secret = self._dir / "password"
        self._daemon: Daemon | None = None
        socket = self._dir / f".s.PGSQL.{self._port}"
        if len(os.fsencode(socket)) > _LONGEST_SOCKET:
            raise InputError(
                f"PostgreSQL's directory: found {self._dir}, expected at most "
                f"{_LONGEST_SOCKET - len(socket.name) - 1} bytes: it has a socket there"
            )

    @property
    def url(self) -> str:
        """By the socket, without a password."""
        return f"postgresql://{USER}@/{DATABASE}?host={quote(str(self._dir))}&port={self._port}"

    @property
    def tcp_url(self) -> str:
        """By loopback, without the password, which :attr:`password` has."""
        return f"postgresql://{USER}@{LOOPBACK}:{self._port}/{DATABASE}"

    @property
    def password(self) -> str:
        """The user's password, over loopback."""
        return self._secret.read_text(encoding="ascii").strip()

    @property
    def pid(self) -> int:
        """The server's process id, 0 if it does not run."""
        return self._daemon.pid if self._daemon else 0

    def start(self) -> None:
        """Start it, on what is there of an earlier start; returns when it takes connections.

        Raises MissingError without the programs, AdonError if it does not start.
        """
        for program in _PROGRAMS:
            if not (self._bin / program).exists():
                raise MissingError(
                    f"{program} is not in {self._bin} (Debian package postgresql-15)"
                )
        self.stop()
        self._dir.mkdir(parents=True, exist_ok=True)
        self._dir.chmod(0o700)  # a process that reaches the socket is trusted
        self._user.prepare()
        if not (self._data / "PG_VERSION").exists():
            self._init()
        settings = {
            **_ALWAYS,
            **({} if self._durable else _FAST),
            "listen_addresses": LOOPBACK if self._tcp else "",
            "port": str(self._port),
            "unix_socket_directories": str(self._dir),
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._daemon = Daemon(
            self._user.command([str(self._bin / "postgres"), "-D", str(self._data), *options]),
            self._dir / "log",
            name="PostgreSQL",
            env=self._env(),
        )
        status = self._data / _PIDFILE
        try:
            self._daemon.wait(lambda: _line(status, _STATUS_LINE) == "ready", _READY_S)
        except AdonError:
            self.kill()
            raise

    def stop(self) -> None:
        """End it in order, or kill it after a while; also what a killed run left here."""
        if self._daemon is not None:
            self._daemon.stop(_STOP_S, signal.SIGINT)  # "fast": TERM would wait for its clients
        self._end_rest()

    def kill(self) -> None:
        """As a crash of the server: everything at once by KILL."""
        if self._daemon is not None:
            self._daemon.stop(0.0, signal.SIGKILL)
        self._end_rest()

    def __enter__(self) -> Postgres:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- within ------------------------------------------------------------------------------

    def _env(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG"))}
        return {**kept, "LC_ALL": "C", "TZ": "GMT", MARK: str(self._dir)}

    def _init(self) -> None:
        new = self._dir / "data.new"  # renamed when it is whole: a killed run leaves no half one
        shutil.rmtree(new, ignore_errors=True)
        secret = os.open(self._secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(secret, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(12) + "\n")
        arguments = [
            "-D",
            str(new),
            "-U",
            USER,
            "--pwfile",
            str(self._secret),
            "--encoding",
            "UTF8",
        ]
        arguments += ["--locale", "C", "--auth-local", "trust", "--auth-host", "scram-sha-256"]
        if not self._durable:
            arguments.append("--no-sync")
        command = [str(self._bin / "initdb"), *arguments]
        run(self._user.command(command), env=self._env(), timeout_s=_READY_S)
        new.rename(self._data)

    def _end_rest(self) -> None:
        """End every process that works in the data directory, and take away what only an orderly
        end does."""
        self._daemon = None
        kill_all(self.processes)
        pidfile = self._data / _PIDFILE
        if pidfile.exists():
            _forget_segment(_line(pidfile, _SEGMENT_LINE))
            pidfile.unlink()
        for stale in self._dir.glob(".s.PGSQL.*"):
            stale.unlink(missing_ok=True)

    def processes(self) -> list[psutil.Process]:
        """The server's processes: each works in its data directory. (What PostgreSQL shows in place
        of their arguments covers the mark in their environment.)"""
        return those(lambda process: process.cwd() == str(self._data))


def _line(file: Path, number: int) -> str:
    """One line of the server's own file about itself (miscadmin.h says which), "" for none."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()[number].strip()
    except (OSError, IndexError):
        return ""


def _forget_segment(words: str) -> None:
    """Remove the few bytes of System-V memory that mark a running server, where a killed one left
    them. ``words`` are its key and its id."""
    table = Path("/proc/sysvipc/shm")
    with contextlib.suppress(OSError):
        for row in table.read_text(encoding="ascii").splitlines()[1:]:
            fields = row.split()
            if fields[:2] == words.split() and fields[6] == "0":  # nobody has it
                run(["ipcrm", "-m", fields[1]])
