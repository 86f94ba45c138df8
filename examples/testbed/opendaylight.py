"""A running OpenDaylight, in a box (:mod:`adon.machine.box`): it listens on all addresses.

It runs in a directory of its own, with copies of what a Karaf changes in itself and links to the
rest: the assembly in the cache is only read, and what a killed one left confuses no other.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Self

from adon.machine import box
from adon.machine.cached import Progress
from examples.testbed import odl_assembly
from examples.testbed.odl_assembly import Assembly
from examples.testbed.procs import Daemon
from network_provisioner.base.controller import ControllerError
from network_provisioner.base.errors import AdonError, MissingError
from network_provisioner.controllers.restconf import Access, Restconf, UnknownUserError

URL = "http://127.0.0.1:8181"
USER = PASSWORD = "admin"  # those of a new OpenDaylight
_READY_S = 600.0
# Who is not let in for this long never will be. Else it is some seconds.
_SHUT_S = 120.0
_ATTEMPTS = 4
_ASK_EVERY_S = 0.5
_SAY_EVERY_S = 10.0
_STOP_S = 20.0
_MEMORY = "1g"


class OpenDaylight:
    """One Karaf with OpenFlow (port 6653) and RESTCONF (port 8181)."""

    def __init__(self, assembly: Assembly, run_dir: Path, progress: Progress) -> None:
        """``run_dir`` gets the directory it runs in, with its logs."""
        self._assembly = assembly
        self._dir = run_dir / "opendaylight"
        self._progress = progress
        self._daemon: Daemon | None = None

    def start(self) -> None:
        """Start it, without anything it knew before, and return when RESTCONF answers.

        Raises MissingError outside a box, AdonError with its last words where it ends or does not
        get ready in ten minutes.
        """
        if not box.inside():
            raise MissingError("OpenDaylight listens on all addresses: start it in a box only")
        for attempt in range(1, _ATTEMPTS + 1):
            self._daemon = self._launch()
            try:
                if self._ready(self._daemon):
                    return
            except BaseException:
                self.stop()
                raise
            self.kill()
            if attempt < _ATTEMPTS:
                self._progress("OpenDaylight: its user store did not come up, starting it again")
        raise AdonError(
            f"OpenDaylight refused the login,  {_ATTEMPTS} times; logs are in {self._dir}"
        )

    def stop(self, timeout_s: float = _STOP_S) -> None:
        """End it; nothing happens where it does not run."""
        if self._daemon is not None:
            self._daemon.stop(timeout_s)
            self._daemon = None

    def kill(self) -> None:
        """End it without warning."""
        self.stop(0.0)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(self) -> Daemon:
        shutil.rmtree(self._dir, ignore_errors=True)
        self._dir.mkdir(parents=True)
        for part in ("bin", "etc"):
            shutil.copytree(self._assembly.home / part, self._dir / part)
        (self._dir / "deploy").mkdir()  # it looks there for more to start
        for part in ("lib", "system"):
            (self._dir / part).symlink_to(self._assembly.home / part)
        env = odl_assembly.java_environment(self._assembly.programs)
        return Daemon(
            # "daemon" stays in the foreground, and is Java itself instead of a shell around it.
            [str(self._dir / "bin" / "karaf"), "daemon"],
            self._dir / "karaf.log",
            name="OpenDaylight",
            env=env | {"JAVA_MAX_MEM": _MEMORY},
        )

    def _ready(self, daemon: Daemon) -> bool:
        """Wait; False if it will let nobody in.

        On a busy machine its password service sometimes misses its own configuration, and then
        every user is unknown for ever (AAA 0.18.6).
        """
        rest = Restconf("OpenDaylight", Access(URL, USER, PASSWORD))
        start = said = time.monotonic()
        shut_since: float | None = None
        while True:
            daemon.check()
            now = time.monotonic()
            try:
                # Refused until its parts have found each other, users last.
                rest.get("opendaylight-inventory:nodes?content=nonconfig&depth=1")
            except UnknownUserError:
                shut_since = shut_since or now
                if now - shut_since > _SHUT_S:
                    return False
            except ControllerError as error:
                if now - start > _READY_S:
                    raise AdonError(f"OpenDaylight did not get ready: {error}") from error
            else:
                self._progress(f"OpenDaylight: ready after {now - start:.0f} s")
                return True
            if now - said > _SAY_EVERY_S:
                said = now
                self._progress(f"OpenDaylight: starting, {now - start:.0f} s")
            time.sleep(_ASK_EVERY_S)
