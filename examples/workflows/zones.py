"""Input of a workflow in an iRODS zone: put there by HTCondor's plug-in, listed by ``adon site
replicas``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from condor_plugins.irods import plugin
from network_provisioner.base.errors import InputError


@dataclass(frozen=True)
class Replica:
    """What the zone knows of a file."""

    url: str
    size: int
    sha256: str | None


@dataclass(frozen=True)
class ZoneAccess:
    """A ``collection`` at ``site``, one's account there, and the words before a command for it to
    run near it."""

    site: str
    collection: str
    environment: str
    run: Sequence[str] = ()

    def store(self, files: Sequence[Path]) -> Mapping[str, Replica]:
        """Put files there, from where they are gone then. Raises InputError, OSError."""
        self._put(files)
        listed = self._listed()
        for file in files:
            file.unlink()
        return {file.name: listed[file.name] for file in files}

    def _put(self, files: Iterable[Path]) -> None:
        """Raises InputError."""
        with tempfile.TemporaryDirectory() as folder:
            wanted, results = Path(folder, "in"), Path(folder, "out")
            ads = (
                f'[ Url = "irods://{self.collection}/{file.name}"; LocalFileName = "{file}" ]\n'
                for file in files
            )
            wanted.write_text("".join(ads), encoding="utf-8")
            words = [plugin.__file__, "-infile", str(wanted), "-outfile", str(results), "-upload"]
            self._run(["-I", *words], folder, results)

    def _listed(self) -> Mapping[str, Replica]:
        """The collection's files by name. Raises InputError."""
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder, "replicas.yml")
            words = ["-m", "adon", "site", "replicas", f"irods://{self.collection}"]
            self._run([*words, "--site", self.site, "--output", str(output)], folder, output)
            entries: list[dict[str, Any]] = yaml.safe_load(output.read_text())["replicas"]
        return {
            entry["lfn"]: Replica(
                entry["pfns"][0]["pfn"],
                int(entry["metadata"]["size"]),
                entry.get("checksum", {}).get("sha256"),
            )
            for entry in entries
        }

    def _run(self, words: Sequence[str], folder: str, result: Path) -> None:
        env = {**os.environ, "IRODS_ENVIRONMENT_FILE": self.environment}
        command = [*self.run, sys.executable, *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            text = done.stderr or (result.read_text() if result.exists() else "no word")
            raise InputError(f"{self.collection}: {text.strip().splitlines()[-1]}")


def of_testbed(file: Path) -> ZoneAccess | None:
    """The zone of a running testbed, by its ``testbed.json``; None where it has none."""
    described = json.loads(file.read_text(encoding="utf-8")).get("zone")
    return ZoneAccess(**described) if described else None
