"""The zone of a testbed's data store: the tests' own, at the site's data transfer node, or one that
there is already."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from adon.machine import box
from examples.testbed import netns
from examples.testbed.gridftp import listens
from examples.testbed.layout import Layout
from examples.testbed.ports import LOOPBACK, free_port
from examples.testbed.procs import Daemon
from network_provisioner.base.errors import InputError
from pegasus_hooks.prepost.tuning import TOOLS

ROOT = Path(__file__).resolve().parents[2]
_PORT = 1247
_USER, _PASSWORD, _ZONE = "rods", "secret", "tempZone"


@dataclass(frozen=True, slots=True)
class ZoneSettings:
    """The ``collection`` of the zone at ``site``, and the irods_environment.json, with
    ``irods_password``, that tells who one is there; the testbed's own zone where there is none."""

    site: str
    collection: str = f"/{_ZONE}/home/{_USER}"
    environment: Path | None = None

    @classmethod
    def read(cls, file: Path) -> ZoneSettings | None:
        """What an example's configuration says; None for ``{}``. Raises InputError."""
        keys = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        if not keys:
            return None
        if "environment" in keys:
            keys["environment"] = Path(keys["environment"]).expanduser()
        try:
            return cls(**keys)
        except TypeError as error:
            raise InputError(f"{file}: {error}, expected site, collection, environment") from None


class DataZone:
    """What jobs and generators of workflows need to know of the zone; ``start`` serves the
    testbed's own until ``stop``."""

    def __init__(self, settings: ZoneSettings, layout: Layout, run_dir: Path) -> None:
        self._settings, self._dir = settings, run_dir / "zone"
        site = next((s for s in layout.sites if s.name == settings.site), None)
        if site is None:
            raise InputError(f"zone: found no site {settings.site!r} in the layout")
        self._netns = site.netns if box.inside() and not settings.environment else None
        self._address = site.address if box.inside() else LOOPBACK
        self._server: Daemon | None = None
        self.environment = settings.environment or self._dir / "irods_environment.json"

    def start(self) -> None:
        """Raises AdonError where it does not start."""
        if self._settings.environment:
            return
        shutil.rmtree(self._dir, ignore_errors=True)
        self._dir.mkdir(parents=True)
        port = _PORT if box.inside() else free_port()
        account = {"irods_host": self._address, "irods_port": port, "irods_user_name": _USER,
                   "irods_zone_name": _ZONE, "irods_password": _PASSWORD,
                   "irods_authentication_uid": 0}  # fmt: skip
        # A line for each key: pegasus-transfer reads it so.
        self.environment.write_text(json.dumps(account, indent=1), encoding="utf-8")
        self.environment.chmod(0o600)
        words = [*netns.execute(self._netns), sys.executable, "-m", "examples.testbed.irods_zone"]
        words += [str(self._dir / "vault"), self._address, str(port)]
        self._server = Daemon(words, self._dir / "zone.log", name="iRODS", cwd=ROOT)
        self._server.wait(partial(listens, self._server.pid, port))

    def stop(self) -> None:
        """End it."""
        if self._server:
            self._server.stop()

    def transfer_env(self, path: str) -> dict[str, str]:
        """What pegasus-transfer needs beside ``path``, its PATH: an account, and ADON's iget where
        there are no iCommands, also without PRE."""
        return {
            "IRODS_ENVIRONMENT_FILE": str(self.environment),
            "PATH": os.pathsep.join([path, str(TOOLS)]),
            "ADON_PYTHON": sys.executable,
        }

    def describe(self) -> dict[str, Any]:
        """For ``testbed.json``; ``run``: the words before a command for it to run beside it."""
        return {
            "site": self._settings.site,
            "collection": self._settings.collection,
            "environment": str(self.environment),
            "run": netns.execute(self._netns),
        }
