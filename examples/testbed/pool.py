"""A real HTCondor pool of its own: a hub and one execute node per site, up in seconds.

Each daemon family (a ``condor_master`` and what it starts) has a directory below ``run_dir``; no
file of the machine's own HTCondor is read or written. HTCondor takes no jobs from uid 0, so for
root they run in a user namespace (:mod:`examples.testbed.pooluser`).

It ends with the thread that brought it up: every master is told by the kernel, and shuts its family
down. Whatever survives even that is ended by the next ``up`` or ``down``.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from condor_plugins.startd import setup as startd_setup
from condor_plugins.startd.setup import StartdMetrics
from examples.testbed import netns, poolconfig, procs
from examples.testbed.poolconfig import FamilyPlace, SiteSpec
from examples.testbed.pooluser import PoolUser
from examples.testbed.procs import MARK, Daemon
from network_provisioner.base.errors import AdonError, InputError, MissingError

_UP_S, _DOWN_S = 120.0, 10.0
_PARTS = ("log", "spool", "execute", "lock", "run", "local")


class Pool:
    """One HTCondor pool below ``run_dir``.

    :param condor_dir: what ``packages.ensure("condor")`` returned.
    :param sites: an execute node for each.
    :param hub_address: where collector and schedd listen; every site must reach it.
    :param hub_port: the collector's port; 0 lets the kernel choose, so that pools never collide.
    :param hub_settings: lines for the end of the hub's configuration.
    :raises InputError: for a site that HTCondor could not carry.
    """

    def __init__(
        self,
        run_dir: Path,
        condor_dir: Path,
        sites: Mapping[str, SiteSpec],
        hub_address: str = "127.0.0.1",
        hub_port: int = 0,
        hub_settings: str = "",
    ) -> None:
        poolconfig.check_sites(sites)
        self.run_dir = run_dir.resolve()
        if "$" in str(self.run_dir) or "\n" in str(self.run_dir):
            raise InputError(f"pool directory: found {str(self.run_dir)!r}, expected none of $")
        self.condor_dir = condor_dir
        self.sites = dict(sites)
        self.hub_address = hub_address
        self.hub_port = hub_port
        self.hub_settings = hub_settings
        self.user = PoolUser(self.run_dir)
        self._masters: dict[str, Daemon] = {}

    @property
    def config(self) -> Path:
        """The configuration file of the hub, for clients (``CONDOR_CONFIG``)."""
        return self.run_dir / "hub" / "condor_config"

    def env(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Environment for clients of this pool: ``base`` (or this process's) made to fit."""
        given = os.environ if base is None else base
        env = {k: v for k, v in given.items() if not k.upper().startswith("_CONDOR_")}
        wrap = str(self.condor_dir / "wrap")
        path = [p for p in env.get("PATH", "/usr/bin:/bin").split(":") if p != wrap]
        env["PATH"] = ":".join([wrap, *path])
        env["CONDOR_CONFIG"] = str(self.config)
        env[MARK] = str(self.run_dir)
        env.update(HOME=str(self.user.home), USER=self.user.name, LOGNAME=self.user.name)
        return env

    def command(self, command: Sequence[str]) -> list[str]:
        """``command`` as the pool's user: what submits must be run this way."""
        return self.user.command(command)

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout_s: float = 60.0,
    ) -> str:
        """Run a client to its end and return what it wrote.

        :param env: added to the environment of :meth:`env`.
        :raises MissingError: when it is not there.
        :raises AdonError: when it fails or takes too long, with its last line.
        """
        arguments = self.command(command)
        whole = {**self.env(), **(env or {})}
        return procs.run(arguments, env=whole, cwd=cwd, timeout_s=timeout_s, name=command[0])

    def up(self, progress: Callable[[str], None] = lambda _line: None) -> None:
        """Bring the pool up, ready when every slot is seen and the schedd answers.

        Ends what a killed run left in ``run_dir``, and drops its queue.

        :raises MissingError: when its port is taken or jobs could not run here.
        :raises AdonError: when it is not ready in two minutes, with the last line of the log.
        """
        self.down()
        self._check_port()
        self._prepare()
        progress(f"HTCondor: starting the hub and {len(self.sites)} sites")
        try:
            self._start_hub()
            for name in self.sites:
                self._start_site(name)
            self._wait_ready()
        except BaseException:
            self.down()
            raise

    def _check_port(self) -> None:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.hub_address, self.hub_port))
            except OSError as error:
                where = f"{self.hub_address} port {self.hub_port}"
                raise MissingError(f"HTCondor's collector: {where}: {error.strerror}") from error

    def _place(self, name: str) -> FamilyPlace:
        release = self.condor_dir / "root/usr"
        return FamilyPlace(release, self.run_dir / name, self.run_dir / "secrets", self.user.name)

    def _prepare(self) -> None:
        for name in ("hub", "secrets", "users", *self.sites):
            shutil.rmtree(self.run_dir / name, ignore_errors=True)
        for name in ("hub", *self.sites):
            for part in _PARTS:
                (self.run_dir / name / part).mkdir(parents=True)
        keys = self.run_dir / "secrets"
        (keys / "tokens.d").mkdir(parents=True, mode=0o700)
        keys.chmod(0o700)
        key = os.open(keys / "POOL", os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(key, "wb") as file:
            file.write(base64.b64encode(secrets.token_bytes(48)))
        self.user.prepare()
        try:
            self.run(["true"])
        except AdonError as error:
            raise MissingError(f"HTCondor: jobs cannot run as an ordinary user: {error}") from None

    def _start_hub(self) -> None:
        place = self._place("hub")
        text = poolconfig.hub_config(place, self.hub_address, self.hub_port)
        self._start("hub", text + self.hub_settings, None)
        file = self.run_dir / "hub/log/.collector_address"

        def port() -> re.Match[str] | None:
            return re.search(r"<[^>]*?:(\d+)[?>]", file.read_text()) if file.exists() else None

        self.collector = f"{self.hub_address}:{self._masters['hub'].wait(port, _UP_S)[1]}"

    def _start_site(self, name: str) -> None:
        spec = self.sites[name]
        metrics = startd_setup.text(
            StartdMetrics(sys.executable, interface=spec.interface, every_s=5)
        )
        place = self._place(name)
        text = poolconfig.site_config(place, name, spec, self.collector, metrics)
        self._start(name, text, spec.netns)

    def _start(self, name: str, config: str, namespace: str | None) -> None:
        home = self.run_dir / name
        path = home / "condor_config"
        path.write_text(config)
        master = self.command([str(self.condor_dir / "wrap/condor_master"), "-f"])
        # Transfer plug-ins and jobs inherit from daemons: they start with a clean environment.
        places = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        clean = {"PATH": places, "LANG": "C.UTF-8"}
        self._masters[name] = Daemon(
            [*netns.execute(namespace), *master],
            home / "log/master.out",
            name=f"HTCondor at {name}",
            env={**self.env(clean), "CONDOR_CONFIG": str(path)},
            cwd=home,
            orphaned=signal.SIGQUIT,
            logs=[home / "log" / log for log in ("StartLog", "MasterLog")],
        )

    def _wait_ready(self) -> None:
        for name in self.sites:
            self._masters[name].wait(partial(self._has_slots, name), _UP_S)
        self._masters["hub"].wait(lambda: self._answers("condor_q", "-totals") is not None, _UP_S)

    def _has_slots(self, name: str) -> bool:
        """Whether the collector knows all slots of an execute node's site."""
        site = self.sites[name].site(name)
        workers = sum(node.workers for n, node in self.sites.items() if node.site(n) == site)
        seen = self._answers("condor_status", "-af", "PegasusSite") or ""
        return seen.split().count(site) >= workers

    def _answers(self, *words: str) -> str | None:
        try:
            return self.run(words, timeout_s=10)
        except AdonError:
            return None

    def check(self) -> None:
        """Raise AdonError, with the last line of its log, where a family of daemons has ended."""
        for master in self._masters.values():
            master.check()

    def down(self) -> None:
        """End every process of this pool, also those of a killed run; nothing runs afterwards.

        :raises AdonError: when a process cannot be ended.
        """
        for master in self._masters.values():
            master.send(signal.SIGQUIT)  # shut down fast, with all jobs
        for master in self._masters.values():
            master.stop(_DOWN_S, None)
        self._masters.clear()
        procs.end_marked(self.run_dir)

    def __enter__(self) -> Pool:
        self.up()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.down()
